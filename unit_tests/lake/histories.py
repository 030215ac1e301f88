"""Histories of tables: the syncs of many streams side by side."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from unit_tests.lake.contents import DATA_EXTENSIONS, LakeContents
from unit_tests.lake.messages import JsonObject, catalog
from unit_tests.lake.outcome import BUCKET_PATH, Outcome
from unit_tests.lake.shop import complete, record, state, status, stream
from unit_tests.lake.table_readers import Row, download, read_pyarrow

SCHEMA: JsonObject = {"type": "object", "properties": {"id": {"type": "integer"}, "round": {"type": "integer"}}}
LOST = -1
"""The id of a record behind the last STATE of an interrupted sync: its source sends it again, so it must never be seen."""


class Connector(Protocol):
    """What runs a sync: a process, or this one."""

    def write(self, catalog: Mapping[str, Any], messages: Iterable[bytes]) -> Outcome: ...


@dataclass(frozen=True, slots=True)
class StreamSync:
    """A stream's part in one sync: a record for each id, then a STATE, then its status; None when the source just ends."""

    ids: Sequence[int] = ()
    mode: str = "append"
    generation: int = 1
    minimum: int = 0
    status: str | None = "COMPLETE"
    sync_id: int | None = None
    more: Mapping[str, Any] = field(default_factory=dict)

    def entry(self, name: str, namespace: str, number: int) -> JsonObject:
        keys = {"primary_key": [["id"]], **self.more} if self.mode == "append_dedup" else self.more
        return stream(
            name,
            namespace,
            schema=SCHEMA,
            mode=self.mode,
            generation=self.generation,
            minimum_generation=self.minimum,
            sync_id=self.sync_id or number,
            **keys,
        )

    def messages(self, name: str, namespace: str, number: int) -> list[bytes]:
        """Each record says in which round it was sent."""
        lines = [record({"id": one, "round": number}, name, namespace, emitted_at=1000 * number) for one in self.ids]
        lines.append(state(number, name, namespace))
        if self.status == "COMPLETE":
            return [*lines, complete(name, namespace)]
        lines.append(record({"id": LOST, "round": number}, name, namespace))
        return lines if self.status is None else [*lines, status(self.status, name, namespace)]


def sync(connector: Connector, namespace: str, streams: Mapping[str, StreamSync], number: int) -> Outcome:
    """One sync of the streams, each with its part in it."""
    entries = [part.entry(name, namespace, number) for name, part in streams.items()]
    messages = [line for name, part in streams.items() for line in part.messages(name, namespace, number)]
    return connector.write(catalog(*entries), messages)


def visible(lake: LakeContents, namespace: str) -> dict[str, list[Row]]:
    """The rows of each table of the namespace as a reader sees them who knows nothing but its folder."""
    root = f"{BUCKET_PATH}/{namespace}/"
    found: dict[str, list[str]] = {}
    for key in lake.bucket.list_keys(root):
        if key.endswith(DATA_EXTENSIONS):
            found.setdefault(key.removeprefix(root).split("/")[0], []).append(key)
    return {name: read_pyarrow(download(lake.bucket, keys, lake.directory / "visible" / name)) for name, keys in found.items()}


def without_nulls(row: Row) -> Row:
    """The row's columns that have a value."""
    return {name: value for name, value in row.items() if value is not None}

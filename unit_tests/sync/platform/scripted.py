"""A scripted source: streams of a few rows, read as sources of Airbyte's kits read them, from the state that the platform hands them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

from unit_tests.lake.messages import JsonObject, descriptor, line
from unit_tests.lake.shop import record
from unit_tests.sync.platform.orchestrator import StreamName, is_full_refresh, name_of

NAMESPACE = "shop"
SCHEMA: JsonObject = {"type": "object", "properties": {"id": {"type": "integer"}, "version": {"type": "integer"}}}
COMPLETE_MARK = {"__ab_full_refresh_sync_complete": True}
NO_CURSOR_MARK = {"__ab_no_cursor_state_message": True}


class Row(NamedTuple):
    id: int
    version: int


class Speaks(Enum):
    """The kind of a source's states."""

    STREAM = "STREAM"
    GLOBAL = "GLOBAL"
    LEGACY = "LEGACY"


@dataclass
class Feed:
    """One stream. `rows` is what a full refresh reads, or the log that an incremental read goes on with.

    `page` rows come between two checkpoints. `marked`: a full refresh ends with a mark of the CDK, instead of with a checkpoint like others
    or, if it cannot be resumed, with nothing.
    """

    name: str
    sync_mode: str
    mode: str
    resumable: bool
    page: int
    marked: bool
    rows: list[Row] = field(default_factory=list)

    @property
    def id(self) -> StreamName:
        return NAMESPACE, self.name

    @property
    def is_full_refresh(self) -> bool:
        return self.sync_mode == "full_refresh"

    def configured(self) -> JsonObject:
        """The stream as the user chose it in the connection."""
        described = {
            "name": self.name,
            "namespace": NAMESPACE,
            "json_schema": SCHEMA,
            "supported_sync_modes": ["full_refresh", "incremental"],
            "is_resumable": self.resumable,
        }
        return {
            "stream": described,
            "sync_mode": self.sync_mode,
            "destination_sync_mode": self.mode,
            "primary_key": [["id"]],
            "cursor_field": ["version"],
        }


@dataclass
class ScriptedSource:
    """Reads one stream after the other, and always sends the same after the same state."""

    feeds: Sequence[Feed]
    speaks: Speaks

    def read(self, catalog: Mapping[str, Any], states: Sequence[Mapping[str, Any]]) -> Iterator[bytes]:
        """The messages of one read, statuses included, which never reach a destination."""
        by_name = {feed.id: feed for feed in self.feeds}
        blobs = blobs_of(states)
        for configured in catalog["streams"]:
            feed, full = by_name[name_of(configured)], is_full_refresh(configured)
            yield _status(feed, "STARTED")
            for rows, blob in self._pages(feed, full, blobs.get(feed.id)):
                yield from (record(row._asdict(), feed.name, NAMESPACE) for row in rows)
                if blob is not None:
                    blobs[feed.id] = blob
                    yield self._state(feed, blobs)
            yield _status(feed, "COMPLETE")

    def _pages(self, feed: Feed, full: bool, blob: JsonObject | None) -> Iterator[tuple[Sequence[Row], JsonObject | None]]:
        """The rows still to read, by page, each with the stream's blob behind it; None where no state comes."""
        checkpoints = not full or feed.resumable or self.speaks is not Speaks.STREAM
        start = (blob or {}).get("next", 0)
        if full and (blob or {}).keys() & (COMPLETE_MARK.keys() | NO_CURSOR_MARK.keys()):
            start = len(feed.rows)
        for first in range(start, len(feed.rows), feed.page):
            last = min(first + feed.page, len(feed.rows))
            yield feed.rows[first:last], {"next": last} if checkpoints else None
        if full and self.speaks is Speaks.STREAM and feed.marked:
            yield (), COMPLETE_MARK if feed.resumable else NO_CURSOR_MARK
        elif checkpoints:
            yield (), {"next": len(feed.rows)}

    def _state(self, feed: Feed, blobs: Mapping[StreamName, JsonObject]) -> bytes:
        if self.speaks is Speaks.LEGACY:
            return line({"type": "STATE", "state": {"type": "LEGACY", "data": {name: blob for (_, name), blob in blobs.items()}}})
        entries = [_entry(stream, blob) for stream, blob in blobs.items()]
        if self.speaks is Speaks.GLOBAL:
            shared = {"lsn": sum(blob.get("next", 0) for blob in blobs.values())}
            return line({"type": "STATE", "state": {"type": "GLOBAL", "global": {"shared_state": shared, "stream_states": entries}}})
        return line({"type": "STATE", "state": {"type": "STREAM", "stream": _entry(feed.id, blobs[feed.id])}})


def _entry(stream: StreamName, blob: JsonObject) -> JsonObject:
    return {"stream_descriptor": descriptor(stream[1], stream[0]), "stream_state": blob}


def blobs_of(states: Sequence[Mapping[str, Any]]) -> dict[StreamName, JsonObject]:
    """The blobs of the streams, the last of each."""
    found: dict[StreamName, JsonObject] = {}
    for state in states:
        if state["type"] == "LEGACY":
            found.update({(NAMESPACE, name): blob for name, blob in state["data"].items()})
        for entry in (
            state["global"]["stream_states"] if state["type"] == "GLOBAL" else [state["stream"]] if state["type"] == "STREAM" else ()
        ):
            found[entry["stream_descriptor"].get("namespace"), entry["stream_descriptor"]["name"]] = entry["stream_state"]
    return found


def _status(feed: Feed, word: str) -> bytes:
    status = {"stream_descriptor": descriptor(feed.name, NAMESPACE), "status": word}
    return line({"type": "TRACE", "trace": {"type": "STREAM_STATUS", "emitted_at": 0, "stream_status": status}})

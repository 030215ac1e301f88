"""Histories as tables of their own: what a publisher of tables sees of one, and the publisher that passes it on.

A history is in its table's chain. Seen as a table it has the chain's blocks, the folder of the stream's histories, the columns of its own
and the files of the history that goes on with the table. If another one takes its place, because the key or a type has changed, readers
see that as any other change of a table. A history that has ended stays as it was last shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from destination_s3_spark.chain.files import HISTORY_KINDS, FileKind
from destination_s3_spark.chain.hint import PublishedMark
from destination_s3_spark.chain.live_files import LiveFiles
from destination_s3_spark.chain.state import TableState
from destination_s3_spark.schema.placement import TableField
from destination_s3_spark.schema.schema_event import from_event, to_event
from destination_s3_spark.schema.table_schema import OWN_FIELDS, Evolution
from destination_s3_spark.storage.object_store import ObjectStore
from destination_s3_spark.tables.columns.validity import FIRST_ID, VALIDITY_FIELDS
from destination_s3_spark.tables.publishers.publication import HISTORY_SUFFIX, AsksTheChain, BeginsAnew, Publisher, TimeOf


@dataclass(frozen=True, slots=True)
class OfHistory:
    """Publisher of a table's history. `publisher` shows it as it shows a table. `root`: the folder of the stream's histories."""

    publisher: Publisher
    root: str

    @property
    def name(self) -> str:
        return self.publisher.name + HISTORY_SUFFIX

    def publish(self, store: ObjectStore, state: TableState, live: LiveFiles, last: PublishedMark | None) -> str:
        """Publish the history in this state of its table. Without one, change nothing."""
        if state.contents.history is None:
            return "" if last is None else last.mark
        before = last if last is None or last.live is None else replace(last, live=history_files(state, last.live))
        return self.publisher.publish(store, history_state(state, self.root), history_files(state, live), before)

    def asking(self, time_of: TimeOf) -> OfHistory:
        return OfHistory(self.publisher.asking(time_of), self.root) if isinstance(self.publisher, AsksTheChain) else self

    def begin_anew(self, store: ObjectStore, state: TableState) -> None:
        """Withdraw the history with all metadata, if the publisher keeps values of rows that are gone. Raises NotPublished."""
        if isinstance(self.publisher, BeginsAnew):
            self.publisher.begin_anew(store, history_state(state, self.root))

    def published(self, store: ObjectStore, state: TableState) -> int | None:
        """Return the number of the block up to which readers see the history. Without one, they miss nothing."""
        if state.contents.history is None:
            return state.sequence_number
        return self.publisher.published(store, history_state(state, self.root))

    def require_fitting(self, store: ObjectStore, state: TableState, live: LiveFiles) -> None:
        """Raise NotPublished if the history in this state cannot be published at all."""
        if state.contents.history is not None:
            self.publisher.require_fitting(store, history_state(state, self.root), history_files(state, live))


def concerned(publishers: Sequence[Publisher], state: TableState) -> tuple[Publisher, ...]:
    """Return the publishers that have something to show of a table: those of its history only if it has one."""
    return tuple(one for one in publishers if state.contents.history is not None or not isinstance(one, OfHistory))


def history_state(state: TableState, root: str) -> TableState:
    """Return the state of a table's history as that of a table with this folder."""
    schema = None if state.schema is None else history_schema(state.schema)
    return msgspec.structs.replace(state, identity=msgspec.structs.replace(state.identity, final_root=root), schema=schema)


def history_files(state: TableState, live: LiveFiles) -> LiveFiles:
    """Return the files of the history that goes on with the table as those of a table."""
    mark = state.contents.history
    files = [file for file in live.of(*HISTORY_KINDS) if mark is not None and file.history == mark.number]
    return LiveFiles(files=tuple(msgspec.structs.replace(file, kind=FileKind.FINAL) for file in files))


def history_schema(event: dict[str, Any]) -> dict[str, Any]:
    """Return the columns of a table's history as an event that records the table's columns. Raises DataError if that is damaged."""
    schema = from_event(event)
    own = tuple(
        TableField(FIRST_ID + number, field.name, field.source, field.type, schema.schema_id)
        for number, field in enumerate(VALIDITY_FIELDS)
    )
    ids, level = schema.ids, len(OWN_FIELDS) + len(schema.fields)
    with_own = (*ids[:level], *(field.id for field in own), *ids[level:])
    # A history is not divided, whatever its table is.
    schema = replace(schema, fields=(*schema.fields, *own), field_ids=with_own, partition=None)
    return to_event(Evolution(schema, ()), event["mode"], event.get("primaryKey") or (), event.get("cursor") or ())

"""Summary of a table: what it is, how much it holds, and how its last session ended."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import Enum

from destination_s3_spark.chain.files import HISTORY_KINDS, FileEntry, FileKind
from destination_s3_spark.cli.inspection.commits import RecordedSync, SyncEnd, syncs
from destination_s3_spark.cli.inspection.table import InspectedTable
from destination_s3_spark.stream_id import StreamId
from destination_s3_spark.tables.publishers.publication import Publication
from destination_s3_spark.tables.rules import WaitingRows, waiting_rows
from destination_s3_spark.wording import counted, size_text


@dataclass(frozen=True, slots=True)
class HistorySummary:
    """A history of a table. `goes_on`: whether it has every version of the table's rows; otherwise it has ended and stays as it is.

    `retention_days`: the days for which versions that have ended are kept, None for ever.
    """

    number: int
    folder: str
    goes_on: bool
    valid: int
    ended: int
    files: int
    bytes: int
    retention_days: int | None

    def __str__(self) -> str:
        held = f"{counted(self.valid, 'valid version')}, {self.ended:,} ended, in {counted(self.files, 'file')} ({size_text(self.bytes)})"
        if not self.goes_on:
            return f"{held} under {self.folder}; it goes on no longer"
        kept = "" if self.retention_days is None else f"; ended ones are kept for {counted(self.retention_days, 'day')}"
        return f"{held} under {self.folder}{kept}"


@dataclass(frozen=True, slots=True)
class TableSummary:
    """A table in one row.

    `held_back`: the pending generation waits for accept or discard. `rows`, `files` and `bytes` are those of the final table.
    `replaced_files` left it and are kept for running queries. `last_sync_id` is None if no sync is among the blocks that were read.
    `last_session_end` is the end of the last session, which may have been a repair. `unsettled_block`: the data block that the next sync or
    `repair` must finish or take back; `unsettled_is_read` is whether its rows count here.
    """

    namespace: str | None
    stream: str
    table_id: str
    final_root: str
    mode: str | None
    primary_key: tuple[str, ...]
    generation: int
    pending_generation: int | None
    pending_since_sync: int | None
    pending_rows: int
    held_back: bool
    rows: int
    columns: int
    files: int
    bytes: int
    raw_files: int
    raw_bytes: int
    adopted_files: int
    replaced_files: int
    replaced_bytes: int
    epoch: int
    last_sync_id: int | None
    last_sync_started_at: datetime | None
    last_session_end: SyncEnd
    last_data_block: int | None
    unsettled_block: int | None
    unsettled_is_read: bool
    waiting: WaitingRows | None = None
    """Rows beside the final table, which a later merge brings into it."""
    barred_keys: int = 0
    """Keys of which no record lands, because their rows were forgotten for good."""
    records_barred: int = 0
    """Records that were left out because of that."""
    histories: tuple[HistorySummary, ...] = ()
    """The histories beside the final table, oldest first."""

    @property
    def table(self) -> str:
        return str(StreamId(self.namespace, self.stream))


def summary(table: InspectedTable) -> TableSummary:
    state, contents = table.state, table.readable.contents
    schema = state.schema or {}
    final, raw = table.files_of(FileKind.FINAL), table.files_of(FileKind.RAW)
    last = _last_sync(table)
    return TableSummary(
        namespace=table.stream.namespace,
        stream=table.stream.name,
        table_id=state.identity.table_id,
        final_root=state.identity.final_root,
        mode=schema.get("mode"),
        primary_key=tuple(".".join(path) for path in schema.get("primaryKey") or ()),
        generation=contents.generation,
        pending_generation=None if contents.pending is None else contents.pending.generation,
        pending_since_sync=None if contents.pending is None else contents.pending.sync_id,
        pending_rows=contents.pending_rows,
        held_back=contents.pending is not None and contents.pending.held_back,
        rows=contents.rows,
        columns=len(table.columns or ()),
        files=len(final),
        bytes=_bytes(final),
        raw_files=len(raw),
        raw_bytes=_bytes(raw),
        adopted_files=contents.adopted,
        replaced_files=len(contents.kept_keys),
        replaced_bytes=sum(kept.bytes for kept in contents.leaving),
        epoch=state.epoch,
        last_sync_id=last[0],
        last_sync_started_at=last[1],
        last_session_end=SyncEnd.CLEAN if state.closed else SyncEnd.OPEN,
        last_data_block=state.last_data,
        unsettled_block=None if state.unsettled is None else state.unsettled.sequence_number,
        unsettled_is_read=table.readable.left_out is None,
        waiting=waiting_rows(contents, table.merge_rule),
        barred_keys=0 if state.barred is None else state.barred.keys,
        records_barred=contents.records_barred,
        histories=tuple(_histories(table)),
    )


def _histories(table: InspectedTable) -> Iterator[HistorySummary]:
    mark = table.readable.contents.history
    every = table.files_of(*HISTORY_KINDS)
    numbers = {file.history or 0 for file in every} | ({mark.number} if mark is not None else set())
    for number in sorted(numbers):
        files = tuple(file for file in every if file.history == number)
        valid, ended = (sum(file.rows for file in files if file.kind is kind) for kind in (FileKind.CURRENT, FileKind.CLOSED))
        goes_on, days = mark is not None and mark.number == number, table.history_days
        yield HistorySummary(number, f"{table.histories}{number}/", goes_on, valid, ended, len(files), _bytes(files), days)


def _last_sync(table: InspectedTable) -> tuple[int | None, datetime | None]:
    """Return id and start of the last session that was a sync, not maintenance."""
    opener = table.state.opener
    if opener.sync_id:
        return opener.sync_id, opener.started_at
    found: RecordedSync | None = next((sync for sync in reversed(syncs(table.blocks)) if sync.sync_id is not None), None)
    return (None, None) if found is None else (found.sync_id, found.started_at)


def _bytes(files: tuple[FileEntry, ...]) -> int:
    return sum(file.bytes for file in files)


class ReaderState(Enum):
    """What readers see through a publisher."""

    CURRENT = "current"
    BEHIND = "behind"
    UNPUBLISHED = "nothing is published yet"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class PublisherState:
    """A publisher of a table. `blocks_behind` is the number of blocks that readers lack, `reason` why the publisher refuses the table."""

    table: str
    publisher: str
    state: ReaderState
    blocks_behind: int | None
    reason: str | None


def readers(table: InspectedTable) -> tuple[PublisherState, ...]:
    return tuple(_state(table, found) for found in table.publications)


def _state(table: InspectedTable, found: Publication) -> PublisherState:
    name = str(table.stream)
    if found.refusal is not None:
        return PublisherState(name, found.name, ReaderState.REFUSED, None, str(found.refusal))
    if found.block is None:
        return PublisherState(name, found.name, ReaderState.UNPUBLISHED, None, None)
    if found.is_behind(table.last_data):
        return PublisherState(name, found.name, ReaderState.BEHIND, table.last_data - found.block, None)
    return PublisherState(name, found.name, ReaderState.CURRENT, 0, None)

"""Figures of one table, by the queries of `inspect`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from destination_s3_spark.chain.territory import OrphanUploads
from destination_s3_spark.cli.inspection.commits import (
    ChangedValue,
    Commit,
    MergeCost,
    RecordedSync,
    SyncEnd,
    changed_values_by_session,
    commits,
    merge_cost,
    syncs,
)
from destination_s3_spark.cli.inspection.summary import PublisherState, ReaderState, TableSummary, readers, summary
from destination_s3_spark.cli.inspection.table import InspectedTable, RecordedChange, TableFile, schema_changes, table_files
from destination_s3_spark.cli.terminal import moment, number_text
from destination_s3_spark.errors import SyncError
from destination_s3_spark.tables.found import UnreadTable
from destination_s3_spark.tables.rules import NEXT_SYNC
from destination_s3_spark.wording import counted

COSTLY = 10**9
"""Bytes that a merge writes above which its cost is worth a finding. Smaller ones take seconds."""


@dataclass(frozen=True, slots=True)
class TableFigures:
    """The rows of every view of a table.

    `values` are by the first block of their sync. `first_block` is the first block that was read. `open_uploads` is None if the store did
    not list them.
    """

    summary: TableSummary
    readers: tuple[PublisherState, ...]
    files: tuple[TableFile, ...]
    syncs: tuple[RecordedSync, ...]
    commits: tuple[Commit, ...]
    values: Mapping[int, Sequence[ChangedValue]]
    schemas: tuple[RecordedChange, ...]
    first_block: int
    open_uploads: int | None
    merges: MergeCost | None = None

    @property
    def syncs_without_maintenance(self) -> tuple[RecordedSync, ...]:
        return tuple(sync for sync in self.syncs if sync.sync_id is not None)

    @property
    def last_sync(self) -> RecordedSync | None:
        return next(reversed(self.syncs_without_maintenance), None)


def table_figures(table: InspectedTable, uploads: OrphanUploads) -> TableFigures:
    return TableFigures(
        summary(table),
        readers(table),
        table_files(table),
        syncs(table.blocks),
        commits(table),
        changed_values_by_session(table.blocks),
        schema_changes(table.schemas),
        table.blocks[0].sequence_number if table.blocks else 0,
        _open_uploads(table, uploads),
        merge_cost(table),
    )


def _open_uploads(table: InspectedTable, uploads: OrphanUploads) -> int | None:
    """Count the uploads of all sessions so far. The page is worth having where the credentials may not list them."""
    try:
        return uploads.count(table.state.identity.table_number, table.state.epoch + 1)
    except SyncError:
        return None


@dataclass(frozen=True, slots=True)
class TableFinding:
    """Something about a table, and what to do about it."""

    table: str
    what: str
    next_step: str


def findings(tables: Sequence[TableFigures], unread: Sequence[UnreadTable]) -> tuple[TableFinding, ...]:
    """Return the findings about all tables, those that could not be read first."""
    broken = (TableFinding(table.table, f"could not be read: {table.reason}", "verify names each fault of its chain.") for table in unread)
    return (*broken, *(found for table in tables for found in of_table(table)))


def of_table(table: TableFigures) -> Iterator[TableFinding]:
    about = table.summary
    name = about.table
    if about.unsettled_block is not None:
        seen = "all its files are there" if about.unsettled_is_read else "its files are not all there and do not count here"
        yield TableFinding(name, f"commit {about.unsettled_block} is not settled; {seen}", "The next sync or repair settles it.")
    if about.last_session_end is SyncEnd.OPEN:
        began = "" if about.last_sync_started_at is None else f" since {moment(about.last_sync_started_at)} UTC"
        yield TableFinding(name, f"open{began}", "A sync is running, or one died: the next sync or repair cleans up.")
    if table.open_uploads:
        step = "They belong to the running sync, or to one that died: repair drops those."
        yield TableFinding(name, f"{counted(table.open_uploads, 'open upload')}, invisible but paid for", step)
    if about.held_back:
        step = "If the source did finish, accept lets them replace the table; discard drops them."
        yield TableFinding(name, f"{counted(about.pending_rows, 'row')} held back, because nothing proves that the source finished", step)
    elif about.pending_generation is not None and about.waiting is None:
        step = "It replaces the table when a sync of it completes."
        yield TableFinding(name, f"generation {about.pending_generation} waits to replace the table", step)
    for reader in table.readers:
        if reader.state is not ReaderState.CURRENT:
            yield TableFinding(name, _reader_text(reader), "repair publishes the table again, and so does the next sync.")
    if about.waiting is not None and about.waiting.due == NEXT_SYNC and about.last_session_end is SyncEnd.CLEAN:
        step = "The next sync merges them if it has the time. The command merge has no limit of time."
        yield TableFinding(name, str(about.waiting), step)
    merges = table.merges
    if merges is not None and merges.advice is not None and merges.bytes_written > COSTLY * merges.merges:
        yield TableFinding(name, f"costly merges: {merges.figures}", f"{merges.advice}.")
    yield from _lost_values(table)


def _reader_text(reader: PublisherState) -> str:
    match reader.state:
        case ReaderState.BEHIND:
            return f"{reader.publisher} is behind by {counted(reader.blocks_behind or 0, 'block')}"
        case ReaderState.REFUSED:
            return f"{reader.publisher} is not published: {reader.reason}"
        case _:
            return f"{reader.publisher}: {reader.state.value}"


def _lost_values(table: TableFigures) -> Iterator[TableFinding]:
    last = table.last_sync
    if last is None or not last.values_changed:
        return
    fields = {value.field for value in table.values[last.first_block]}
    what = f"{number_text(last.values_changed)} of the last sync’s values became null or were cut, in {counted(len(fields), 'field')}"
    if last.values_changed == 1:
        what = "1 of the last sync’s values became null or was cut"
    yield TableFinding(table.summary.table, what, "The table’s chart of values names fields and reasons.")

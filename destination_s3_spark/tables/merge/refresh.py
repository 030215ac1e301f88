"""A refresh beside the rows that it replaces: whether they are compared, and the files that a merge reads for that."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from destination_s3_spark.chain.files import FileEntry, FileKind
from destination_s3_spark.chain.live_files import LiveFiles
from destination_s3_spark.errors import Bug
from destination_s3_spark.tables.open_table import OpenTable
from destination_s3_spark.tables.runs.keys import keys_of, lower, upper
from destination_s3_spark.tables.runs.merged_rows import RowSource
from destination_s3_spark.tables.runs.refreshed import Notice, Refresh, micros
from destination_s3_spark.tables.runs.table_format import TableFormat
from destination_s3_spark.tables.runs.winners import WAITED
from destination_s3_spark.tables.updates.inputs import fits, replaced_rows


@dataclass(frozen=True, slots=True)
class ComparedFiles:
    """What a refresh is compared with: the files of the table's rows and tombstones.

    `logs`: whether the change log goes on with the differences. `keeps`: whether rows that the refresh lacks stay, marked as deleted.
    """

    rows: tuple[FileEntry, ...]
    tombstones: tuple[FileEntry, ...]
    logs: bool
    keeps: bool


def compared_files(table: OpenTable, live: LiveFiles, form: TableFormat, unsorted: Iterable[FileEntry] = ()) -> ComparedFiles | None:
    """Return what a pending generation is compared with before it replaces the table.

    Return None if nobody wants to know, or nobody can: the generation or the table has no rows, or those of the table have another key,
    type or format. Rows that landed under other column rules must not stay, nor show up in the change log. A generation of a deduplicated
    table is complete only if Airbyte says so, so rows that it lacks were deleted. `unsorted`: files that the merge sorts first.
    """
    contents = table.writer.chain.head.contents
    if contents.pending is None or not (contents.pending_rows or table.kept.rows):
        return None
    if contents.rows_from < contents.rules_from:
        return None
    mixed = any(file.kind in (FileKind.FINAL, FileKind.STATE) for file in unsorted)
    logs = table.rules.change_log is not None and contents.operation_count is not None and not mixed
    keeps = form.form.soft is not None and form.form.soft.can_mark
    rows = replaced_rows(table, live, form) if logs or keeps else None
    if not rows:
        return None
    order = form.spec.of_deletions.fingerprint
    buried = [file for file in live.of(FileKind.TOMBSTONE) if file.sorted_by == order]
    found = table.with_keys([*rows, *buried])
    return ComparedFiles(tuple(found[: len(rows)]), tuple(found[len(rows) :]), logs, keeps)


def waiting_files(table: OpenTable, live: LiveFiles, form: TableFormat) -> list[FileEntry]:
    """Return the runs that a pending generation replaces before a merge has taken them.

    Those of another generation that was given up are among them: their records were versions, too.
    """
    if live.pending is None:
        return []
    kept = {file.key for file in table.kept.files}
    shown = [file for file in live.settled(FileKind.DELTA) if file.key not in kept]
    given_up = [file for file in live.dropped if file.kind is FileKind.DELTA]
    return [file for file in (*shown, *given_up) if fits(table, form, file)]


def arrived_before(runs: Sequence[FileEntry]) -> tuple[FileEntry, ...]:
    """Return runs that a generation replaces with arrivals that say so."""
    return tuple(replace(run, offset=WAITED + (run.offset or 0)) for run in runs)


def noticed(table: OpenTable) -> Notice:
    """Return when a merge notices changes without a time of their own. A refresh that is already complete noticed them."""
    pending, session = table.writer.chain.head.contents.pending, table.session
    if pending is None or pending.landed is None:
        return Notice(micros(session.started_at))
    return Notice(micros(pending.landed.by), pending.landed.until)


def refresh_of(table: OpenTable, compared: ComparedFiles, position: int = 0) -> Refresh:
    """Return the pending generation as a task sees it whose first inferred deletion has this position."""
    pending = table.writer.chain.head.contents.pending
    if pending is None:
        raise Bug(f"Stream '{table.stream.id}' has no refresh to compare.", stream=table.stream.id)
    return Refresh(noticed(table), pending.sync_id, pending.generation, compared.keeps, position)


def sources_within(files: Sequence[FileEntry], low: bytes, high: bytes | None) -> Iterator[RowSource]:
    """Yield the files that may have keys of a range as sources."""
    for file in files:
        keys = keys_of(file)
        if upper(keys) >= low and (high is None or lower(keys) < high):
            yield RowSource.of(file)

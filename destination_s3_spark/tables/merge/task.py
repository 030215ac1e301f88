"""Merging runs into a range of a deduplicated table: what a Spark task does.

The worker reads the sources' row groups itself, reduces them to one row per key in Arrow, encodes and uploads the new files; nothing
becomes visible. Memory is bounded by the task's budget and what writing takes, whatever the number of rows or versions.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from destination_s3_spark.chain.files import DataFile, FileKind
from destination_s3_spark.storage.settings import S3Settings
from destination_s3_spark.tables.capture.output import ChangeOutput, LoggedRange, LogTask
from destination_s3_spark.tables.merge.output import MergeOutput
from destination_s3_spark.tables.merge.plan import Piece
from destination_s3_spark.tables.runs.keys import KEY, KeySpec
from destination_s3_spark.tables.runs.merged_rows import RowStream, complete_rows, merged_rows
from destination_s3_spark.tables.runs.row_streams import ROUNDS_SHARE, Source, row_streams
from destination_s3_spark.tables.runs.sorted_file import MergeForm, tombstone_schema
from destination_s3_spark.tables.runs.staged_file import pieces, tombstone_file, tombstones
from destination_s3_spark.tables.runs.table_format import PIECE_BYTES, FileKeys, FileSize, TableFormat
from destination_s3_spark.tables.runs.winners import EXTRACTED_AT


@dataclass(frozen=True, slots=True)
class MergeTask:
    """A range of keys (`low` <= key < `high`, None: no end), all that may have keys of it, and the files it becomes.

    `keys` are for more files than needed; when they run out the last file grows. A file ends when it has `file_bytes`, reckoned with
    `row_bytes` for a row that is not encoded yet. `budget_bytes` is for rows in Arrow's memory. `log`: what the change log is to get.
    """

    low: bytes
    high: bytes | None
    sources: tuple[Source, ...]
    table: TableFormat
    keys: tuple[FileKeys, ...]
    tombstone_key: str
    file_bytes: float
    row_bytes: float
    budget_bytes: int
    s3: S3Settings
    log: LogTask | None = None


@dataclass(frozen=True, slots=True)
class MergedRange:
    """What a task staged. `run_rows` and `table_rows` were read of the range, `rows` live and `deletions` were written."""

    files: tuple[DataFile, ...]
    run_rows: int
    table_rows: int
    rows: int
    deletions: int
    logged: LoggedRange | None = None


@dataclass(frozen=True, slots=True)
class CompactTask:
    """Tombstone files that become one, with the newest deletion of each key."""

    sources: tuple[Source, ...]
    table: TableFormat
    key: str
    budget_bytes: int
    s3: S3Settings


def sources_of(piece: Piece, table: TableFormat) -> tuple[Source, ...]:
    """The sources of a planned piece."""
    kind = FileKind.STATE if table.has_state else FileKind.FINAL
    return (
        *(Source(kind, file.key, file.size, first=file.first) for file in piece.table),
        *(Source(FileKind.TOMBSTONE, part.run.key, part.run.size, first=part.first) for part in piece.tombstones),
        *(Source(FileKind.DELTA, part.run.key, part.run.size, part.run.offset, part.first) for part in piece.runs),
    )


def merge_range(task: MergeTask) -> MergedRange:
    """Merge one range. Raises ConfigError, TransientError, or DataError for a file that is gone; then nothing stays staged."""
    with (
        MergeOutput(task.table, task.keys, task.tombstone_key, FileSize(task.file_bytes, task.row_bytes), task.s3) as output,
        row_streams(task.sources, task.table.form, (task.low, task.high), task.budget_bytes, task.s3) as streams,
    ):
        logged = _merge(task, streams, output)
        files = output.stage()
    taken = dict.fromkeys(FileKind, 0)
    for source, stream in zip(task.sources, streams, strict=True):
        taken[source.kind] += stream.taken
    table_rows = taken[FileKind.FINAL] + taken[FileKind.STATE]
    return MergedRange(files, taken[FileKind.DELTA], table_rows, output.rows, output.deletions, logged)


def _merge(task: MergeTask, streams: list[RowStream], output: MergeOutput) -> LoggedRange | None:
    has_cursor = task.table.spec.cursor is not None
    if task.log is None:
        for rows in merged_rows(streams, has_cursor):
            output.write(rows)
        return None
    with ChangeOutput(task.log, has_cursor, task.budget_bytes, task.s3) as log:
        for rows in complete_rows(streams, task.budget_bytes // ROUNDS_SHARE):
            output.write(log.take(rows))
        return log.finish()


def compact_tombstones(task: CompactTask) -> DataFile:
    """Merge tombstone files, which have rows, into one. Raises as `merge_range`."""
    spec = task.table.spec
    with (
        tombstone_file(task.key, spec, task.s3, task.table.metadata) as file,
        row_streams(task.sources, _deletions(spec), (b"", None), task.budget_bytes, task.s3) as streams,
    ):
        for rows in merged_rows(streams, spec.cursor is not None):
            for batch in pieces(rows, PIECE_BYTES):
                file.write(tombstones(batch, spec), batch[KEY])
        return file.stage()


def _deletions(spec: KeySpec) -> MergeForm:
    """The merge form of tombstones among themselves."""
    payload = pa.schema([tombstone_schema(spec).field(EXTRACTED_AT)])
    return MergeForm(payload, spec, lambda rows: rows)

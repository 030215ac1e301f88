"""Spark tasks of a merge: the merge of runs into a range of a deduplicated table, and the compaction of tombstones.

The worker reads the sources' row groups from the store, reduces them to one row per key in Arrow, and encodes and uploads the new files.
Nothing becomes visible. Memory is bounded by the task's budget and the buffers of writing, regardless of the number of rows or versions.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from destination_s3_spark.chain.files import FileEntry, FileKind
from destination_s3_spark.tables.capture.output import ChangeOutput, LoggedRange, LogTask
from destination_s3_spark.tables.merge.output import MergeOutput
from destination_s3_spark.tables.merge.plan import PlannedRange
from destination_s3_spark.tables.runs.keys import KeySpec
from destination_s3_spark.tables.runs.merged_rows import ROUNDS_SHARE, RowSource, RowStream, complete_rows, merged_rows, row_streams
from destination_s3_spark.tables.runs.sorted_file import MergeForm, tombstone_schema
from destination_s3_spark.tables.runs.table_format import MERGED_PIECE_BYTES, FileKeys, FileSize, TableFormat
from destination_s3_spark.tables.runs.winners import EXTRACTED_AT
from destination_s3_spark.tables.staged.staged_file import batches_of
from destination_s3_spark.tables.updates.resources import TaskResources


@dataclass(frozen=True, slots=True)
class MergeTask:
    """The merge of one range of keys: `low` <= key < `high`."""

    low: bytes
    high: bytes | None
    """None is no upper bound."""
    sources: tuple[RowSource, ...]
    """All objects that may have keys of the range."""
    table: TableFormat
    keys: tuple[FileKeys, ...]
    """Keys for more files than expected. When they run out, the last file grows."""
    tombstone_key: str
    file_bytes: float
    """Size at which a final file ends."""
    row_bytes: float
    """Estimated size of a row that is not encoded yet."""
    resources: TaskResources
    log: LogTask | None = None
    """The change log's part of the task. None without a change log."""


@dataclass(frozen=True, slots=True)
class MergedRange:
    """The staged output of a merge task."""

    files: tuple[FileEntry, ...]
    run_rows: int
    """The number of rows read from runs."""
    table_rows: int
    """The number of rows read from the table."""
    rows: int
    """The number of live rows written."""
    deletions: int
    """The number of tombstones written."""
    logged: LoggedRange | None = None


@dataclass(frozen=True, slots=True)
class CompactTask:
    """The compaction of tombstone files into one file with the newest deletion of each key."""

    sources: tuple[RowSource, ...]
    table: TableFormat
    key: str
    resources: TaskResources


def sources_of(planned: PlannedRange, table: TableFormat) -> tuple[RowSource, ...]:
    """List the sources of a planned range."""
    kind = FileKind.STATE if table.has_state else FileKind.FINAL
    return (
        *(RowSource(kind, file.key, file.size, first=file.first) for file in planned.table),
        *(RowSource(FileKind.TOMBSTONE, part.run.key, part.run.size, first=part.first) for part in planned.tombstones),
        *(RowSource(FileKind.DELTA, part.run.key, part.run.size, part.run.offset, part.first) for part in planned.runs),
    )


def merge_range(task: MergeTask) -> MergedRange:
    """Merge one range.

    Raises ConfigError, TransientError, or DataError for a missing file. Nothing stays staged after an error.
    """
    with (
        MergeOutput(task.table, task.keys, task.tombstone_key, FileSize(task.file_bytes, task.row_bytes), task.resources.s3) as output,
        row_streams(task.sources, task.table.form, (task.low, task.high), task.resources) as streams,
    ):
        logged = _merge(task, streams, output)
        files = output.stage()
    taken = dict.fromkeys(FileKind, 0)
    for source, stream in zip(task.sources, streams, strict=True):
        taken[source.kind] += stream.taken
    table_rows = taken[FileKind.FINAL] + taken[FileKind.STATE]
    return MergedRange(files, taken[FileKind.DELTA], table_rows, output.rows, output.deletions, logged)


def _merge(task: MergeTask, streams: list[RowStream], output: MergeOutput) -> LoggedRange | None:
    has_cursor, soft = task.table.spec.cursor is not None, task.table.form.soft
    if task.log is None:
        for rows in merged_rows(streams, has_cursor, soft):
            output.write(rows if soft is None else soft.applied(rows))
        return None
    with ChangeOutput(task.log, has_cursor, soft, task.resources) as log:
        for rows in complete_rows(streams, task.resources.budget_bytes // ROUNDS_SHARE):
            output.write(log.take(rows))
        return log.finish()


def compact_tombstones(task: CompactTask) -> FileEntry:
    """Merge tombstone files, which must have rows, into one. Raises the errors of `merge_range`."""
    spec = task.table.spec
    with (
        task.table.tombstone_file(task.key, task.resources.s3) as file,
        row_streams(task.sources, _deletions(spec), (b"", None), task.resources) as streams,
    ):
        for rows in merged_rows(streams, spec.cursor is not None):
            for batch in batches_of(rows, MERGED_PIECE_BYTES):
                file.write(batch)
        return file.stage()


def _deletions(spec: KeySpec) -> MergeForm:
    """Return the merge form of tombstones without other rows."""
    payload = pa.schema([tombstone_schema(spec).field(EXTRACTED_AT)])
    return MergeForm(payload, spec, lambda rows: rows)

"""Merging runs into a range of a deduplicated table: what a Spark task does.

The worker reads the sources' row groups itself, reduces them to one row per key in Arrow, encodes and uploads the new files; nothing
becomes visible. Memory is bounded by the task's budget and what writing takes, whatever the number of rows or versions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa

from destination_s3_spark.chain.files import DataFile, FileEntry, FileKind
from destination_s3_spark.storage.ranged import RangedFile
from destination_s3_spark.storage.settings import S3Settings
from destination_s3_spark.storage.staging import StagedFileSink
from destination_s3_spark.tables import run_file
from destination_s3_spark.tables.keys import KEY, KeySpec
from destination_s3_spark.tables.merge_output import (
    PIECE_BYTES,
    FileKeys,
    FileSize,
    MergeOutput,
    StagedFile,
    TableFormat,
    columns,
    pieces,
    tombstone_file,
    tombstones,
)
from destination_s3_spark.tables.merge_plan import Piece
from destination_s3_spark.tables.merged_rows import RowStream, merged_rows
from destination_s3_spark.tables.presence import present
from destination_s3_spark.tables.run_file import RUN_OPTIONS, MergeForm, SortedFile, SortedFileWriter, run_schema, tombstone_schema
from destination_s3_spark.tables.sorting import visible_run
from destination_s3_spark.tables.winners import EXTRACTED_AT

READERS = 8
"""Sources of a task that are read side by side: enough to hide the store's latency."""
PORTIONS_SHARE = 4
"""One part in so many of the budget is for the portions the sources have; as much again is read ahead, merged and copied."""


@dataclass(frozen=True, slots=True)
class Source:
    """A sorted object of `size` bytes. FINAL or STATE: rows of the table; DELTA: a run, whose arrivals count from `offset`; TOMBSTONE."""

    kind: FileKind
    key: str
    size: int
    offset: int = 0


@dataclass(frozen=True, slots=True)
class MergeTask:
    """A range of keys (`low` <= key < `high`, None: no end), all that may have keys of it, and the files it becomes.

    `keys` are for more files than needed; when they run out the last file grows. A file ends when it has `file_bytes`, reckoned with
    `row_bytes` for a row that is not encoded yet. `budget_bytes` is for rows in Arrow's memory.
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


@dataclass(frozen=True, slots=True)
class MergedRange:
    """What a task staged. `run_rows` and `table_rows` were read of the range, `rows` live and `deletions` were written."""

    files: tuple[DataFile, ...]
    run_rows: int
    table_rows: int
    rows: int
    deletions: int


@dataclass(frozen=True, slots=True)
class CompactTask:
    """Tombstone files that become one, with the newest deletion of each key."""

    sources: tuple[Source, ...]
    table: TableFormat
    key: str
    budget_bytes: int
    s3: S3Settings


@dataclass(frozen=True, slots=True)
class CombineTask:
    """Runs that become one, with the winner of each key among them, at the key of a scratch object."""

    sources: tuple[Source, ...]
    form: MergeForm
    key: str
    budget_bytes: int
    s3: S3Settings


@dataclass(frozen=True, slots=True)
class CombinedRun:
    """The run that others became, and how many rows were read of those."""

    file: FileEntry
    rows_read: int


def sources_of(piece: Piece, table: TableFormat) -> tuple[Source, ...]:
    """The sources of a planned piece."""
    kind = FileKind.STATE if table.has_state else FileKind.FINAL
    return (
        *(Source(kind, file.key, file.size) for file in piece.table),
        *(Source(FileKind.TOMBSTONE, part.run.key, part.run.size) for part in piece.tombstones),
        *(Source(FileKind.DELTA, part.run.key, part.run.size, part.run.offset) for part in piece.runs),
    )


def merge_range(task: MergeTask) -> MergedRange:
    """Merge one range. Raises ConfigError, TransientError, or DataError for a file that is gone; then nothing stays staged."""
    spec = task.table.spec
    with (
        MergeOutput(task.table, task.keys, task.tombstone_key, FileSize(task.file_bytes, task.row_bytes), task.s3) as output,
        _streams(task.sources, task.table.form, (task.low, task.high), task.budget_bytes, task.s3) as streams,
    ):
        for rows in merged_rows(streams, spec.cursor is not None):
            output.write(rows)
        files = output.stage()
    taken = dict.fromkeys(FileKind, 0)
    for source, stream in zip(task.sources, streams, strict=True):
        taken[source.kind] += stream.taken
    return MergedRange(files, taken[FileKind.DELTA], taken[FileKind.FINAL] + taken[FileKind.STATE], output.rows, output.deletions)


def compact_tombstones(task: CompactTask) -> DataFile:
    """Merge tombstone files, which have rows, into one. Raises as `merge_range`."""
    spec = task.table.spec
    with (
        tombstone_file(task.key, spec, task.s3, task.table.metadata) as file,
        _streams(task.sources, _deletions(spec), (b"", None), task.budget_bytes, task.s3) as streams,
    ):
        for rows in merged_rows(streams, spec.cursor is not None):
            for batch in pieces(rows, PIECE_BYTES):
                file.write(tombstones(batch, spec), batch[KEY])
        return file.stage()


def combine_runs(task: CombineTask) -> CombinedRun:
    """Merge runs, which have rows, into one that is an object of its own; arrivals stay what they were. Raises as `merge_range`."""
    spec = task.form.spec
    schema = run_schema(task.form.payload, spec)
    sink = StagedFileSink(task.s3, task.key)
    with (
        StagedFile(FileKind.DELTA, sink, SortedFileWriter(sink, schema, spec)) as file,
        _streams(task.sources, task.form, (b"", None), task.budget_bytes, task.s3) as streams,
    ):
        for rows in merged_rows(streams, spec.cursor is not None):
            for batch in pieces(rows, run_file.PIECE_BYTES):
                file.write(columns(batch, schema), batch[KEY])
        staged = file.stage()
    return CombinedRun(visible_run(staged, task.s3), sum(stream.taken for stream in streams))


def _deletions(spec: KeySpec) -> MergeForm:
    """The merge form of tombstones among themselves."""
    payload = pa.schema([tombstone_schema(spec).field(EXTRACTED_AT)])
    return MergeForm(payload, spec, lambda rows: rows)


@contextmanager
def _streams(
    sources: Sequence[Source], form: MergeForm, bounds: tuple[bytes, bytes | None], budget_bytes: int, s3: S3Settings
) -> Iterator[list[RowStream]]:
    """The sources' rows within the bounds, each read in portions that reach about as far as those of the others."""
    low, high = bounds
    with ThreadPoolExecutor(READERS, "merge-read") as pool:
        files = list(pool.map(lambda source: _opened(source, form, s3), sources))
        sizes = [file.size(low, high) for file in files]
        share = budget_bytes / PORTIONS_SHARE / max(1, sum(sizes))
        yield [
            RowStream(
                _read(source, file.read(low, high, max(RUN_OPTIONS.row_group_bytes, int(size * share))), s3), pool, file.first_key(low)
            )
            for source, file, size in zip(sources, files, sizes, strict=True)
        ]


def _opened(source: Source, form: MergeForm, s3: S3Settings) -> SortedFile:
    with present(source.key, s3):
        return SortedFile(RangedFile(s3, source.key, source.size), source.kind, form, source.offset)


def _read(source: Source, portions: Iterator[pa.Table], s3: S3Settings) -> Iterator[pa.Table]:
    with present(source.key, s3):
        yield from portions

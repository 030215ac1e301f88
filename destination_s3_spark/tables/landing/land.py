"""Landing of one slice in a Spark task: record lines in, staged raw and final files out.

The worker reads the slice's extents from the local disk, types them block by block in Arrow, encodes the files and uploads their parts as
it goes. Nothing becomes visible. Memory is bounded by a block and two row groups, regardless of the slice's size.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol

from destination_s3_spark.chain.files import FileEntry, FileKind, generation_metadata
from destination_s3_spark.decoding.changed_values import ChangedField, changed_values
from destination_s3_spark.decoding.kernel_typer import record_typer
from destination_s3_spark.decoding.plan import RowPlan
from destination_s3_spark.decoding.record_line import MisroutedRecord, UnreadableRecord
from destination_s3_spark.decoding.record_typer import RecordTyper, TypedBlock
from destination_s3_spark.errors import Bug, DataError
from destination_s3_spark.formats.file_format import FileOptions
from destination_s3_spark.formats.file_writer import FileColumns, FileWriter
from destination_s3_spark.schema.arrow import RAW_SCHEMA
from destination_s3_spark.schema.partitioning import Partitioning
from destination_s3_spark.storage.settings import S3Settings
from destination_s3_spark.storage.staging import StagedFileSink
from destination_s3_spark.tables.landing.blocks import blocks, leaves, shares
from destination_s3_spark.tables.landing.slices import Segment, Slice, StagedSlice
from destination_s3_spark.tables.partitioned_files import PartitionedFiles
from destination_s3_spark.tables.runs.keys import KeySpec
from destination_s3_spark.tables.runs.sorted_file import RunFile


@dataclass(frozen=True, slots=True)
class Target:
    """A file to write. `sorted_by` makes it a sorted run for a merge, `partitioning` a file for each partition of the rows."""

    kind: FileKind
    key: str
    columns: FileColumns
    options: FileOptions
    sorted_by: KeySpec | None = None
    partitioning: Partitioning | None = None

    @property
    def of_raw_rows(self) -> bool:
        """Whether the file holds raw rows. So does a run of a table in a text format, because merges render that format from raw rows."""
        return self.kind is FileKind.RAW or (self.sorted_by is not None and self.columns.arrow == RAW_SCHEMA)


@dataclass(frozen=True, slots=True)
class LandTask:
    """A slice to land, the plan that types it, and the files to write from it."""

    slice: Slice
    plan: RowPlan
    schema_id: int
    targets: tuple[Target, ...]
    s3: S3Settings


class UnreadableLine(DataError):
    """An unreadable record of a slice. Its stream and ordinal let the driver find its position in the input."""

    catalog_index = -1
    record = -1


def land_slice(task: LandTask) -> StagedSlice:
    """Type and stage one slice. Raises UnreadableLine, TransientError or ConfigError. Nothing stays staged after an error."""
    typer = record_typer(task.plan)
    segments: list[Segment] = []
    changes: Counter[str] = Counter()
    misfits: Counter[str] = Counter()
    by_field: Counter[ChangedField] = Counter()
    with ExitStack() as stack:
        files = [stack.enter_context(_staged_rows(target, task)) for target in task.targets]
        stops = {*task.slice.boundaries, task.slice.end}
        records = multiset = landed = 0
        for block in blocks(task.slice, leaves(task.plan.table_schema)):
            typed = _typed(typer, block.lines, task, landed)
            for file in files:
                file.write(typed)
            landed += typed.records
            changes.update(typed.changes)
            misfits.update(typed.misfits)
            by_field.update(changed_values(typed.final))
            for share in shares(block, typed, task.slice.boundaries):
                records += share.records
                multiset += share.multiset
                if share.end in stops:
                    segments.append(Segment(share.end, records, multiset % 2**128))
                    records = multiset = 0
        staged = tuple(staged for file in files for staged in file.stage(task.slice.records))
    return StagedSlice(task.slice.start, task.slice.end, task.schema_id, staged, tuple(segments), dict(changes), dict(misfits), by_field)


def _typed(typer: RecordTyper, lines: bytes, task: LandTask, records_before: int) -> TypedBlock:
    try:
        return typer.type_block(lines)
    except (UnreadableRecord, MisroutedRecord) as error:
        failure = UnreadableLine("A record line cannot be read.")
        failure.catalog_index = task.slice.stream
        failure.record = task.slice.first_record + records_before + error.index
        raise failure from None


class _StagedRows(Protocol):
    """The rows of a slice on their way into files of one kind."""

    def __enter__(self) -> _StagedRows: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None: ...

    def write(self, block: TypedBlock) -> None:
        """Take over the rows of a block."""

    def stage(self, records: int) -> Sequence[FileEntry]:
        """Finish the files, which must have this number of rows."""


def _staged_rows(target: Target, task: LandTask) -> _StagedRows:
    if target.partitioning is None:
        return _StagedFile(target, task)
    return _StagedPartitions(target, target.partitioning, task)


class _StagedFile:
    """A file being written into a multipart upload, which is aborted when the slice fails."""

    def __init__(self, target: Target, task: LandTask) -> None:
        self._target = target
        metadata = generation_metadata(task.plan.generation_id)
        self._sink = StagedFileSink(task.s3, target.key, metadata)

    def __enter__(self) -> _StagedFile:
        self._sink.__enter__()
        target = self._target
        if target.sorted_by is not None:
            self._file: FileWriter | RunFile = RunFile(self._sink, target.columns.arrow, target.sorted_by, 0)
        else:
            self._file = target.options.open(self._sink, target.columns)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is not None:
            self._file.abandon()
        self._sink.__exit__(kind, error, trace)

    def write(self, block: TypedBlock) -> None:
        rows = block.raw if self._target.of_raw_rows else block.final
        if isinstance(self._file, RunFile):
            self._file.write(rows, block.final)
        else:
            self._file.write(rows)

    def stage(self, records: int) -> Sequence[FileEntry]:
        written = self._file.close()
        _require_all(records, written.rows)
        return (FileEntry.staged(self._target.kind, self._sink.stage(), written),)


class _StagedPartitions:
    """The rows of a slice, and a file for each of their partitions."""

    def __init__(self, target: Target, partitioning: Partitioning, task: LandTask) -> None:
        metadata = generation_metadata(task.plan.generation_id)
        self._files = PartitionedFiles(target.kind, target.key, target.columns, target.options, partitioning, metadata, task.s3)

    def __enter__(self) -> _StagedPartitions:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._files.__exit__(kind, error, trace)

    def write(self, block: TypedBlock) -> None:
        self._files.write(block.final)
        self._files.require_few()

    def stage(self, records: int) -> Sequence[FileEntry]:
        files = self._files.stage()
        _require_all(records, sum(file.rows for file in files))
        return files


def _require_all(records: int, rows: int) -> None:
    """Raise Bug unless each record became a row."""
    if rows != records:
        raise Bug(f"A slice of {records} records was landed as {rows} rows; nothing was committed.")

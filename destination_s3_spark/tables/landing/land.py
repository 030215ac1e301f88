"""Landing of one slice: record lines in, staged raw and final files out. In a Spark task, or beside a cluster in a process of this machine.

The worker reads the slice's extents from the local disk, types them block by block in Arrow, encodes the files and uploads their parts as
it goes. Nothing becomes visible. Memory is bounded by a block and two row groups, regardless of the slice's size.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from xxhash import xxh3_128_intdigest

from destination_s3_spark.chain.files import FileEntry, FileKind, generation_metadata
from destination_s3_spark.decoding.changes import ChangedField, changed_values, declared_paths
from destination_s3_spark.decoding.kernel_typer import record_typer
from destination_s3_spark.decoding.plan import RowPlan
from destination_s3_spark.decoding.record_line import UnreadableRecord
from destination_s3_spark.decoding.record_typer import RecordTyper, TypedBlock
from destination_s3_spark.errors import Bug, DataError
from destination_s3_spark.formats.file_format import FileColumns, FileOptions
from destination_s3_spark.schema.airbyte_type import Field
from destination_s3_spark.schema.arrow import RAW_SCHEMA
from destination_s3_spark.schema.partitioning import Partitioning
from destination_s3_spark.storage.settings import S3Settings
from destination_s3_spark.storage.staging import StagedFileSink
from destination_s3_spark.tables.landing.barred import Bar, Barred, without
from destination_s3_spark.tables.landing.slices import ExtentFile, Segment, Slice, StagedSlice
from destination_s3_spark.tables.runs.keys import KeySpec
from destination_s3_spark.tables.runs.sorted_file import RunFile, run_rows
from destination_s3_spark.tables.runs.winners import EXTRACTED_AT, Flags
from destination_s3_spark.tables.staged.staged_file import MOST_PARTITIONS, PartitionedFiles, StagedFile
from destination_s3_spark.tables.stored.conversion import TYPED_BYTES, with_declared

MOST_VALUES = 4 * 2**20
"""Most lines of a block times the columns of the table. An absent value takes memory too, however short its line is."""
SHORTEST_LINE = 50
"""Bytes that no line of a record falls below. Tables with fewer columns than this have no more than MOST_VALUES values in a block."""
SMALL_CHECKPOINT_BYTES = 64 * 2**10
"""Smaller checkpoints share a block, because a block costs as much as the typing of about so many bytes."""


@dataclass(frozen=True, slots=True)
class Target:
    """A file to write. `sorted_by` makes it a sorted run for a merge, `partitioning` a file for each partition of the rows.

    `declared`: the fields that the texts of a run keep, because merges render all columns from them. None keeps all.
    """

    kind: FileKind
    key: str
    columns: FileColumns
    options: FileOptions
    sorted_by: KeySpec | None = None
    partitioning: Partitioning | None = None
    declared: frozenset[str] | None = None

    @property
    def of_raw_rows(self) -> bool:
        """Whether the file holds raw rows. So does a run of a table in a text format, because merges render that format from raw rows."""
        return self.kind is FileKind.RAW or (self.sorted_by is not None and self.columns.arrow == RAW_SCHEMA)

    def rows(self, block: TypedBlock) -> pa.RecordBatch:
        rows = block.raw if self.of_raw_rows else block.final
        if self.declared is not None:
            rows = with_declared(rows, self.declared)
        return rows if self.sorted_by is None else run_rows(rows, block.final, self.sorted_by)

    def open(self, metadata: Mapping[str, str], s3: S3Settings, stack: ExitStack) -> StagedFile[pa.RecordBatch] | PartitionedFiles:
        """Start the file, or one for each partition of the rows. The stack aborts what is not staged."""
        if self.partitioning is not None:
            return _LandedPartitions(self.kind, self.key, self.columns, self.options, self.partitioning, metadata, s3, stack)
        sink, run = StagedFileSink(s3, self.key, metadata), self.sorted_by
        writer = self.options.open(sink, self.columns) if run is None else RunFile(sink, self.columns.arrow, run, 0)
        return stack.enter_context(StagedFile(self.kind, sink, writer))


@dataclass(frozen=True, slots=True)
class LandTask:
    """A slice to land, the plan that types it, and the files to write from it. `barred`: the keys of records that are left out."""

    slice: Slice
    plan: RowPlan
    schema_id: int
    targets: tuple[Target, ...]
    s3: S3Settings
    barred: Barred | None = None

    @property
    def position(self) -> Field | None:
        """The cursor of a deduplicated table, if it is the position in the source's log. The rows of snapshots may have none."""
        spec = next((target.sorted_by for target in self.targets if target.sorted_by is not None), None)
        return spec.cursor if spec is not None and spec.by_position else None


class UnreadableLine(DataError):
    """An unreadable record of a slice. Its stream and ordinal let the driver find its position in the input."""

    catalog_index = -1
    record = -1


def land_slice(task: LandTask) -> StagedSlice:
    """Type and stage one slice. Raises UnreadableLine, TransientError or ConfigError. Nothing stays staged after an error."""
    typer = record_typer(task.plan)
    bar = None if task.barred is None else Bar(task.barred, task.plan)
    segments: list[Segment] = []
    unfit: Counter[str] = Counter()
    changed: Counter[ChangedField] = Counter()
    position, extracted = task.position, _Extracted()
    declared = frozenset(declared_paths(task.plan.fields))
    with ExitStack() as stack:
        metadata = generation_metadata(task.plan.generation_id)
        files = [(target, target.open(metadata, task.s3, stack)) for target in task.targets]
        stops = {*task.slice.boundaries, task.slice.end}
        records = multiset = read = landed = 0
        for block in blocks(task.slice, leaves(task.plan.table_schema)):
            typed = _typed(typer, block.lines, task, read)
            read += typed.records
            kept = None if bar is None else bar.kept(block.lines, typed)
            if kept is not None:
                typed = without(typed, kept)
            landed += typed.records
            for target, file in files if typed.records else ():
                file.write(target.rows(typed))
            unfit.update(typed.unfit)
            changed.update(changed_values(typed.final, declared))
            if position is not None and typed.records:
                extracted.add(typed, position)
            for share in shares(block, typed, task.slice.boundaries, kept):
                records += share.records
                multiset += share.multiset
                if share.end in stops:
                    segments.append(Segment(share.end, records, multiset % 2**128))
                    records = multiset = 0
        piece, left_out = task.slice, read - landed
        made = files if landed or not left_out else ()
        staged = tuple(staged for _, file in made for staged in _all_rows(file.stage_all(), piece.records - left_out))
    extracts = (extracted.since, extracted.without_position)
    return StagedSlice(piece.start, piece.end, task.schema_id, staged, tuple(segments), unfit, changed, left_out, *extracts)


@dataclass(slots=True)
class _Extracted:
    since: int | None = None
    without_position: int = 0

    def add(self, block: TypedBlock, position: Field) -> None:
        since = pc.min(block.final[EXTRACTED_AT].cast(pa.int64())).as_py()
        self.since = since if self.since is None else min(since, self.since)
        missing = block.final["_airbyte_meta"].filter(block.final[position.name].is_null())  # one column, whatever the table has
        metas = missing.to_pylist() if block.unfit[position.source] else ()
        unfit = sum(any(change["field"] == position.source for change in meta["changes"]) for meta in metas)
        self.without_position += len(missing) - unfit


def _typed(typer: RecordTyper, lines: bytes, task: LandTask, records_before: int) -> TypedBlock:
    try:
        return typer.type_block(lines)
    except UnreadableRecord as error:
        failure = UnreadableLine("A record line cannot be read.")
        failure.catalog_index = task.slice.stream
        failure.record = task.slice.first_record + records_before + error.index
        raise failure from None


class LineBlock(NamedTuple):
    """Whole lines, and the offsets in the stream's spool at which they start and end."""

    lines: bytes
    start: int
    end: int


def blocks(piece: Slice, columns: int) -> Iterator[LineBlock]:
    """Yield the slice's lines in blocks of about TYPED_BYTES for a table of so many columns.

    A block ends at a boundary of the slice, unless that would make a block of less than SMALL_CHECKPOINT_BYTES.
    """
    most_lines = max(1, MOST_VALUES // max(columns, 1)) if columns > SHORTEST_LINE else None
    stops = (*piece.boundaries, piece.end)
    position = piece.start
    for extent in piece.extents:
        with ExtentFile(extent) as file:
            while file.left:
                stop = stops[min(bisect_left(stops, position + SMALL_CHECKPOINT_BYTES), len(stops) - 1)]
                lines = file.read_lines(min(TYPED_BYTES, stop - position))
                for part in (lines,) if most_lines is None else _parts(lines, most_lines):
                    yield LineBlock(part, position, position + len(part))
                    position += len(part)


def _parts(lines: bytes, most_lines: int) -> Iterator[bytes]:
    ends = (np.flatnonzero(np.frombuffer(lines, np.uint8) == ord("\n")) + 1)[most_lines - 1 :: most_lines].tolist()
    start = 0
    for end in ends if ends and ends[-1] == len(lines) else [*ends, len(lines)]:
        yield lines[start:end]
        start = end


def shares(block: LineBlock, typed: TypedBlock, boundaries: tuple[int, ...], kept: Flags | None = None) -> Iterator[Segment]:
    """Yield the shares of a block in segments: one per boundary (ascending) inside it, and one up to its end if no boundary is there.

    `kept`: flags of the lines whose records land, which `typed` has. None if all do.
    """
    inside = boundaries[bisect_right(boundaries, block.start) : bisect_left(boundaries, block.end)]
    records = multiset = at = line = 0
    texts: list[bytes] = typed.raw["_airbyte_data"].cast(pa.binary()).to_pylist() if inside else []
    for boundary in inside:
        lines = block.lines.count(b"\n", at, boundary - block.start)
        found = lines if kept is None else int(kept[line : line + lines].sum())
        hashes = sum(map(xxh3_128_intdigest, texts[records : records + found]))
        yield Segment(boundary, found, hashes)
        records, multiset, at, line = records + found, multiset + hashes, boundary - block.start, line + lines
    yield Segment(block.end, typed.records - records, (typed.multiset - multiset) % 2**128)


def leaves(of: pa.DataType | pa.Schema) -> int:
    """Return the number of columns of values: those of a table, and below structs and lists."""
    if isinstance(of, pa.Schema) or pa.types.is_struct(of):
        return sum(leaves(field.type) for field in of)
    return leaves(of.value_type) if pa.types.is_list(of) else 1


class _LandedPartitions(PartitionedFiles):
    def write(self, rows: pa.RecordBatch) -> None:
        """Take over rows. Raises DataError for rows of too many partitions."""
        super().write(rows)
        if self.partitions > MOST_PARTITIONS:
            source, stream = self.partitioning.spec.source, self.columns.stream
            raise DataError(
                f"Stream '{stream}': the column '{source}' divides the records of one batch into more than {MOST_PARTITIONS:,} partitions, "
                "and each of them would be a small file. Choose another column or a coarser transform in tables.partition_by, and refresh "
                "the stream.",
                stream=stream,
            )


def _all_rows(files: Sequence[FileEntry], records: int) -> Sequence[FileEntry]:
    """Return the files. Raises Bug unless each record became a row."""
    rows = sum(file.rows for file in files)
    if rows != records:
        raise Bug(f"A slice of {records} records was landed as {rows} rows; nothing was committed.")
    return files

"""Parquet files sorted by primary key. Landing and merges write them, and merges read them to choose winners.

The footer holds the first key of every row group, so a reader fetches only the row groups that may have keys of its range. Rows are read
in merge form: the payload columns and the control columns of `tables.runs.keys`, the same for every kind of file.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from destination_s3_spark.chain.files import FileKind
from destination_s3_spark.errors import Bug
from destination_s3_spark.formats.file_format import SeekableFile, Sink, require_columns
from destination_s3_spark.formats.file_statistics import KeyRange, WrittenFile
from destination_s3_spark.formats.parquet import ParquetCodec, ParquetFile, ParquetOptions
from destination_s3_spark.schema.airbyte_type import AirbyteType, Field
from destination_s3_spark.schema.arrow import arrow_type, contiguous
from destination_s3_spark.tables.runs.keys import (
    CURSOR,
    DELETED,
    KEY,
    META,
    OFFSET,
    RAW_ID,
    CdcDeletion,
    KeySpec,
    deleted_column,
    fitting_keys,
    key_column,
    key_range,
    may_be_unfit,
)
from destination_s3_spark.tables.runs.soft_deletions import SoftDeletions
from destination_s3_spark.tables.runs.winners import BURIED_OFFSET, CLOSED_OFFSET, EXTRACTED_AT, OPENED_OFFSET, STORED_OFFSET, sorted_by_key
from destination_s3_spark.tables.stored.conversion import cast_values, project

RUN_OPTIONS = ParquetOptions(codec=ParquetCodec.ZSTD, row_group_bytes=512 * 2**10, dictionary=False)
"""Options of runs and tombstones.

Row groups are small, because a merge holds one of each of many runs. There are no dictionaries, which make small row groups larger and
slower.
"""

FIRST_KEYS = "airbyte.first_keys"
"""Footer metadata: JSON list with the first key of each row group in hex."""
LAST_KEY = "airbyte.last_key"
"""Footer metadata: the last key of the file in hex."""
GROUP_BYTES = "airbyte.row_group_bytes"
"""Footer metadata: JSON list with the size of each row group in Arrow memory. Parquet itself records only the size of encoded values."""
KEY_FINGERPRINT = "airbyte.key"
CURSOR_FINGERPRINT = "airbyte.cursor"
DELETIONS = "airbyte.deletions"
"""Footer metadata of runs: `soft` if deletions are among their rows. Other runs flag them in the column DELETED."""

RUN_PIECE_BYTES = 128 * 2**10
"""Size of the pieces in which a run is written, and so the precision of the size of its row groups."""
PORTION_BYTES = 16 * 2**20
"""Default size of a portion read at once, in Arrow memory."""

_OFFSETS = {FileKind.TOMBSTONE: BURIED_OFFSET, FileKind.CURRENT: OPENED_OFFSET, FileKind.CLOSED: CLOSED_OFFSET}


@dataclass(frozen=True, slots=True)
class RowGroup:
    """A row group of a sorted file, or a part of one: inclusive bounds of its keys, number of rows, and size in Arrow memory.

    As far as its file's index tells, its last key is the first one of the next row group.
    """

    first: bytes
    last: bytes
    rows: int
    bytes: int


class SortedFileWriter(ParquetFile):
    """Writer of a Parquet file with rows that arrive in key order."""

    def __init__(self, sink: Sink, schema: pa.Schema, spec: KeySpec, options: ParquetOptions = RUN_OPTIONS) -> None:
        super().__init__(sink, schema, options)
        self._spec = spec
        self._first_keys: list[bytes] = []
        self._group_bytes: list[int] = []
        self._last = b""

    def write(self, batch: pa.RecordBatch) -> None:
        """Append rows, which have the column KEY and those of the file. Raises Bug when the keys are below those already written."""
        if batch.num_rows == 0:
            return
        keys = batch[KEY]
        first: bytes = keys[0].as_py()
        if first < self._last:
            raise Bug("Rows came out of the order of their keys; the file was not written.")
        if self.at_row_group_start:
            self._first_keys.append(first)
            self._group_bytes.append(0)
        rows = batch.select(self.schema.names)
        self._group_bytes[-1] += rows.nbytes
        super().write(rows)
        self._last = keys[-1].as_py()

    def close(self, metadata: Mapping[str, str] | None = None) -> WrittenFile:
        own = {
            FIRST_KEYS: json.dumps([key.hex() for key in self._first_keys]),
            LAST_KEY: self._last.hex(),
            GROUP_BYTES: json.dumps(self._group_bytes),
            KEY_FINGERPRINT: self._spec.fingerprint,
            CURSOR_FINGERPRINT: self._spec.cursor_fingerprint,
        }
        if DELETED in self.schema.names and self._spec.deletion is CdcDeletion.SOFT:
            own[DELETIONS] = CdcDeletion.SOFT.value
        keys = key_range(self._first_keys[0], self._last, self._spec.fingerprint) if self._first_keys else None
        return replace(super().close({**own, **(metadata or {})}), keys=keys)


class RunFile(SortedFileWriter):
    """Writer of a slice's rows into a sorted file. `close` sorts them in memory. Rows of the same key keep their order of arrival."""

    def __init__(self, sink: Sink, payload: pa.Schema, spec: KeySpec, first_offset: int) -> None:
        super().__init__(sink, run_schema(payload, spec), spec)
        self._arrived = pa.schema([*self.schema][:-1])
        self._next_offset = first_offset
        self._waiting: list[pa.RecordBatch] = []

    def write(self, batch: pa.RecordBatch) -> None:
        """Add `run_rows`."""
        require_columns(batch, self._arrived)
        offsets = pa.array(np.arange(self._next_offset, self._next_offset + batch.num_rows))
        self._waiting.append(pa.RecordBatch.from_arrays([*batch.columns, offsets], schema=self.schema))
        self._next_offset += batch.num_rows

    def close(self, metadata: Mapping[str, str] | None = None) -> WrittenFile:
        rows = pa.Table.from_batches(self._waiting, self.schema)
        self._waiting.clear()
        rows = sorted_by_key(rows)
        for batch in rows.to_batches(max_chunksize=max(1, rows.num_rows * RUN_PIECE_BYTES // max(rows.nbytes, 1))):
            super().write(batch)
        return super().close(metadata)

    def abandon(self) -> None:
        self._waiting.clear()
        super().abandon()


def run_rows(payload: pa.RecordBatch, typed: pa.RecordBatch, spec: KeySpec) -> pa.RecordBatch:
    """Return the payload of rows with the control columns of a run, except for the OFFSET that the run gives them.

    `typed` holds the same rows with the key, cursor and deletion columns.
    """
    cursor = [] if spec.cursor is None else [contiguous(typed[spec.cursor.name])]
    columns = [*payload.columns, key_column(typed, spec), *cursor, deleted_column(typed, spec)]
    return pa.RecordBatch.from_arrays(columns, names=run_schema(payload.schema, spec).names[:-1])


def run_schema(payload: pa.Schema, spec: KeySpec) -> pa.Schema:
    return pa.schema([*payload, *_controls(spec), pa.field(DELETED, pa.bool_()), pa.field(OFFSET, pa.int64())])


def tombstone_schema(spec: KeySpec) -> pa.Schema:
    return pa.schema([*_controls(spec), pa.field(EXTRACTED_AT, pa.timestamp("ms", tz="UTC"))])


def keys_in(metadata: pq.FileMetaData) -> KeyRange:
    """Return the bounds of the keys in a sorted file that has rows, from its footer. Raises Bug when the file was not written sorted."""
    footer = _footer(metadata)
    first, last = bytes.fromhex(json.loads(footer[FIRST_KEYS])[0]), bytes.fromhex(footer[LAST_KEY])
    return key_range(first, last, footer[KEY_FINGERPRINT])


@dataclass(frozen=True, slots=True)
class MergeForm:
    """The form of rows in merges. Rows of an older schema are converted to the columns of `payload`."""

    payload: pa.Schema
    spec: KeySpec
    marks: SoftDeletions | None = None
    """The soft deletions that rows may have from before, also if deletions are hard now. None if the columns do not tell."""
    only_keys: bool = False
    """Whether RAW_ID and META serve only for keys that do not fit, so that they are not read from files without such keys."""

    @property
    def soft(self) -> SoftDeletions | None:
        """The table's soft deletions, or None if deletions are hard."""
        return self.marks if self.spec.deletion is CdcDeletion.SOFT else None

    @property
    def schema(self) -> pa.Schema:
        """The columns of the merge form. Payload columns are nullable, because tombstones have no payload."""
        payload = [field.with_nullable(True) for field in self.payload]
        return run_schema(pa.schema(payload), self.spec)

    def narrowed(self, names: Collection[str]) -> MergeForm:
        """Return the form with no other columns of the payload than these."""
        marks = self.marks if self.marks is not None and self.marks.needs <= {*names} else None
        return replace(self, payload=pa.schema([field for field in self.payload if field.name in names]), marks=marks)


class SortedFile:
    """Reader of a sorted file as rows in merge form. `offset` is added to the arrivals in a DELTA. Use it in one thread.

    Raises Bug when the file is not sorted by the key of the form.
    """

    def __init__(self, file: SeekableFile, kind: FileKind, form: MergeForm, offset: int = 0) -> None:
        self._source = file
        self._footer = pq.ParquetFile(file).metadata
        self._kind = kind
        self._form = form
        self._offset = offset
        self.row_groups = index_of(self._footer)
        metadata = _footer(self._footer)
        spec = form.spec.of_deletions if kind is FileKind.TOMBSTONE else form.spec
        if metadata[KEY_FINGERPRINT] != spec.fingerprint:
            raise Bug("A file is not sorted by the table's primary key of today; nothing was merged.")
        landed_soft = kind is FileKind.DELTA and DELETIONS.encode() in (self._footer.metadata or {})
        self._hardened = form.marks if landed_soft and form.soft is None else None
        self._cursor_type = self._stored_cursor_type(metadata[CURSOR_FINGERPRINT])
        self._may_be_unfit = bool(self.row_groups) and may_be_unfit(self.row_groups[0].first, self.row_groups[-1].last, spec)
        without = (RAW_ID, META) if form.only_keys and not self._may_be_unfit else ()
        self._columns = [name for name in form.schema.names if name not in without]

    def read(
        self,
        low: bytes = b"",
        high: bytes | None = None,
        portion_bytes: int = PORTION_BYTES,
        wanted: Callable[[pq.RowGroupMetaData], bool] | None = None,
    ) -> Iterator[pa.Table]:
        """Yield the rows with `low` <= key < `high` in key order, in tables of about `portion_bytes` at most. `high` None is no bound.

        `wanted`: tells whether to read a row group. None reads all.

        Memory is one table, which the reader does not retain, plus the compressed bytes of a row group that is larger than a table.
        """

        def part(rows: pa.Table) -> pa.Table:
            return _within(self._merge_form(rows), low, high)

        found = [number for number in self._overlapping(low, high) if wanted is None or wanted(self._footer.row_group(number))]
        for numbers in self._portions(found, portion_bytes):
            yield from filter(len, map(part, self._tables(numbers, portion_bytes)))

    def keys(self, low: bytes, high: bytes | None) -> Iterator[pa.BinaryArray | None]:
        """Yield the keys of each row group that may have keys of the range. Reads no other columns than those of the key.

        None stands for keys that these columns do not tell, because some may not fit their types.
        """
        spec = self._form.spec
        for number in self._overlapping(low, high):
            if KEY in self._footer.schema.names:
                yield contiguous(self._reader().read_row_group(number, [KEY])[KEY])
            elif self._may_be_unfit:
                yield None
            else:
                rows = self._reader().read_row_group(number, [field.name for field in spec.key])
                yield fitting_keys(project(rows, pa.schema([pa.field(field.name, arrow_type(field.type)) for field in spec.key])), spec)

    def _tables(self, numbers: list[int], portion_bytes: int) -> Iterator[pa.Table]:
        """Read the rows of a portion's row groups, at once or, if much larger than a portion, in several tables."""
        rows, size = (sum(getattr(self.row_groups[number], what) for number in numbers) for what in ("rows", "bytes"))
        if size <= 2 * portion_bytes:
            yield self._reader().read_row_groups(numbers, self._columns)
        else:
            batches = self._reader().iter_batches(max(1, rows * portion_bytes // size), numbers, self._columns)
            yield from (pa.Table.from_batches([batch]) for batch in batches)

    def _reader(self) -> pq.ParquetFile:
        """Open a new Arrow reader for a portion, because a reader retains all it fetched. It fetches adjacent bytes with one request."""
        return pq.ParquetFile(self._source, metadata=self._footer, pre_buffer=True)

    def _portions(self, numbers: Sequence[int], portion_bytes: int) -> Iterator[list[int]]:
        """Divide row groups into portions of at least one each."""
        portion: list[int] = []
        size = 0
        for number in numbers:
            if portion and size + self.row_groups[number].bytes > portion_bytes:
                yield portion
                portion, size = [], 0
            portion.append(number)
            size += self.row_groups[number].bytes
        if portion:
            yield portion

    def _overlapping(self, low: bytes, high: bytes | None) -> Iterator[int]:
        """Yield the numbers of the row groups that may have keys of the range."""
        for number, group in enumerate(self.row_groups):
            if group.last >= low and (high is None or group.first < high):
                yield number

    def _merge_form(self, stored: pa.Table) -> pa.Table:
        names = self._form.payload.names
        # A tombstone has no more of the payload than the time of its extraction.
        wanted = pa.schema([*self._form.schema][: len(names)]) if self._kind is FileKind.TOMBSTONE else self._form.payload
        payload = project(stored, wanted)
        columns: list[Any] = [payload[name] for name in names]
        columns.append(stored[KEY] if KEY in stored.column_names else key_column(payload, self._form.spec))
        if self._form.spec.cursor is not None:
            columns.append(self._cursor(stored, payload, self._form.spec.cursor))
        if self._kind is FileKind.DELTA:
            columns += [stored[DELETED], pc.add(stored[OFFSET], self._offset)]
        else:
            deleted = self._kind is FileKind.TOMBSTONE
            offset = _OFFSETS.get(self._kind, STORED_OFFSET)
            columns += [pa.repeat(deleted, len(stored)), pa.repeat(pa.scalar(offset, pa.int64()), len(stored))]
        rows = pa.table(columns, schema=self._form.schema)
        return rows if self._hardened is None else self._hardened.as_hard(rows)

    def _cursor(self, stored: pa.Table, payload: pa.Table, cursor: Field) -> Any:
        if self._kind is not FileKind.TOMBSTONE and cursor.name in payload.column_names:
            return payload[cursor.name]
        # If the file has only values of another cursor, they become null: any row with a value of the current cursor is newer.
        if self._cursor_type is None:
            return pa.nulls(len(stored), arrow_type(cursor.type))
        return cast_values(stored[CURSOR], self._cursor_type, cursor.type)

    def _stored_cursor_type(self, fingerprint: str) -> AirbyteType | None:
        """Return the type of the values in CURSOR, or None if there are none of today's cursor."""
        spec = self._form.spec
        if spec.cursor is None or CURSOR not in self._footer.schema.names:
            return None
        if fingerprint == spec.cursor_fingerprint:
            return spec.cursor.type
        return spec.cursor_type(fingerprint, self._footer.schema.to_arrow_schema().field(CURSOR).type)


def _controls(spec: KeySpec) -> list[pa.Field[Any]]:
    """Return the control columns that all sorted files except final ones have."""
    cursor = [] if spec.cursor is None else [pa.field(CURSOR, arrow_type(spec.cursor.type))]
    return [pa.field(KEY, pa.binary()), *cursor]


def index_of(metadata: pq.FileMetaData) -> tuple[RowGroup, ...]:
    """Return the row groups of a sorted file, in key order, from its footer. Raises Bug when the file was not written sorted."""
    footer = _footer(metadata)
    firsts = [bytes.fromhex(key) for key in json.loads(footer[FIRST_KEYS])]
    lasts = [*firsts, bytes.fromhex(footer[LAST_KEY])][1:]
    rows = [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)]
    return tuple(RowGroup(*group) for group in zip(firsts, lasts, rows, json.loads(footer[GROUP_BYTES]), strict=True))


def _footer(metadata: pq.FileMetaData) -> dict[str, str]:
    names = (FIRST_KEYS, LAST_KEY, GROUP_BYTES, KEY_FINGERPRINT, CURSOR_FINGERPRINT)
    stored = metadata.metadata or {}
    found = {name: stored[name.encode()].decode() for name in names if name.encode() in stored}
    if len(found) < len(names):
        raise Bug("A file that should be sorted by key was not written so.")
    return found


def _within(rows: pa.Table, low: bytes, high: bytes | None) -> pa.Table:
    """Return the rows with `low` <= key < `high` from sorted rows."""
    keys = rows[KEY]
    start = position(keys, low)
    end = len(keys) if high is None else max(start, position(keys, high))
    return rows.slice(start, end - start)


def position(keys: pa.ChunkedArray[Any], bound: bytes) -> int:
    """Return the position of the first row with this key or a greater one."""
    return bisect_left(range(len(keys)), bound, key=lambda row: keys[row].as_py())


ARROW_BYTES = 4
"""Approximate size in Arrow memory of one byte of a run."""

"""Reading of Parquet files that somebody else may have written or damaged, in batches of rows that take no more memory than they should.

A footer tells nothing about memory. Arrow takes what the headers of pages say, and repeats a value of a page as often as its rows want. So
the headers are read before Arrow sees the pages, and a batch has the fewer rows the larger a page is.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from destination_s3_spark.formats.bounded import MOST_UNPACKED_BYTES
from destination_s3_spark.formats.file_format import SeekableFile
from destination_s3_spark.formats.parquet_footer import read_thrift

MOST_PAGE_VALUES = 2**26
"""Most values of a page. Writers end pages at a megabyte of values, or a few thousand rows."""
BATCH_BYTES = 64 * 2**20
"""Memory for a batch of rows, unless one row takes more."""
_MOST_GROUP_BYTES = 2**31
_UNPACKED, _STORED, _DATA, _DICTIONARY, _DATA_2 = 2, 3, 5, 7, 8
"""Fields of PageHeader."""
_VALUES = 1
"""Field of each kind of page's own header."""


@dataclass(frozen=True, slots=True)
class Pages:
    """What the pages of a row group have together after decompression, what the largest has, and the values of the longest column."""

    bytes: int
    largest: int
    values: int


class _Held(io.RawIOBase):
    """A file of which one part is in memory."""

    def __init__(self, file: SeekableFile) -> None:
        self._file = file
        self._size = file.seek(0, os.SEEK_END)
        self._start, self.part = 0, b""
        self._position = 0

    def hold(self, start: int, end: int) -> None:
        """Hold another part. Raises ValueError for one that is not in the file."""
        if not 0 <= start <= end <= self._size or end - start > _MOST_GROUP_BYTES:
            raise ValueError("pages outside of the file")
        self._start, self.part = start, b""
        self._file.seek(start)
        self.part = bytes(self._file.read(end - start))

    def read(self, size: int = -1) -> bytes:
        end = self._size if size is None or size < 0 else min(self._position + size, self._size)
        at = self._position - self._start
        if at >= 0 and end <= self._start + len(self.part):
            found = self.part[at : end - self._start]
        else:
            self._file.seek(self._position)
            found = bytes(self._file.read(max(0, end - self._position)))
        self._position = max(end, self._position)
        return found

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._position = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size}[whence] + offset
        return self._position

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True


class PagedFile:
    """A Parquet file to read. Opening and reading raise DAMAGE for a file that is not what it should be.

    Each row group is one read of the file, and is in memory meanwhile as it is stored.
    """

    def __init__(self, file: SeekableFile) -> None:
        self._held = _Held(file)
        self._parquet = pq.ParquetFile(self._held)
        self._spans = list(map(self._span_of, range(self._parquet.num_row_groups)))

    @property
    def schema(self) -> pa.Schema:
        return self._parquet.schema_arrow

    def pages(self, group: int) -> Pages:
        """Hold a row group, and measure its pages. Raises ValueError."""
        chunks = self._spans[group]
        start = min((first for first, _ in chunks), default=0)
        self._held.hold(start, max((end for _, end in chunks), default=start))
        measured = [_measured(self._held.part, first - start, end - start) for first, end in chunks]
        sizes, largest, values = ([getattr(one, name) for one in measured] for name in ("bytes", "largest", "values"))
        return Pages(sum(sizes), max(largest, default=0), max(values, default=0))

    def require_bounds(self, most_bytes: int, most_values: int) -> None:
        """Raise ValueError if the pages are larger together, or if a column or the file has more values or rows."""
        found = [self.pages(group) for group in range(self._parquet.num_row_groups)]
        if sum(one.bytes for one in found) > most_bytes:
            raise ValueError("it unpacks to more bytes than any such file has")
        if max(self._parquet.metadata.num_rows, sum(one.values for one in found)) > most_values:
            raise ValueError("it has more rows than its bytes account for")

    def batches(self, most_rows: int, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the rows in batches of up to `most_rows`."""
        for group in range(self._parquet.num_row_groups):
            largest = max(self.pages(group).largest, 1)
            rows = max(1, min(most_rows, BATCH_BYTES // largest))
            yield from self._parquet.iter_batches(rows, row_groups=[group], columns=columns, use_threads=False)

    def _span_of(self, group: int) -> list[tuple[int, int]]:
        found = self._parquet.metadata.row_group(group)
        return [_span(found.column(column)) for column in range(found.num_columns)]


def _span(chunk: Any) -> tuple[int, int]:
    """Return where the pages of a column begin and end."""
    first = chunk.dictionary_page_offset if chunk.has_dictionary_page else None
    start = int(chunk.data_page_offset if first is None or not 0 < first < chunk.data_page_offset else first)
    return start, start + int(chunk.total_compressed_size)


def _measured(part: bytes, start: int, end: int) -> Pages:
    """Measure the pages in this range. Raises ValueError."""
    source = io.BytesIO(part)
    total = largest = values = 0
    at = start
    while at < end:
        source.seek(at)
        header = read_thrift(source)
        unpacked, stored = (_size(header, field) for field in (_UNPACKED, _STORED))
        count = max((_size(header[field].value, _VALUES) for field in (_DATA, _DICTIONARY, _DATA_2) if field in header), default=0)
        if unpacked > MOST_UNPACKED_BYTES or count > MOST_PAGE_VALUES:
            raise ValueError("a page unpacks to more than any page has")
        at = source.tell() + stored
        total, largest, values = total + unpacked, max(largest, unpacked), values + count
    return Pages(total, largest, values)


def _size(fields: Any, number: int) -> int:
    found = fields[number].value
    if not isinstance(found, int) or found < 0:
        raise ValueError("a page of a negative size")
    return found

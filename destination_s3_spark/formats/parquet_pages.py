"""Reading of Parquet files that somebody else may have written or damaged, in batches of rows that take no more memory than they should.

A footer tells nothing about memory. Arrow takes what the headers of pages say, and repeats a value of a page as often as its rows want. So
the headers are read before Arrow sees the pages, and a batch has the fewer rows the larger a page is.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from struct import Struct as Packing
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from destination_s3_spark.formats.bounded import MOST_UNPACKED_BYTES
from destination_s3_spark.formats.file_format import SeekableFile
from destination_s3_spark.formats.parquet_footer import Footer, footer_bytes, read_footer, read_thrift

MOST_PAGE_VALUES = 2**26
"""Most values of a page. Writers end pages at a megabyte of values, or a few thousand rows."""
BATCH_BYTES = 64 * 2**20
"""Memory for a batch of rows, unless one row takes more."""
_MOST_GROUP_BYTES = 2**31
_SHORT_DICTIONARY = 256
"""Bytes of a dictionary that is not looked into."""
_LEAST_FOOTER_BYTES, _MOST_FOOTER_BYTES = 64 * 2**10, 32 * 2**20
_COLUMNS, _CHUNK_METADATA = 1, 3
"""Fields of RowGroup and ColumnChunk."""
_TYPE, _CODEC, _CHUNK_BYTES, _DATA_START, _DICTIONARY_START = 1, 4, 7, 9, 11
"""Fields of ColumnMetaData."""
_TEXT = 6
"""The type of texts."""
_PLAIN, _CODECS = 0, {1: "snappy", 2: "gzip", 4: "brotli", 6: "zstd"}
"""Compressions of pages."""
_LENGTH = Packing("<I")
_UNPACKED, _STORED, _DATA, _DICTIONARY, _DATA_2 = 2, 3, 5, 7, 8
"""Fields of PageHeader."""
_VALUES = 1
"""Field of each kind of page's own header."""
_ENCODINGS = {_DATA: 2, _DATA_2: 4}
"""Field with the encoding of a page's values, by kind of page."""
_PREFIXES = 7
"""The encoding in which a text may begin like the one before."""


@dataclass(frozen=True, slots=True)
class Pages:
    """The pages of a column in a row group: their bytes after decompression together, and how many values they have.

    `repeated`: the most bytes of a value that a page only refers to: the length of the longest text of a dictionary, or of a page
    whose texts may begin like others.
    """

    bytes: int
    values: int
    repeated: int


class _Chunk(NamedTuple):
    """A column in a row group: its type and compression, and where its pages begin and end."""

    type: int
    codec: int
    start: int
    end: int

    @classmethod
    def of(cls, fields: Mapping[int, Any]) -> _Chunk:
        data = _size(fields, _DATA_START)
        dictionary = _size(fields, _DICTIONARY_START) if _DICTIONARY_START in fields else 0
        start = dictionary if 0 < dictionary < data else data
        return cls(_size(fields, _TYPE), _size(fields, _CODEC), start, start + _size(fields, _CHUNK_BYTES))


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

    def footer(self) -> Footer:
        """Read the footer. Raises DAMAGE."""
        tail = self._end(_LEAST_FOOTER_BYTES)
        needed = footer_bytes(tail)
        if needed > min(self._size, _MOST_FOOTER_BYTES):
            raise ValueError("a footer that is larger than any")
        return read_footer(tail if needed <= len(tail) else self._end(needed), self._size)

    def _end(self, size: int) -> bytes:
        self.seek(max(0, self._size - size))
        return self.read()

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

    Each row group is one read of the file, and is in memory meanwhile as it is stored. Columns are looked up in the footer as decoded here,
    because Arrow ends the process for some that are damaged.
    """

    def __init__(self, file: SeekableFile) -> None:
        self._held = _Held(file)
        self._groups = [_chunks(group) for group in self._held.footer().row_groups]
        self._parquet = pq.ParquetFile(self._held)
        if self._parquet.num_row_groups != len(self._groups):
            raise ValueError("a footer that can be read in two ways")

    @property
    def schema(self) -> pa.Schema:
        return self._parquet.schema_arrow

    def pages(self, group: int) -> list[Pages]:
        """Hold a row group, and measure the pages of its columns. Raises DAMAGE."""
        chunks = self._groups[group]
        start = min((chunk.start for chunk in chunks), default=0)
        self._held.hold(start, max((chunk.end for chunk in chunks), default=start))
        return [_measured(self._held.part, start, chunk) for chunk in chunks]

    def require_bounds(self, most_bytes: int, most_values: int) -> None:
        """Raise ValueError if the pages are larger together, or if a column or the file has more values or rows."""
        found = [self.pages(group) for group in range(self._parquet.num_row_groups)]
        if sum(one.bytes for columns in found for one in columns) > most_bytes:
            raise ValueError("it unpacks to more bytes than any such file has")
        values = sum(max((one.values for one in columns), default=0) for columns in found)
        if max(self._parquet.metadata.num_rows, values) > most_values:
            raise ValueError("it has more rows than its bytes account for")

    def batches(self, most_rows: int, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the rows in batches of up to `most_rows`."""
        for group in range(self._parquet.num_row_groups):
            repeated = sum(one.repeated for one in self.pages(group))
            rows = max(1, min(most_rows, BATCH_BYTES // max(repeated, 1)))
            yield from self._parquet.iter_batches(rows, row_groups=[group], columns=columns)


def _chunks(group: Mapping[int, Any]) -> list[_Chunk]:
    return [_Chunk.of(chunk[_CHUNK_METADATA].value) for chunk in group[_COLUMNS].value[1]]


def _measured(part: bytes, part_start: int, chunk: _Chunk) -> Pages:
    """Measure the pages of a column, given a part of the file and where it begins. Raises DAMAGE."""
    source = io.BytesIO(part)
    total = values = repeated = 0
    at, end = chunk.start - part_start, chunk.end - part_start
    while at < end:
        source.seek(at)
        header = read_thrift(source)
        unpacked, stored = (_size(header, field) for field in (_UNPACKED, _STORED))
        kind = next((field for field in (_DATA, _DICTIONARY, _DATA_2) if field in header), None)
        count = 0 if kind is None else _size(header[kind].value, _VALUES)
        if unpacked > MOST_UNPACKED_BYTES or count > MOST_PAGE_VALUES:
            raise ValueError("a page unpacks to more than any page has")
        at = source.tell() + stored
        total, values = total + unpacked, values + count
        if kind == _DICTIONARY and chunk.type == _TEXT:
            repeated = max(repeated, _longest(part[source.tell() : at], unpacked, chunk.codec))
        elif kind in _ENCODINGS and _size(header[kind].value, _ENCODINGS[kind]) == _PREFIXES:
            repeated = max(repeated, unpacked)
    return Pages(total, values, repeated)


def _longest(page: bytes, unpacked: int, codec: int) -> int:
    """Return the length of the longest text of a dictionary, or its own if it may be short, or cannot be told."""
    if unpacked <= _SHORT_DICTIONARY or codec not in (_PLAIN, *_CODECS):
        return unpacked
    texts = page if codec == _PLAIN else pa.Codec(_CODECS[codec]).decompress(page, unpacked, asbytes=True)
    at = longest = 0
    while at < len(texts):
        (length,) = _LENGTH.unpack_from(texts, at)
        longest, at = max(longest, length), at + _LENGTH.size + length
    return longest


def _size(fields: Any, number: int) -> int:
    found = fields[number].value
    if not isinstance(found, int) or found < 0:
        raise ValueError("a page of a negative size")
    return found

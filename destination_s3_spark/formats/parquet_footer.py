"""Footers of Parquet files whose pages are copied as bytes: of files that become one, and of a file without its last columns.

A footer is a struct of Thrift's compact protocol (https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md). It is
decoded without a schema, because only the positions of pages and the list of columns have to change. Field numbers are those of
parquet.thrift.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO
from itertools import count
from struct import Struct as Packing
from typing import Any, NamedTuple

from destination_s3_spark.formats.bounded import DAMAGE, require_count
from destination_s3_spark.formats.parquet_statistics import (
    LONG_TEXTS,
    Bounds,
    long_texts_from_json,
    long_texts_to_json,
    united_long_texts,
)
from destination_s3_spark.formats.varints import exactly, integer, read_integer, read_unsigned, unsigned

MAGIC = b"PAR1"

_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = range(1, 13)
_INTEGERS = frozenset({_I16, _I32, _I64})
_LENGTH = Packing("<I")

_SCHEMA, _ROWS, _ROW_GROUPS, _KEY_VALUES, _ENCRYPTION = 2, 3, 4, 5, 8
"""Fields of FileMetaData."""
_KEY, _TEXT = 1, 2
"""Fields of KeyValue."""
_LEAF_TYPE = 1
"""Field of SchemaElement that structs and lists lack."""
_COLUMNS, _GROUP_BYTES, _GROUP_OFFSET, _GROUP_COMPRESSED_BYTES, _ORDINAL = 1, 2, 5, 6, 7
"""Fields of RowGroup."""
_CHUNK_OFFSET, _CHUNK_METADATA = 2, 3
_CHUNK_INDEXES = (4, 6)
"""Fields of ColumnChunk. The last two are the positions of indexes."""
_CHUNK_BYTES, _CHUNK_COMPRESSED_BYTES = 6, 7
_PAGES = (9, 10, 11, 14)
"""Fields of ColumnMetaData. The last four are the positions of data pages, index pages, dictionary and bloom filter."""
_KINDS = (_LIST, _I64, _LIST)
"""Types of the schema, the number of rows and the row groups."""
_MOST_GROUPS = 2**15 - 1
"""Most row groups of a file, because their ordinals have 16 bits."""


class _Value(NamedTuple):
    """A value with its type. A struct is a dict by field number, a list a pair of the items' type and the items."""

    type: int
    value: Any


_Fields = dict[int, _Value]


class _DecodedFields(_Fields):
    """The fields of a struct as it was decoded, with its encoding. A struct that is not changed need not be encoded again."""

    __slots__ = ("encoded",)
    encoded: bytes


_LONG_TEXTS, _ARROW_SCHEMA = (_Value(_BINARY, key) for key in (LONG_TEXTS.encode(), b"ARROW:schema"))


class DamagedFooter(ValueError):
    """The end of a file is not the footer of a Parquet file. The message says what is wrong, and quotes nothing of it."""


@dataclass(frozen=True, slots=True)
class Footer:
    """The footer of a Parquet file. `pages_end` is the number of bytes before it: the magic number and the pages."""

    fields: _Fields
    pages_end: int

    @property
    def rows(self) -> int:
        return int(self.fields[_ROWS].value)

    @property
    def row_groups(self) -> Sequence[_Fields]:
        groups: Sequence[_Fields] = self.fields[_ROW_GROUPS].value[1]
        return groups

    @property
    def columns(self) -> tuple[object, object]:
        """The schema and the metadata of the file, to compare with those of other files. Bounds of long texts do not count."""
        return self.fields[_SCHEMA], _other_pairs(self.fields)

    @property
    def long_texts(self) -> dict[int, Bounds]:
        """The bounds that the writer noted for long texts, by the number of the column. Raises DamagedFooter."""
        found = [pair[_TEXT] for pair in _pairs(self.fields) if pair.get(_KEY) == _LONG_TEXTS and _TEXT in pair]
        try:
            return long_texts_from_json(found[0].value) if found else {}
        except (ValueError, TypeError, AttributeError):
            raise DamagedFooter("its bounds of long texts cannot be decoded") from None


def footer_bytes(tail: bytes) -> int:
    """Return the size of the footer, its length and the magic number, given the last 8 bytes of a file or more.

    Raises DamagedFooter if the file is not Parquet.
    """
    if tail[-4:] != MAGIC or len(tail) < 8:
        raise DamagedFooter("the file does not end like a Parquet file")
    length: int = _LENGTH.unpack(tail[-8:-4])[0]
    return length + 8


def read_footer(tail: bytes, size: int) -> Footer:
    """Decode the footer of a file of `size` bytes, given its last bytes with the whole footer. Raises DamagedFooter."""
    taken = footer_bytes(tail)
    if taken > len(tail):
        raise DamagedFooter("it is longer than the file")
    try:
        fields = read_thrift(BytesIO(tail[len(tail) - taken : -8]))
    except DAMAGE:
        raise DamagedFooter("it cannot be decoded") from None
    if tuple(fields[number].type for number in (_SCHEMA, _ROWS, _ROW_GROUPS) if number in fields) != _KINDS:
        raise DamagedFooter("it lacks what a footer has")
    return Footer(fields, size - taken)


def joinable(footers: Sequence[Footer]) -> bool:
    """Tell whether the files have the same columns and no more row groups than one file can have."""
    groups = sum(len(footer.fields[_ROW_GROUPS].value[1]) for footer in footers)
    plain = all(_ENCRYPTION not in footer.fields for footer in footers)
    return plain and groups <= _MOST_GROUPS and all(footer.columns == footers[0].columns for footer in footers)


def joined_footer(footers: Sequence[Footer]) -> bytes:
    """Return the end of a file that begins with all pages of the first file and goes on with the pages of the others.

    Copy bytes 0 to `pages_end` of the first file, and 4 to `pages_end` of each other one. The files must be `joinable`.
    Raises DamagedFooter.
    """
    groups: list[_Fields] = []
    ordinals = count()
    shift = 0
    for footer in footers:
        try:
            groups += [_moved_group(group, shift, next(ordinals)) for group in footer.fields[_ROW_GROUPS].value[1]]
        except DAMAGE:
            raise DamagedFooter("its row groups lack what such groups have") from None
        shift += footer.pages_end - len(MAGIC)
    fields = {
        **footers[0].fields,
        _ROWS: _Value(_I64, sum(footer.rows for footer in footers)),
        _ROW_GROUPS: _Value(_LIST, (_STRUCT, groups)),
    }
    if long_texts := united_long_texts(footer.long_texts for footer in footers):
        pair = {_KEY: _LONG_TEXTS, _TEXT: _Value(_BINARY, long_texts_to_json(long_texts).encode())}
        fields[_KEY_VALUES] = _Value(_LIST, (_STRUCT, [*_other_pairs(fields), pair]))
    return _end(fields)


def narrowed_footer(footer: Footer, empty: Footer) -> bytes:
    """Return the end of a file that lacks the last columns, and has all other pages of the footer's file where they are.

    `empty` is the footer of a file without rows that has only the first columns.
    """
    columns = _column_count(empty)
    groups = [_narrowed_group(group, columns) for group in footer.fields[_ROW_GROUPS].value[1]]
    pairs = [pair for pair in _pairs(footer.fields) if pair.get(_KEY) != _ARROW_SCHEMA]
    fields = {
        **empty.fields,
        _ROWS: footer.fields[_ROWS],
        _ROW_GROUPS: _Value(_LIST, (_STRUCT, groups)),
        _KEY_VALUES: _Value(_LIST, (_STRUCT, [*pairs, *_pairs(empty.fields)])),
    }
    return _end(fields)


def narrowed_pages_end(footer: Footer, empty: Footer) -> int:
    """Return the number of bytes before the end of the narrowed file: without the pages of the last columns that no others follow."""
    groups = footer.fields[_ROW_GROUPS].value[1]
    chunks = groups[-1][_COLUMNS].value[1][_column_count(empty) :] if groups else []
    fields = (chunk[_CHUNK_METADATA].value for chunk in chunks)
    begins = (chunk[page].value for chunk in fields for page in _PAGES if page in chunk and chunk[page].value)
    return min(begins, default=footer.pages_end)


def _column_count(footer: Footer) -> int:
    return sum(_LEAF_TYPE in element for element in footer.fields[_SCHEMA].value[1])


def _end(fields: _Fields) -> bytes:
    encoded = b"".join(_struct(fields))
    return encoded + _LENGTH.pack(len(encoded)) + MAGIC


def _narrowed_group(group: _Fields, columns: int) -> _Fields:
    chunks = group[_COLUMNS].value[1][:columns]
    sizes = {
        field: _Value(_I64, sum(chunk[_CHUNK_METADATA].value[of_chunk].value for chunk in chunks))
        for field, of_chunk in ((_GROUP_BYTES, _CHUNK_BYTES), (_GROUP_COMPRESSED_BYTES, _CHUNK_COMPRESSED_BYTES))
        if field in group
    }
    return {**group, **sizes, _COLUMNS: _Value(_LIST, (_STRUCT, chunks))}


def _pairs(fields: _Fields) -> list[_Fields]:
    found = fields.get(_KEY_VALUES)
    return list(found.value[1]) if found is not None and found.type == _LIST and found.value[0] == _STRUCT else []


def _other_pairs(fields: _Fields) -> list[_Fields]:
    return [pair for pair in _pairs(fields) if pair.get(_KEY) != _LONG_TEXTS]


def _moved_group(group: _Fields, shift: int, ordinal: int) -> _Fields:
    columns = [_moved_chunk(chunk, shift) for chunk in group[_COLUMNS].value[1]]
    moved = _moved(group, (_GROUP_OFFSET,), shift) | {_COLUMNS: _Value(_LIST, (_STRUCT, columns))}
    return moved | {_ORDINAL: _Value(_I16, ordinal)} if _ORDINAL in group else moved


def _moved_chunk(chunk: _Fields, shift: int) -> _Fields:
    moved = _moved(chunk, (_CHUNK_OFFSET, *_CHUNK_INDEXES), shift)
    metadata = _moved(chunk[_CHUNK_METADATA].value, _PAGES, shift)
    return moved | {_CHUNK_METADATA: _Value(_STRUCT, metadata)}


def _moved(fields: _Fields, positions: Sequence[int], shift: int) -> _Fields:
    """Return the fields with these positions moved. A position 0 is none, because files begin with the magic number.

    Raises ValueError for a position that is no integer.
    """
    moved = {field: fields[field] for field in positions if field in fields and fields[field].value}
    if not all(found.type in _INTEGERS for found in moved.values()):
        raise ValueError("a position that is no integer")
    return {**fields, **{field: _Value(found.type, found.value + shift) for field, found in moved.items()}}


def read_thrift(data: BytesIO) -> _Fields:
    """Read a struct. Raises DAMAGE for bytes that are none."""
    fields = _DecodedFields()
    start, number = data.tell(), 0
    while head := exactly(data, 1)[0]:
        number = number + (head >> 4) if head >> 4 else read_integer(data)
        kind = head & 15
        fields[number] = _Value(kind, kind == _TRUE if kind in (_TRUE, _FALSE) else _read(data, kind))
    fields.encoded = data.getvalue()[start : data.tell()]
    return fields


def _read(data: BytesIO, kind: int) -> Any:
    if kind in _INTEGERS:
        return read_integer(data)
    if kind == _BINARY:
        return exactly(data, read_unsigned(data))
    if kind == _STRUCT:
        return read_thrift(data)
    if kind in (_LIST, _SET):
        head = exactly(data, 1)[0]
        length = require_count(head >> 4 if head >> 4 < 15 else read_unsigned(data), data.getbuffer().nbytes - data.tell())
        return head & 15, [_read(data, head & 15) for _ in range(length)]
    if kind == _DOUBLE:
        return exactly(data, 8)
    if kind in (_TRUE, _FALSE, _BYTE):  # a boolean in a list is a byte
        return exactly(data, 1)[0]
    raise ValueError(f"a Thrift value of type {kind}")


def _struct(fields: _Fields) -> Iterator[bytes]:
    if isinstance(fields, _DecodedFields):
        yield fields.encoded
        return
    last = 0
    for number in sorted(fields):
        kind, value = fields[number]
        if 0 < number - last <= 15:
            yield bytes([number - last << 4 | kind])
        else:
            yield bytes([kind]) + integer(number)
        last = number
        if kind not in (_TRUE, _FALSE):
            yield from _encoded(kind, value)
    yield b"\0"


def _encoded(kind: int, value: Any) -> Iterator[bytes]:
    if kind in _INTEGERS:
        yield integer(value)
    elif kind == _BINARY:
        yield unsigned(len(value)) + value
    elif kind == _STRUCT:
        yield from _struct(value)
    elif kind in (_LIST, _SET):
        of, items = value
        yield bytes([len(items) << 4 | of]) if len(items) < 15 else bytes([0xF0 | of]) + unsigned(len(items))
        for item in items:
            yield from _encoded(of, item)
    elif kind == _DOUBLE:
        yield value
    else:
        yield bytes([value])

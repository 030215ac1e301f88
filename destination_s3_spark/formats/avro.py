"""Writer of Avro object container files with destination-s3's types, names and namespaces.

`avro_types` encodes whole columns at a time. A container (https://avro.apache.org/docs/1.12.0/specification/) is a header followed by
blocks of about AVRO_BLOCK_BYTES, each compressed separately.
"""

from __future__ import annotations

import bz2
import json
import lzma
import os
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np
import pyarrow as pa
import zstandard

from destination_s3_spark.decoding.plan import Values
from destination_s3_spark.errors import ConfigError
from destination_s3_spark.formats.avro_types import ArrayOf, AvroType, Boolean, DecimalBytes, Double, Integer, Nullable, OneOf, Record, Text
from destination_s3_spark.formats.bounded import MOST_UNPACKED_BYTES, require_count
from destination_s3_spark.formats.file_format import (
    DifferentColumns,
    DirectWriter,
    FileColumns,
    FileFormat,
    SeekableFile,
    Sink,
    in_pieces,
    require_columns,
)
from destination_s3_spark.formats.row_bytes import row_bytes, row_offsets
from destination_s3_spark.formats.varints import ByteStream, exactly, integer, read_integer
from destination_s3_spark.schema.airbyte_type import (
    AirbyteType,
    Array,
    Decimal,
    Field,
    Object,
    Scalar,
    SchemalessArray,
    SchemalessObject,
    Union,
    option_name,
)
from destination_s3_spark.schema.names import RecordNames, safe_name, safe_namespace
from destination_s3_spark.stream_id import StreamId

if TYPE_CHECKING:  # a cluster's executors have no pydantic
    from destination_s3_spark.config.format_options import AvroFormat

AVRO_BLOCK_BYTES = 64 * 2**10
"""Approximate uncompressed size of a block. Blocks hold whole rows. Avro's own libraries use the same size."""

_MAGIC = b"Obj\x01"
SYNC_BYTES = 16
MOST_PAIRS = 1_000
"""Most pairs in a part of a header's metadata. Writers have few."""
_ITEMS = "items"
"""The path element of an array's items."""
_META = "_airbyte_meta"


class AvroCodec(Enum):
    """Block compression codecs, by Avro's names."""

    NULL = "null"
    DEFLATE = "deflate"
    BZIP2 = "bzip2"
    XZ = "xz"
    ZSTANDARD = "zstandard"
    SNAPPY = "snappy"


@dataclass(frozen=True, slots=True)
class AvroOptions:
    """Options of an Avro file. Only DEFLATE, XZ and ZSTANDARD use `level`, on their own scales.

    `checksum`: whether each block carries one of its content. Only ZSTANDARD has them.
    """

    codec: AvroCodec = AvroCodec.NULL
    level: int = 0
    checksum: bool = False

    extension: ClassVar[str] = ".avro"
    values: ClassVar[Values] = Values.TYPED

    @property
    def compressed(self) -> bool:
        return self.codec is not AvroCodec.NULL

    def require_fitting(self, columns: FileColumns) -> None:
        """Raise ConfigError for columns without an Avro schema."""
        row_type(columns.stream, columns.fields)

    def open(self, sink: Sink, columns: FileColumns) -> AvroFile:
        return AvroFile(sink, columns, self)

    def open_joined(self, sink: Sink) -> JoinedAvroFile:
        return JoinedAvroFile(sink)

    def compress(self, block: bytes) -> bytes:
        match self.codec:
            case AvroCodec.NULL:
                return block
            case AvroCodec.DEFLATE:
                return zlib.compress(block, self.level, -zlib.MAX_WBITS)
            case AvroCodec.BZIP2:
                return bz2.compress(block)
            case AvroCodec.XZ:
                return lzma.compress(block, preset=self.level)
            case AvroCodec.ZSTANDARD:
                return zstandard.ZstdCompressor(self.level, write_checksum=self.checksum).compress(block)
            case AvroCodec.SNAPPY:
                compressed: bytes = pa.Codec("snappy").compress(block, asbytes=True)
                return compressed + zlib.crc32(block).to_bytes(4, "big")


class AvroFile(DirectWriter[pa.RecordBatch]):
    """One Avro file being written into a sink, in one or more blocks for each batch."""

    def __init__(self, sink: Sink, columns: FileColumns, options: AvroOptions) -> None:
        super().__init__(sink)
        self._columns = columns
        self._options = options
        self._row = row_type(columns.stream, columns.fields)
        self._sync = os.urandom(SYNC_BYTES)
        header = {"avro.schema": json.dumps(self._row.schema).encode(), "avro.codec": options.codec.value.encode()}
        self._put(Header(header, self._sync).encoded + self._sync)

    def write(self, batch: pa.RecordBatch) -> None:
        require_columns(batch, self._columns.arrow)
        if batch.num_rows == 0:
            return
        rows = self._row.rows(batch.columns)
        offsets, data = row_offsets(rows), row_bytes(rows)
        start = 0
        while start < len(rows):
            end = max(start + 1, int(np.searchsorted(offsets, int(offsets[start]) + AVRO_BLOCK_BYTES, side="right")) - 1)
            block = data.slice(int(offsets[start]), int(offsets[end] - offsets[start])).to_pybytes()
            self._put(encoded_block(end - start, self._options.compress(block), self._sync))
            start = end
        self._rows += batch.num_rows


class JoinedAvroFile(DirectWriter[SeekableFile]):
    """The blocks of Avro files behind one header."""

    def __init__(self, sink: Sink) -> None:
        super().__init__(sink)
        self._header: Header | None = None

    def write(self, source: SeekableFile) -> None:
        content = in_pieces(source)
        own = read_header(content)
        if self._header is None:
            self._header = own
            self._put(own.encoded + own.sync)
        if own.meta != self._header.meta:
            raise DifferentColumns
        for rows, stored in read_blocks(content):
            self._put(encoded_block(rows, stored, self._header.sync))
            self._rows += rows


class Header(NamedTuple):
    """The header of a file: its metadata, and the marker behind it and behind each block."""

    meta: dict[str, bytes]
    sync: bytes

    @property
    def encoded(self) -> bytes:
        """All bytes of the header but for the marker."""
        texts = [text for name, value in self.meta.items() for text in (name.encode(), value)]
        return _MAGIC + integer(len(self.meta)) + b"".join(integer(len(text)) + text for text in texts) + integer(0)


def read_header(source: ByteStream) -> Header:
    """Read the header of a file. Raises ValueError for a file that ends, or that begins otherwise."""
    if exactly(source, len(_MAGIC)) != _MAGIC:
        raise ValueError("the file does not begin like an Avro file")
    meta = dict[str, bytes]()
    while count := read_integer(source):
        if count < 0:
            read_integer(source)  # the bytes of the pairs
        for _ in range(require_count(abs(count), MOST_PAIRS)):
            name = _text(source).decode()
            meta[name] = _text(source)
    return Header(meta, exactly(source, SYNC_BYTES))


def _text(source: ByteStream) -> bytes:
    return exactly(source, require_count(read_integer(source), MOST_UNPACKED_BYTES))


def read_blocks(source: ByteStream) -> Iterator[tuple[int, bytes]]:
    """Yield the number of rows and the stored bytes of each block behind the header. Raises ValueError for a file that ends early."""
    while first := source.read(1):
        rows, stored = read_integer(source, first), _text(source)
        exactly(source, SYNC_BYTES)
        yield rows, stored


def encoded_block(rows: int, stored: bytes, sync: bytes) -> bytes:
    return integer(rows) + integer(len(stored)) + stored + sync


def row_type(stream: StreamId, fields: Sequence[Field]) -> Record:
    """Return the record type of a stream's rows: the four `_airbyte_*` columns, then the fields.

    Raises ConfigError for a union that Avro cannot hold.
    """
    return _Schema(stream).row(fields)


class _Schema:
    """Builder of one stream's schema. A path is the sequence of safe names from the stream's namespace down to a field."""

    def __init__(self, stream: StreamId) -> None:
        self._stream = stream
        self._names = RecordNames()

    def row(self, fields: Sequence[Field]) -> Record:
        path = (safe_namespace(self._stream.namespace), safe_name(self._stream.name))
        name, namespace = self._names.give(path)
        own: list[tuple[str, AvroType]] = [
            ("_airbyte_raw_id", Text("uuid")),
            ("_airbyte_extracted_at", Integer(logical="timestamp-millis")),
            (_META, self._meta((*path, _META))),
            ("_airbyte_generation_id", Integer()),
        ]
        return Record(name, namespace, (*own, *self._members(fields, path)))

    def _meta(self, path: tuple[str, ...]) -> Record:
        changes = (*path, "changes")
        # A change that the source reports may lack a part, so the parts are nullable.
        parts = tuple((part, Nullable(Text())) for part in ("field", "change", "reason"))
        change = Record(*self._names.give((*changes, _ITEMS)), parts)
        return Record(*self._names.give(path), (("sync_id", Integer()), ("changes", ArrayOf(change))))

    def _members(self, fields: Sequence[Field], path: tuple[str, ...]) -> tuple[tuple[str, AvroType], ...]:
        return tuple((field.name, self._nullable(field.type, (*path, field.name))) for field in fields)

    def _nullable(self, of: AirbyteType, path: tuple[str, ...]) -> AvroType:
        return self._union(of, path) if isinstance(of, Union) else Nullable(self._type(of, path))

    def _type(self, of: AirbyteType, path: tuple[str, ...]) -> AvroType:  # noqa: C901 (one case for each type)
        match of:
            case Scalar.STRING | SchemalessObject() | SchemalessArray():
                return Text()
            case Scalar.BOOLEAN:
                return Boolean()
            case Scalar.INTEGER:
                return Integer()
            case Scalar.NUMBER:
                return Double()
            case Decimal(precision, scale):
                return DecimalBytes(precision, scale)
            case Scalar.DATE:
                return Integer("int", "date")
            case Scalar.TIME_WITH_TIMEZONE | Scalar.TIME_WITHOUT_TIMEZONE:
                return Integer(logical="time-micros")
            case Scalar.TIMESTAMP_WITH_TIMEZONE | Scalar.TIMESTAMP_WITHOUT_TIMEZONE:
                return Integer(logical="timestamp-micros")
            case Object(fields):
                return Record(*self._names.give(path), self._members(fields, path))
            case Array(items):
                return ArrayOf(self._nullable(items, (*path, _ITEMS)))
            case Union():
                raise ValueError("a union is never an option of a union")

    def _union(self, union: Union, path: tuple[str, ...]) -> OneOf:
        types: list[AvroType] = []
        branches = []
        for option in union.options:
            type_ = self._type(option, path)
            if type_ not in types:
                types.append(type_)
            branches.append(types.index(type_) + 1)
        kinds = [type_.name for type_ in types if isinstance(type_, Integer)]
        if len(set(kinds)) < len(kinds):
            raise ConfigError(self._advice(union, path), stream=self._stream)
        return OneOf(tuple(types), tuple(branches))

    def _advice(self, union: Union, path: tuple[str, ...]) -> str:
        names = ", ".join(option_name(option) for option in union.options)
        return (
            f'Stream "{self._stream}", field "{".".join(path[2:])}": a union of {names} cannot be written to Avro, where two of them are '
            "of the type long. Correct the schema in the source, deselect the field in the connection, or choose another format."
        )


def _options(chosen: AvroFormat) -> AvroOptions:
    codec = chosen.compression_codec
    if codec.codec == "no compression":
        return AvroOptions()
    if codec.codec == "zstandard":
        return AvroOptions(AvroCodec.ZSTANDARD, codec.compression_level, codec.include_checksum)
    if codec.codec == "Deflate":
        return AvroOptions(AvroCodec.DEFLATE, codec.compression_level)
    if codec.codec == "xz":
        return AvroOptions(AvroCodec.XZ, codec.compression_level)
    return AvroOptions(AvroCodec(codec.codec))


AVRO = FileFormat("Avro", "Avro", (AvroOptions.extension,), typed=True, sorted_rows=False, options=_options)

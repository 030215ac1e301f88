"""Rows of Avro files that were written before: the bytes of each, and its single values as JSON text."""

from __future__ import annotations

import bz2
import json
import lzma
import os
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from io import BytesIO
from typing import Any, TypeAlias

import orjson
import pyarrow as pa
import zstandard

from destination_s3_spark.decoding.value_text import TEMPORAL_TEXTS
from destination_s3_spark.formats.avro import (
    AVRO_BLOCK_BYTES,
    SYNC_BYTES,
    AvroCodec,
    AvroOptions,
    encoded_longs,
    exactly,
    read_header,
    read_long,
)
from destination_s3_spark.formats.file_format import DirectWriter, SeekableFile, Sink
from destination_s3_spark.formats.file_statistics import WrittenFile
from destination_s3_spark.formats.varints import read_integer, read_unsigned
from destination_s3_spark.schema.airbyte_type import Scalar

Decoder: TypeAlias = Callable[[bytes, int], tuple[Any, int]]
"""Returns the value at a place of a block, and the place behind it. A container's value is None, because only single ones are wanted."""

_LEVELS = {AvroCodec.DEFLATE: 6, AvroCodec.XZ: 6, AvroCodec.ZSTANDARD: 3}
_MAGIC_BYTES = 4


@dataclass(frozen=True, slots=True)
class StoredAvro:
    """An Avro file. `sources`: the JSON key of the values of each column."""

    sources: Mapping[str, str]

    def rows(self, file: SeekableFile) -> Iterator[tuple[bytes, bytes | None]]:
        """Yield each row's bytes and its single values, None for the header. Raises ValueError for a file that is damaged."""
        header = read_header(file)
        yield header.encoded, None
        schema, codec = _described(header.encoded)
        named: dict[str, Decoder] = {}
        fields = [(field["name"], decoder(field["type"], named)) for field in schema["fields"]]
        while (count := read_long(file)) is not None:
            block = _decompressed(exactly(file, read_long(file) or 0), codec)
            exactly(file, SYNC_BYTES)
            at = 0
            for _ in range(count):
                start, values = at, {}
                for name, decode in fields:
                    value, at = decode(block, at)
                    if value is not None and name in self.sources:
                        values[self.sources[name]] = value
                yield block[start:at], orjson.dumps(values, default=lambda number: orjson.Fragment(f"{number:f}"))

    def open_kept(self, sink: Sink) -> KeptAvroRows:
        return KeptAvroRows(sink)


class KeptAvroRows(DirectWriter[Iterable[bytes]]):
    """An Avro file of rows as they were, behind the header that they had."""

    def __init__(self, sink: Sink) -> None:
        super().__init__(sink)
        self._sync = os.urandom(SYNC_BYTES)
        self._options = AvroOptions()
        self._block = bytearray()
        self._waiting = 0

    def write_header(self, header: bytes) -> None:
        """Write the header, if it is given."""
        if header:
            _, codec = _described(header)
            self._options = AvroOptions(codec, _LEVELS.get(codec, 0))
            self._put(header + self._sync)

    def write(self, content: Iterable[bytes]) -> None:
        for row in content:
            self._block += row
            self._waiting += 1
            if len(self._block) >= AVRO_BLOCK_BYTES:
                self._end_block()

    def close(self) -> WrittenFile:
        if self._waiting:
            self._end_block()
        return super().close()

    def _end_block(self) -> None:
        stored = self._options.compress(bytes(self._block))
        self._put(encoded_longs(self._waiting, len(stored)) + stored + self._sync)
        self._rows += self._waiting
        self._block.clear()
        self._waiting = 0


def _described(header: bytes) -> tuple[dict[str, Any], AvroCodec]:
    source, found = BytesIO(header[_MAGIC_BYTES:]), dict[str, bytes]()
    while count := read_long(source):
        for _ in range(count):
            name = exactly(source, read_long(source) or 0).decode()
            found[name] = exactly(source, read_long(source) or 0)
    schema: dict[str, Any] = json.loads(found["avro.schema"])
    return schema, AvroCodec(found.get("avro.codec", b"null").decode())


def _decompressed(block: bytes, codec: AvroCodec) -> bytes:
    match codec:
        case AvroCodec.NULL:
            return block
        case AvroCodec.DEFLATE:
            return zlib.decompress(block, -zlib.MAX_WBITS)
        case AvroCodec.BZIP2:
            return bz2.decompress(block)
        case AvroCodec.XZ:
            return lzma.decompress(block)
        case AvroCodec.ZSTANDARD:
            return zstandard.ZstdDecompressor().decompressobj().decompress(block)
        case AvroCodec.SNAPPY:
            return _unsnapped(block[:-4])


def _unsnapped(block: bytes) -> bytes:
    """Decompress a block, which begins with its size as an unsigned integer of seven bits a byte."""
    size, _ = read_unsigned(block, 0)
    found: bytes = pa.Codec("snappy").decompress(block, size, asbytes=True)
    return found


def decoder(schema: Any, named: dict[str, Decoder]) -> Decoder:
    """Return the decoder of values of a schema. `named`: those of the types that it may refer to by name."""
    if isinstance(schema, list):
        return _union([decoder(option, named) for option in schema])
    if isinstance(schema, str):
        return named.get(schema.rpartition(".")[2]) or _PRIMITIVES[schema]
    match schema["type"]:
        case "record":
            members: list[Decoder] = []
            named[schema["name"].rpartition(".")[2]] = decode = _record(members)
            members += (decoder(field["type"], named) for field in schema["fields"])
            return decode
        case "array":
            return _blocks([decoder(schema["items"], named)])
        case "map":
            return _blocks([_text, decoder(schema["values"], named)])
        case "enum":
            return named.setdefault(schema["name"].rpartition(".")[2], lambda block, at: (None, read_integer(block, at)[1]))
        case "fixed":
            size = schema["size"]
            fixed = _of_logical(schema, lambda block, at: (block[at : at + size], at + size))
            return named.setdefault(schema["name"].rpartition(".")[2], fixed)
        case kind:
            return _of_logical(schema, decoder(kind, named))


def _bytes(block: bytes, at: int) -> tuple[bytes, int]:
    size, at = read_integer(block, at)
    if at + size > len(block):
        raise ValueError("an Avro block ends inside of a value")
    return block[at : at + size], at + size


def _text(block: bytes, at: int) -> tuple[str, int]:
    value, at = _bytes(block, at)
    return value.decode(), at


_PRIMITIVES: Mapping[str, Decoder] = {
    "null": lambda _, at: (None, at),
    "boolean": lambda block, at: (block[at] == 1, at + 1),
    "int": read_integer,
    "long": read_integer,
    "float": lambda block, at: (struct.unpack_from("<f", block, at)[0], at + 4),
    "double": lambda block, at: (struct.unpack_from("<d", block, at)[0], at + 8),
    "bytes": lambda block, at: (None, _bytes(block, at)[1]),
    "string": _text,
}


def _union(options: list[Decoder]) -> Decoder:
    def decode(block: bytes, at: int) -> tuple[Any, int]:
        option, at = read_integer(block, at)
        return options[option](block, at)

    return decode


def _record(members: list[Decoder]) -> Decoder:
    def decode(block: bytes, at: int) -> tuple[None, int]:
        for member in members:
            at = member(block, at)[1]
        return None, at

    return decode


def _blocks(of_item: list[Decoder]) -> Decoder:
    def decode(block: bytes, at: int) -> tuple[None, int]:
        while True:
            count, at = read_integer(block, at)
            if count < 0:
                size, at = read_integer(block, at)
                at += size
                continue
            if not count:
                return None, at
            for _ in range(count):
                for part in of_item:
                    at = part(block, at)[1]

    return decode


def _of_logical(schema: Mapping[str, Any], plain: Decoder) -> Decoder:
    """Return a decoder whose values are those of a logical type, texts for dates and times."""
    logical = str(schema.get("logicalType"))
    if logical == "decimal":
        if schema["type"] == "bytes":
            plain = _bytes
        made: Callable[[Any], Any] = lambda value: Decimal(int.from_bytes(value, "big", signed=True)).scaleb(-schema.get("scale", 0))  # noqa: E731
    elif logical in _MOMENTS:
        made = _MOMENTS[logical]
    else:
        return plain

    def decode(block: bytes, at: int) -> tuple[Any, int]:
        value, at = plain(block, at)
        return made(value), at

    return decode


def _micros(kind: Scalar, of: int) -> Callable[[int], str]:
    return lambda value: TEMPORAL_TEXTS[kind](value * of)


_MOMENTS: Mapping[str, Callable[[int], str]] = {
    "date": TEMPORAL_TEXTS[Scalar.DATE],
    "time-millis": _micros(Scalar.TIME_WITHOUT_TIMEZONE, 1000),
    "time-micros": _micros(Scalar.TIME_WITHOUT_TIMEZONE, 1),
    "timestamp-millis": _micros(Scalar.TIMESTAMP_WITH_TIMEZONE, 1000),
    "timestamp-micros": _micros(Scalar.TIMESTAMP_WITH_TIMEZONE, 1),
    "local-timestamp-millis": _micros(Scalar.TIMESTAMP_WITHOUT_TIMEZONE, 1000),
    "local-timestamp-micros": _micros(Scalar.TIMESTAMP_WITHOUT_TIMEZONE, 1),
}

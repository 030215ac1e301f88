"""Rows of Avro files that were written before: the bytes of each, and its single values as JSON text."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from io import BytesIO
from typing import Any, TypeAlias

import orjson

from destination_s3_spark.decoding.value_text import TEMPORAL_TEXTS
from destination_s3_spark.formats.avro import (
    AVRO_BLOCK_BYTES,
    SYNC_BYTES,
    AvroCodec,
    AvroOptions,
    Header,
    encoded_block,
    read_blocks,
    read_header,
)
from destination_s3_spark.formats.bounded import require_count, unpacked
from destination_s3_spark.formats.file_format import DirectWriter, SeekableFile, Sink, in_pieces
from destination_s3_spark.formats.file_statistics import WrittenFile
from destination_s3_spark.formats.varints import exactly, read_integer
from destination_s3_spark.schema.airbyte_type import MAX_PRECISION, Scalar

Decoder: TypeAlias = Callable[[BytesIO], Any]
"""Reads a value from a block. That of a container or an enumeration is None, because only single ones are wanted."""

_LEVELS = {AvroCodec.DEFLATE: 6, AvroCodec.XZ: 6, AvroCodec.ZSTANDARD: 3}


@dataclass(frozen=True, slots=True)
class StoredAvro:
    """An Avro file. `sources`: the JSON key of the values of each column."""

    sources: Mapping[str, str]

    def rows(self, file: SeekableFile) -> Iterator[tuple[bytes, bytes | None]]:
        """Yield each row's bytes and its single values, None for the header. Raises DAMAGE for a file that is damaged."""
        content = in_pieces(file)
        header = read_header(content)
        yield header.encoded, None
        schema, codec = json.loads(header.meta["avro.schema"]), _codec(header)
        named: dict[str, Decoder] = {}
        fields = [(self.sources.get(field["name"]), decoder(field["type"], named)) for field in schema["fields"]]
        for count, stored in read_blocks(content):
            data = _unpacked(stored, codec)
            block = BytesIO(data)
            for _ in range(require_count(count, len(data))):
                start = block.tell()
                values = [(source, decode(block)) for source, decode in fields]
                single = {source: value for source, value in values if source is not None and not isinstance(value, bytes | None)}
                record = orjson.dumps(single, default=lambda number: orjson.Fragment(f"{number:f}"))
                yield data[start : block.tell()], record
            _require_end(block)

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
            codec = _codec(read_header(BytesIO(header + self._sync)))
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
        self._put(encoded_block(self._waiting, self._options.compress(bytes(self._block)), self._sync))
        self._rows += self._waiting
        self._block.clear()
        self._waiting = 0


def _codec(header: Header) -> AvroCodec:
    return AvroCodec(header.meta.get("avro.codec", b"null").decode())


def _unpacked(stored: bytes, codec: AvroCodec) -> bytes:
    """Decompress a block. One of Snappy has a checksum at its end."""
    return unpacked(stored[:-4] if codec is AvroCodec.SNAPPY else stored, codec.value)


def _require_end(block: BytesIO) -> None:
    if block.read(1):
        raise ValueError("a block has more than its rows")


def require_sound(body: bytes) -> None:
    """Raise DAMAGE unless a file can be read to its end as its own schema says, and no number in it is beyond the bytes that are there.

    Other readers may trust such numbers.
    """
    source = BytesIO(body)
    header = read_header(source)
    decode, codec = decoder(json.loads(header.meta["avro.schema"]), {}), _codec(header)
    for count, stored in read_blocks(source):
        data = _unpacked(stored, codec)
        block = BytesIO(data)
        for _ in range(require_count(count, len(data))):
            decode(block)
        _require_end(block)


def decoder(schema: Any, named: dict[str, Decoder]) -> Decoder:
    """Return the decoder of values of a schema. `named`: those of the types that it may refer to by name."""
    if isinstance(schema, list):
        options = [decoder(option, named) for option in schema]
        return lambda block: options[require_count(read_integer(block), len(options) - 1)](block)
    if isinstance(schema, str):
        return named.get(schema.rpartition(".")[2]) or _PRIMITIVES[schema]
    name = schema.get("name", "").rpartition(".")[2]
    match schema["type"]:
        case "record":
            members: list[Decoder] = []
            named[name] = decode = _record(members)
            members += (decoder(field["type"], named) for field in schema["fields"])
            return decode
        case "array":
            return _blocks([decoder(schema["items"], named)])
        case "map":
            return _blocks([_text, decoder(schema["values"], named)])
        case "enum":
            return named.setdefault(name, _record([read_integer]))
        case "fixed":
            return named.setdefault(name, _of_logical(schema, lambda block: exactly(block, schema["size"])))
        case kind:
            return _of_logical(schema, decoder(kind, named))


def _bytes(block: BytesIO) -> bytes:
    return exactly(block, read_integer(block))


def _text(block: BytesIO) -> str:
    return _bytes(block).decode()


_PRIMITIVES: Mapping[str, Decoder] = {
    "null": lambda _: None,
    "boolean": lambda block: exactly(block, 1) == b"\x01",
    "int": read_integer,
    "long": read_integer,
    "float": lambda block: struct.unpack("<f", exactly(block, 4))[0],
    "double": lambda block: struct.unpack("<d", exactly(block, 8))[0],
    "bytes": _bytes,
    "string": _text,
}


def _record(members: list[Decoder]) -> Decoder:
    def decode(block: BytesIO) -> None:
        for member in members:
            member(block)

    return decode


def _blocks(of_item: list[Decoder]) -> Decoder:
    def decode(block: BytesIO) -> None:
        while count := read_integer(block):
            if count < 0:
                exactly(block, read_integer(block))
                continue
            for _ in range(require_count(count, _left(block))):
                for part in of_item:
                    part(block)

    return decode


def _left(block: BytesIO) -> int:
    return block.getbuffer().nbytes - block.tell()


def _of_logical(schema: Mapping[str, Any], plain: Decoder) -> Decoder:
    """Return a decoder whose values are those of a logical type, texts for dates and times."""
    logical = str(schema.get("logicalType"))
    if logical == "decimal":
        scale = require_count(schema.get("scale", 0), MAX_PRECISION)
        made: Callable[[Any], Any] = lambda value: Decimal(int.from_bytes(value, "big", signed=True)).scaleb(-scale)  # noqa: E731
    elif logical in _MOMENTS:
        made = _MOMENTS[logical]
    else:
        return plain
    return lambda block: made(plain(block))


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

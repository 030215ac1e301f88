"""Files that somebody else wrote or damaged: no count and no size in them is believed beyond the bytes that are there."""

from __future__ import annotations

import bz2
import io
import json
import lzma
import random
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from destination_s3_spark.formats import bounded, parquet_pages
from destination_s3_spark.formats.avro import Header
from destination_s3_spark.formats.avro_rows import StoredAvro, require_sound
from destination_s3_spark.formats.bounded import DAMAGE, lines_of, portions, reading, unpacked
from destination_s3_spark.formats.parquet_pages import PagedFile
from destination_s3_spark.formats.read_back import StoredText, csv_rows
from destination_s3_spark.formats.varints import exactly, integer, read_unsigned, unsigned
from unit_tests.cases import each

SYNC = bytes(16)
ENDLESS = integer(2**40)


def avro(schema: Any, *blocks: tuple[int, bytes], codec: str = "null") -> bytes:
    header = Header({"avro.schema": json.dumps(schema).encode(), "avro.codec": codec.encode()}, SYNC).encoded + SYNC
    return header + b"".join(integer(rows) + integer(len(data)) + data + SYNC for rows, data in blocks)


def record(*types: Any) -> Any:
    return {"type": "record", "name": "row", "fields": [{"name": f"c{number}", "type": of} for number, of in enumerate(types)]}


def nested(depth: int) -> Any:
    of: Any = "long"
    for _ in range(depth):
        of = {"type": "array", "items": of}
    return of


SELF: Any = {"type": "record", "name": "self", "fields": [{"name": "next", "type": "self"}]}
DEEP = b'{"type":"record","name":"row","fields":[{"name":"c0","type":' + b"[" * 50_000
HOSTILE_AVRO = {
    "endless nulls in a list": avro(record({"type": "array", "items": "null"}), (1, ENDLESS)),
    "endless nulls in a map": avro(record({"type": "map", "values": "null"}), (1, ENDLESS)),
    "endless rows without a byte": avro(record("null"), (2**40, b"")),
    "a negative number of rows": avro(record("long"), (-5, b"\x02")),
    "a row too few": avro(record("long"), (1, b"\x02\x02")),
    "a text longer than the file": avro(record("string"), (1, integer(2**40) + b"x")),
    "a text of a negative length": avro(record("string"), (1, integer(-5) + b"x")),
    "a block of a negative length": avro(record("long")) + integer(1) + integer(-7),
    "a block longer than the file": avro(record("long")) + integer(1) + integer(2**40),
    "a number without end": avro(record("long"), (1, b"\xff" * 1000)),
    "an option that there is not": avro(record(["null", "long"]), (1, integer(2))),
    "an option before the first": avro(record(["null", "long"]), (1, integer(-1) + integer(3))),
    "fixed of a negative size": avro(record({"type": "fixed", "name": "f", "size": -4}), (1, b"xxxx")),
    "a record of itself": avro(record(SELF), (1, b"x")),
    "a deep schema": avro(record(nested(400)), (1, b"\x00"))[:-40],
    "a decimal of an endless scale": avro(record({"type": "bytes", "logicalType": "decimal", "scale": 10**9}), (1, integer(1) + b"x")),
    "fields that are a number": avro({"type": "record", "name": "row", "fields": 7}),
    "a schema that is a number": avro(7, (1, b"x")),
    "an unknown compression": avro(record("long"), (1, b"x"), codec="lz4"),
    "snappy of an endless size": avro(record("long"), (1, unsigned(2**60) + b"xxxx" * 5), codec="snappy"),
    "a cut block": avro(record("string"), (1, zlib.compress(b"x" * 99)[2:-9]), codec="deflate"),
    "no Avro": b"Objx" + bytes(50),
    "endless metadata": b"Obj\x01" + ENDLESS + bytes(50),
    "a deep text of a schema": Header({"avro.schema": DEEP}, SYNC).encoded + SYNC + integer(1),
}


@each("name", HOSTILE_AVRO)
def test_an_avro_file_ends_in_damage(name: str) -> None:
    body = HOSTILE_AVRO[name]
    with pytest.raises(DAMAGE):
        require_sound(body)
    with pytest.raises(DAMAGE):
        list(StoredAvro({"c0": "c0"}).rows(io.BytesIO(body)))


@each("seed", range(200))
def test_a_damaged_avro_file_ends_in_no_other_error(seed: int) -> None:
    chosen = random.Random(seed)
    rows = b"".join(integer(1) + integer(number) + integer(2) + b"xy" + b"\x00" for number in range(20))
    schema = record(["null", "long"], "string", {"type": "array", "items": ["null", "string"]})
    body = bytearray(avro(schema, (20, zlib.compress(rows)[2:-4]), codec="deflate"))
    for _ in range(chosen.choice((1, 3, 30))):
        body[chosen.randrange(len(body))] = chosen.randrange(256)
    for read in (require_sound, lambda body: list(StoredAvro({"c0": "c0"}).rows(io.BytesIO(body)))):
        with suppress(*DAMAGE):
            read(bytes(body))


ZEROS = bytes(2**25)
PACKED: dict[str, Callable[[bytes], bytes]] = {
    "deflate": lambda data: zlib.compress(data)[2:-4],
    "bzip2": bz2.compress,
    "xz": lzma.compress,
    "zstandard": zstandard.ZstdCompressor().compress,
    "snappy": lambda data: pa.Codec("snappy").compress(data, asbytes=True),
}


@each("codec", PACKED)
def test_a_block_unpacks_up_to_a_bound(codec: str) -> None:
    packed = PACKED[codec](ZEROS)
    assert unpacked(packed, codec, len(ZEROS)) == ZEROS
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="more bytes than"):
            unpacked(packed, codec, 2**22)
        assert tracemalloc.get_traced_memory()[1] < 2**25
    finally:
        tracemalloc.stop()


def test_numbers_are_of_64_bits() -> None:
    assert read_unsigned(io.BytesIO(unsigned(2**64 - 1))) == 2**64 - 1
    with pytest.raises(ValueError, match="64 bits"):
        read_unsigned(io.BytesIO(b"\x80" * 10**6))
    with pytest.raises(ValueError, match="ends early"):
        exactly(io.BytesIO(b"xyz"), -1)


def test_lines_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded, "MOST_UNPACKED_BYTES", 2**20)
    text = b"a\nb\r\n\n" + b"x" * 2**20 + b"\n"
    assert list(lines_of(pa.BufferReader(text))) == text.splitlines(keepends=True)
    zeros = pa.CompressedOutputStream(sink := pa.BufferOutputStream(), "gzip")
    zeros.write(bytes(2**24))
    zeros.close()
    with pytest.raises(ValueError, match="longer than any row"):
        list(StoredText("t.jsonl.gz").rows(io.BytesIO(sink.getvalue().to_pybytes())))


def test_a_row_of_csv_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("destination_s3_spark.formats.read_back.MOST_UNPACKED_BYTES", 100)
    with pytest.raises(ValueError, match="longer than any"):
        list(csv_rows(b'"' if number == 0 else b"x\n" for number in range(1_000)))


def test_rows_at_once_have_a_bound() -> None:
    def rows() -> Iterator[tuple[bytes, bytes | None]]:
        yield from ((b"x" * size, None) for size in (1, 1, 1, 9, 1))

    assert [len(some) for some in portions(rows(), 2, 5)] == [2, 2, 1]


def test_a_lack_of_files_is_no_damage() -> None:
    with pytest.raises(OSError, match="files"), reading(LookupError):
        raise OSError(24, "files")
    with pytest.raises(LookupError, match="ZstdError"), reading(LookupError):
        raise zstandard.ZstdError("x")


def parquet(table: pa.Table, **options: Any) -> io.BytesIO:
    out = io.BytesIO()
    pq.write_table(table, out, **options)
    return out


@each(
    "options",
    [{}, {"compression": "gzip"}, {"compression": "none"}, {"use_dictionary": False, "column_encoding": {"long": "DELTA_BYTE_ARRAY"}}],
)
def test_a_batch_has_fewer_rows_of_values_that_are_repeated(options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_pages, "BATCH_BYTES", 2**20)
    table = pa.table({"long": ["x" * 2**16] * 100, "id": [*range(100)]})
    batches = list(PagedFile(parquet(table, row_group_size=60, **options)).batches(50))
    assert max(batch.nbytes for batch in batches) < 2**21
    assert pa.Table.from_batches(batches) == table


def test_other_files_are_read_in_full_batches() -> None:
    table = pa.table({"text": [f"text {number % 50_000}" for number in range(100_000)], "many": [[1, 2]] * 100_000})
    for options in ({}, {"compression": "zstd", "data_page_version": "2.0"}, {"compression": "lz4"}):
        batches = list(PagedFile(parquet(table, **options)).batches(50_000))
        assert [len(batch) for batch in batches] in (
            [50_000, 50_000],
            [len(batch) for batch in batches if options.get("compression") == "lz4"],
        )
        assert pa.Table.from_batches(batches) == table


@each("seed", range(200))
def test_a_damaged_parquet_file_ends_in_no_other_error(seed: int) -> None:
    chosen = random.Random(seed)
    body = bytearray(parquet(pa.table({"text": ["a", "b", None] * 20, "many": [[1], None, []] * 20})).getvalue())
    for _ in range(chosen.choice((1, 3, 30))):
        body[chosen.randrange(len(body))] = chosen.randrange(256)
    with suppress(*DAMAGE):
        list(PagedFile(io.BytesIO(bytes(body))).batches(50))

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from destination_s3_spark.schema.arrow import RAW_SCHEMA, bare_flatbuffer
from unit_tests.cases import each
from unit_tests.schema.bare_flatbuffer import schema_from_bare_flatbuffer

VECTORS = json.loads((Path(__file__).parent / "data" / "arrow_schema_vectors.json").read_text())


def test_what_another_implementation_writes_can_be_read() -> None:
    frame = pl.DataFrame({"id": [1], "city": ["Oslo"], "at": [datetime(2026, 1, 1, tzinfo=UTC)], "tags": [["a"]]})
    stream = BytesIO()
    frame.write_ipc_stream(stream, compat_level=pl.CompatLevel.oldest())
    expected = pa.ipc.read_schema(pa.py_buffer(stream.getvalue()))
    assert schema_from_bare_flatbuffer(bare_flatbuffer(expected)) == expected
    assert schema_from_bare_flatbuffer(_bare(stream.getvalue())) == expected


def _bare(message: bytes) -> bytes:
    """The bare form of the schema in an encapsulated message, made by hand: the root moves from the Message table to its header."""
    size = int.from_bytes(message[4:8], "little")
    flatbuffer = bytearray(message[8 : 8 + size])
    table = int.from_bytes(flatbuffer[:4], "little")
    vtable = table - int.from_bytes(flatbuffer[table : table + 4], "little", signed=True)
    field = table + int.from_bytes(flatbuffer[vtable + 8 : vtable + 10], "little")
    header = field + int.from_bytes(flatbuffer[field : field + 4], "little")
    flatbuffer[:4] = header.to_bytes(4, "little")
    return bytes(flatbuffer)


@each("vector", VECTORS["from_pyarrow"], ids=lambda vector: vector["id"])
def test_the_bare_form_is_the_message_with_its_root_at_the_schema(vector: dict[str, Any]) -> None:
    schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(vector["ipc_message"])))
    assert bare_flatbuffer(schema) == base64.b64decode(vector["bare"])


@each(
    "schema",
    [
        pa.schema([]),
        RAW_SCHEMA,
        pa.schema([pa.field("x" * length, pa.int8(), metadata={"k": "v" * length}) for length in range(1, 9)], metadata={"a": "b"}),
    ],
)
def test_a_schema_reads_back_from_its_bare_form(schema: pa.Schema) -> None:
    assert schema_from_bare_flatbuffer(bare_flatbuffer(schema)).equals(schema, check_metadata=True)


@each("bare", [b"", bytes(4), bytes(40), b"\xff" * 40, RAW_SCHEMA.serialize().to_pybytes()])
def test_other_bytes_are_refused(bare: bytes) -> None:
    with pytest.raises((pa.ArrowInvalid, OSError)):
        schema_from_bare_flatbuffer(bare)

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from destination_s3_spark.schema.arrow import RAW_SCHEMA
from destination_s3_spark.schema.flatbuffer import bare_flatbuffer, schema_from_bare_flatbuffer

VECTORS = json.loads((Path(__file__).parent / "data" / "arrow_schema_vectors.json").read_text())
TYPES = {
    "int64": pa.int64(),
    "int32": pa.int32(),
    "bool": pa.bool_(),
    "string": pa.string(),
    "timestamp[ms, tz=UTC]": pa.timestamp("ms", tz="UTC"),
}


@pytest.mark.parametrize("vector", VECTORS["bare_from_arrow_rs"], ids=lambda vector: vector["id"])
def test_what_arrow_rs_writes_can_be_read(vector: dict[str, Any]) -> None:
    expected = pa.schema([pa.field(field["name"], TYPES[field["type"]], field["nullable"]) for field in vector["fields"]])
    assert schema_from_bare_flatbuffer(base64.b64decode(vector["base64"])) == expected


@pytest.mark.parametrize("vector", VECTORS["from_pyarrow"], ids=lambda vector: vector["id"])
def test_the_bare_form_is_the_message_with_its_root_at_the_schema(vector: dict[str, Any]) -> None:
    schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(vector["ipc_message"])))
    assert bare_flatbuffer(schema) == base64.b64decode(vector["bare"])


@pytest.mark.parametrize(
    "schema",
    [
        pa.schema([]),
        RAW_SCHEMA,
        pa.schema([pa.field("x" * length, pa.int8(), metadata={"k": "v" * length}) for length in range(1, 9)], metadata={"a": "b"}),
    ],
    ids=["empty", "raw", "metadata"],
)
def test_a_schema_reads_back_from_its_bare_form(schema: pa.Schema) -> None:
    assert schema_from_bare_flatbuffer(bare_flatbuffer(schema)).equals(schema, check_metadata=True)


@pytest.mark.parametrize("bare", [b"", bytes(4), bytes(40), b"\xff" * 40, RAW_SCHEMA.serialize().to_pybytes()])
def test_other_bytes_are_refused(bare: bytes) -> None:
    with pytest.raises((pa.ArrowInvalid, OSError)):
        schema_from_bare_flatbuffer(bare)

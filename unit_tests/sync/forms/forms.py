"""The forms a final table's files can have, and their rows in one shape, whatever the form."""

from __future__ import annotations

import csv
import gzip
import io
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

import fastavro

from unit_tests.lake.corpus_cases import comparable
from unit_tests.lake.messages import JsonObject
from unit_tests.lake.table_readers import META_COLUMNS, Row, read_pyarrow

MILLISECOND_US = 1000
NO_COMPRESSION = {"compression_type": "No Compression"}
csv.field_size_limit(sys.maxsize)


class Form(Enum):
    """A configuration of `format`. The text forms come with and without gzip."""

    PARQUET = "parquet"
    PARQUET_INT64 = "parquet_int64"
    PARQUET_LOCAL = "parquet_local"
    AVRO = "avro"
    JSONL = "jsonl"
    JSONL_FLAT = "jsonl_flat"
    CSV = "csv"
    CSV_FLAT = "csv_flat"

    @property
    def config(self) -> JsonObject:
        return _CONFIGS[self]

    @property
    def is_text(self) -> bool:
        """Whether values are written as they come."""
        return self in {Form.JSONL, Form.JSONL_FLAT, Form.CSV, Form.CSV_FLAT}


_CONFIGS: Mapping[Form, JsonObject] = {
    Form.PARQUET: {"format_type": "Parquet", "compression_codec": "SNAPPY"},
    Form.PARQUET_INT64: {"format_type": "Parquet", "time_encoding": "int64"},
    Form.PARQUET_LOCAL: {"format_type": "Parquet", "time_encoding": "local", "extracted_at_encoding": "micros"},
    Form.AVRO: {"format_type": "Avro", "compression_codec": {"codec": "Deflate", "compression_level": 6}},
    Form.JSONL: {"format_type": "JSONL", "flattening": "No flattening"},
    Form.JSONL_FLAT: {"format_type": "JSONL", "flattening": "Root level flattening", "compression": NO_COMPRESSION},
    Form.CSV: {"format_type": "CSV", "flattening": "No flattening"},
    Form.CSV_FLAT: {"format_type": "CSV", "flattening": "Root level flattening", "compression": NO_COMPRESSION},
}


@dataclass(frozen=True, slots=True)
class Number:
    """A number of a JSON text by its digits."""

    digits: str


def exact_json(text: str | bytes) -> Any:
    """The value of a JSON text, every number as a Number."""
    return json.loads(text, parse_int=Number, parse_float=Number)


def rows_of(form: Form, path: Any) -> list[Row]:
    """The rows of a file in the shape of `corpus_cases.comparable`; the text forms' values stay texts or exact JSON."""
    match form:
        case Form.PARQUET | Form.PARQUET_INT64 | Form.PARQUET_LOCAL:
            return [comparable(row) for row in read_pyarrow([path])]
        case Form.AVRO:
            return [comparable({**row, "_airbyte_extracted_at": row["_airbyte_extracted_at"] * MILLISECOND_US}) for row in read_avro(path)]
        case Form.JSONL | Form.JSONL_FLAT:
            return [_json_row(exact_json(line)) for line in _text(path).split("\n")[:-1]]
        case Form.CSV | Form.CSV_FLAT:
            return [_csv_row(row) for row in csv.DictReader(io.StringIO(_text(path), newline=""), strict=True)]


def read_avro(path: Any) -> list[Row]:
    """The rows of an Avro file, dates and times as the integers that are stored."""
    with path.open("rb") as file:
        blocks = fastavro.block_reader(file)
        schema = fastavro.parse_schema(_without_logical_types(blocks.writer_schema))
        return [fastavro.schemaless_reader(block.bytes_, schema) for block in blocks for _ in range(block.num_records)]


def avro_schema(path: Any) -> JsonObject:
    with path.open("rb") as file:
        schema: JsonObject = json.loads(fastavro.reader(file).metadata["avro.schema"])
        return schema


def _without_logical_types(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_without_logical_types(branch) for branch in schema]
    if isinstance(schema, dict):
        if schema.get("logicalType") == "decimal":
            return schema
        bare = {key: _without_logical_types(value) for key, value in schema.items() if key != "logicalType" and not key.startswith("__")}
        return bare["type"] if list(bare) == ["type"] else bare
    return schema


def _text(path: Any) -> str:
    data = path.read_bytes()
    return (gzip.decompress(data) if path.suffix == ".gz" else data).decode()


def _json_row(row: Row) -> Row:
    own = {name: row.pop(name) for name in META_COLUMNS}
    return _text_row(
        int(own["_airbyte_extracted_at"].digits),
        int(own["_airbyte_generation_id"].digits),
        own["_airbyte_meta"],
        row.get("_airbyte_data", row),
    )


def _csv_row(row: Row) -> Row:
    own = {name: row.pop(name) for name in META_COLUMNS}
    data = exact_json(row["_airbyte_data"]) if "_airbyte_data" in row else row
    return _text_row(int(own["_airbyte_extracted_at"]), int(own["_airbyte_generation_id"]), exact_json(own["_airbyte_meta"]), data)


def _text_row(extracted_at_ms: int, generation: int, meta: JsonObject, data: Any) -> Row:
    meta = {"sync_id": int(meta["sync_id"].digits), "changes": meta["changes"]}
    return {"extracted_at_us": extracted_at_ms * MILLISECOND_US, "generation": generation, "meta": meta, "data": data}

"""The rival: DuckDB reads the protocol file with typed columns, one pass per stream, writes Parquet and uploads it.

It does less than a destination: no STATE is handled, no value that does not fit is recorded, only one metadata column is added. Run as a
process of its own: `duckdb_rival.py FILE CATALOG ENDPOINT BUCKET PREFIX MISFITS`, where MISFITS says what a value that does not fit does:
`stop` the load (DuckDB's default, and a little faster) or silently become `null`.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import boto3
import duckdb

SCALARS = {
    "date": "DATE",
    "time_without_timezone": "TIME",
    "timestamp_with_timezone": "TIMESTAMPTZ",
    "timestamp_without_timezone": "TIMESTAMP",
    "string": "VARCHAR",
    "boolean": "BOOLEAN",
    "integer": "BIGINT",
    "number": "DOUBLE",
}


def duckdb_type(schema: Mapping[str, Any]) -> str:
    """The DuckDB type of a property of the workload's catalog."""
    kind = schema.get("airbyte_type") or next(name for name in schema["type"] if name != "null")
    if kind == "object" and "properties" in schema:
        return _struct(schema["properties"])
    if kind == "object":
        return "JSON"
    if kind == "array":
        return f"{duckdb_type(schema['items'])}[]"
    return SCALARS["date" if schema.get("format") == "date" else kind]


def copy_statement(source: Path, stream: Mapping[str, Any], target: Path, misfits: str) -> str:
    """SQL that writes one stream's records of the protocol file as Parquet; `misfits` is `stop` or `null`."""
    name, properties = stream["name"], stream["json_schema"]["properties"]
    record = f"STRUCT(stream VARCHAR, emitted_at BIGINT, data {_struct(properties)})"
    return f"""
        COPY (
            SELECT record.emitted_at AS _airbyte_extracted_at, unnest(record.data)
            FROM read_json('{source}', format = 'newline_delimited', ignore_errors = {misfits == "null"},
                           columns = {{type: 'VARCHAR', record: '{record}'}})
            WHERE type = 'RECORD' AND record.stream = '{name}'
        ) TO '{target}' (FORMAT parquet, COMPRESSION snappy)
    """


def _struct(properties: Mapping[str, Any]) -> str:
    return "STRUCT(" + ", ".join(f'"{name}" {duckdb_type(schema)}' for name, schema in properties.items()) + ")"


def main(file: str, catalog: str, endpoint: str, bucket: str, prefix: str, misfits: str) -> None:
    """Land every stream of the file under the prefix."""
    client = boto3.client("s3", endpoint_url=endpoint)
    connection = duckdb.connect()
    with tempfile.TemporaryDirectory() as directory:
        for configured in json.loads(Path(catalog).read_text())["streams"]:
            stream = configured["stream"]
            target = Path(directory) / f"{stream['name']}.parquet"
            connection.execute(copy_statement(Path(file), stream, target, misfits))
            client.upload_file(str(target), bucket, f"{prefix}/{stream['namespace']}/{stream['name']}/{target.name}")


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Reads a table's Parquet files with the engines our users have: pyarrow, DuckDB, Polars and Spark.

All of them give plain rows in one neutral form, so that they can be compared with each other and with what a test expects: timestamps
are µs since the epoch, times µs since midnight, dates days since the epoch, structs dicts, lists lists.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path, PurePosixPath
from typing import Any

import duckdb
import polars
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.pandas.types import from_arrow_schema

from unit_tests.lake.buckets import Bucket

Row = dict[str, Any]
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
META_COLUMNS = ("_airbyte_raw_id", "_airbyte_extracted_at", "_airbyte_meta", "_airbyte_generation_id")


def download(bucket: Bucket, keys: Iterable[str], directory: Path) -> list[Path]:
    """Fetch the objects into `directory`, under flat names with their extension (no engine here has an S3 client of its own)."""
    directory.mkdir(parents=True, exist_ok=True)
    paths = []
    for number, key in enumerate(keys):
        suffixes = PurePosixPath(key).suffixes
        path = directory / f"{number:05d}{''.join(suffixes[-2 if key.endswith('.gz') else -1 :])}"
        path.write_bytes(bucket.read(key))
        paths.append(path)
    return paths


def read_pyarrow(paths: list[Path]) -> list[Row]:
    return [neutral(row) for path in paths for row in pq.ParquetFile(path).read().to_pylist()]


def read_duckdb(paths: list[Path]) -> list[Row]:
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        relation = connection.read_parquet([str(path) for path in paths], union_by_name=True)
        names = relation.columns
        return [neutral(dict(zip(names, row, strict=True))) for row in relation.fetchall()]


def read_polars(paths: list[Path]) -> list[Row]:
    frames = [polars.read_parquet(path) for path in paths]
    return [neutral(row) for row in polars.concat(frames, how="diagonal").to_dicts()]


def read_spark(paths: list[Path], session: Any) -> list[Row]:
    """`session` must allow the TIME type and have UTC as its time zone.

    Spark infers no schema from a file with a UTC-adjusted TIME column (PARQUET_TYPE_ILLEGAL), but reads it when it is told the type.
    """
    schema = from_arrow_schema(pa.unify_schemas([pq.read_schema(path) for path in paths]))
    frame = session.read.schema(schema).parquet(*map(str, paths))
    return [neutral(row) for row in frame.toArrow().to_pylist()]


def by_raw_id(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: str(row["_airbyte_raw_id"]))


def without_meta(row: Row) -> Row:
    """The data columns."""
    return {name: value for name, value in row.items() if name not in META_COLUMNS}


def neutral(value: Any) -> Any:
    match value:
        case datetime():
            return (value.replace(tzinfo=value.tzinfo or UTC) - EPOCH) // MICROSECOND
        case date():
            return (value - EPOCH.date()).days
        case time():
            return timedelta(hours=value.hour, minutes=value.minute, seconds=value.second, microseconds=value.microsecond) // MICROSECOND
        case dict():
            return {name: neutral(item) for name, item in value.items()}
        case list():
            return [neutral(item) for item in value]
        case _:
            return value

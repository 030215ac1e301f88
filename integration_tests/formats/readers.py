"""What today's readers make of a file, column by column: the type they give it and the values they read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import fastavro
import polars
import pyarrow as pa
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet as pq
from pyspark.errors import PySparkException

from unit_tests.lake.table_readers import META_COLUMNS
from unit_tests.sync.forms.forms import Form, avro_schema, read_avro

REFUSALS = (duckdb.Error, polars.exceptions.PolarsError, pa.ArrowException, PySparkException)
"""What readers raise for a file they do not read."""


class Reader(Enum):
    """The values are the names in the documentation."""

    SPARK = "Spark"
    DUCKDB = "DuckDB"
    POLARS = "Polars"
    PYARROW = "pyarrow"
    FASTAVRO = "fastavro"


class Column(NamedTuple):
    """A column as read: the reader's name of its type, without what is inside of it, and the values, dates and times as integers."""

    type: str
    values: list[Any]


def read(reader: Reader, form: Form, path: Path, session: Any) -> dict[str, Column]:
    """The data columns of a file, by the call its users would write. `session` is Spark's. Raises one of REFUSALS."""
    columns = _READERS[reader, _kind(form)](path, session)
    return {name: column for name, column in columns.items() if name not in META_COLUMNS}


def readers_of(form: Form) -> list[Reader]:
    """The readers that are tried with a form."""
    return [reader for reader in Reader if (reader, _kind(form)) in _READERS]


def _kind(form: Form) -> str:
    return form.config["format_type"]


def _spark(load: Callable[[Any, str], Any]) -> Callable[[Path, Any], dict[str, Column]]:
    def columns(path: Path, session: Any) -> dict[str, Column]:
        frame = load(session.read, str(path))
        return _columns(frame.toArrow(), dict(frame.dtypes))

    return columns


def _duckdb(function: str) -> Callable[[Path, Any], dict[str, Column]]:
    def columns(path: Path, session: Any) -> dict[str, Column]:
        with duckdb.connect() as connection:
            connection.execute("SET TimeZone = 'UTC'")
            relation = connection.sql(f"SELECT * FROM {function}('{path}')")
            types = dict(zip(relation.columns, map(str, relation.types), strict=True))
            return _columns(relation.to_arrow_table(), types)

    return columns


def _polars(load: Callable[[Path], Any]) -> Callable[[Path, Any], dict[str, Column]]:
    def columns(path: Path, session: Any) -> dict[str, Column]:
        frame = load(path)
        return _columns(frame.to_arrow(), {name: str(kind) for name, kind in frame.schema.items()})

    return columns


def _pyarrow(load: Callable[[Path], pa.Table]) -> Callable[[Path, Any], dict[str, Column]]:
    def columns(path: Path, session: Any) -> dict[str, Column]:
        table = load(path)
        return _columns(table, {field.name: str(field.type) for field in table.schema})

    return columns


def _fastavro(path: Path, session: Any) -> dict[str, Column]:
    with path.open("rb") as file:
        shown = list(fastavro.reader(file))
    stored = read_avro(path)
    names = [member["name"] for member in avro_schema(path)["fields"]]
    kinds = {name: {type(row[name]).__name__: None for row in shown if row[name] is not None} for name in names}
    return {name: Column(" or ".join(kinds[name]), [row[name] for row in stored]) for name in names}


def _columns(table: pa.Table, types: Mapping[str, str]) -> dict[str, Column]:
    columns = {}
    for name, kind in types.items():
        if name not in META_COLUMNS:
            columns[name] = Column(_bare(kind), _stored(table.column(name)).to_pylist())
    return columns


def _bare(kind: str) -> str:
    """`STRUCT(a BIGINT)[]` as `STRUCT[]`, `list<element: int64>` as `list`."""
    depth, bare = 0, ""
    for character in kind:
        depth -= character in ")>"
        if depth == 0 and character not in "(<)>":
            bare += character
        depth += character in "(<"
    return bare


def _stored(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """The values with temporals as integers: days, or µs whatever the reader's unit is."""
    kind = values.type
    if pa.types.is_date32(kind):
        return values.cast(pa.int32())
    if pa.types.is_timestamp(kind):
        return values.cast(pa.timestamp("us", kind.tz)).cast(pa.int64())
    return values.cast(pa.time64("us")).cast(pa.int64()) if pa.types.is_time(kind) else values


_READERS: Mapping[tuple[Reader, str], Callable[[Path, Any], dict[str, Column]]] = {
    (Reader.SPARK, "Parquet"): _spark(lambda read, path: read.parquet(path)),
    (Reader.SPARK, "JSONL"): _spark(lambda read, path: read.json(path)),
    (Reader.SPARK, "CSV"): _spark(lambda read, path: read.csv(path, header=True, inferSchema=True, multiLine=True, escape='"')),
    (Reader.DUCKDB, "Parquet"): _duckdb("read_parquet"),
    (Reader.DUCKDB, "JSONL"): _duckdb("read_json"),
    (Reader.DUCKDB, "CSV"): _duckdb("read_csv"),
    (Reader.POLARS, "Parquet"): _polars(polars.read_parquet),
    (Reader.POLARS, "Avro"): _polars(polars.read_avro),
    (Reader.POLARS, "JSONL"): _polars(polars.read_ndjson),
    (Reader.POLARS, "CSV"): _polars(polars.read_csv),
    (Reader.PYARROW, "Parquet"): _pyarrow(pq.read_table),
    (Reader.PYARROW, "JSONL"): _pyarrow(pyarrow.json.read_json),
    (Reader.PYARROW, "CSV"): _pyarrow(
        lambda path: pyarrow.csv.read_csv(path, parse_options=pyarrow.csv.ParseOptions(newlines_in_values=True))
    ),
    (Reader.FASTAVRO, "Avro"): _fastavro,
}

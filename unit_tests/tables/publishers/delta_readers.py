"""Delta readers, and their rows beside those of `tables.read`: values, and filters on every column that readers can prune by."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import Any

import deltalake
import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from destination_s3_spark import tables
from destination_s3_spark.schema.encodings import has_time
from destination_s3_spark.storage.s3 import S3Store
from destination_s3_spark.storage.settings import S3Settings

Row = Mapping[str, Any]
Names = tuple[str, ...]

OPERATORS: Mapping[str, Callable[[Any, Any], Any]] = {"=": operator.eq, ">": operator.gt, "<=": operator.le}
SCALARS = (bool, int, float, Decimal, str, date, datetime)


@dataclass(frozen=True)
class DeltaReaders:
    """A Delta table as several readers see it."""

    uri: str
    options: dict[str, str]

    @classmethod
    def on_s3(cls, settings: S3Settings, root: str) -> DeltaReaders:
        keys = settings.credentials
        assert keys is not None
        options = {
            "AWS_ENDPOINT_URL": settings.endpoint or "",
            "AWS_ACCESS_KEY_ID": keys.access_key_id,
            "AWS_SECRET_ACCESS_KEY": keys.secret_access_key,
            "AWS_REGION": settings.region,
            "AWS_ALLOW_HTTP": "true",
        }
        return cls(f"s3://{settings.bucket}/{root}", options)

    @classmethod
    def of_copy(cls, settings: S3Settings, root: str, directory: Path) -> DeltaReaders:
        """The table as it is now, copied below the directory."""
        copy = Path(mkdtemp(dir=directory))
        _copy(S3Store(settings), root, copy)
        return cls(str(copy), {})

    def table(self) -> deltalake.DeltaTable:
        return deltalake.DeltaTable(self.uri, storage_options=self.options)

    def polars(self) -> pl.LazyFrame:
        return pl.scan_delta(self.uri, storage_options=self.options)

    def values(self, column: str = "id") -> list[Any]:
        """The values of a column, the same through all readers."""
        found = sorted(self.table().to_pyarrow_table()[column].to_pylist())
        assert sorted(self.polars().select(column).collect()[column].to_list()) == found
        return found


def expect_rows_of_the_chain(settings: S3Settings, config: Mapping[str, Any], name: str, root: str, *, filters: bool = True) -> list[Row]:
    """Every reader has the rows of `tables.read`, and finds them by filters; returns them."""
    expected = _sorted(_without_times(tables.read(config, name).to_table()))
    with TemporaryDirectory() as directory:  # many queries of a copy take a fraction of the time
        _copy(S3Store(settings), root, Path(directory))
        readers = DeltaReaders(directory, {})
        table, frame = readers.table(), readers.polars()
        assert _sorted(table.to_pyarrow_table()) == expected
        assert _sorted(frame.collect().to_arrow()) == expected
        if filters:
            _expect_filters(expected, table.to_pyarrow_dataset(), frame)
    return expected


def _expect_filters(expected: Sequence[Row], dataset: ds.Dataset, frame: pl.LazyFrame) -> None:
    # Of one thread, because several that wait for delta-rs have waited for each other for ever.
    with duckdb.connect(config={"threads": 1}) as connection:
        connection.register("delta", dataset)
        for path, sign, value in _conditions(expected):
            wanted = sum(_compares(_at(row, path), value, OPERATORS[sign]) for row in expected)
            found = _counts(frame, dataset, connection, path, value, sign)
            assert found == dict.fromkeys(found, wanted), (path, sign, value)
        for path in sorted({path for row in expected for path in _leaves(row, ())}):
            wanted = sum(_at(row, path) is None for row in expected)
            found = _null_counts(frame, dataset, connection, path)
            assert found == dict.fromkeys(found, wanted), (path, "IS NULL")


def _copy(store: S3Store, root: str, directory: Path) -> None:
    for found in store.list(root):
        path = directory / found.key.removeprefix(root)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(store.get(found.key))


def _counts(
    frame: pl.LazyFrame, dataset: ds.Dataset, connection: duckdb.DuckDBPyConnection, path: Names, value: Any, sign: str
) -> dict[str, int]:
    compare = OPERATORS[sign]
    field, column = pc.field(*path), pl.col(path[0])
    for member in path[1:]:
        column = column.struct.field(member)
    literal = pl.lit(value, dtype=pl.Datetime("us", "UTC")) if isinstance(value, datetime) else pl.lit(value)
    quoted = ".".join(f'"{part}"' for part in path)
    in_duckdb = connection.execute(f"SELECT count(*) FROM delta WHERE {quoted} {sign} ?", [value]).fetchall()
    return {
        "delta-rs": dataset.to_table(filter=compare(field, _scalar(value))).num_rows,
        "DuckDB": in_duckdb[0][0],
        "Polars": frame.filter(compare(column, literal)).collect().height,
    }


def _null_counts(frame: pl.LazyFrame, dataset: ds.Dataset, connection: duckdb.DuckDBPyConnection, path: Names) -> dict[str, int]:
    column = pl.col(path[0])
    for member in path[1:]:
        column = column.struct.field(member)
    quoted = ".".join(f'"{part}"' for part in path)
    return {
        "delta-rs": dataset.to_table(filter=pc.field(*path).is_null()).num_rows,
        "DuckDB": connection.execute(f"SELECT count(*) FROM delta WHERE {quoted} IS NULL").fetchall()[0][0],
        "Polars": frame.filter(column.is_null()).collect().height,
    }


def _scalar(value: Any) -> Any:
    return pa.scalar(value, pa.timestamp("us", "UTC")) if isinstance(value, datetime) else value


def _compares(stored: Any, value: Any, compare: Callable[[Any, Any], Any]) -> bool:
    return stored is not None and bool(compare(stored, value))


def _conditions(rows: Sequence[Row]) -> Iterator[tuple[Names, str, Any]]:
    """The least, a middle and the greatest value of each column and member, and what is on either side of the middle one."""
    for path in sorted({path for row in rows for path in _leaves(row, ())}):
        values = sorted({value for row in rows if (value := _at(row, path)) is not None})
        middle = values[len(values) // 2]
        for value in dict.fromkeys((values[0], middle, values[-1])):
            yield path, "=", value
        yield path, ">", middle
        yield path, "<=", middle


def _leaves(row: Row, path: Names) -> Iterator[Names]:
    for name, value in row.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, (*path, name))
        elif isinstance(value, SCALARS):
            yield (*path, name)


def _at(row: Row, path: Names) -> Any:
    value: Any = row
    for name in path:
        value = None if value is None else value.get(name)
    return value


def _sorted(table: pa.Table) -> list[Row]:
    return sorted(table.to_pylist(), key=lambda row: row["_airbyte_raw_id"])


def _without_times(table: pa.Table) -> pa.Table:
    return table.drop_columns([column.name for column in table.schema if has_time(column.type)])

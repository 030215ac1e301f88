"""Readers of a table with partitions: all see all rows, and open only the files that can have what they want."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime
from typing import Any
from urllib.parse import unquote, urlsplit

import duckdb
import polars as pl
import pyarrow.dataset as ds
import pytest

from destination_s3_spark.chain.files import FileKind
from destination_s3_spark.schema.partitioning import NULL_PARTITION
from destination_s3_spark.storage.credentials import arrow_filesystem
from destination_s3_spark.storage.settings import S3Settings
from unit_tests.lake.lake import Lake
from unit_tests.s3_proxy import S3Proxy
from unit_tests.sync.partitioned_lake import DAILY, HOURLY, catalog, messages, partitioned, record, rows_of
from unit_tests.tables.publishers.delta_readers import DeltaReaders
from unit_tests.tables.publishers.iceberg.lake import reader

DAY = "2026-11-21"
WANTED = [number for number in range(80) if number % 8 == 1]
Opened = Callable[[], set[str]]


def daily(number: int) -> dict[str, Any]:
    return record(number, 7)


@pytest.fixture(scope="module")
def lake(make_served_bucket: Callable[[], S3Settings], tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """Eighty rows on seven days and on none, in sixteen files, as folders and as a Delta table."""
    options = {**partitioned(DAILY, compaction="off"), "publish": {"delta": True}}
    lake = Lake(make_served_bucket(), tmp_path_factory.mktemp("lake"), options=options)
    for sync in range(2):
        lake.sync(catalog(sync=sync + 1), messages(map(daily, range(40 * sync, 40 * sync + 40))))
    assert len(lake.live(FileKind.FINAL)) == 16
    return lake


@pytest.fixture
def proxied(lake: Lake, s3_proxy: S3Proxy) -> S3Settings:
    return replace(lake.settings, endpoint=s3_proxy.endpoint)


@pytest.fixture
def opened(s3_proxy: S3Proxy) -> Opened:
    """The partitions of the data files that were read since the last call, by the requests for their bytes."""

    def found() -> set[str]:
        calls, s3_proxy.calls = s3_proxy.calls, []
        keys = [unquote(urlsplit(call.target).path) for call in calls if call.action == "GetObject"]
        return {key.partition("/at_day=")[2].partition("/")[0] for key in keys if key.endswith(".parquet")}

    return found


def everywhere(lake: Lake) -> set[str]:
    return {file.partition or "" for file in lake.live(FileKind.FINAL)}


def test_arrow_and_duckdb_skip_folders(lake: Lake, proxied: S3Settings, opened: Opened) -> None:
    # DuckDB has no extension for S3 here; it pushes its filters into the dataset, whose partitions are the folders'.
    partitioning = ds.partitioning(flavor="hive")
    files = ds.dataset(  # noqa: F841 - DuckDB finds it by its name
        f"{proxied.bucket}/lake/users", filesystem=arrow_filesystem(proxied), format="parquet", partitioning=partitioning
    )
    opened()
    found = duckdb.execute(f"SELECT id FROM files WHERE at_day = '{DAY}' ORDER BY id").fetchall()
    assert [one for (one,) in found] == WANTED
    assert opened() == {DAY}
    assert duckdb.execute("SELECT count(*), count(at_day) FROM files").fetchall() == [(80, 70)]


def test_duckdb_skips_folders_of_a_glob(lake: Lake, tmp_path: Any) -> None:
    store = lake.store
    for file in lake.live(FileKind.FINAL):
        path = tmp_path / file.key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(store.get(file.key))
    glob = f"read_parquet('{tmp_path}/lake/users/*/*.parquet')"
    found = duckdb.execute(f"SELECT id FROM {glob} WHERE at_day = DATE '{DAY}' ORDER BY id").fetchall()
    assert [one for (one,) in found] == WANTED
    plan = duckdb.execute(f"EXPLAIN ANALYZE SELECT id FROM {glob} WHERE at_day = DATE '{DAY}'").fetchall()[0][1]
    assert "Total Files Read: 2" in plan
    assert duckdb.execute(f"SELECT count(*), count(at_day) FROM {glob}").fetchall() == [(80, 70)]


def test_polars_skips_folders(lake: Lake, proxied: S3Settings, opened: Opened) -> None:
    options = DeltaReaders.on_s3(proxied, "").options
    frame = pl.scan_parquet(f"s3://{proxied.bucket}/lake/users/*/*.parquet", hive_partitioning=True, storage_options=options)
    schema = frame.collect_schema()
    assert schema["at_day"] == pl.Date
    opened()
    found = frame.filter(pl.col("at_day") == date.fromisoformat(DAY)).select("id").collect()
    assert sorted(found["id"]) == WANTED
    assert opened() <= {DAY, min(everywhere(lake))}  # the first file for the columns
    assert frame.select("id").collect().height == 80


def test_delta_readers_skip_partitions(lake: Lake, proxied: S3Settings, opened: Opened) -> None:
    readers = DeltaReaders.on_s3(proxied, "lake/users/")
    table = readers.table()
    assert table.metadata().partition_columns == ["at_day"]
    opened()
    found = table.to_pyarrow_table(partitions=[("at_day", "=", DAY)])
    assert sorted(found["id"].to_pylist()) == WANTED
    assert opened() == {DAY}
    dataset = table.to_pyarrow_dataset()
    assert dataset.schema.field("at_day").type == "date32"
    opened()
    found_by_duckdb = duckdb.execute(f"SELECT id FROM dataset WHERE at_day = DATE '{DAY}' ORDER BY id").fetchall()
    assert [one for (one,) in found_by_duckdb] == WANTED
    assert opened() == {DAY}
    in_day = "\"at\" >= TIMESTAMPTZ '2026-11-21 00:00:00Z' AND \"at\" < TIMESTAMPTZ '2026-11-22 00:00:00Z'"
    assert len(duckdb.execute(f"SELECT id FROM dataset WHERE {in_day}").fetchall()) == len(WANTED)
    assert opened() == {DAY}  # by the statistics of the column itself
    frame = readers.polars()
    opened()
    assert sorted(frame.filter(pl.col("at_day") == date.fromisoformat(DAY)).select("id").collect()["id"]) == WANTED
    assert opened() == {DAY}
    assert frame.filter(pl.col("at_day").is_null()).collect().height == 10
    assert frame.collect().height == 80


@pytest.mark.parametrize(
    ("column", "transform", "values", "found"),
    [
        ("at", "year", ["2026-01-01T00:00:00Z", "0005-01-01T00:00:00Z", None], [2026, 5, None]),
        ("at", "month", ["2026-02-01T00:00:00Z", None], ["2026-02", None]),
        ("at", "hour", ["2026-02-01T13:59:00Z", "1969-12-31T23:59:59Z"], ["2026-02-01-13", "1969-12-31-23"]),
        ("id", "identity", [7, -7], [7, -7]),
        ("kind", "identity", ["plain", "", None], ["plain", None, None]),
        ("on", "identity", ["2026-02-01", "0001-01-01", "9999-12-31"], [date(2026, 2, 1), date(1, 1, 1), date(9999, 12, 31)]),
        ("flag", "identity", [True, False, None], [True, False, None]),
    ],
)
def test_delta_values_of_each_transform(
    column: str, transform: str, values: list[Any], found: list[Any], s3_settings: S3Settings, tmp_path: Any
) -> None:
    options = {**partitioned({"stream": "*", "column": column, "transform": transform, "name": "part"}), "publish": {"delta": True}}
    lake = Lake(s3_settings, tmp_path, options=options)
    at = {"type": "string", "format": "date-time", "airbyte_type": "timestamp_with_timezone"}
    kinds = {"id": {"type": "integer"}, "at": at, "kind": {"type": "string"}, "flag": {"type": "boolean"}}
    schema = {"type": "object", "properties": {**kinds, "on": {"type": "string", "format": "date"}}}
    records = [{"id": number, column: value} for number, value in enumerate(values)]
    lake.sync(catalog(schema=schema), messages(records))
    readers = DeltaReaders.of_copy(s3_settings, "lake/users/", tmp_path)
    table = readers.table().to_pyarrow_table()
    seen = list(zip(table[column].to_pylist(), table["part"].to_pylist(), strict=True))
    given = table[column].to_pylist()
    assert len(seen) == len(values)
    order = {None: None, **dict(zip(values, found, strict=True))}

    def plain(value: Any) -> Any:
        if isinstance(value, datetime):
            return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ").rjust(20, "0")
        return value.isoformat() if isinstance(value, date) else value

    assert [order[plain(value)] for value in given] == table["part"].to_pylist()
    polars = readers.polars().collect()
    assert sorted(map(str, polars["part"].to_list())) == sorted(map(str, found))


def test_a_delta_log_follows_a_refresh_with_other_partitions(s3_settings: S3Settings, tmp_path: Any) -> None:
    lake = Lake(s3_settings, tmp_path, options={**partitioned(), "publish": {"delta": True}})
    lake.sync(catalog(), messages(map(daily, range(16))))

    def readers() -> DeltaReaders:
        return DeltaReaders.of_copy(s3_settings, "lake/users/", tmp_path)

    assert readers().table().metadata().partition_columns == []
    lake.options = {**partitioned(DAILY), "publish": {"delta": True}}
    lake.sync(catalog(sync=2), messages(map(daily, range(16, 24))))
    assert readers().table().metadata().partition_columns == []
    lake.sync(catalog(sync=3, generation=2, minimum=2), messages(map(daily, range(32))))
    assert readers().table().metadata().partition_columns == ["at_day"]
    assert readers().values() == list(range(32))
    for sync in range(4, 19):  # over a checkpoint and a compaction
        lake.sync(catalog(sync=sync, generation=2), messages(map(daily, range(8 * sync, 8 * sync + 8))))
    assert len(lake.live(FileKind.FINAL)) == 8
    assert readers().values() == [*range(32), *range(32, 152)]
    assert readers().table().to_pyarrow_table()["at_day"].null_count == 19
    assert {file.partition for file in lake.live(FileKind.FINAL)} >= {DAY, NULL_PARTITION}


ICEBERG_CASES: list[tuple[str, str, Callable[[Any], Any]]] = [
    ("at", "year", lambda at: None if at is None else at.year - 1970),
    ("at", "month", lambda at: None if at is None else (at.year - 1970) * 12 + at.month - 1),
    ("at", "day", lambda at: None if at is None else (at.date() - date(1970, 1, 1)).days),
    ("at", "hour", lambda at: None if at is None else int(at.timestamp() // 3600)),
    ("on", "identity", lambda on: None if on is None else (on - date(1970, 1, 1)).days),
    ("flag", "identity", lambda flag: flag),
    ("id", "identity", lambda number: number),
]


@pytest.mark.parametrize(("column", "transform", "expected"), ICEBERG_CASES)
def test_iceberg_hides_the_partitions(
    column: str,
    transform: str,
    expected: Callable[[Any], Any],
    served_settings: S3Settings,
    tmp_path: Any,
    caplog: pytest.LogCaptureFixture,
) -> None:
    iceberg = {"type": "sql", "database_uri": f"sqlite:///{tmp_path}/catalog.db", "catalog_name": "lake"}
    options = {**partitioned({"stream": "*", "column": column, "transform": transform, "name": "part"}), "publish": {"iceberg": iceberg}}
    lake = Lake(served_settings, tmp_path, options=options)
    at = {"type": "string", "format": "date-time", "airbyte_type": "timestamp_with_timezone"}
    kinds = {"id": {"type": "integer"}, "at": at, "flag": {"type": "boolean"}, "on": {"type": "string", "format": "date"}}
    schema = {"type": "object", "properties": kinds}
    moments = ["2026-11-20T10:00:00Z", "1969-12-31T23:59:59Z", "0001-01-01T00:00:00Z", "9999-12-31T23:00:00Z", None]
    values: dict[str, list[Any]] = {
        "at": moments,
        "on": [one and one[:10] for one in moments],
        "flag": [True, False, None, True, None],
        "id": [1, -1, 2**40, 0, 5],
    }
    records = [{"id": number, column: value} for number, value in enumerate(values[column])]
    lake.sync(catalog(schema=schema), messages(records))
    assert "not published" not in caplog.text
    table = reader(tmp_path, served_settings).load_table(("default", "users"))
    assert [(field.name, str(field.transform)) for field in table.spec().fields] == [("part", transform)]
    rows = table.scan().to_arrow()
    assert len(rows) == len(records)
    files = {task.file.file_path: task.file.partition[0] for task in table.scan().plan_files()}
    for file in lake.live(FileKind.FINAL):
        (value,) = {expected(row[column]) for row in rows_of(lake, file)}
        found = files[f"s3://{served_settings.bucket}/{file.key}"]
        days = (found - date(1970, 1, 1)).days if isinstance(found, date) else found
        assert days == value
    for row in rows.to_pylist():
        if row[column] is not None:
            value = f"'{row[column].isoformat()}'" if column in ("at", "on") else str(row[column]).lower()
            found = table.scan(f"{column} = {value}")
            assert len(list(found.plan_files())) < len(files)
            assert row["id"] in found.to_arrow()["id"].to_pylist()


def test_an_iceberg_table_follows_a_refresh_with_other_partitions(
    served_settings: S3Settings, tmp_path: Any, caplog: pytest.LogCaptureFixture
) -> None:
    iceberg = {"publish": {"iceberg": {"type": "sql", "database_uri": f"sqlite:///{tmp_path}/catalog.db", "catalog_name": "lake"}}}
    lake = Lake(served_settings, tmp_path, options={**partitioned(), **iceberg})
    lake.sync(catalog(), messages(map(daily, range(16))))

    def shown() -> tuple[list[str], list[int]]:
        table = reader(tmp_path, served_settings).load_table(("default", "users"))
        return [field.name for field in table.spec().fields], sorted(table.scan().to_arrow()["id"].to_pylist())

    assert shown() == ([], list(range(16)))
    for generation, rules in enumerate(([DAILY], [HOURLY], [DAILY], [])):
        lake.options = {**partitioned(*rules), **iceberg}
        lake.sync(catalog(sync=2 + generation, generation=2 + generation, minimum=2 + generation), messages(map(daily, range(16))))
        names = [rule.get("name", "at_day") for rule in rules]
        assert shown() == (names, list(range(16)))
        lake.sync(catalog(sync=10, generation=2 + generation), messages(map(daily, range(16, 32))))
        assert shown() == (names, list(range(32)))
    assert "not published" not in caplog.text


def test_an_iceberg_table_is_made_again_after_a_new_type_of_the_column(
    served_settings: S3Settings, tmp_path: Any, caplog: pytest.LogCaptureFixture
) -> None:
    iceberg = {"publish": {"iceberg": {"type": "sql", "database_uri": f"sqlite:///{tmp_path}/catalog.db", "catalog_name": "lake"}}}
    lake = Lake(served_settings, tmp_path, options={**partitioned(DAILY), **iceberg})
    lake.sync(catalog(), messages(map(daily, range(16))))
    dates = {"type": "object", "properties": {"id": {"type": "integer"}, "at": {"type": "string", "format": "date"}}}
    lake.sync(catalog(sync=2, schema=dates), messages([{"id": 16, "at": DAY}, {"id": 17}]))
    assert "The type of 'at' has changed, by which the Iceberg table is or was partitioned" in caplog.text
    name = ("default", "users")
    reader(tmp_path, served_settings).drop_table(name)
    lake.sync(catalog(sync=3, schema=dates), messages([{"id": 18}]))
    table = reader(tmp_path, served_settings).load_table(name)
    on_day = table.scan(f"at = '{DAY}'")
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == list(range(19))
    assert sorted(on_day.to_arrow()["id"].to_pylist()) == [1, 9, 16]
    assert len(list(on_day.plan_files())) == sum(file.partition == DAY for file in lake.live(FileKind.FINAL))

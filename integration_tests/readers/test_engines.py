"""Readings of published tables by Spark, ClickHouse, DuckDB's own extensions and Daft, also by the statements of `inspect --ddl`."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Sequence
from datetime import date
from typing import Any

import pyarrow as pa
import pytest

from destination_s3_spark import tables
from integration_tests.connector import SCRIPT, TIMEOUT_S
from integration_tests.readers.changes import FILTERED, PROPERTIES, changes, person
from integration_tests.readers.conditions import chosen, clickhouse_literal, conditions, duckdb_literal
from integration_tests.readers.published_table import NAME, PublishedTable, differences_of
from unit_tests.lake.messages import EMITTED_AT_MS
from unit_tests.lake.outcome import BUCKET_PATH
from unit_tests.lake.table_readers import Row, by_raw_id, neutral
from unit_tests.sampling import sample

pytestmark = [pytest.mark.reader_tests, pytest.mark.xdist_group("readers")]


def folder(table: PublishedTable) -> str:
    return f"{table.lake.bucket.name}/{BUCKET_PATH}/{table.namespace}/{NAME}"


def clickhouse_delta(table: PublishedTable) -> str:
    return f"deltaLake('{table.lake.bucket.server.endpoint}/{folder(table)}/')"


WAYS: dict[str, tuple[str, Callable[[PublishedTable], str]]] = {
    "ClickHouse deltaLake": ("clickhouse", clickhouse_delta),
    "DuckDB delta_scan": ("duckdb", lambda table: f"delta_scan('s3://{folder(table)}')"),
    "DuckDB Iceberg": ("duckdb", lambda table: f"lake.{table.namespace}.{NAME}"),
    "ClickHouse Iceberg": ("clickhouse", lambda table: f"lake.`{table.namespace}.{NAME}`"),
    "Daft Delta": ("daft", lambda table: f"s3://{folder(table)}"),
    "Daft Iceberg": ("daft", lambda table: f"{table.namespace}.{NAME}"),
}
"""The engine of each way of reading, and the table in its words."""
LITERALS = {"clickhouse": (clickhouse_literal, "`"), "duckdb": (duckdb_literal, '"')}


def rows(table: PublishedTable, way: str) -> list[Row]:
    engine, words = WAYS[way]
    query = words(table) if engine == "daft" else f"SELECT * FROM {words(table)}"
    return by_raw_id([neutral(row) for row in table.readers.engines.rows(engine, query)])


def expect_equal_readings(table: PublishedTable, *, filters: bool = False) -> list[Row]:
    """Every engine reads the chain's rows in every way, and finds them by every condition; returns them."""
    stored = table.chain_rows()
    for way, (engine, words) in WAYS.items():
        expected = as_shown(table, engine, stored)
        assert (differences := list(differences_of(rows(table, way), expected))) == [], f"{way}: {differences}"
        if filters and engine in LITERALS:
            wanted = chosen(conditions(stored, *LITERALS[engine]))
            found = table.readers.engines.counts(engine, words(table), [condition.sql for condition in wanted])
            wrong = [(one.sql, one.found, number) for one, number in zip(wanted, found, strict=True) if one.found != number]
            assert wrong == [], f"{way}: {wrong}"
    return stored


def as_shown(table: PublishedTable, engine: str, stored: Sequence[Row]) -> list[Row]:
    """The rows in neutral form. ClickHouse has no null lists and objects: it shows empty lists, and objects of nulls."""
    if engine != "clickhouse":
        return [neutral(row) for row in stored]
    columns = tables.read(table.connector.config(), NAME, table.namespace).schema
    return [neutral({column.name: _without_null_containers(row[column.name], column.type) for column in columns}) for row in stored]


def _without_null_containers(value: Any, kind: pa.DataType) -> Any:
    if pa.types.is_struct(kind):
        return {member.name: _without_null_containers((value or {}).get(member.name), member.type) for member in kind}
    if pa.types.is_list(kind):
        return [_without_null_containers(item, kind.value_type) for item in value or []]
    return value


@pytest.mark.parametrize("mode", sample(["append", "append_dedup"], 1))
def test_values_and_filters_after_every_kind_of_change(mode: str, table: PublishedTable) -> None:
    table.mode = mode
    sizes = []
    for change in changes(table):
        in_spark = table.expect_equal_readings(filters=change in FILTERED)
        assert expect_equal_readings(table, filters=change in FILTERED) == in_spark
        sizes.append(len(in_spark))
    assert sizes == ([12, 20, 24, 27, 3] if mode == "append" else [12, 16, 18, 20, 3])


def test_the_printed_statements_define_the_table(table: PublishedTable) -> None:
    """The table has partitions of years, and of none."""
    table.partition_by = [{"column": "day", "transform": "year"}]
    table.sync(map(person, range(12)), PROPERTIES, EMITTED_AT_MS)
    for engine in LITERALS:
        table.readers.engines.run(engine, statement(table, engine))

    table.sync(map(person, range(12, 15)), PROPERTIES, EMITTED_AT_MS + 1000)
    for engine, (_, quote) in LITERALS.items():
        view = ".".join(f"{quote}{name}{quote}" for name in (table.namespace, NAME))
        found = by_raw_id([neutral(row) for row in table.readers.engines.rows(engine, f"SELECT * FROM {view}")])
        expected = as_shown(table, engine, table.chain_rows())
        assert len(found) == 15
        assert [{name: row[name] for name in expected[0]} for row in found] == expected


def test_lists_are_searched_and_values_that_have_no_bound_are_found_with_their_neighbours(table: PublishedTable) -> None:
    table.sync(map(person, range(12)), PROPERTIES, EMITTED_AT_MS)
    expect_lists_are_searched_and_aggregated(table)
    table.sync([person(number, big=10**30 + number) for number in range(15, 18)], PROPERTIES, EMITTED_AT_MS)
    expect_equal_readings(table, filters=True)


def expect_lists_are_searched_and_aggregated(table: PublishedTable) -> None:
    wanted = {
        "array_contains(tags, 't3')": 1,
        "size(tags) = 0": 5,
        "tags IS NULL": 2,
        "lines IS NULL": 5,
        "exists(lines, line -> line.count > 5)": 4,
    }
    people = [person(number) for number in range(12) if number % 5 != 4]
    aggregated = {
        "rows": 12,
        "least": min(row["price"] for row in people),
        "last": date.fromisoformat(max(row["day"] for row in people)),
        "sum": sum(row["address"]["zip"] for row in people),
    }
    moments = [row["moment"] for row in table.chain_rows() if row["moment"]]
    latest = {"first": min(moments), "latest": max(moments)}
    query = "SELECT count(*) AS rows, min(price) AS least, max(day) AS last, sum(address.zip) AS sum FROM "
    for read in (table.delta, table.iceberg):
        assert dict(zip(wanted, table.readers.spark.counts(read, list(wanted)), strict=True)) == wanted, read
        assert table.readers.spark.rows(query + read) == [aggregated], read
        # Alone, these could be answered by the bounds of the files, which are in milliseconds.
        found = table.readers.spark.rows(f"SELECT min(moment) AS first, max(moment) AS latest FROM {read}")
        assert [neutral(row) for row in found] == [neutral(latest)], read


def statement(table: PublishedTable, engine: str) -> str:
    config = table.lake.directory / "config.json"
    config.write_text(json.dumps(table.connector.config()))
    command = [str(SCRIPT), "inspect", NAME, "--namespace", table.namespace, "--ddl", engine, "--config", str(config)]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=TIMEOUT_S).stdout

"""Spark's readings of published tables with partitions: all rows, by Delta with the additional column, and conditions on the partitions."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime
from typing import Any

import pytest

from integration_tests.readers.conditions import conditions
from integration_tests.readers.published_table import PublishedTable
from unit_tests.lake.messages import EMITTED_AT_MS
from unit_tests.lake.table_readers import Row, by_raw_id, neutral
from unit_tests.sampling import sample

pytestmark = [pytest.mark.reader_tests, pytest.mark.xdist_group("readers")]

AT = {"type": "string", "format": "date-time", "airbyte_type": "timestamp_with_timezone"}
PROPERTIES: dict[str, Any] = {"id": {"type": "integer"}, "at": AT, "text": {"type": "string"}}
DAY, MONTH = {"column": "at", "transform": "day"}, {"column": "at", "transform": "month"}


def rows(ids: range, text: str) -> Iterator[Row]:
    """Rows of two days, the second of another month, and of none."""
    for number in ids:
        at = None if number % 3 == 2 else f"2026-{11 + number % 3}-30T23:59:{number:02d}Z"
        yield {"id": number, "at": at, "text": text}


def partition_of(rule: dict[str, str], at: datetime | None) -> date | str | None:
    """What Delta has in the additional column: a date for a day, a string for a month."""
    if at is None:
        return None
    return at.date() if rule is DAY else f"{at:%Y-%m}"


def changes(table: PublishedTable) -> Iterator[dict[str, str]]:
    """Two syncs of a table divided by days, and a refresh that divides it by months. Yields the rule of each."""
    table.partition_by = [DAY]
    table.sync(rows(range(9), "first"), PROPERTIES, EMITTED_AT_MS)
    yield DAY
    table.sync(rows(range(6, 12), "second"), PROPERTIES, EMITTED_AT_MS + 1000)
    yield DAY
    table.partition_by = [MONTH]
    table.sync(rows(range(7), "refreshed"), PROPERTIES, EMITTED_AT_MS + 2000, generation=2)
    yield MONTH


@pytest.mark.parametrize(("mode", "sizes"), sample([("append", [9, 15, 7]), ("append_dedup", [9, 12, 7])], 1))
def test_rows_and_conditions_on_partitions(table: PublishedTable, mode: str, sizes: list[int]) -> None:
    table.mode, table.key = mode, ("id", "at")
    spark, found = table.readers.spark, []
    for rule in changes(table):
        stored = table.chain_rows()
        found.append(len(stored))
        with_partition = [{**row, f"at_{rule['transform']}": partition_of(rule, row["at"])} for row in stored]
        for name, expected in ((table.delta, with_partition), (table.iceberg, stored)):
            assert table.rows(name) == by_raw_id([neutral(row) for row in expected]), name
            wanted = list(conditions(expected))
            counts = spark.counts(name, [condition.sql for condition in wanted])
            assert {one.sql: number for one, number in zip(wanted, counts, strict=True)} == {one.sql: one.found for one in wanted}, name
    assert found == sizes

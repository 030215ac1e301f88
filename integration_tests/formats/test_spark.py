"""Spark reads what syncs wrote: the files, and the tables that the statements of `inspect` define over them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from unit_tests.cli.inspected import SCHEMA, inspect, local_copy, sync_twice
from unit_tests.lake.lake import Lake
from unit_tests.lake.memory_client import SERVER
from unit_tests.lake.messages import catalog
from unit_tests.lake.shop import complete, record, state, stream
from unit_tests.lake.table_readers import by_raw_id, read_pyarrow, read_spark
from unit_tests.sync.wide_table import write_wide_table


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """An empty bucket in memory."""
    return Lake(SERVER.create(), tmp_path)


def test_spark_reads_the_rows_of_every_type(lake: Lake, spark_session: Any) -> None:
    write_wide_table(lake)
    paths = lake.final_files()
    expected = by_raw_id([{"added": None, **row} for row in read_pyarrow(paths)])
    assert len(expected) == 4
    assert by_raw_id(read_spark(paths, spark_session)) == expected


def test_the_statement_for_spark_works(lake: Lake, tmp_path: Path, spark_session: Any) -> None:
    sync_twice(lake)
    text = inspect(lake, "users", "--ddl", "spark")
    statement = text.replace("s3a://", f"file://{local_copy(lake, tmp_path / 'copy')}/")

    assert text.startswith("-- Left out, because Spark has no type for a time of day: clock\n")
    created = next(line for line in text.splitlines() if line.startswith("CREATE TABLE")).split("EXISTS ")[1].removesuffix(" (")
    try:
        for part in statement.split(";\n"):
            if part.strip():
                spark_session.sql(part)
        query = f"SELECT id, added, address.street, size(lines), day, CAST(at AS STRING) FROM {created} ORDER BY id"
        found = [tuple(row) for row in spark_session.sql(query).collect()]
    finally:
        spark_session.sql(f"DROP TABLE IF EXISTS {created}")

    assert [row[:3] for row in found] == [(1, None, None), (2, None, "High St"), (3, 7, None)]
    assert [row[3] for row in found][:2] == [2, 1]
    assert str(found[0][4]) == "2026-01-02"
    assert found[2][5] == "2026-01-02 03:04:05"


def test_the_statements_for_spark_define_a_history_beside_its_table(lake: Lake, tmp_path: Path, spark_session: Any) -> None:
    options: dict[str, Any] = {"tables": {"history": [{"stream": "*"}]}}
    rows = [record({"id": 1, "name": name}, emitted_at=1_000 * place) for place, name in enumerate(("a", "b", "b"))]
    dedup = stream(schema=SCHEMA, mode="append_dedup", primary_key=[["id"]], cursor_field=[])
    lake.connector(**options).write(catalog(dedup), [*rows, state(1), complete()]).expect_success()
    statement = inspect(lake, "users", "--ddl", "spark", **options).replace("s3a://", f"file://{local_copy(lake, tmp_path / 'copy')}/")
    try:
        for part in statement.split(";\n"):
            if part.strip():
                spark_session.sql(part)
        query = (
            "SELECT name, CAST(_valid_from AS LONG), CAST(_valid_to AS LONG), _is_current, _is_deleted FROM shop.users_history ORDER BY 2"
        )
        assert [tuple(row) for row in spark_session.sql(query).collect()] == [("a", 0, 1, False, False), ("b", 1, None, True, False)]
        assert spark_session.sql("SELECT name FROM shop.users").collect() == [("b",)]
    finally:
        for name in ("users", "users_history"):
            spark_session.sql(f"DROP TABLE IF EXISTS shop.{name}")

"""What `inspect` and the report say of histories, and the statements that define them in engines."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pytest

from destination_s3_spark.chain.files import HISTORY_KINDS
from destination_s3_spark.cli import views
from destination_s3_spark.cli.inspection.ddl import SqlEngine, ddl
from destination_s3_spark.cli.inspection.summary import HistorySummary, readers, summary
from destination_s3_spark.cli.inspection.table import InspectedTable, read_head, read_table
from destination_s3_spark.cli.report.figures import table_figures
from destination_s3_spark.cli.report.page import page, render
from destination_s3_spark.storage.settings import S3Settings
from destination_s3_spark.wording import size_text
from unit_tests.lake.lake import Lake
from unit_tests.sync.versioned_lake import FIRST, HISTORY, Change, history, sync, users

FOLDER = "lake/airbyte_history/users/"
REST = {"type": "rest", "uri": "https://catalog.example.com"}


@pytest.fixture
def lake(s3_settings: S3Settings, tmp_path: Path) -> Lake:
    made = Lake(s3_settings, tmp_path, options={"tables": {**HISTORY, "history_retention_days": 9_000}})
    sync(made, Change(1, 1, {"name": "a"}), Change(1, 2, {"name": "b"}), Change(2, 3, {"name": "c"}))
    return made


def inspected(lake: Lake) -> InspectedTable:
    factory = lake.factory()
    (found,) = factory.find().tables
    return read_table(factory, found, factory.publishers(factory.find())[found.stream])


def test_a_table_is_told_with_its_histories(lake: Lake) -> None:
    table = inspected(lake)
    size = sum(file.bytes for file in lake.own_chain().live_files().of(*HISTORY_KINDS))
    assert summary(table).histories == (HistorySummary(1, f"{FOLDER}1/", True, 2, 1, 2, size, 9_000),)
    said = f"2 valid versions, 1 ended, in 2 files ({size_text(size)}) under {FOLDER}1/; ended ones are kept for 9,000 days"
    assert views.facts(summary(table))["history 1"] == said
    assert [(one.publisher, one.state.value) for one in readers(table)] == [("symlink", "current"), ("symlink_history", "current")]
    factory = lake.factory()
    html = render(page("s3://lake", [table_figures(table, factory.orphans())], (), FIRST))
    assert said in html

    sync(lake, Change(1, 5, {"name": "b"}), catalog=users(2, 2, key="name"))
    first, second = summary(inspected(lake)).histories
    assert (first.goes_on, second.goes_on) == (False, True)
    assert str(first).endswith(f"under {FOLDER}1/; it goes on no longer")


def test_a_table_without_a_history_says_nothing_of_any(s3_settings: S3Settings, tmp_path: Path) -> None:
    lake = Lake(s3_settings, tmp_path)
    sync(lake, Change(1, 1, {"name": "a"}))
    table = inspected(replace(lake, options={"tables": HISTORY}))
    assert not [name for name in views.facts(summary(table)) if "history" in name]
    assert [one.publisher for one in readers(table)] == ["symlink"]
    assert "history" not in ddl(table, lake.config(), SqlEngine.DUCKDB)


def test_the_statements_for_duckdb_define_the_table_and_its_history(lake: Lake, tmp_path: Path) -> None:
    sync(lake, Change(1, 5, {"name": "b"}), catalog=users(2, 2, key="name"))  # files of another history lie beside it
    store, bucket = lake.store, tmp_path / "copy" / lake.settings.bucket
    for found in store.list("lake/"):
        (bucket / found.key).parent.mkdir(parents=True, exist_ok=True)
        (bucket / found.key).write_bytes(store.get(found.key))
    statement = ddl(inspected(lake), lake.config(), SqlEngine.DUCKDB).replace("s3://", f"{tmp_path / 'copy'}/")
    with duckdb.connect() as connection:
        connection.execute(statement)
        assert connection.execute("SELECT id, name FROM users").fetchall() == [(1, "b")]
        versions = connection.execute("SELECT name, _valid_from, _valid_to, _is_current, _is_deleted FROM users_history").fetchall()
    names = ("name", "_valid_from", "_valid_to", "_is_current", "_is_deleted")
    assert versions == [tuple(row[name] for name in names) for row in history(lake, 2)]


@pytest.mark.parametrize(
    ("engine", "publish", "parts"),
    [
        (SqlEngine.ATHENA, {}, ["`users_history` (", "`_valid_from` timestamp", f"{FOLDER}_symlink_format_manifest/';"]),
        (SqlEngine.ATHENA, {"delta": True}, [f"`users_history`\nLOCATION 's3://bucket/{FOLDER}'"]),
        (SqlEngine.SPARK, {}, ["`users_history` (", "`_is_current` BOOLEAN", f"LOCATION 's3a://bucket/{FOLDER}1/';"]),
        (SqlEngine.TRINO, {}, ['"users_history" (', f"external_location = 's3://bucket/{FOLDER}1/'"]),
        (SqlEngine.TRINO, {"iceberg": REST}, ['"iceberg"."default"."users_history"']),
        (SqlEngine.TRINO, {"delta": True}, [f"table_name => 'users_history', table_location => 's3://bucket/{FOLDER}'"]),
        (SqlEngine.CLICKHOUSE, {"delta": True}, ["`users_history`", f"/bucket/{FOLDER}');"]),
        (SqlEngine.SNOWFLAKE, {"iceberg": REST}, ["CATALOG_TABLE_NAME = 'users_history'"]),
        (SqlEngine.REDSHIFT, {}, ['"users_history" (', f"{FOLDER}_symlink_format_manifest/'\nTABLE PROPERTIES ("]),
        (SqlEngine.DATABRICKS, {"delta": True}, [f"USING DELTA\nLOCATION 's3://bucket/{FOLDER}';"]),
    ],
)
def test_the_statement_of_each_engine_goes_on_with_the_history(
    lake: Lake, engine: SqlEngine, publish: dict[str, Any], parts: list[str]
) -> None:
    factory = lake.factory()
    (found,) = factory.find().tables
    chosen = replace(lake, options={**lake.options, "publish": publish, "s3_endpoint": "https://s3.example.com"}).config()
    text = ddl(read_head(factory, found), chosen, engine)
    table, _, of_history = text.replace(lake.settings.bucket, "bucket").partition(
        "-- Its history, with a row for every version of a row:\n"
    )
    assert "history" not in table
    assert [part for part in parts if part not in of_history] == [], of_history

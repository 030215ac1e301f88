"""`inspect` as a person runs it: it tells what syncs left, and its SQL statements work."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest

from unit_tests.cli.inspected import FIRST, SCHEMA, inspect, local_copy, sync_twice
from unit_tests.lake.lake import Lake
from unit_tests.lake.messages import catalog
from unit_tests.lake.shop import complete, record, state, stream


@pytest.fixture(scope="module")
def synced(make_lake: Callable[[], Lake]) -> Lake:
    lake = make_lake()
    sync_twice(lake)
    return lake


def rows(lake: Lake, *arguments: str) -> Any:
    return json.loads(inspect(lake, *arguments, "--output", "json"))


def test_each_sync_is_told_with_what_it_brought(synced: Lake) -> None:
    found = rows(synced, "users", "syncs")

    assert [(sync["rows"], sync["values_changed"], sync["end"]) for sync in found] == [(2, 3, "cleanly"), (1, 0, "cleanly")]
    assert all(sync["duration_s"] > 0 and sync["bytes"] > 0 and sync["commits"] == 1 for sync in found)


def test_changed_values_are_told_by_field(synced: Lake) -> None:
    found = rows(synced, "users", "values")

    assert [(value["field"], value["change"], value["values"], value["share"]) for value in found] == [
        ("lines.[].count", "NULLED", 2, 1.0),
        ("day", "NULLED", 1, 0.5),
    ]


def test_files_commits_and_schemas_are_those_of_the_chain(synced: Lake) -> None:
    files, commits, schema = (rows(synced, "users", view) for view in ("files", "commits", "schema"))

    chain = next(iter(synced.chains().values()))
    assert [file["key"] for file in files if file["kind"] == "final"] == chain.final_keys
    blocks = {commit["block"]: commit["kind"] for commit in commits}
    assert list(blocks.values()) == chain.kinds
    assert {blocks[file["block"]] for file in files} == {"AddData"}
    assert [(change["change"], change["path"]) for change in schema["history"]] == [(None, None), ("KeyAddition", "/added")]
    assert "struct<number: int64, street: string>" in {column["type"] for column in schema["columns"]}


@pytest.mark.parametrize("format_type", ["JSONL", "CSV"])
def test_the_statement_for_duckdb_works_for_text(format_type: str, make_lake: Callable[[], Lake], tmp_path: Path) -> None:
    lake = make_lake()
    options: dict[str, Any] = {"format": {"format_type": format_type, "flattening": "Root level flattening"}}
    lake.connector(**options).write(catalog(stream(schema=SCHEMA)), [*FIRST, state(2), complete()]).expect_success()
    statement = inspect(lake, "users", "--ddl", "duckdb", **options)

    with duckdb.connect() as connection:
        connection.execute(statement.replace("s3://", f"{local_copy(lake, tmp_path / 'copy')}/"))
        view = connection.execute("SELECT table_schema, table_name FROM information_schema.tables").fetchall()
        found = connection.execute(f'SELECT id, name FROM "{view[0][0]}"."{view[0][1]}" ORDER BY id').fetchall()

    assert found == [(1, "Ada"), (2, "Bob")]
    assert view[0][1] == "users"


def test_the_statement_for_duckdb_reads_files_of_both_schemas(synced: Lake, tmp_path: Path) -> None:
    statement = inspect(synced, "users", "--ddl", "duckdb")

    with duckdb.connect() as connection:
        connection.execute(statement.replace("s3://", f"{local_copy(synced, tmp_path)}/"))
        ((schema, name),) = connection.execute("SELECT table_schema, table_name FROM information_schema.tables").fetchall()
        found = connection.execute(f'SELECT id, added, address.street, len(lines) FROM "{schema}"."{name}" ORDER BY id').fetchall()

    assert found == [(1, None, None, 2), (2, None, "High St", 1), (3, 7, None, None)]


def test_decimals_are_keys_and_columns_of_every_statement(make_lake: Callable[[], Lake], tmp_path: Path) -> None:
    lake = make_lake()
    schema = {
        "type": "object",
        "properties": {"id": {"type": "number", "multipleOf": 0.01}, "wei": {"type": "integer", "airbyte_type": "big_integer"}},
    }
    options: dict[str, Any] = {"tables": {"declared_decimals": True}, "publish": {"delta": True}}
    merged = catalog(stream(schema=schema, mode="append_dedup", primary_key=[["id"]]))
    data = [record({"id": -0.5, "wei": 10**20}), record({"id": 12345678901.25, "wei": 1}), state(2), complete()]
    lake.connector(**options).write(merged, data).expect_success()

    (final,) = (file for file in json.loads(inspect(lake, "users", "files", "--output", "json", **options)) if file["kind"] == "final")
    assert (final["first_key"], final["last_key"]) == ("-0.50", "12345678901.25")
    for engine in ("athena", "trino", "spark", "redshift", "databricks"):
        statement = inspect(lake, "users", "--ddl", engine, **{**options, "publish": {}})
        assert statement.lower().count("decimal(38,") == 2, statement
        assert "Left out" not in statement
    assert lake.connector(**options).run("report", "--out", str(tmp_path / "page.html")).exit_code == 0


@pytest.mark.parametrize(
    ("engine", "words"),
    [
        (
            "athena",
            ["CREATE EXTERNAL TABLE", "`lines` array<struct<`count`:bigint>>", "SymlinkTextInputFormat", "_symlink_format_manifest/'"],
        ),
        ("redshift", ["CREATE EXTERNAL TABLE", '"name" varchar(65535)', "SymlinkTextInputFormat"]),
        ("trino", ["CREATE TABLE", '"address" row("number" bigint,"street" varchar)', "external_location = 's3://"]),
    ],
)
def test_the_other_engines_have_statements_too(synced: Lake, engine: str, words: list[str]) -> None:
    statement = inspect(synced, "users", "--ddl", engine)

    assert [word for word in words if word not in statement] == []
    assert statement.endswith({"athena": "/';\n", "redshift": "'FAIL');\n", "trino": "');\n"}[engine])


def test_a_folder_is_read_where_no_manifest_is_published(synced: Lake) -> None:
    statement = inspect(synced, "users", "--ddl", "athena", publish={"symlink": False})

    assert "STORED AS PARQUET\nLOCATION 's3://" in statement
    assert "_symlink_format_manifest" not in statement


def test_formats_without_a_statement_are_named(synced: Lake) -> None:
    done = synced.connector(format={"format_type": "Avro"}).run("inspect", "users", "--ddl", "athena")

    assert (done.exit_code, done.text) == (1, "")
    assert "for Parquet tables only, and the configured format is Avro" in done.stderr

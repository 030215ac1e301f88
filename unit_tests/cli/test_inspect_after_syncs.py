"""`inspect` as a person runs it: what a real sync left is told by the installed command, and its SQL statements work."""

from __future__ import annotations

import io
import json
import subprocess
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import duckdb
import pytest

from destination_s3_spark.cli import operator_command
from integration_tests.connector import SCRIPT, TIMEOUT_S
from integration_tests.lake import ProcessLake
from unit_tests.lake.buckets import S3Server, new_bucket
from unit_tests.lake.messages import catalog
from unit_tests.lake.shop import complete, record, state, stream

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "name": {"type": ["null", "string"]},
        "clock": {"type": "string", "format": "time", "airbyte_type": "time_without_timezone"},
        "at": {"type": "string", "format": "date-time"},
        "day": {"type": "string", "format": "date"},
        "ratio": {"type": "number"},
        "address": {"type": "object", "properties": {"street": {"type": "string"}, "number": {"type": "integer"}}},
        "lines": {"type": "array", "items": {"type": "object", "properties": {"count": {"type": "integer"}}}},
    },
}
FIRST = [
    record({"id": 1, "name": "Ada", "lines": [{"count": 1}, {"count": "many"}], "day": "2026-01-02", "clock": "12:00:00"}),
    record({"id": 2, "name": "Bob", "lines": [{"count": "many"}], "day": "no day", "address": {"street": "High St", "number": 5}}),
]
WIDER = {**SCHEMA, "properties": {**SCHEMA["properties"], "added": {"type": "integer"}}}


def inspect(lake: ProcessLake, *arguments: str, **options: Any) -> str:
    """What the command prints. It runs in this process; the installed one is run below and in test_doctor.py."""
    config = lake.directory / "inspect-config.json"
    config.write_text(json.dumps(lake.connector().config(**options)))
    return operated("inspect", *arguments, "--config", str(config))


def operated(*arguments: str) -> str:
    """What a command prints in this process."""
    with io.TextIOWrapper(io.BytesIO(), encoding="utf-8") as terminal, redirect_stdout(terminal):
        assert operator_command(arguments) == 0
        terminal.seek(0)
        return terminal.read()


@pytest.fixture(scope="module")
def synced(moto: S3Server, tmp_path_factory: pytest.TempPathFactory) -> ProcessLake:
    """A table of two syncs, the second one with a column more."""
    lake = ProcessLake.of(new_bucket(moto), tmp_path_factory.mktemp("inspect"))
    lake.connector().write(catalog(stream(schema=SCHEMA)), [*FIRST, state(2), complete()]).expect_success()
    second = [record({"id": 3, "added": 7, "at": "2026-01-02T03:04:05Z"}), state(3), complete()]
    lake.connector().write(catalog(stream(schema=WIDER)), second).expect_success()
    return lake


def rows(lake: ProcessLake, *arguments: str) -> Any:
    return json.loads(inspect(lake, *arguments, "--output", "json"))


def test_each_sync_is_told_with_what_it_brought_by_the_installed_command(synced: ProcessLake) -> None:
    config = synced.directory / "installed.json"
    config.write_text(json.dumps(synced.connector().config()))
    command = [str(SCRIPT), "inspect", "users", "syncs", "--output", "json", "--config", str(config)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)

    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    found = json.loads(done.stdout)
    assert [(sync["rows"], sync["values_changed"], sync["end"]) for sync in found] == [(2, 3, "cleanly"), (1, 0, "cleanly")]
    assert all(sync["duration_s"] > 0 and sync["bytes"] > 0 and sync["commits"] == 1 for sync in found)


def test_changed_values_are_told_by_field(synced: ProcessLake) -> None:
    found = rows(synced, "users", "values")

    assert [(value["field"], value["change"], value["values"], value["share"]) for value in found] == [
        ("lines.[].count", "NULLED", 2, 1.0),
        ("day", "NULLED", 1, 0.5),
    ]


def test_files_commits_and_schemas_are_those_of_the_chain(synced: ProcessLake) -> None:
    files, commits, schema = (rows(synced, "users", view) for view in ("files", "commits", "schema"))

    chain = next(iter(synced.chains().values()))
    assert [file["key"] for file in files if file["kind"] == "final"] == chain.final_keys
    blocks = {commit["block"]: commit["kind"] for commit in commits}
    assert list(blocks.values()) == chain.kinds
    assert {blocks[file["block"]] for file in files} == {"AddData"}
    assert [(change["change"], change["path"]) for change in schema["history"]] == [(None, None), ("KeyAddition", "/added")]
    assert "struct<number: int64, street: string>" in {column["type"] for column in schema["columns"]}


def local_copy(lake: ProcessLake, directory: Path) -> Path:
    """The bucket's objects below a directory: no engine here has an S3 client of its own."""
    for key in lake.bucket.list_keys():
        file = directory / lake.bucket.name / key
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(lake.bucket.read(key))
    return directory


@pytest.mark.parametrize("format_type", ["JSONL", "CSV"])
def test_the_statement_for_duckdb_works_for_text(format_type: str, moto: S3Server, tmp_path: Path) -> None:
    lake = ProcessLake.of(new_bucket(moto), tmp_path)
    options: dict[str, Any] = {"format": {"format_type": format_type, "flattening": "Root level flattening"}}
    lake.connector(**options).write(catalog(stream(schema=SCHEMA)), [*FIRST, state(2), complete()]).expect_success()
    statement = inspect(lake, "users", "--ddl", "duckdb", **options)

    with duckdb.connect() as connection:
        connection.execute(statement.replace("s3://", f"{local_copy(lake, tmp_path / 'copy')}/"))
        view = connection.execute("SELECT table_schema, table_name FROM information_schema.tables").fetchall()
        found = connection.execute(f'SELECT id, name FROM "{view[0][0]}"."{view[0][1]}" ORDER BY id').fetchall()

    assert found == [(1, "Ada"), (2, "Bob")]
    assert view[0][1] == "users"


def test_the_statement_for_duckdb_reads_files_of_both_schemas(synced: ProcessLake, tmp_path: Path) -> None:
    statement = inspect(synced, "users", "--ddl", "duckdb")

    with duckdb.connect() as connection:
        connection.execute(statement.replace("s3://", f"{local_copy(synced, tmp_path)}/"))
        ((schema, name),) = connection.execute("SELECT table_schema, table_name FROM information_schema.tables").fetchall()
        found = connection.execute(f'SELECT id, added, address.street, len(lines) FROM "{schema}"."{name}" ORDER BY id').fetchall()

    assert found == [(1, None, None, 2), (2, None, "High St", 1), (3, 7, None, None)]


def test_the_statement_for_spark_works(synced: ProcessLake, tmp_path: Path, spark_session: Any) -> None:
    text = inspect(synced, "users", "--ddl", "spark")
    statement = text.replace("s3a://", f"file://{local_copy(synced, tmp_path)}/")

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


def test_the_statements_for_spark_define_a_history_beside_its_table(moto: S3Server, tmp_path: Path, spark_session: Any) -> None:
    lake = ProcessLake.of(new_bucket(moto), tmp_path)
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


def test_decimals_are_keys_and_columns_of_every_statement(moto: S3Server, tmp_path: Path) -> None:
    lake = ProcessLake.of(new_bucket(moto), tmp_path)
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
    config = tmp_path / "report-config.json"
    config.write_text(json.dumps(lake.connector(**options).config()))
    assert operated("report", "--config", str(config), "--out", str(tmp_path / "page.html"))


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
def test_the_other_engines_have_statements_too(synced: ProcessLake, engine: str, words: list[str]) -> None:
    statement = inspect(synced, "users", "--ddl", engine)

    assert [word for word in words if word not in statement] == []
    assert statement.endswith({"athena": "/';\n", "redshift": "'FAIL');\n", "trino": "');\n"}[engine])


def test_a_folder_is_read_where_no_manifest_is_published(synced: ProcessLake) -> None:
    statement = inspect(synced, "users", "--ddl", "athena", publish={"symlink": False})

    assert "STORED AS PARQUET\nLOCATION 's3://" in statement
    assert "_symlink_format_manifest" not in statement


def test_formats_without_a_statement_are_named(synced: ProcessLake, tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text(json.dumps(synced.connector().config(format={"format_type": "Avro"})))
    done = subprocess.run(
        [str(SCRIPT), "inspect", "users", "--config", str(config), "--ddl", "athena"], capture_output=True, text=True, check=False
    )

    assert (done.returncode, done.stdout) == (1, "")
    assert "for Parquet tables only, and the configured format is Avro" in done.stderr

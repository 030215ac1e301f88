from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from destination_s3_spark.chain.blocks import block_name
from destination_s3_spark.chain.events import OpenEpoch, SetDataSchema, Snapshot
from destination_s3_spark.chain.files import FileEntry, FileKind
from destination_s3_spark.chain.log import Chain
from destination_s3_spark.cli import inspection, operator_command
from destination_s3_spark.cli.configuration import read_config
from destination_s3_spark.schema.arrow import META_FIELDS, schema_to_text
from destination_s3_spark.storage.s3 import S3Store
from destination_s3_spark.storage.settings import S3Settings
from destination_s3_spark.stream_id import StreamId
from destination_s3_spark.tables.factory import table_factory
from destination_s3_spark.tables.publishers.symlink import MANIFEST, SEQUENCE, SymlinkManifest
from unit_tests.schema.bare_flatbuffer import schema_from_bare_flatbuffer

STARTED = datetime(2026, 3, 1, tzinfo=UTC)
SCHEMA = pa.schema([*META_FIELDS, ("id", pa.int64())])
FOLDER = "lake/airbyte_internal/"


@pytest.fixture
def make_chain(make_table: Callable[..., Any]) -> Callable[[str | None, str], str]:
    """Writes a table with a file of 100 bytes and returns its chain's prefix."""

    def make(namespace: str | None, name: str) -> str:
        table = make_table(namespace, name)
        writer = table.writer(sync_id=5, generation_id=2)
        table.set_schema(writer, 0, [("id", pa.int64())])
        table.commit(writer, table.stage(writer, FileKind.FINAL, b"x" * 100))
        return str(table.table.chain_prefix)

    return make


def test_without_a_stream_every_table_has_a_line(
    config: Path, make_chain: Callable[[str | None, str], str], capsys: pytest.CaptureFixture[str]
) -> None:
    make_chain("shop", "orders")
    make_chain(None, "users")

    assert operator_command(["inspect", "--config", str(config)]) == 0

    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [row[:3] for row in rows if len(row) > 6 and row[1] == "2"] == [["users", "2", "1"], ["shop.orders", "2", "1"]]


@pytest.mark.parametrize(
    ("encoding", "rule", "name"),
    [("latin-1", "---", "bestellung_ü?"), ("ascii", "---", "bestellung_??"), ("utf-8", "───", "bestellung_ü☃")],
)
def test_a_terminal_without_the_signs_of_reports_gets_others_in_their_place(
    config: Path, make_chain: Callable[[str | None, str], str], encoding: str, rule: str, name: str
) -> None:
    make_chain("shop", "bestellung_ü☃")
    command = [sys.executable, "-m", "destination_s3_spark", "inspect", "--config", str(config)]
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    for stream in ([], ["--stream", "bestellung_ü☃"]):
        ended = subprocess.run([*command, *stream], capture_output=True, check=False, env=environment)
        assert (ended.returncode, ended.stderr) == (0, b"")
        assert rule in ended.stdout.decode(encoding)
        assert f"shop.{name}" in ended.stdout.decode(encoding)


def test_with_a_stream_its_state_columns_and_blocks_are_shown(
    config: Path, make_chain: Callable[[str | None, str], str], capsys: pytest.CaptureFixture[str]
) -> None:
    make_chain("shop", "orders")

    assert operator_command(["inspect", "--config", str(config), "--stream", "orders"]) == 0

    text = capsys.readouterr().out
    assert "Table shop.orders" in text
    assert "block 2 is written and all its files are there" in text
    assert [line.split() for line in text.splitlines() if line.startswith("final ")][1] == ["final", "1", "1", "100", "B"]
    assert "id                      int64" in text
    assert "1 row, 1 file (100 B), 1 checkpoint" in text


def test_a_block_whose_files_are_not_there_is_not_counted(
    config: Path, store: S3Store, make_chain: Callable[[str | None, str], str], capsys: pytest.CaptureFixture[str]
) -> None:
    make_chain("shop", "orders")
    store.delete([file.key for file in store.list("lake/shop/orders/")])

    operator_command(["inspect", "--config", str(config), "--stream", "orders"])

    text = capsys.readouterr().out
    assert "block 2 is written, its files are not all there and not shown here" in text
    assert "No files." in text


def test_what_readers_see_through_each_publisher_is_shown(
    config: Path, store: S3Store, make_table: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    table = make_table("shop", "orders")
    writer = table.writer(publishers=[SymlinkManifest(table.settings.bucket)])
    schema = table.set_schema(writer, 0, [("id", pa.int64())])
    table.commit(writer, table.stage(writer, FileKind.FINAL, table.rows(schema, {"id": 1})))
    key = table.table.final_root + MANIFEST

    def shown() -> tuple[str, str]:
        texts = []
        for arguments in ([], ["--stream", "orders"]):
            operator_command(["inspect", "--config", str(config), *arguments])
            texts.append(capsys.readouterr().out)
        return texts[0], next(line for line in texts[1].splitlines() if line.startswith("symlink: "))

    everything, readers = shown()
    assert readers == "symlink: nothing is published yet"
    assert "Readers do not see the last data of:\nshop.orders, symlink: nothing is published yet" in everything

    store.put(key, b"", {SEQUENCE: "1"})
    everything, readers = shown()
    assert readers == "symlink: behind by 1 block"
    assert "shop.orders, symlink: behind by 1 block" in everything

    writer.close()
    everything, readers = shown()
    assert readers == "symlink: current"
    assert "symlink" not in everything


def schema(number: int, version: str, fields: list[dict[str, object]], changes: list[dict[str, object]]) -> SetDataSchema:
    text = schema_to_text(SCHEMA)
    return SetDataSchema({"schemaId": number, "version": version, "fields": fields, "changes": changes, "arrowSchema": text})


def test_every_schema_is_shown_also_those_before_a_snapshot(
    config: Path, store: S3Store, make_chain: Callable[[str | None, str], str], capsys: pytest.CaptureFixture[str]
) -> None:
    chain = Chain(store, make_chain("shop", "orders"), StreamId("shop", "orders"))
    chain.catch_up()
    chain.mark_settled()
    amount = {"id": 1, "name": "amount", "source": "amount", "type": "integer", "addedIn": 0}
    recovered = {"id": 2, "name": "amount_recovered_2_0_0_1a2b3c4d", "source": "amount", "type": "string", "addedIn": 1, "recoveredFrom": 1}
    chain.append(schema(1, "2-0-0", [amount, recovered], [{"kind": "Recovery", "path": "/amount", "old": "integer", "new": "string"}]))
    chain.append(Snapshot(chain.head, (), chain.live_files().files))
    chain.append(OpenEpoch(6, 2, STARTED))
    chain.append(Snapshot(chain.head, (), chain.live_files().files))
    nested = {"kind": "object", "fields": []}
    chain.append(schema(2, "2-0-1", [amount, recovered, {**amount, "id": 3}], [{"kind": "KeyAddition", "path": "/to", "new": nested}]))

    operator_command(["inspect", "--config", str(config), "--stream", "orders"])

    text = capsys.readouterr().out
    history = text[text.index("Schemas\n") : text.index("Chain\n")].splitlines()
    shown = [line for line in history if line.startswith("schema ")]
    assert [line.split()[1:3] for line in shown] == [["0", "1-0-0"], ["1", "2-0-0"], ["2", "2-0-1"]]
    assert shown[1].endswith("block 3, 2 data columns")
    assert [line.split() for line in history if line.startswith("    ")] == [
        ["Recovery", "/amount", "integer", "->", "string"],
        ["KeyAddition", "/to", "object"],
    ]
    (line,) = (line for line in text.splitlines() if line.startswith("amount_recovered"))
    assert line.split() == ["amount_recovered_2_0_0_1a2b3c4d", "amount", "1", "string"]


@pytest.mark.parametrize(
    ("form", "read"), [("ipc", lambda raw: pa.ipc.read_schema(pa.py_buffer(raw))), ("odf", schema_from_bare_flatbuffer)]
)
def test_the_arrow_schema_is_written_to_a_file(
    config: Path,
    make_chain: Callable[[str | None, str], str],
    tmp_path: Path,
    form: str,
    read: Callable[[bytes], pa.Schema],
    capsys: pytest.CaptureFixture[str],
) -> None:
    make_chain("shop", "orders")
    file = tmp_path / "orders.schema"

    assert operator_command(["inspect", "--config", str(config), "--stream", "orders", "--export-schema", str(file), "--form", form]) == 0

    assert read(file.read_bytes()) == SCHEMA
    assert capsys.readouterr().out == f"{file}: Arrow schema of shop.orders, 5 columns, form {form}\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--export-schema", "x"], "say which with --stream"),
        (["--export-schema", "x", "--stream", "users"], "2 streams of the name users: a.users, b.users. Add --namespace"),
        (["--export-schema", "none/x", "--stream", "users", "--namespace", "a"], "cannot be written to none/x"),
    ],
)
def test_a_schema_that_cannot_be_exported_is_an_error(
    config: Path, make_chain: Callable[[str | None, str], str], arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    make_chain("a", "users")
    make_chain("b", "users")

    assert operator_command(["inspect", "--config", str(config), *arguments]) in (1, 2)

    assert message in capsys.readouterr().err


def test_the_namespace_chooses_between_streams_of_one_name(
    config: Path, make_chain: Callable[[str | None, str], str], capsys: pytest.CaptureFixture[str]
) -> None:
    make_chain("a", "users")
    make_chain("b", "users")

    operator_command(["inspect", "--config", str(config), "--stream", "users", "--namespace", "b"])

    text = capsys.readouterr().out
    assert "Table b.users" in text
    assert "a.users" not in text


def test_an_unknown_stream_is_an_error_that_names_the_known_ones(
    config: Path, make_chain: Callable[[str | None, str], str], capsys: pytest.CaptureFixture[str]
) -> None:
    make_chain("shop", "orders")

    assert operator_command(["inspect", "--config", str(config), "--stream", "order"]) == 1

    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("There is no table of stream order under s3://")
    assert "Tables there: shop.orders." in captured.err


def test_an_empty_bucket_path_is_said_in_words(config: Path, s3_settings: S3Settings, capsys: pytest.CaptureFixture[str]) -> None:
    assert operator_command(["inspect", "--config", str(config)]) == 0

    assert capsys.readouterr().out == f"No tables under s3://{s3_settings.bucket}/{FOLDER}.\n"


@pytest.mark.parametrize("text", ["not json {hidden-secret", "[1]"])
def test_a_configuration_that_is_no_object_is_an_error_without_its_content(
    tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "config.json"
    path.write_text(text)

    assert operator_command(["inspect", "--config", str(path)]) == 1

    assert capsys.readouterr().err == f"The configuration {path} is not a JSON object.\n"


def test_a_configuration_that_is_missing_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert operator_command(["inspect", "--config", str(tmp_path / "none.json")]) == 1

    assert "none.json cannot be read: No such file or directory." in capsys.readouterr().err


def test_a_damaged_first_block_is_an_error(config: Path, store: S3Store, capsys: pytest.CaptureFixture[str]) -> None:
    store.put(f"{FOLDER}t/chain/{block_name(0)}", b"{}")

    assert operator_command(["inspect", "--config", str(config)]) == 1

    assert "is not the first block of a chain" in capsys.readouterr().err


def test_reading_a_table_changes_nothing(config: Path, store: S3Store, make_chain: Callable[[str | None, str], str]) -> None:
    make_chain("shop", "orders")
    before = {item.key: store.get(item.key) for item in store.list("")}

    factory = table_factory(read_config(config))
    (found,) = factory.find()
    table = inspection.read_table(factory, found)

    assert [block.sequence_number for block in table.blocks] == [0, 1, 2]
    assert {item.key: store.get(item.key) for item in store.list("")} == before


def test_value_changes_are_grouped_without_array_indexes(store: S3Store, tmp_path: Path) -> None:
    def change(field: str, reason: str) -> dict[str, str]:
        return {"field": field, "change": "NULLED", "reason": reason}

    metas = [
        {"sync_id": 1, "changes": [change("lines.[0].quantity", "A"), change("id", "B")]},
        {"sync_id": 1, "changes": []},
        {"sync_id": 1, "changes": [change("lines.[12].quantity", "A")]},
    ]
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"_airbyte_meta": pa.array(metas, META_FIELDS[2].type)}), path)
    store.put("rows.parquet", path.read_bytes())

    rows = inspection.read_file(store, FileEntry(FileKind.FINAL, "rows.parquet", 3, 0))

    first, second = inspection.value_changes(rows)
    assert (first.field, first.reason, first.count, first.example) == ("lines.[].quantity", "A", 2, "lines.[0].quantity")
    assert (second.field, second.count) == ("id", 1)

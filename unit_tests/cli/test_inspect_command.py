from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import pty
import re
import subprocess
import sys
import termios
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from destination_s3_spark.chain.blocks import block_name
from destination_s3_spark.chain.events import OpenEpoch, SetDataSchema, Snapshot
from destination_s3_spark.chain.files import FileKind
from destination_s3_spark.chain.log import Chain
from destination_s3_spark.cli import inspect_command, operator_command
from destination_s3_spark.cli.configuration import read_config
from destination_s3_spark.cli.inspection.ddl import SqlEngine
from destination_s3_spark.cli.inspection.table import read_table
from destination_s3_spark.cli.terminal import Cell, Rows, Terminal
from destination_s3_spark.cli.tree import ENGINES, VIEWS
from destination_s3_spark.schema.arrow import META_FIELDS, schema_to_text
from destination_s3_spark.storage.s3 import S3Store
from destination_s3_spark.storage.settings import S3Settings
from destination_s3_spark.tables.factory import table_factory
from destination_s3_spark.tables.publishers.symlink import MANIFEST, OWNER_METADATA, SEQUENCE, SymlinkManifest
from unit_tests.cases import each
from unit_tests.places import table_of
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


@pytest.mark.usefixtures("served_settings")
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


@pytest.mark.usefixtures("served_settings")
@pytest.mark.parametrize("output", ["json", "csv"])
def test_what_a_program_reads_is_utf_8_in_any_encoding(config: Path, make_chain: Callable[[str | None, str], str], output: str) -> None:
    make_chain("shop", "bestellung_ü☃")
    command = [sys.executable, "-m", "destination_s3_spark", "inspect", "--config", str(config), "--output", output]
    ended = subprocess.run(command, capture_output=True, check=True, env={**os.environ, "PYTHONIOENCODING": "ascii"})

    assert "bestellung_ü☃" in ended.stdout.decode()


def test_with_a_stream_its_state_columns_and_blocks_are_shown(
    config: Path, make_chain: Callable[[str | None, str], str], capsys: pytest.CaptureFixture[str]
) -> None:
    make_chain("shop", "orders")

    assert operator_command(["inspect", "--config", str(config), "--stream", "orders"]) == 0

    text = capsys.readouterr().out
    assert "Table shop.orders" in text
    assert "block 2 is written and all its files are there" in text
    assert [line.split() for line in text.splitlines() if line.startswith("final ")][1] == ["final", "1", "1", "100", "B"]
    assert ["id", "int64", "0"] in [line.split() for line in text.splitlines()]
    (sync,) = (line.split() for line in text[text.index("Last syncs") :].splitlines() if line.startswith("5 "))
    assert sync[-11:] == ["still", "open", "1", "100", "B", "0", "B", "0", "1", "0", "0-2"]


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

    store.put(key, b"", {SEQUENCE: "1", OWNER_METADATA: table.table.table_id})
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
    make_chain("shop", "orders")
    chain = Chain(store, table_of("orders", "shop"))
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

    operator_command(["inspect", "orders", "schema", "--config", str(config), "--output", "json"])

    found = json.loads(capsys.readouterr().out)
    assert [(row["schema_id"], row["version"], row["block"], row["columns"], row["change"], row["path"]) for row in found["history"]] == [
        (0, "1-0-0", 1, 1, None, None),
        (1, "2-0-0", 3, 2, "Recovery", "/amount"),
        (2, "2-0-1", 7, 3, "KeyAddition", "/to"),
    ]
    assert (found["history"][1]["old"], found["history"][1]["new"], found["history"][2]["new"]) == ("integer", "string", "object<>")


def test_a_recovered_column_says_what_it_holds(
    config: Path, store: S3Store, make_chain: Callable[[str | None, str], str], capsys: pytest.CaptureFixture[str]
) -> None:
    make_chain("shop", "orders")
    chain = Chain(store, table_of("orders", "shop"))
    chain.catch_up()
    chain.mark_settled()
    amount = {"id": 1, "name": "amount", "source": "amount", "type": "integer", "addedIn": 0}
    recovered = {"id": 2, "name": "amount_recovered", "source": "amount", "type": "string", "addedIn": 1, "recoveredFrom": 1}
    arrow = schema_to_text(pa.schema([*SCHEMA, ("amount", pa.int64()), ("amount_recovered", pa.string())]))
    chain.append(SetDataSchema({**schema(1, "2-0-0", [amount, recovered], []).schema, "arrowSchema": arrow}))

    operator_command(["inspect", "orders", "schema", "--config", str(config)])

    (line,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("amount_recovered"))
    assert line.split() == ["amount_recovered", "string", "1", "holds", "values", "of", "amount"]


@pytest.mark.parametrize("view", ["files", "syncs", "values", "commits"])
def test_each_view_is_a_table_json_and_csv_of_the_same_rows(
    view: str, config: Path, make_chain: Callable[[str | None, str], str], capsys: pytest.CaptureFixture[str]
) -> None:
    make_chain("shop", "orders")
    texts = {}
    for output in ("table", "json", "csv"):
        assert operator_command(["inspect", "shop.orders", view, "--config", str(config), "--output", output]) == 0
        texts[output] = capsys.readouterr().out

    rows = json.loads(texts["json"])
    in_csv = list(csv.DictReader(io.StringIO(texts["csv"])))
    assert len(rows) == len(in_csv) == {"files": 1, "syncs": 1, "values": 0, "commits": 3}[view]
    assert all(list(row) == list(line) for row, line in zip(rows, in_csv, strict=True))
    shown = texts["table"].splitlines()
    assert len(shown) == (2 + len(rows) if rows else 1)
    assert rows or texts["table"] == "Every value fitted its declared type.\n"


def test_the_overview_is_json_and_csv_too(
    config: Path, make_chain: Callable[[str | None, str], str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert operator_command(["inspect", "--config", str(config), "--output", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == []
    make_chain("shop", "orders")
    make_chain(None, "users")

    operator_command(["inspect", "--config", str(config), "--output", "json"])
    found = json.loads(capsys.readouterr().out)
    operator_command(["inspect", "--config", str(config), "--output", "csv"])
    lines = capsys.readouterr().out.splitlines()

    assert [(table["namespace"], table["stream"], table["rows"], table["last_sync_id"]) for table in found] == [
        (None, "users", 1, 5),
        ("shop", "orders", 1, 5),
    ]
    assert lines[0].startswith("namespace,stream,table_id")
    assert len(lines) == 3


def test_the_history_can_be_cut_and_says_so(
    config: Path, make_chain: Callable[[str | None, str], str], capsys: pytest.CaptureFixture[str]
) -> None:
    make_chain("shop", "orders")

    operator_command(["inspect", "orders", "commits", "--config", str(config), "--blocks", "1"])

    note, _, _, block = capsys.readouterr().out.splitlines()
    assert note == "(read from block 2 on; --blocks N reads more of the chain)"
    assert block.split()[0] == "2"


def test_a_table_is_named_once(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert operator_command(["inspect", "orders", "--stream", "users", "--config", str(config)]) == 2
    assert "name the table once" in capsys.readouterr().err


def test_views_and_engines_of_the_command_line_are_those_of_the_code() -> None:
    assert {"schema", *inspect_command._VIEWS} == set(VIEWS)
    assert tuple(engine.value for engine in SqlEngine) == ENGINES


def run_in_terminal(arguments: list[str], columns: int, **environment: str) -> str:
    """What the command writes to a terminal of this width."""
    main, other = pty.openpty()
    termios.tcsetwinsize(other, (24, columns))
    command = [sys.executable, "-m", "destination_s3_spark", *arguments]
    clean = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "NO_COLOR", "FORCE_COLOR")}
    ended = subprocess.Popen(command, stdout=other, stderr=other, stdin=other, env={**clean, "TERM": "xterm", **environment})
    os.close(other)
    written = b""
    with contextlib.suppress(OSError):  # the other end is closed
        while chunk := os.read(main, 65536):
            written += chunk
    os.close(main)
    assert ended.wait(60) == 0, written.decode()
    return written.decode().replace("\r\n", "\n")


@pytest.mark.usefixtures("served_settings")
def test_lines_are_as_wide_as_the_terminal_unless_they_may_be_wider(config: Path, make_chain: Callable[[str | None, str], str]) -> None:
    make_chain("shop", "orders")
    arguments = ["inspect", "orders", "files", "--config", str(config)]

    narrow = run_in_terminal(arguments, 70, NO_COLOR="1")
    wide = run_in_terminal([*arguments, "--wide"], 70, NO_COLOR="1")

    assert "\x1b[3" not in narrow + wide  # no colour
    narrow, wide = (re.sub(r"\x1b\[[0-9;]*m", "", text) for text in (narrow, wide))
    assert max(map(len, narrow.splitlines())) <= 70
    assert max(map(len, wide.splitlines())) > 70
    key = wide.split()[-1]
    assert key.startswith("lake/shop/orders/")
    assert "".join(line.split()[-1] for line in narrow.splitlines()[2:] if line.strip()).endswith(key)


@pytest.mark.usefixtures("served_settings")
def test_what_is_piped_is_never_cut(config: Path, make_chain: Callable[[str | None, str], str]) -> None:
    make_chain("shop", "orders" * 30)
    command = [sys.executable, "-m", "destination_s3_spark", "inspect", "--config", str(config)]
    ended = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, "COLUMNS": "40"})

    assert f"shop.{'orders' * 30}" in ended.stdout


def test_a_name_cannot_take_the_terminal_over(capsys: pytest.CaptureFixture[str]) -> None:
    terminal = Terminal()
    terminal.section("or\x1b[2Jders")
    terminal.table(Rows(["a\x9b31mb", "two\nlines"], str, [Cell("name", str)], ""))
    terminal.facts({"root": "\r\x08x"})

    text = capsys.readouterr().out
    assert not {"\x1b", "\x9b", "\r", "\x08"} & set(text)
    assert "or�[2Jders" in text


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
        (["--export-schema", "x"], "say which, as in inspect TABLE --export-schema"),
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

    operator_command(["inspect", "--config", str(config), "--namespace", "b"])

    text = capsys.readouterr().out
    assert "b.users" in text
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


@each("text", ["not json {hidden-secret", "[1]"])
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


def test_a_damaged_table_does_not_hide_the_others(
    config: Path, store: S3Store, make_chain: Callable[[str | None, str], str], capsys: pytest.CaptureFixture[str]
) -> None:
    make_chain("shop", "orders")
    damaged = make_chain("shop", "users")
    store.put(f"{damaged}{block_name(2)}", b"no block")

    assert operator_command(["inspect", "--config", str(config)]) == 1
    ended = capsys.readouterr()
    assert "shop.orders" in ended.out
    assert "shop.users" not in ended.out
    assert ended.err.startswith("shop.users: ")


def test_reading_a_table_changes_nothing(config: Path, store: S3Store, make_chain: Callable[[str | None, str], str]) -> None:
    make_chain("shop", "orders")
    before = {item.key: store.get(item.key) for item in store.list("")}

    factory = table_factory(read_config(config))
    (found,) = factory.find().tables
    table = read_table(factory, found)

    assert [block.sequence_number for block in table.blocks] == [0, 1, 2]
    assert {item.key: store.get(item.key) for item in store.list("")} == before

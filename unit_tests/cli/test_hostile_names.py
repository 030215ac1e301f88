"""Every command over a lake whose source chose the names of its streams, columns and values to take a terminal over."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator, Sequence

import pytest

from destination_s3_spark.cli import operator_command
from destination_s3_spark.cli.tree import ENGINES, VIEWS, tree
from destination_s3_spark.storage.settings import S3Settings
from unit_tests.cases import each
from unit_tests.lake.lake import Lake
from unit_tests.lake.messages import JsonObject, catalog, complete, records, schema_of, state, stream

EVIL = "\x1b[2J\x1b]0;owned\x07\x9b31m\x7f\u202e[/nope][link=http://evil]x[/link]\n[9/9] shop.orders: all is well\r"
NAMES = (f"=cmd|' /C calc'!A0{EVIL}", f"+other{EVIL}\x00")
NAMESPACE = f"@shop{EVIL}"
COLUMN = f"-total{EVIL}"
STREAM = ("--stream", NAMES[0], "--namespace", NAMESPACE)
OPTIONS = {"change_log": {"enabled": True, "format": "jsonl"}, "publish": {"delta": True}}
QUIET = {"completion", "registry"}
"""Commands that show nothing of a source's."""

COMMANDS: list[tuple[str, ...]] = [
    ("inspect",),
    ("inspect", "--output", "json"),
    ("inspect", "--output", "csv"),
    ("inspect", *STREAM),
    *(("inspect", *STREAM, "--ddl", engine) for engine in ENGINES),
    ("inspect", *STREAM, "--export-schema", "schema.bin"),
    ("inspect", "--stream", f"none{EVIL}"),
    ("report", "--out", "report.html"),
    ("verify",),
    ("repair",),
    ("accept", *STREAM),
    ("discard", *STREAM),
    ("changes", *STREAM),
    ("changes", "--stream", f"none{EVIL}"),
    ("doctor", "--catalog", "catalog.json"),
    ("doctor", "--catalog", "catalog.json", "--output", "json"),
    ("merge", *STREAM),
    ("optimize",),
    ("rebuild", *STREAM),
    ("forget", *STREAM, "--where", '{"id": "x"}'),
    ("forget", *STREAM, "--where", json.dumps({COLUMN: 1}), "--dry-run"),
]
VIEWED = [(view, output) for view in VIEWS for output in ("table", "json", "csv")]


def described(name: str) -> JsonObject:
    properties = {COLUMN: {"type": "integer"}, "id": {"type": "string"}}
    found = stream(name, NAMESPACE, schema=schema_of(properties), mode="append_dedup", key="id", sync_id=1)
    found["stream"]["source_defined_primary_key"] = [["id"]]
    return found


CATALOG = catalog(*map(described, NAMES))


def messages() -> Iterator[bytes]:
    for name in NAMES:
        data = ({"id": f"=1{EVIL}", COLUMN: 1}, {"id": f"-2{EVIL}", COLUMN: f"no number{EVIL}"})
        yield records(data, name, NAMESPACE) + state(1, name, NAMESPACE) + complete(name, NAMESPACE)


@pytest.fixture(scope="module")
def hostile(make_bucket: Callable[[], S3Settings], tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """Such a lake, and catalogs of its source in its directory."""
    lake = Lake(make_bucket(), tmp_path_factory.mktemp("hostile"), options=OPTIONS)
    lake.sync(CATALOG, messages())
    (lake.directory / "catalog.json").write_text(json.dumps(CATALOG))
    discovered = {"type": "CATALOG", "catalog": {"streams": [one["stream"] for one in CATALOG["streams"]]}}
    (lake.directory / "discovered.json").write_text(json.dumps(discovered))
    return lake


def expect_printable(said: str) -> None:
    strange = sorted({character for character in said if not (character.isprintable() or character == "\n")})
    assert strange == [], said
    assert not any(shown.startswith("[9/9]") for shown in said.splitlines()), "a name made a line of its own"


def test_all_commands_are_tried() -> None:
    assert {command[0] for command in COMMANDS} | {"catalog"} == {
        name for name, command in tree.commands.items() if command.callback
    } - QUIET


@each("command", COMMANDS, ids=" ".join)
def test_no_command_prints_control_characters(command: Sequence[str], hostile: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(hostile.directory)
    done = hostile.connector().run(*command)
    said = done.text + done.stderr
    assert (done.exit_code == 0) == ("--stream" not in command or f"none{EVIL}" not in command), said
    assert "calc" in said or command[0] in ("accept", "discard", "changes", "merge", "report")
    expect_printable(said)


@each(("view", "output"), VIEWED)
def test_no_view_prints_control_characters(view: str, output: str, hostile: Lake) -> None:
    done = hostile.connector().run("inspect", NAMES[0], view, "--namespace", NAMESPACE, "--output", output)
    assert done.exit_code == 0
    expect_printable(done.text + done.stderr)


def test_a_catalog_keeps_the_names_and_prints_none(hostile: Lake, capfd: pytest.CaptureFixture[str]) -> None:
    assert operator_command(["catalog", str(hostile.directory / "discovered.json")]) == 0
    said = capfd.readouterr()
    expect_printable(said.out + said.err)
    assert [entry["stream"]["name"] for entry in json.loads(said.out)["streams"]] == list(NAMES)


def test_a_cell_for_a_spreadsheet_is_no_formula(hostile: Lake) -> None:
    rows = list(csv.DictReader(io.StringIO(hostile.connector().run("inspect", "--output", "csv").text)))
    assert {row["namespace"][:6] for row in rows} == {"'@shop"}
    assert {row["stream"][:6] for row in rows} == {"'=cmd|", "'+other"[:6]}
    assert not any(cell.startswith(("=", "+", "-", "@")) for row in rows for cell in row.values())

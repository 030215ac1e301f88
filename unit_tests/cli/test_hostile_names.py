"""Every command over a lake whose source chose the names of its streams, columns and values to take a terminal over."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from destination_s3_spark.cli import operator_command
from destination_s3_spark.cli.tree import ENGINES, VIEWS, tree
from destination_s3_spark.protocol.catalog import Catalog, parse_catalog
from destination_s3_spark.storage.settings import S3Settings
from unit_tests.cases import each
from unit_tests.sampling import sample
from unit_tests.sync.inline_lake import InlineLake, line

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
OF_SPARK = ("doctor", "optimize", "rebuild", "forget")
WITH_SPARK = [command for command in COMMANDS if command[0] in OF_SPARK]
VIEWED = [(view, output) for view in VIEWS for output in ("table", "json", "csv")]


def described() -> dict[str, Any]:
    schema = {"type": "object", "properties": {COLUMN: {"type": "integer"}, "id": {"type": "string"}}}
    entry = {
        "sync_mode": "incremental",
        "destination_sync_mode": "append_dedup",
        "primary_key": [["id"]],
        "cursor_field": [],
        "generation_id": 1,
        "minimum_generation_id": 0,
        "sync_id": 1,
    }
    stream = {
        "namespace": NAMESPACE,
        "json_schema": schema,
        "supported_sync_modes": ["incremental"],
        "source_defined_primary_key": [["id"]],
    }
    return {"streams": [{"stream": {"name": name, **stream}, **entry} for name in NAMES]}


def catalog() -> Catalog:
    return parse_catalog(json.dumps(described()).encode())


def messages() -> Iterator[bytes]:
    for name in NAMES:
        for data in ({"id": f"=1{EVIL}", COLUMN: 1}, {"id": f"-2{EVIL}", COLUMN: f"no number{EVIL}"}):
            yield line({"type": "RECORD", "record": {"stream": name, "namespace": NAMESPACE, "emitted_at": 1, "data": data}})
        descriptor = {"name": name, "namespace": NAMESPACE}
        body = {"type": "STREAM", "stream": {"stream_descriptor": descriptor, "stream_state": {}}}
        yield line({"type": "STATE", "state": body})
        report = {"stream_descriptor": descriptor, "status": "COMPLETE"}
        yield line({"type": "TRACE", "trace": {"type": "STREAM_STATUS", "emitted_at": 1, "stream_status": report}})


@pytest.fixture(scope="module")
def directory(make_bucket: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the configuration of such a lake, and its catalog."""
    found = tmp_path_factory.mktemp("hostile")
    settings: S3Settings = make_bucket()
    lake = InlineLake(settings, found, options=OPTIONS)
    lake.sync(catalog(), messages())
    config = {
        "s3_bucket_name": settings.bucket,
        "s3_bucket_path": "lake",
        "s3_bucket_region": "us-east-1",
        "s3_endpoint": settings.endpoint,
        "access_key_id": "key",
        "secret_access_key": "hidden-secret",
        "format": {"format_type": "Parquet"},
        "spark": {"master": "local[1]"},
        **OPTIONS,
    }
    (found / "config.json").write_text(json.dumps(config))
    (found / "catalog.json").write_text(json.dumps(described()))
    (found / "discovered.json").write_text(
        json.dumps({"type": "CATALOG", "catalog": {"streams": [s["stream"] for s in described()["streams"]]}})
    )
    return found


def expect_printable(said: str) -> None:
    strange = sorted({character for character in said if not (character.isprintable() or character == "\n")})
    assert strange == [], said
    assert not any(shown.startswith("[9/9]") for shown in said.splitlines()), "a name made a line of its own"


def test_all_commands_are_tried() -> None:
    assert {command[0] for command in COMMANDS} | {"catalog"} == {
        name for name, command in tree.commands.items() if command.callback
    } - QUIET


@each("command", [command for command in COMMANDS if command not in WITH_SPARK], ids=" ".join)
def test_no_command_prints_control_characters(
    command: Sequence[str], directory: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(directory)
    code = operator_command([*command, "--config", "config.json"])
    said = capfd.readouterr()
    assert (code == 0) == ("--stream" not in command or f"none{EVIL}" not in command)
    assert "calc" in said.out + said.err or command[0] in ("accept", "discard", "changes", "merge", "report")
    expect_printable(said.out + said.err)


@pytest.mark.slow
@pytest.mark.parametrize("command", sample(WITH_SPARK, len(WITH_SPARK) // 3), ids=" ".join)
def test_no_command_with_a_spark_of_its_own_prints_control_characters(command: Sequence[str], directory: Path) -> None:
    program = [sys.executable, "-m", "destination_s3_spark", *command, "--config", "config.json"]
    ended = subprocess.run(program, cwd=directory, capture_output=True, check=False)
    said = ended.stdout.decode() + ended.stderr.decode()
    assert ended.returncode == 0, said
    assert "calc" in said
    expect_printable(said)


@each(("view", "output"), VIEWED)
def test_no_view_prints_control_characters(
    view: str, output: str, directory: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(directory)
    assert operator_command(["inspect", NAMES[0], view, "--namespace", NAMESPACE, "--output", output, "--config", "config.json"]) == 0
    said = capfd.readouterr()
    expect_printable(said.out + said.err)


def test_a_catalog_keeps_the_names_and_prints_none(directory: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert operator_command(["catalog", str(directory / "discovered.json")]) == 0
    said = capfd.readouterr()
    expect_printable(said.out + said.err)
    assert [entry["stream"]["name"] for entry in json.loads(said.out)["streams"]] == list(NAMES)


def test_a_cell_for_a_spreadsheet_is_no_formula(
    directory: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(directory)
    assert operator_command(["inspect", "--output", "csv", "--config", "config.json"]) == 0
    rows = list(csv.DictReader(io.StringIO(capfd.readouterr().out)))
    assert {row["namespace"][:6] for row in rows} == {"'@shop"}
    assert {row["stream"][:6] for row in rows} == {"'=cmd|", "'+other"[:6]}
    assert not any(cell.startswith(("=", "+", "-", "@")) for row in rows for cell in row.values())

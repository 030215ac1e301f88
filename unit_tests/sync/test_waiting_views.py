"""Rows that wait for a merge, and the cost of merges, in every view of a table."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest

from destination_s3_spark.chain.state import Contents, Counters, Pending
from destination_s3_spark.cli import operator_command
from destination_s3_spark.storage.s3 import S3Store
from destination_s3_spark.storage.settings import S3Settings
from destination_s3_spark.sync.spool import Spool
from destination_s3_spark.sync.story.figures import StreamFigures, stream_figures
from destination_s3_spark.tables.factory import TableFactory
from destination_s3_spark.tables.rules import MergeRule, waiting_rows
from destination_s3_spark.tables.updates.resources import MergeTime
from unit_tests.sync.inline_lake import InlineLake, state, status
from unit_tests.sync.test_dedup_sync import dedup_catalog, rows

SINCE = datetime(2026, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)
CONTENTS = Contents(1, held={"final": Counters(1_000, 1, 9_000), "delta": Counters(20, 2, 3_100)}, waiting_since=SINCE)
RARELY = {"tables": {"merge": [{"stream": "users", "at_least_every_hours": 24, "when_changed_percent": 50}]}}


@pytest.fixture
def lake(s3_settings: S3Settings, tmp_path: Path) -> InlineLake:
    return InlineLake(s3_settings, tmp_path, options=RARELY)


@pytest.fixture
def config(lake: InlineLake, tmp_path: Path) -> Path:
    secrets = {"s3_endpoint": lake.settings.endpoint, "access_key_id": "key", "secret_access_key": "hidden-secret"}
    path = tmp_path / "config.json"
    path.write_text(
        json.dumps(
            {
                "s3_bucket_name": lake.settings.bucket,
                "s3_bucket_path": "lake",
                "s3_bucket_region": "us-east-1",
                "format": lake.format,
                **secrets,
                **lake.options,
            }
        )
    )
    return path


def sync(lake: InlineLake, number: int, ids: Iterable[int], **catalog: Any) -> None:
    found = [{"id": i, "note": Random(i * number).randbytes(200).hex()} for i in ids]
    lake.sync(dedup_catalog(**catalog), [rows(found, number), state(number), status("COMPLETE")])


@pytest.mark.parametrize(
    ("rule", "due"),
    [
        (None, "at the next sync"),
        (MergeRule("*", DAY, None, None), "2026-01-02 00:00 UTC"),
        (MergeRule("*", timedelta(), None, None), "at the next sync"),
        (MergeRule("*", None, 5.01, None), "at 51 rows"),
        (MergeRule("*", None, 2, None), "at the next sync"),
        (MergeRule("*", None, None, 5_000_000), "at 5.0 MB"),
        (MergeRule("*", DAY, 5, 5_000), "2026-01-02 00:00 UTC or at 50 rows or at 5.0 kB"),
    ],
)
def test_waiting_rows_are_described_with_the_bounds_of_their_rule(rule: MergeRule | None, due: str) -> None:
    found = waiting_rows(CONTENTS, rule)
    assert str(found) == f"20 rows (2 runs, 3.1 kB) wait beside the table since 2026-01-01 00:00 UTC, due {due}"
    assert found is not None
    assert found.due_at == (None if rule is None or rule.longest_wait is None else SINCE + rule.longest_wait)
    assert found.properties() == {
        "airbyte.rows-waiting": "20",
        "airbyte.waiting-since": "2026-01-01T00:00:00+00:00",
        "airbyte.merge-due": due,
    }


def test_nothing_waits_after_a_merge_or_while_a_generation_is_pending() -> None:
    assert waiting_rows(Contents(1, held={"final": Counters(5, 1, 1)}), None) is None
    assert waiting_rows(Contents(1, held=CONTENTS.held, waiting_since=SINCE, pending=Pending(2, 0, 1)), None) is None


def figures(lake: InlineLake) -> StreamFigures:
    table = TableFactory(lake.config(), S3Store(lake.settings), SINCE).of_catalog(dedup_catalog())[0]
    table.writer.catch_up()
    return stream_figures(0, table, Spool(lake.directory / "other_spool", 2**20))


def test_the_summary_of_a_sync_says_what_waits(lake: InlineLake) -> None:
    sync(lake, 1, range(100))
    assert (figures(lake).waiting, figures(lake).empty) == (None, True)
    sync(lake, 2, range(10))
    waiting = figures(lake).waiting
    assert waiting is not None
    assert (waiting.rows, waiting.runs, waiting.due_at) == (10, 1, waiting.since + DAY)
    assert waiting.due.endswith("or at 50 rows")
    assert not figures(lake).empty  # a sync without records says it, too


def test_inspect_says_what_waits(lake: InlineLake, config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sync(lake, 1, range(100))
    sync(lake, 2, range(10))
    said = str(figures(lake).waiting)

    def inspect(*arguments: str) -> str:
        assert operator_command(["inspect", *arguments, "--config", str(config)]) == 0
        return capsys.readouterr().out

    assert f"Not merged yet:\nusers: {said}\n" in inspect()
    assert ["waiting", *said.split()] in [line.split() for line in inspect("users").splitlines()]
    (listed,) = json.loads(inspect("--output", "json"))
    shown = json.loads(inspect("users", "--output", "json"))
    assert listed["waiting"] == shown["table"]["waiting"]
    assert (listed["waiting"]["rows"], listed["waiting"]["runs"], listed["rows"]) == (10, 1, 100)
    (row,) = csv.DictReader(io.StringIO(inspect("--output", "csv")))
    assert json.loads(row["waiting"]) == listed["waiting"]

    lake.options = {}
    sync(lake, 3, [1])
    assert "Not merged yet" not in inspect()
    assert json.loads(inspect("users", "--output", "json"))["table"]["waiting"] is None


def test_rows_that_no_rule_lets_wait_are_something_to_look_at(
    lake: InlineLake, config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def page() -> str:
        assert operator_command(["report", "--config", str(config), "--out", str(tmp_path / "page.html")]) == 0
        return (tmp_path / "page.html").read_text()

    sync(lake, 1, range(100))
    sync(lake, 2, range(10))
    assert f"<dt>Not merged yet</dt><dd>{figures(lake).waiting}</dd>" in page()
    assert "0 things to look at" in capsys.readouterr().out  # the user wants it so

    config.write_text(json.dumps({**json.loads(config.read_text()), "tables": {}}))
    lake.options, lake.merge_limits = {}, {"time": MergeTime(timedelta())}
    sync(lake, 3, [1])
    assert "due at the next sync. <" in page()
    assert "1 thing to look at" in capsys.readouterr().out


def test_costly_merges_name_the_setting(lake: InlineLake, config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def shown() -> Any:
        assert operator_command(["inspect", "users", "--output", "json", "--config", str(config)]) == 0
        return json.loads(capsys.readouterr().out)

    lake.options = {}
    sync(lake, 1, range(2_000))
    assert shown()["merges"] is None  # the first merge of a table rewrites nothing
    for number in range(2, 5):
        sync(lake, number, [number * 300])

    found = shown()
    merges, rewritten = found["merges"], [one["bytes_rewritten"] for one in found["syncs"]]
    assert merges["merges"] == 3
    assert merges["bytes_written"] == sum(rewritten[1:])
    assert merges["amplification"] == merges["bytes_written"] / merges["bytes_merged"] > 20
    assert merges["advice"].startswith("Higher bounds in tables.merge")  # the configuration has a rule already
    assert operator_command(["inspect", "users", "--config", str(config)]) == 0
    assert "the last 3 wrote" in capsys.readouterr().out
    assert operator_command(["report", "--config", str(config), "--out", str(tmp_path / "page.html")]) == 0
    page = (tmp_path / "page.html").read_text()
    assert f'<data value="{rewritten[-1]}">' in page
    assert "Bytes rewritten by each sync" in page
    assert "Higher bounds in tables.merge" in page

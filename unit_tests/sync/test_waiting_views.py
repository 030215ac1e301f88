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

import boto3
import pytest

from destination_s3_spark.chain.state import Contents, Counters, Pending
from destination_s3_spark.protocol.catalog import parse_catalog
from destination_s3_spark.storage.settings import S3Settings
from destination_s3_spark.sync.spool import Spool
from destination_s3_spark.sync.story.lines import StreamFigures, stream_figures
from destination_s3_spark.tables.publishers.symlink import MANIFEST
from destination_s3_spark.tables.rules import MergeRule, waiting_rows
from destination_s3_spark.tables.updates.resources import MergeTime
from unit_tests.cases import each
from unit_tests.lake.inline_connector import InlineConnector
from unit_tests.lake.lake import Lake
from unit_tests.lake.messages import complete, state
from unit_tests.sync.dedup_lake import dedup_catalog, rows
from unit_tests.tables.publishers.delta_readers import DeltaReaders
from unit_tests.tables.publishers.iceberg.lake import reader

SINCE = datetime(2026, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)
CONTENTS = Contents(1, held={"final": Counters(1_000, 1, 9_000), "delta": Counters(20, 2, 3_100)}, waiting_since=SINCE)
RARELY = {"tables": {"merge": [{"stream": "users", "at_least_every_hours": 24, "when_changed_percent": 50}]}}


@pytest.fixture
def lake(s3_settings: S3Settings, tmp_path: Path) -> Lake:
    return Lake(s3_settings, tmp_path, options=RARELY)


def sync(lake: Lake, number: int, ids: Iterable[int], **catalog: Any) -> None:
    found = [{"id": i, "note": Random(i * number).randbytes(200).hex()} for i in ids]
    lake.sync(dedup_catalog(**catalog), [rows(found, number), state(number), complete()])


@each(
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


PROPERTIES = ("airbyte.rows-waiting", "airbyte.waiting-since", "airbyte.merge-due")


def published(lake: Lake) -> dict[str, dict[str, str]]:
    """The properties about waiting rows that each publisher's readers find."""
    lake_reader = reader(lake.directory, lake.settings).load_table(("default", "users"))
    glue = boto3.client("glue", "us-east-1", aws_access_key_id="k", aws_secret_access_key="s")
    manifest = lake.store.head(f"lake/users/{MANIFEST}")
    assert manifest is not None
    found = {
        "symlink": {name.replace("ab-", "airbyte."): value for name, value in manifest.metadata.items()},
        "delta": DeltaReaders.of_copy(lake.settings, "lake/users/", lake.directory).table().metadata().configuration,
        "iceberg": lake_reader.properties,
        "glue": glue.get_table(DatabaseName=database(lake), Name="users")["Table"]["Parameters"],
    }
    return {publisher: {name: of[name] for name in PROPERTIES if name in of} for publisher, of in found.items()}


def database(lake: Lake) -> str:
    return lake.settings.bucket.replace("-", "_")


def versions(lake: Lake) -> tuple[int, int]:
    """The newest version of the Delta table and the number of versions of the Iceberg table's metadata."""
    table = reader(lake.directory, lake.settings).load_table(("default", "users"))
    return DeltaReaders.of_copy(lake.settings, "lake/users/", lake.directory).table().version(), len(table.metadata.metadata_log)


@pytest.fixture
def published_lake(lake: Lake, moto_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Lake:
    monkeypatch.setenv("AWS_ENDPOINT_URL_GLUE", moto_endpoint)
    iceberg = {"type": "sql", "database_uri": f"sqlite:///{lake.directory}/catalog.db", "catalog_name": "lake"}
    lake.options = {**RARELY, "publish": {"delta": True, "iceberg": iceberg, "glue": {"database": database(lake)}}}
    return lake


def test_every_publisher_says_what_waits_until_it_is_merged(published_lake: Lake, caplog: pytest.LogCaptureFixture) -> None:
    lake = published_lake
    nothing: dict[str, dict[str, str]] = {"symlink": {}, "delta": {}, "iceberg": {}, "glue": {}}
    sync(lake, 1, range(100))
    assert published(lake) == nothing
    before = versions(lake)
    sync(lake, 2, range(10))
    sync(lake, 3, range(5))
    waiting = figures(lake).waiting
    assert waiting is not None
    assert waiting.rows == 15
    assert published(lake) == dict.fromkeys(nothing, waiting.properties())
    assert versions(lake) == (before[0] + 2, before[1] + 2)
    assert DeltaReaders.of_copy(lake.settings, "lake/users/", lake.directory).values() == list(range(100))

    now = versions(lake)
    lake.options = {**lake.options, "tables": {"merge": [{"stream": "*", "at_least_every_hours": 48}]}}
    lake.sync(dedup_catalog(), [complete()])
    assert versions(lake) == now  # not even other bounds give an idle table another version

    lake.options = {**lake.options, "tables": {}}
    sync(lake, 4, [1])
    assert published(lake) == nothing
    assert not [record for record in caplog.records if record.levelname == "WARNING"]


def test_a_commit_about_waiting_rows_has_neither_files_nor_a_checkpoint(published_lake: Lake) -> None:
    sync(published_lake, 1, range(100))
    sync(published_lake, 2, range(10))
    log = {key.rpartition("/")[2]: published_lake.store.get(key) for key in log_keys(published_lake)}
    actions = [next(iter(json.loads(line))) for line in log["00000000000000000001.json"].splitlines()]
    assert actions == ["commitInfo", "metaData", "txn"]
    assert not [name for name in log if "checkpoint" in name]


def log_keys(lake: Lake) -> list[str]:
    return [found.key for found in lake.store.list("lake/users/_delta_log/")]


def figures(lake: Lake) -> StreamFigures:
    table = lake.factory().of_catalog(parse_catalog(json.dumps(dedup_catalog()).encode()))[0]
    table.writer.catch_up()
    return stream_figures(0, table, Spool(lake.directory / "other_spool", 2**20))


def test_the_summary_of_a_sync_says_what_waits(lake: Lake) -> None:
    sync(lake, 1, range(100))
    assert (figures(lake).waiting, figures(lake).empty) == (None, True)
    sync(lake, 2, range(10))
    waiting = figures(lake).waiting
    assert waiting is not None
    assert (waiting.rows, waiting.runs, waiting.due_at) == (10, 1, waiting.since + DAY)
    assert waiting.due.endswith("or at 50 rows")
    assert not figures(lake).empty  # a sync without records says it, too


def said_by(connector: InlineConnector, *command: str) -> str:
    """What a command prints that succeeds."""
    outcome = connector.run(*command)
    assert outcome.exit_code == 0, outcome.stderr
    return outcome.text


def test_inspect_says_what_waits(lake: Lake) -> None:
    sync(lake, 1, range(100))
    sync(lake, 2, range(10))
    said = str(figures(lake).waiting)

    def inspect(*arguments: str) -> str:
        return said_by(lake.connector(), "inspect", *arguments)

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


def report(lake: Lake) -> tuple[str, str]:
    """The page of the report, and what the command says of it."""
    page = lake.directory / "page.html"
    said = said_by(lake.connector(), "report", "--out", str(page))
    return page.read_text(), said


def test_rows_that_no_rule_lets_wait_are_something_to_look_at(lake: Lake) -> None:
    sync(lake, 1, range(100))
    sync(lake, 2, range(10))
    page, said = report(lake)
    assert f"<dt>Not merged yet</dt><dd>{figures(lake).waiting}</dd>" in page
    assert "0 things to look at" in said  # the user wants it so

    lake.options, lake.merge_limits = {}, {"time": MergeTime(timedelta())}
    sync(lake, 3, [1])
    page, said = report(lake)
    assert "due at the next sync. <" in page
    assert "1 thing to look at" in said


def test_costly_merges_name_the_setting(lake: Lake) -> None:
    ruled = lake.connector()

    def shown() -> Any:
        return json.loads(said_by(ruled, "inspect", "users", "--output", "json"))

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
    assert "the last 3 wrote" in said_by(ruled, "inspect", "users")
    lake.options = RARELY
    page, _ = report(lake)
    assert f'<data value="{rewritten[-1]}">' in page
    assert "Bytes rewritten by each sync" in page
    assert "Higher bounds in tables.merge" in page

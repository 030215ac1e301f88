"""Merges that are put off: by the user's rule, and by the time that a sync has."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from destination_s3_spark.chain.files import FileEntry, FileKind
from destination_s3_spark.chain.state import Contents, Counters
from destination_s3_spark.storage.settings import S3Settings
from destination_s3_spark.tables.rules import MergeRule
from destination_s3_spark.tables.updates.resources import MergeTime
from destination_s3_spark.tables.updates.waiting import MOST_RUNS, runs_to_combine
from unit_tests.lake.lake import Lake
from unit_tests.lake.messages import complete, state
from unit_tests.places import table_of
from unit_tests.sync.dedup_lake import contents, dedup_catalog, fresh, rows, runs, sync, table

RARELY = {"tables": {"merge": [{"stream": "users", "at_least_every_hours": 24, "when_changed_percent": 50}]}}
NOW = datetime(2026, 1, 2, tzinfo=UTC)
DAY = timedelta(days=1)


@pytest.fixture
def lake(s3_settings: S3Settings, tmp_path: Path) -> Lake:
    return Lake(s3_settings, tmp_path, options=RARELY)


def test_rows_wait_until_a_bound_is_reached(lake: Lake) -> None:
    sync(lake, 1, range(100))
    assert contents(lake).waiting == Counters()  # an empty table is merged at once
    sync(lake, 2, range(10))
    sync(lake, 3, range(5, 15))

    assert set(table(lake).values()) == {f"{i} of 1" for i in range(100)}
    found = contents(lake)
    assert (found.waiting.rows, found.waiting.files, found.rows) == (20, 2, 100)
    assert found.waiting_since is not None
    assert [one for one, _ in lake.acknowledged()][-1]["stream_state"] == {"cursor": 3}

    sync(lake, 4, range(200, 230))
    assert contents(lake).waiting == Counters()
    assert contents(lake).waiting_since is None
    assert table(lake) == {
        i: f"{i} of {3 if 5 <= i < 15 else 2 if i < 10 else 4 if i >= 200 else 1}" for i in [*range(100), *range(200, 230)]
    }


def test_a_sync_without_rows_of_a_table_does_not_open_it_before_it_is_due(lake: Lake) -> None:
    sync(lake, 1, range(100))
    sync(lake, 2, range(10))
    before = lake.own_chain().head.sequence_number
    lake.sync(dedup_catalog(), [complete()])
    assert lake.own_chain().head.sequence_number == before

    lake.options = {"tables": {"merge": [{"stream": "*", "at_least_every_hours": 0}]}}
    lake.sync(dedup_catalog(), [complete()])
    assert contents(lake).waiting == Counters()


@pytest.mark.parametrize("waits", [True, False])
def test_another_key_is_merged_at_once(lake: Lake, waits: bool) -> None:
    sync(lake, 1, range(100))
    if waits:
        sync(lake, 2, range(10))
    lake.sync(dedup_catalog(key="note", key_type="string"), [rows([{"note": "3 of 2"}], 3), state(3), complete()])
    assert contents(lake).waiting == Counters()


@pytest.mark.parametrize("file_format", ["CSV", "JSONL"])
def test_runs_of_text_rows_are_merged_at_once_when_the_type_of_deletions_changes(
    s3_settings: S3Settings, tmp_path: Path, file_format: str
) -> None:
    lake = Lake(s3_settings, tmp_path, options=RARELY, format={"format_type": file_format})
    text, time = {"type": "string"}, {"type": "string", "format": "date-time", "airbyte_type": "timestamp_with_timezone"}
    waiting = []
    for number, (ids, kind) in enumerate([(range(100), text), (range(9), text), (range(5), time), (range(3), time)], start=1):
        found = [{"id": i, "note": f"{i} of {number}"} for i in ids]
        lake.sync(dedup_catalog(_ab_cdc_deleted_at=kind), [rows(found, number), state(number), complete()])
        waiting.append(contents(lake).waiting.files)
        assert fresh(lake).to_table().num_rows == 100
    assert waiting == [0, 1, 0, 1]


@pytest.mark.parametrize("hint", [True, False], ids=["with the hint", "without it"])
def test_waiting_rows_are_merged_by_their_own_key_before_the_table_gets_another(lake: Lake, hint: bool) -> None:
    sync(lake, 1, range(100))
    for number in (2, 3):
        sync(lake, number, range(10))
    if not hint:
        lake.store.delete([f"{table_of('users').chain_prefix}hint.json"])
    catalog = dedup_catalog(key="note", key_type="string", id={"type": "integer"})
    lake.sync(catalog, [rows([{"id": 500, "note": "9 of 1"}, {"id": 501, "note": "50 of 1"}], 9), state(9), complete()])

    assert contents(lake).waiting == Counters()
    expected = {i: f"{i} of {3 if i < 10 else 1}" for i in range(100)} | {500: "9 of 1", 501: "50 of 1"}
    del expected[50]
    assert table(lake) == expected


def test_another_format_is_written_at_once(lake: Lake) -> None:
    sync(lake, 1, range(100))
    lake.format = {"format_type": "Avro"}
    sync(lake, 2, range(10))
    assert contents(lake).waiting == Counters()


def test_rows_of_a_table_that_is_only_appended_from_now_on_are_merged_first(lake: Lake) -> None:
    sync(lake, 1, range(100))
    sync(lake, 2, range(10))
    catalog = dedup_catalog(mode="append")
    lake.sync(catalog, [rows([{"id": 1, "note": "again"}], 3), state(3), complete()])
    assert len(lake.ids_in_folder()) == 101


def test_a_refresh_replaces_waiting_rows(lake: Lake) -> None:
    sync(lake, 1, range(100))
    sync(lake, 2, range(200, 210))
    sync(lake, 3, range(7), generation=2, minimum=2)
    assert sorted(table(lake)) == list(range(7))
    assert contents(lake).waiting_since is None


def test_a_rebuild_brings_waiting_rows_into_the_table(lake: Lake) -> None:
    sync(lake, 1, range(100))
    sync(lake, 2, range(10))
    lake.rebuild()
    assert table(lake) == {i: f"{i} of {2 if i < 10 else 1}" for i in range(100)}
    assert contents(lake).waiting == Counters()


def test_many_waiting_runs_are_combined_and_the_table_is_right(lake: Lake) -> None:
    syncs = MOST_RUNS + 40
    lake.options = {"tables": {"merge": [{"stream": "users", "when_runs_mb": 1000}]}}
    expected: dict[int, str] = {}
    sync(lake, 1, range(300))
    expected |= {i: f"{i} of 1" for i in range(300)}
    for number in range(2, syncs + 2):
        ids = [number % 7, number * 31 % 300, 300 + number]
        sync(lake, number, ids)
        expected |= {i: f"{i} of {number}" for i in ids}
        assert len({file.offset for file in runs(lake)}) <= MOST_RUNS
        assert contents(lake).waiting.rows == 3 * (number - 1)
    assert any(file.combined for file in runs(lake))

    lake.options = {}
    sync(lake, syncs + 2, [0])
    assert table(lake) == expected | {0: f"0 of {syncs + 2}"}
    assert contents(lake).waiting == Counters()


def test_a_merge_that_would_take_too_long_is_left_and_said(lake: Lake, caplog: pytest.LogCaptureFixture) -> None:
    lake.options = {}
    sync(lake, 1, range(100))
    lake.merge_limits = {"time": MergeTime(timedelta())}
    with caplog.at_level(logging.WARNING, "airbyte"):
        sync(lake, 2, range(10))
    assert contents(lake).waiting.rows == 10
    assert len(lake.states) == 2
    assert "stream users: its new rows wait beside the table, because the merge would take about 0.0 s" in caplog.text
    assert "Run the command merge" in caplog.text

    lake.merge_limits = {}
    sync(lake, 3, [50])
    assert table(lake) == {i: f"{i} of {2 if i < 10 else 3 if i == 50 else 1}" for i in range(100)}


def test_a_table_takes_another_type_however_long_that_takes(lake: Lake) -> None:
    lake.options = {"tables": {"schema_change": "rewrite"}}
    sync(lake, 1, range(100))
    lake.merge_limits = {"time": MergeTime(timedelta())}
    sync(lake, 2, range(10))
    lake.sync(dedup_catalog(key_type="string"), [rows([{"id": "x", "note": "3"}], 3), state(3), complete()])
    expected: dict[Any, str] = {str(i): f"{i} of {2 if i < 10 else 1}" for i in range(100)}
    assert table(lake) == expected
    assert contents(lake).waiting.rows == 1


def test_the_hint_knows_how_fast_merges_are(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("destination_s3_spark.tables.updates.merged.LEAST_MEASURED", 0)
    sync(lake, 1, range(100))
    rate = lake.own_chain().merge_rate
    assert rate is not None
    assert rate > 0


@pytest.mark.parametrize(
    ("rule", "due"),
    [
        (MergeRule("*", DAY, None, None), True),
        (MergeRule("*", DAY + timedelta(seconds=1), None, None), False),
        (MergeRule("*", None, 10, None), True),
        (MergeRule("*", None, 10.1, None), False),
        (MergeRule("*", None, None, 500), True),
        (MergeRule("*", None, None, 501), False),
        (MergeRule("*", 2 * DAY, 99, 500), True),
    ],
)
def test_a_merge_is_due_when_a_bound_is_reached(rule: MergeRule, due: bool) -> None:
    held = {"final": Counters(100, 1, 1000), "delta": Counters(10, 1, 500)}
    assert rule.is_due(Contents(1, held=held, waiting_since=NOW - DAY), NOW) is due


def run(offset: int, size: int, generation: int = 1) -> FileEntry:
    return FileEntry(FileKind.DELTA, f"{offset}", 1, size, offset=offset, generation_id=generation)


def test_large_old_runs_stay_when_new_ones_are_combined() -> None:
    assert list(runs_to_combine([run(i, 1) for i in range(MOST_RUNS)])) == []
    files = [run(0, 10_000), *(run(i, 1) for i in range(1, MOST_RUNS + 1))]
    assert [[file.offset for file in group] for group in runs_to_combine(files)] == [list(range(1, MOST_RUNS + 1))]


def test_rows_of_two_generations_are_not_combined() -> None:
    files = [run(i, 1, generation=1 + i // 40) for i in range(MOST_RUNS + 6)]
    assert [[file.offset for file in group] for group in runs_to_combine(files)] == [list(range(40)), list(range(40, 70))]

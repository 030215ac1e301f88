"""Refreshes of deduplicated tables that a sync has no time to merge."""

from __future__ import annotations

import json
import logging
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from destination_s3_spark.chain.state import Counters
from destination_s3_spark.errors import ConfigError, SyncError
from destination_s3_spark.storage.settings import S3Settings
from destination_s3_spark.tables.updates.resources import MergeTime
from destination_s3_spark.tables.updates.waiting import MOST_RUNS
from unit_tests.lake.lake import Lake
from unit_tests.lake.messages import catalog as catalog_of
from unit_tests.lake.messages import complete, schema_of, state, stream
from unit_tests.sync.dedup_lake import contents, dedup_catalog, fresh, rows, runs, sync, table
from unit_tests.sync.process_ends import ends, ends_at

STEP = 9
"""With each commit, one end of a process in so many is tried."""
NO_TIME = {"time": MergeTime(timedelta())}
BEFORE = {i: f"{i} of 1" for i in range(100)}
REFRESHED = {i: f"{i} of 2" for i in range(7)}


@pytest.fixture
def lake(s3_settings: S3Settings, tmp_path: Path) -> Lake:
    return refreshed(s3_settings, tmp_path, {})


def refreshed(settings: S3Settings, directory: Path, options: dict[str, Any]) -> Lake:
    """Make a table with a complete refresh (generation 2) that was not merged."""
    made = Lake(settings, directory, options=options)
    sync(made, 1, range(100))
    made.merge_limits = NO_TIME
    sync(made, 2, range(7), generation=2, minimum=2)
    return made


def fresh_table(lake: Lake) -> dict[int, str]:
    found = fresh(lake).to_table()
    return dict(zip(found["id"].to_pylist(), found["note"].to_pylist(), strict=True))


def pending(lake: Lake) -> tuple[int, bool] | None:
    found = contents(lake).pending
    return None if found is None else (found.generation, found.complete)


def test_a_refresh_without_time_waits_complete_and_is_said(lake: Lake, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "airbyte"):
        sync(lake, 3, [3, 200], generation=2)
    assert "its new rows wait beside the table, which shows those from before the refresh, because the merge would take" in caplog.text
    assert (table(lake), pending(lake), len(lake.states)) == (BEFORE, (2, True), 3)
    later = REFRESHED | {3: "3 of 3", 200: "200 of 3"}
    assert fresh_table(lake) == later

    connector = lake.connector()
    inspected = connector.run("inspect", "users", "--output", "json")
    assert json.loads(inspected.text)["table"]["waiting"]["rows"] == 9
    with pytest.raises(ConfigError, match=r"its raw rows are of two generations\. Run merge first"):
        lake.rebuild()
    assert connector.run("merge").exit_code == 0
    assert (table(lake), pending(lake), contents(lake).waiting) == (later, None, Counters())
    assert lake.verified().problems == ()


def test_the_next_sync_with_time_publishes_it(lake: Lake) -> None:
    lake.merge_limits = {}
    sync(lake, 3, [3, 200], generation=2)
    assert (table(lake), pending(lake)) == (REFRESHED | {3: "3 of 3", 200: "200 of 3"}, None)
    assert fresh_table(lake) == table(lake)


def test_runs_of_a_waiting_refresh_are_combined(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("destination_s3_spark.tables.updates.waiting.MOST_RUNS", 3)
    expected = dict(REFRESHED)
    for number in range(3, 10):
        sync(lake, number, [number, 300 + number], generation=2)
        expected |= {number: f"{number} of {number}", 300 + number: f"{300 + number} of {number}"}
    assert len({file.offset for file in runs(lake)}) <= 3 < MOST_RUNS
    assert fresh_table(lake) == expected
    lake.merge_limits = {}
    sync(lake, 10, [], generation=2)
    assert (table(lake), pending(lake)) == (expected, None)


@pytest.mark.parametrize("generation", [2, 3], ids=["the same refresh again", "another refresh"])
def test_another_refresh_goes_on_or_takes_its_place(lake: Lake, generation: int) -> None:
    sync(lake, 3, [3, 200], generation=generation, minimum=generation)
    assert (table(lake), pending(lake)) == (BEFORE if generation == 2 else REFRESHED, (generation, True))
    lake.merge_limits = {}
    sync(lake, 4, [], generation=generation)
    assert table(lake) == (REFRESHED if generation == 2 else {}) | {3: "3 of 3", 200: "200 of 3"}
    assert lake.verified().problems == ()


def test_it_is_published_before_rows_of_another_generation_land(lake: Lake) -> None:
    sync(lake, 3, [3, 200], generation=3)
    assert (table(lake), pending(lake)) == (REFRESHED, None)  # and the new rows wait
    lake.merge_limits = {}
    sync(lake, 4, [5], generation=3, minimum=3)
    assert table(lake) == {3: "3 of 3", 200: "200 of 3", 5: "5 of 4"}
    assert lake.verified().problems == ()


@pytest.mark.parametrize("mode", ["append_dedup", "overwrite"])
@pytest.mark.parametrize("added", [{}, {3: "3 of 3", 200: "200 of 3"}], ids=["alone", "with later rows"])
def test_its_rows_stay_when_another_refresh_is_cancelled(lake: Lake, added: dict[int, str], mode: str) -> None:
    if added:
        sync(lake, 3, list(added), generation=2)
    with pytest.raises(SyncError, match="did not complete"):
        lake.sync(dedup_catalog(generation=3, minimum=3, mode=mode), [rows([{"id": 5, "note": "5 of 4"}], 9), state(4)])
    assert (table(lake), pending(lake)) == (REFRESHED | added, (3, False))
    assert fresh_table(lake) == table(lake)
    lake.merge_limits = {}
    sync(lake, 5, [6], generation=3)
    assert table(lake) == REFRESHED | added | {5: "5 of 4", 6: "6 of 5"}
    assert lake.verified().problems == ()


def test_a_refresh_without_rows_takes_its_place(lake: Lake) -> None:
    sync(lake, 3, [], generation=3, minimum=3)
    assert (table(lake), pending(lake)) == ({}, None)
    lake.merge_limits = {}
    sync(lake, 4, [5], generation=3)
    assert (table(lake), pending(lake)) == ({5: "5 of 4"}, None)
    assert lake.verified().problems == ()


def test_an_empty_one_is_published_first_too(s3_settings: S3Settings, tmp_path: Path) -> None:
    lake = Lake(s3_settings, tmp_path)
    sync(lake, 1, range(100))
    lake.merge_limits = NO_TIME
    sync(lake, 2, [], generation=2, minimum=2)
    with pytest.raises(SyncError, match="did not complete"):
        lake.sync(dedup_catalog(generation=3, minimum=3), [rows([{"id": 5, "note": "5 of 4"}], 9), state(4)])
    lake.merge_limits = {}
    sync(lake, 5, [6], generation=3)
    assert (table(lake), pending(lake)) == ({5: "5 of 4", 6: "6 of 5"}, None)


def test_it_is_published_before_a_column_gets_another_type(s3_settings: S3Settings, tmp_path: Path) -> None:
    lake = refreshed(s3_settings, tmp_path, {"tables": {"raw_tables": False, "schema_change": "rewrite"}})
    catalog = dedup_catalog(generation=2, note={"type": "integer"})
    with pytest.raises(ConfigError):  # the refresh's texts are no numbers
        lake.sync(catalog, [rows([{"id": 200, "note": 1}], 9), state(9), complete()])
    assert (table(lake), pending(lake)) == (REFRESHED, None)


def test_it_is_published_before_the_table_gets_another_key(lake: Lake) -> None:
    catalog = dedup_catalog(key="note", key_type="string", generation=2, id={"type": "integer"})
    lake.merge_limits = {}
    lake.sync(catalog, [rows([{"id": 500, "note": "3 of 2"}], 9), state(9), complete()])
    assert table(lake) == {i: note for i, note in REFRESHED.items() if i != 3} | {500: "3 of 2"}


def test_columns_of_a_waiting_refresh_stay_when_a_later_sync_does_not_declare_them(lake: Lake) -> None:
    catalog = catalog_of(stream(schema=schema_of({"id": {"type": "integer"}}), mode="append_dedup", key="id", generation=2))
    for limits in (NO_TIME, {}):
        lake.merge_limits = limits
        lake.sync(catalog, [rows([{"id": 200}], 9), state(9), complete()])
    assert table(lake) == {**REFRESHED, 200: None}


def test_a_sync_may_die_at_any_request_beside_a_waiting_refresh(s3_settings: S3Settings, tmp_path: Path) -> None:
    lake = Lake(s3_settings, tmp_path)
    for number, (call, end) in enumerate(ends(STEP), 1):
        generation = 2 * number
        lake.merge_limits = {}
        sync(lake, 1, range(20), generation=generation - 1, minimum=generation - 1)
        lake.merge_limits = NO_TIME
        sync(lake, 2, range(7), generation=generation, minimum=generation)
        lake.merge_limits = NO_TIME if number % 2 else {}
        with ends_at(lake, call, end) as seen:
            sync(lake, 3, [3, 200], generation=generation)
        lake.merge_limits = NO_TIME
        sync(lake, 3, [3, 200], generation=generation)  # the next attempt
        assert fresh_table(lake) == REFRESHED | {3: "3 of 3", 200: "200 of 3"}, f"{end} at call {call} ({seen[-1]})"
        assert table(lake) in ({i: f"{i} of 1" for i in range(20)}, REFRESHED, fresh_table(lake))
        assert lake.memory.uploads == {}
        if len(seen) < call:
            break
    assert call > 12
    assert lake.verified().problems == ()


@pytest.mark.parametrize("generations", [True, False], ids=["generations", "no generations"])
def test_another_refresh_may_die_at_any_request(s3_settings: S3Settings, tmp_path: Path, generations: bool) -> None:
    lake = Lake(s3_settings, tmp_path)
    for number, (call, end) in enumerate(ends(STEP), 1):
        for before, (ids, limits) in enumerate([(20, {}), (7, NO_TIME)], 3 * number):
            lake.merge_limits = limits
            sync(lake, before % 3 + 1, range(ids), generation=before, minimum=before)
        generation = 3 * number + 2 if generations else 0
        catalog = dedup_catalog(generation=generation, minimum=generation, mode="append_dedup" if generations else "overwrite")
        catalog["streams"][0]["sync_id"] = 3 * number + 2
        lake.merge_limits = NO_TIME if number % 2 else {}
        with ends_at(lake, call, end) as seen:
            lake.sync(catalog, [rows([{"id": i, "note": f"{i} of 3"} for i in (3, 200)], 3), state(3), complete()])
        lake.merge_limits = {}
        sync(lake, 4, [6], generation=generation)
        new, last = {3: "3 of 3", 200: "200 of 3"}, {6: "6 of 4"}
        found = table(lake)
        assert found in (REFRESHED | last, REFRESHED | new | last, new | last), f"{end} at call {call} ({seen[-1]})"
        assert lake.memory.uploads == {}
        if len(seen) < call:
            break
    assert call > 12
    assert lake.verified().problems == ()

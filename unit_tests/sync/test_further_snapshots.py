"""Further snapshots of CDC sources whose rows have no cursor, over the changes and deletions that a table knows."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from destination_s3_spark.storage.settings import S3Settings
from unit_tests.lake.lake import Lake
from unit_tests.lake.messages import complete, state
from unit_tests.sync.forgetful_lake import ForgetfulLake
from unit_tests.sync.versioned_lake import HISTORY, brief, check, history, lines, moment, users
from unit_tests.tables.reference_merge import Version, softly, surviving

WAITS = {"merge": [{"stream": "users", "when_runs_mb": 1000}]}
FORMATS = ("Parquet", "JSONL", "CSV", "Avro")


@dataclass(frozen=True)
class Row:
    """A row of a source, extracted at a minute. No cursor is one of a snapshot, no name a deletion."""

    id: int
    name: str | None
    cursor: int | None
    at: int

    @property
    def data(self) -> dict[str, Any]:
        time = moment(self.at).isoformat()
        return {
            "id": self.id, "name": self.name, "_ab_cdc_lsn": self.cursor, "_ab_cdc_updated_at": time,
            "_ab_cdc_deleted_at": time if self.name is None else None,
        }  # fmt: skip


def lake_of(settings: S3Settings, directory: Path, file_format: str = "Parquet", **rules: Any) -> Lake:
    more = {"compression_codec": {"codec": "no compression"}} if file_format == "Avro" else {}
    return Lake(settings, directory, format={"format_type": file_format, **more}, options={"tables": rules})


def sync(lake: Lake, number: int, *rows: Row, commits: Sequence[int] = ()) -> None:
    """A sync of the rows, with a STATE after the last one and before those at `commits`."""
    blocks = []
    for place, row in enumerate(rows):
        if place in commits:
            blocks.append(state(number * 1000 + place))
        blocks.append(lines([row.data], moment(row.at)))
    lake.sync(users(number), [*blocks, state(number * 1000 + 999), complete()])


def read(lake: Lake, *, fresh: bool = False) -> list[dict[str, Any]]:
    rows = lake.read(fresh=fresh).to_table().to_pylist()
    found = [json.loads(row["_airbyte_data"]) if "_airbyte_data" in row else row for row in rows]
    assert len({row["id"] for row in found}) == len(found)
    return found


def names(lake: Lake, *, fresh: bool = False) -> dict[int, str | None]:
    return {row["id"]: row["name"] for row in read(lake, fresh=fresh) if row["_ab_cdc_deleted_at"] is None}


def snapshots(lake: Lake) -> list[int]:
    """The minutes of the snapshots that the chain records."""
    return [round((since - moment(0)).total_seconds() / 60) for since in lake.own_chain().head.contents.snapshots]


def changes_and_another_snapshot(lake: Lake) -> None:
    sync(lake, 1, *(Row(number, "first", None, 1) for number in range(4)), Row(1, "changed", 101, 2), Row(2, None, 102, 2))
    sync(lake, 2, Row(3, "changed", 103, 5), Row(0, None, 104, 5), Row(4, "new", 105, 6))
    sync(lake, 3, Row(1, "second", None, 9), Row(2, "second", None, 9), Row(3, "second", None, 10), Row(3, "later", 7, 11))
    sync(lake, 4, Row(4, "later", 8, 13), Row(1, None, 9, 13))


EXPECTED = {2: "second", 3: "later", 4: "later"}


@pytest.mark.parametrize("deletions", ["hard", "soft"])
@pytest.mark.parametrize("file_format", FORMATS)
def test_rows_of_another_snapshot_replace_changes_and_deletions(
    s3_settings: S3Settings, tmp_path: Path, file_format: str, deletions: str
) -> None:
    lake = lake_of(s3_settings, tmp_path, file_format, cdc_deletion_mode=deletions)
    changes_and_another_snapshot(lake)
    assert names(lake) == EXPECTED
    assert snapshots(lake) == [1, 9]
    lake.rebuild()
    assert names(lake) == EXPECTED


@pytest.mark.parametrize("logged", [False, True], ids=["", "logged"])
@pytest.mark.parametrize("deletions", ["hard", "soft"])
def test_runs_that_wait_are_merged_as_they_would_have_been_at_once(
    s3_settings: S3Settings, tmp_path: Path, deletions: str, *, logged: bool
) -> None:
    lake = lake_of(s3_settings, tmp_path)
    rules = {"cdc_deletion_mode": deletions}
    log = {"change_log": {"enabled": True, "format": "jsonl"}} if logged else {}
    lake.options = {"tables": {**rules, **WAITS}, **log}
    changes_and_another_snapshot(lake)
    assert names(lake) != EXPECTED
    assert names(lake, fresh=True) == EXPECTED
    lake.options = {"tables": rules, **log}
    sync(lake, 5, Row(9, "last", 10, 20))
    assert names(lake) == {**EXPECTED, 9: "last"}


def test_a_history_goes_on_with_the_rows_of_another_snapshot(s3_settings: S3Settings, tmp_path: Path) -> None:
    lake = lake_of(s3_settings, tmp_path, "Parquet", **HISTORY)
    changes_and_another_snapshot(lake)
    assert brief(history(lake)) == [
        (0, "first", 1, 5, "deleted"),
        (1, "first", 1, 2), (1, "changed", 2, 9), (1, "second", 9, 13, "deleted"),
        (2, "first", 1, 2, "deleted"), (2, "second", 9, None),
        (3, "first", 1, 5), (3, "changed", 5, 10), (3, "second", 10, 11), (3, "later", 11, None),
        (4, "new", 6, 13), (4, "later", 13, None),
    ]  # fmt: skip
    check(lake, history(lake))


def test_within_a_sync_a_change_wins_against_a_row_of_the_snapshot(s3_settings: S3Settings, tmp_path: Path) -> None:
    lake = lake_of(s3_settings, tmp_path)
    sync(lake, 1, Row(1, "first", 50, 1), Row(2, "first", 51, 1))
    sync(lake, 2, Row(1, "changed", 7, 5), Row(1, "of the snapshot", None, 6), Row(2, "again", None, 7), commits=(1, 2))
    assert names(lake) == {1: "changed", 2: "again"}
    assert snapshots(lake) == [5]


def test_records_of_before_a_snapshot_that_come_again_change_nothing(s3_settings: S3Settings, tmp_path: Path) -> None:
    lake = lake_of(s3_settings, tmp_path)
    changes = Row(1, "changed", 101, 5), Row(2, None, 102, 5)
    sync(lake, 1, Row(1, "first", None, 1), Row(2, "first", None, 1))
    sync(lake, 2, *changes)
    sync(lake, 3, Row(1, "second", None, 9), Row(2, "second", None, 9))
    sync(lake, 4, *changes, Row(3, "other", 103, 4))
    assert (names(lake), snapshots(lake)) == ({1: "second", 2: "second", 3: "other"}, [1, 9])


def test_the_start_of_the_sync_is_before_rows_that_come_out_of_order(s3_settings: S3Settings, tmp_path: Path) -> None:
    lake = lake_of(s3_settings, tmp_path)
    sync(lake, 1, Row(1, "first", 50, 1), Row(2, "first", 51, 1))
    lake.started_at = moment(4)
    sync(lake, 2, Row(1, "again", None, 7), Row(2, "again", None, 6), commits=(1,))
    assert (names(lake), snapshots(lake)) == ({1: "again", 2: "again"}, [4])


def test_changes_captured_by_triggers_have_snapshots_without_cursors(s3_settings: S3Settings, tmp_path: Path) -> None:
    lake = lake_of(s3_settings, tmp_path)
    columns = {"id": {"type": "integer"}, "name": {"type": "string"}, "_ab_trigger_change_time": {"type": "string", "format": "date-time"}}
    times = ["2026-01-01T00:00:00Z", None]
    for number, time in enumerate(times):
        row = {"id": 1, "name": f"{number}", "_ab_trigger_change_time": time}
        sent = [lines([row], moment(number)), state(number), complete()]
        lake.sync(users(1, columns=columns, cursor="_ab_trigger_change_time"), sent)
    assert lake.read().to_table(["name"]).to_pylist() == [{"name": "1"}]


def test_cursors_that_do_not_fit_and_cursors_of_other_sources_begin_no_snapshot(s3_settings: S3Settings, tmp_path: Path) -> None:
    lake = lake_of(s3_settings, tmp_path)
    sync(lake, 1, Row(1, "first", 50, 1))
    sync(lake, 2, Row(1, "unfit", 10**30, 5))
    assert (names(lake), snapshots(lake)) == ({1: "first"}, [])
    columns = {"id": {"type": "integer"}, "name": {"type": "string"}, "updated": {"type": "integer"}}
    rows: list[dict[str, Any]] = [{"id": 1, "name": "first", "updated": 5}, {"id": 1, "name": "again", "updated": None}]
    for number, row in enumerate(rows):
        catalog = users(9, 9 * (number == 0), columns, cursor="updated")
        lake.sync(catalog, [lines([row], moment(number + 7)), state(number), complete()])
    found = lake.read().to_table(["name"]).to_pylist()
    assert (found, snapshots(lake)) == ([{"name": "first"}], [])


def test_a_block_of_barred_keys_alone_begins_no_snapshot(s3_settings: S3Settings, tmp_path: Path) -> None:
    lake = ForgetfulLake(s3_settings, tmp_path)
    sync(lake, 1, Row(1, "first", 50, 1), Row(2, "first", 51, 1))
    lake.forget({"id": 1}, forever=True)
    large = "x" * 100_000
    sync(lake, 2, Row(2, large, 52, 2), Row(1, large, None, 3), commits=(1,))
    assert (names(lake), snapshots(lake)) == ({2: large}, [])


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("deletions", ["hard", "soft"])
def test_any_snapshots_and_changes_make_the_rows_of_the_reference(
    s3_settings: S3Settings, tmp_path: Path, seed: int, deletions: str
) -> None:
    chance = random.Random(seed)
    lake = lake_of(s3_settings, tmp_path, cdc_deletion_mode=deletions)
    versions: list[tuple[Version, Row]] = []
    starts = []
    for number in range(1, 7):
        rows = [
            Row(chance.randrange(8), chance.choice([None, f"{number}-{place}"]), chance.randrange(40), number * 10 + chance.randrange(9))
            for place in range(chance.randrange(1, 9))
        ]
        if number == 1 or chance.random() < 0.5:
            rows += [Row(chance.randrange(8), f"{number}-again", None, number * 10 + chance.randrange(9)) for _ in range(3)]
            starts.append(min(row.at for row in rows))
        for row in rows:
            versions.append((Version(len(versions), (row.id,), row.cursor, row.at, row.name is None, len(versions)), row))
        lake.options = {"tables": {"cdc_deletion_mode": deletions, **(WAITS if chance.random() < 0.4 else {})}}
        sync(lake, number, *rows)
    by_number = {version.number: row for version, row in versions}
    history = [version for version, _ in versions]
    expected = {row.id: row.name for row in (by_number[one.number] for one in surviving(history, starts)) if row.name is not None}
    assert snapshots(lake) == starts
    assert names(lake, fresh=True) == expected
    if deletions == "soft":
        shown = {found.key[0]: by_number[values.number].name for found, values in softly(history, starts) if values is not found}
        deleted = [row for row in read(lake, fresh=True) if row["_ab_cdc_deleted_at"] is not None]
        assert {row["id"]: row["name"] for row in deleted if row["name"] is not None} == shown
    lake.rebuild()
    assert names(lake) == expected

"""Times and order of the versions of a history, as syncs make them and as `rebuild` makes them again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from destination_s3_spark.storage.settings import S3Settings
from unit_tests.lake.lake import Lake
from unit_tests.lake.messages import complete, state
from unit_tests.sync.reference_changes import PLACEHOLDER
from unit_tests.sync.versioned_lake import HISTORY, Change, brief, check, history, lines, moment, sync, users


@pytest.fixture
def lake(s3_settings: S3Settings, tmp_path: Path) -> Lake:
    return Lake(s3_settings, tmp_path, options={"tables": HISTORY})


def test_times_are_the_cursor_s_or_those_of_extraction(lake: Lake) -> None:
    plain = {"id": {"type": "integer"}, "name": {"type": "string"}, "seen": {"type": "string", "format": "date-time"}}
    rows = [{"id": 1, "name": "a", "seen": moment(3).isoformat()}, {"id": 1, "name": "b", "seen": moment(4).isoformat()}]
    lake.sync(users(1, 0, plain, cursor="seen"), [lines(rows, moment(9)), state(1), complete()])
    assert brief(history(lake)) == [(1, "a", 3, 4), (1, "b", 4, None)]


@pytest.mark.parametrize(
    ("changes", "versions"),
    [
        ([(1, 5, "a"), (2, 3, "b")], [(1, "a", 1, None)]),
        ([(1, 5, "a"), (2, None, None)], [(1, "a", 1, None)]),
        ([(2, None, None), (1, 5, "a")], [(1, "a", 1, None)]),
        ([(3, 1, "a"), (2, 2, "b"), (4, 3, "c")], [(1, "a", 3, 3), (1, "b", 3, 4), (1, "c", 4, None)]),
    ],
)
def test_rows_that_rank_otherwise_than_by_their_times_make_the_same_history_again(
    lake: Lake, changes: list[tuple[int, int | None, str | None]], versions: list[tuple[Any, ...]]
) -> None:
    fields = {name: {"type": "string"} for name in ("name", "_ab_cdc_deleted_at")} | {name: {"type": "integer"} for name in ("id", "at")}
    for number, (day, cursor, name) in enumerate(changes, 1):
        deletion = {} if name else {"_ab_cdc_deleted_at": moment(day).isoformat()}
        lake.sync(
            users(1, 0, fields, cursor="at"),
            [lines([{"id": 1, "at": cursor, "name": name, **deletion}], moment(day)), state(number), complete()],
        )
    assert brief(history(lake)) == versions
    lake.rebuild()
    assert brief(history(lake)) == versions


@pytest.mark.parametrize("deletion", ["hard", "soft"])
def test_deletions_end_versions_and_values_that_were_left_out_are_those_before(lake: Lake, deletion: str) -> None:
    lake.options = {"tables": {**HISTORY, "cdc_deletion_mode": deletion}, "change_log": {"enabled": True, "format": "jsonl"}}
    left_out = {"name": PLACEHOLDER, "amount": 2}
    sync(lake, Change(1, 1, {"name": "a", "amount": 1}), Change(2, 1, {"name": "b"}), Change(1, 2, left_out))
    sync(lake, Change(1, 3, {"name": PLACEHOLDER, "amount": 3}), Change(2, 4, None))
    sync(lake, Change(2, 6, {"name": "c"}), Change(1, 7, {"name": PLACEHOLDER, "amount": 3}))
    versions = [(1, "a", 1, 2), (1, "a", 2, 3), (1, "a", 3, None), (2, "b", 1, 4, "deleted"), (2, "c", 6, None)]
    assert brief(history(lake)) == versions
    check(lake, history(lake))
    lake.rebuild()
    assert brief(history(lake)) == versions

"""Histories of changes that have one time, or that were made before the change before them was extracted."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from destination_s3_spark.storage.settings import S3Settings
from unit_tests.lake.lake import Lake
from unit_tests.lake.messages import complete, state
from unit_tests.sync.versioned_lake import FIRST, HISTORY, brief, check, history, lines, moment, users


@pytest.fixture(params=["hard", "soft"])
def lake(request: pytest.FixtureRequest, s3_settings: S3Settings, tmp_path: Path) -> Lake:
    return Lake(s3_settings, tmp_path, options={"tables": {**HISTORY, "cdc_deletion_mode": request.param}})


def change(cursor: int, at: int, name: str | None) -> dict[str, Any]:
    """A change of row 1 at a minute. No name is a deletion."""
    time = moment(at).isoformat()
    return {
        "id": 1, "name": name, "_ab_cdc_lsn": cursor, "_ab_cdc_updated_at": time, "_ab_cdc_deleted_at": time if name is None else None
    }  # fmt: skip


def sync(lake: Lake, *changes: dict[str, Any], extracted: int, number: int) -> None:
    sent = lines(changes, FIRST + timedelta(minutes=extracted))
    lake.sync(users(), [sent, state(number), complete()])


def test_a_row_that_came_back_before_its_deletion_was_extracted_is_valid_from_then(lake: Lake) -> None:
    sync(lake, change(1, 1, "a"), extracted=2, number=1)
    sync(lake, change(3, 3, None), extracted=9, number=2)
    sync(lake, change(4, 4, "b"), change(5, 5, "c"), extracted=12, number=3)
    assert brief(history(lake)) == [(1, "a", 1, 3, "deleted"), (1, "b", 4, 5), (1, "c", 5, None)]
    check(lake, history(lake))


def test_a_row_that_is_only_known_as_deleted_came_back_when_the_source_says(lake: Lake) -> None:
    sync(lake, change(3, 3, None), extracted=9, number=1)
    sync(lake, change(1, 1, "a"), change(4, 4, "b"), change(5, 5, "c"), extracted=12, number=2)
    found = brief(history(lake))
    assert found[1:] == [(1, "b", 4, 5), (1, "c", 5, None)]
    assert found[0][:3] == (1, "a", 1)
    check(lake, history(lake))


def test_a_deletion_that_comes_again_leaves_the_version_that_began_at_its_time(lake: Lake) -> None:
    log = [change(1, 1, "a"), change(2, 4, None), change(3, 4, "b"), change(4, 6, "c")]
    sync(lake, *log, extracted=7, number=1)
    versions = [(1, "a", 1, 4, "deleted"), (1, "b", 4, 6), (1, "c", 6, None)]
    assert brief(history(lake)) == versions
    sync(lake, *log, extracted=7, number=2)
    assert brief(history(lake)) == versions
    sync(lake, *log[1:], extracted=8, number=3)
    assert brief(history(lake)) == versions


def test_late_changes_at_the_time_of_an_ended_version_come_before_or_after_it_by_their_rank(lake: Lake) -> None:
    sync(lake, change(2, 2, "b"), change(9, 9, "z"), extracted=10, number=1)
    sync(lake, change(1, 2, "a"), change(3, 2, "c"), extracted=11, number=2)
    assert brief(history(lake)) == [(1, "a", 2, 2), (1, "b", 2, 2), (1, "c", 2, 9), (1, "z", 9, None)]
    sync(lake, change(4, 2, None), extracted=12, number=3)
    assert brief(history(lake))[2:] == [(1, "c", 2, 2, "deleted"), (1, "z", 9, None)]
    check(lake, history(lake))

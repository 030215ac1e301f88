"""Retention as a sync applies it: raw files of an append and of a deduplicated table, and the rebuild that is refused afterwards."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from destination_s3_spark.chain.files import FileKind
from destination_s3_spark.chain.log import Chain
from destination_s3_spark.errors import ConfigError
from destination_s3_spark.storage.settings import S3Settings
from unit_tests.lake.lake import Lake
from unit_tests.lake.messages import complete, record, state
from unit_tests.sync.logged_lake import cdc_catalog

FOLDER = "lake/airbyte_changes/users/"


@pytest.fixture
def today(monkeypatch: pytest.MonkeyPatch) -> list[datetime]:
    """The time of the tables' clock, to be moved."""
    now = [datetime.now(UTC)]
    monkeypatch.setattr(Chain.__init__, "__defaults__", (lambda: now[0],))
    return now


def sync(lake: Lake, number: int, key: str | None, generation: int = 1) -> None:
    sent = record({"id": number % 2, "name": f"{number}", "_ab_cdc_lsn": number}, emitted_at=1)
    minimum = generation if generation > 1 else 0
    lake.sync(cdc_catalog(generation, minimum, key=key), [sent, state(number), complete()])


@pytest.mark.parametrize("key", [None, "id"])
def test_raw_files_go_and_the_final_table_stays(s3_settings: S3Settings, tmp_path: Path, today: list[datetime], key: str | None) -> None:
    lake = Lake(s3_settings, tmp_path, options={"tables": {"raw_retention_days": 2}})
    for number in range(6):
        sync(lake, number, key)
        today[0] += timedelta(days=1)

    assert len(lake.live(FileKind.RAW)) == 3 == len([info for info in lake.store.list("lake/airbyte_internal/") if "/raw/" in info.key])
    assert lake.ids_in_folder() == ([0, 1] if key else [0, 0, 0, 1, 1, 1])
    with pytest.raises(ConfigError, match="cannot be rebuilt from its raw table, which has 3 of the 6 records"):
        lake.rebuild()


def test_the_change_log_before_the_newest_snapshot_goes(s3_settings: S3Settings, tmp_path: Path, today: list[datetime]) -> None:
    lake = Lake(s3_settings, tmp_path, options={"change_log": {"enabled": True, "retention_days": 30}})

    def kinds() -> list[str]:
        return [info.key.rsplit("-", 1)[-1].split(".")[0] for info in lake.store.list(FOLDER)]

    for number in range(3):
        sync(lake, number, "id")
    sync(lake, 3, "name", generation=2)  # another key: the log starts over
    sync(lake, 4, "name", generation=2)
    before = kinds()
    assert before.count("snapshot") == 2
    # The log's objects are of today, however far the tables' clock is ahead: the sweep of a later day finds them old.
    today[0] += timedelta(days=40)
    sync(lake, 5, "name", generation=2)
    after = kinds()

    assert after.count("snapshot") == 1
    assert after.count("changes") < before.count("changes")
    assert lake.ids_in_folder() == [0, 1, 1]

"""Retention as a sync applies it: raw files of an append and of a deduplicated table, and the rebuild that is refused afterwards."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from destination_s3_spark.chain.files import FileKind
from destination_s3_spark.chain.log import Chain
from destination_s3_spark.errors import ConfigError
from destination_s3_spark.storage.s3 import S3Store
from destination_s3_spark.storage.settings import S3Settings
from destination_s3_spark.tables.factory import TableFactory
from destination_s3_spark.tables.updates.choice import rebuild_of
from destination_s3_spark.tables.updates.resources import Resources, TaskResources
from unit_tests.sync.inline_lake import InlineLake, line, state, status
from unit_tests.sync.logged_lake import cdc_catalog

FOLDER = "lake/airbyte_changes/users/"


@pytest.fixture
def today(monkeypatch: pytest.MonkeyPatch) -> list[datetime]:
    """The time of the tables' clock, to be moved."""
    now = [datetime.now(UTC)]
    monkeypatch.setattr(Chain.__init__, "__defaults__", (lambda: now[0],))
    return now


def sync(lake: InlineLake, number: int, key: str | None, generation: int = 1) -> None:
    data = {"id": number % 2, "name": f"{number}", "_ab_cdc_lsn": number}
    record = line({"type": "RECORD", "record": {"stream": "users", "emitted_at": 1, "data": data}})
    minimum = generation if generation > 1 else 0
    lake.sync(cdc_catalog(generation, minimum, key=key), [record, state(number), status("COMPLETE")])


@pytest.mark.parametrize("key", [None, "id"])
def test_raw_files_go_and_the_final_table_stays(s3_settings: S3Settings, tmp_path: Path, today: list[datetime], key: str | None) -> None:
    lake = InlineLake(s3_settings, tmp_path, options={"tables": {"raw_retention_days": 2}})
    for number in range(6):
        sync(lake, number, key)
        today[0] += timedelta(days=1)
    store = S3Store(s3_settings)
    factory = TableFactory(lake.config(), store, datetime.now(UTC))
    (found,) = factory.find().tables
    live = factory.read_chain(found).live_files()

    assert len(live.of(FileKind.RAW)) == 3 == len([info for info in store.list("lake/airbyte_internal/") if "/raw/" in info.key])
    assert sorted(lake.ids()) == ([0, 1] if key else [0, 0, 0, 1, 1, 1])
    table = factory.of_found(found, ()).open()
    with pytest.raises(ConfigError, match="cannot be rebuilt from its raw table, which has 3 of the 6 records"):
        rebuild_of(table, Resources(TaskResources(s3_settings, 2**26), 2, None))


def test_the_change_log_before_the_newest_snapshot_goes(s3_settings: S3Settings, tmp_path: Path, today: list[datetime]) -> None:
    lake = InlineLake(s3_settings, tmp_path, options={"change_log": {"enabled": True, "retention_days": 30}})
    store = S3Store(s3_settings)

    def kinds() -> list[str]:
        return [info.key.rsplit("-", 1)[-1].split(".")[0] for info in store.list(FOLDER)]

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
    assert sorted(lake.ids()) == [0, 1, 1]

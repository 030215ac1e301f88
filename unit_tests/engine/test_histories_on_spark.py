"""A history whose tasks run in Spark's workers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from destination_s3_spark.engine.engine import Engine
from destination_s3_spark.engine.session import SparkSettings
from destination_s3_spark.storage.settings import S3Settings
from unit_tests.lake.lake import Lake
from unit_tests.sync.versioned_lake import HISTORY, Change, brief, check, history, moment, refresh, sync

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    engine = Engine(SparkSettings(2, 512, tmp_path_factory.mktemp("spark"), {}), "destination_s3_spark.tables.landing.land")
    yield engine
    engine.stop()


def test_spark_s_tasks_write_a_history(spark: Engine, served_settings: S3Settings, tmp_path: Path) -> None:
    lake = Lake(served_settings, tmp_path, options={"tables": HISTORY}, spark=spark)
    sync(lake, Change(1, 1, {"name": "a"}), Change(1, 3, {"name": "b"}), Change(2, 1, {"name": "c"}))
    sync(lake, Change(1, 2, {"name": "x"}), Change(2, 4, None))
    refresh(lake, 2, Change(3, 5, {"name": "d"}), at=6)
    versions = [(1, "a", 1, 2), (1, "x", 2, 3), (1, "b", 3, 6, "deleted"), (2, "c", 1, 4, "deleted"), (3, "d", 5, None)]
    assert brief(history(lake)) == versions
    assert lake.started_at == moment(6)
    check(lake, history(lake))

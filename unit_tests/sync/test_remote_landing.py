"""Landing where tasks do not see the spool: slices travel through the bucket and leave nothing there."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from destination_s3_spark.errors import ConfigError, TransientError
from destination_s3_spark.storage.s3 import S3Store
from destination_s3_spark.storage.settings import S3Settings
from destination_s3_spark.sync.batches import Limits
from unit_tests.sync.inline_lake import InlineEngine, InlineLake, catalog, records, state, status

SMALL = Limits(batch_bytes=2_000, age_s=3600, spool_bytes=2**31)


class Cluster(InlineEngine):
    """Tasks run here, but not before the spool was taken away from them. `before` is called with the store before each job."""

    def __init__(self, store: S3Store, before: Callable[[S3Store], None] = lambda _: None) -> None:
        self._store = store
        self._before = before
        self.travelled: list[str] = []

    def run(self, function: Callable[[Any], Any], groups: Sequence[Sequence[Any]], progress: object = None) -> list[list[Any]]:
        self.travelled += scratch(self._store)
        self._before(self._store)
        assert all(not task.slice.extents for tasks in groups for task in tasks)
        return super().run(function, groups)


def scratch(store: S3Store) -> list[str]:
    return [found.key for found in store.list("lake/airbyte_internal/") if "/scratch/" in found.key]


@pytest.fixture
def store(s3_settings: S3Settings) -> S3Store:
    return S3Store(s3_settings)


def test_slices_travel_through_the_scratch_folder_of_their_table(s3_settings: S3Settings, store: S3Store, tmp_path: Path) -> None:
    cluster = Cluster(store)
    lake = InlineLake(s3_settings, tmp_path, cluster=cluster)

    lake.sync(
        catalog("users", "orders"),
        [records(range(100)), records(range(7), "orders"), state(1), status("COMPLETE"), status("COMPLETE", "orders")],
    )

    assert (lake.ids(), lake.ids("orders")) == (list(range(100)), list(range(7)))
    assert sorted(key.split("/")[2] for key in cluster.travelled) == ["_raw__stream_orders", "_raw__stream_users"]
    assert scratch(store) == []
    assert list(store.list_uploads("lake/")) == []


def test_every_batch_takes_its_own_way(s3_settings: S3Settings, store: S3Store, tmp_path: Path) -> None:
    cluster = Cluster(store)
    lake = InlineLake(s3_settings, tmp_path, limits=SMALL, cluster=cluster)
    blocks = [block for start in range(0, 300, 100) for block in (records(range(start, start + 100)), state(start))]

    lake.sync(catalog("users"), [*blocks, status("COMPLETE")])

    assert lake.ids() == list(range(300))
    assert len(set(cluster.travelled)) == len(cluster.travelled) > 0
    assert scratch(store) == []


def test_a_job_that_fails_leaves_no_records_on_their_way(s3_settings: S3Settings, store: S3Store, tmp_path: Path) -> None:
    def fail(_: S3Store) -> None:
        raise TransientError("executors were lost")

    cluster = Cluster(store, fail)
    with pytest.raises(TransientError, match="executors were lost"):
        InlineLake(s3_settings, tmp_path, cluster=cluster).sync(catalog("users"), [records(range(3)), state(1), status("COMPLETE")])

    assert cluster.travelled
    assert scratch(store) == []


def test_records_that_vanish_on_their_way_end_the_sync(s3_settings: S3Settings, store: S3Store, tmp_path: Path) -> None:
    cluster = Cluster(store, lambda store: store.delete(scratch(store)))
    lake = InlineLake(s3_settings, tmp_path, cluster=cluster)

    with pytest.raises(TransientError, match="is gone"):
        lake.sync(catalog("users"), [records(range(3)), state(1), status("COMPLETE")])

    assert lake.states == []
    assert list(store.list_uploads("lake/")) == []


def test_what_cannot_be_deleted_after_a_failure_is_left_to_the_next_sync(
    s3_settings: S3Settings, store: S3Store, s3_proxy: Any, s3_error: Any, tmp_path: Path
) -> None:
    died = threading.Event()

    def die(_: S3Store) -> None:
        s3_proxy.fail("DeleteObjects", s3_error(403, "AccessDenied"))
        died.set()
        raise ConfigError("the news")

    through_proxy = InlineLake(replace(s3_settings, endpoint=s3_proxy.endpoint), tmp_path / "one", cluster=Cluster(store, die))
    with pytest.raises(ConfigError, match="the news"):
        through_proxy.sync(catalog("users"), [records(range(3)), state(1), status("COMPLETE")])
    left = scratch(store)
    store.put("lake/airbyte_internal/_raw__stream_users/scratch/of-somebody-else/0.jsonl.zst", b"")

    lake = InlineLake(s3_settings, tmp_path / "two")
    lake.sync(catalog("users"), [records(range(3)), state(1), status("COMPLETE")])

    assert died.is_set()
    assert len(left) == 1
    assert lake.ids() == [0, 1, 2]
    assert scratch(store) == ["lake/airbyte_internal/_raw__stream_users/scratch/of-somebody-else/0.jsonl.zst"]

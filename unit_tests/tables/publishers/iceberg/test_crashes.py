"""Deaths at every call of the store and of the catalog: the next sync finds an Iceberg table that it can bring up to date."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException

from destination_s3_spark.chain.files import FileKind
from destination_s3_spark.errors import TransientError
from destination_s3_spark.storage.settings import S3Settings
from destination_s3_spark.tables.commit.writer import TableWriter
from destination_s3_spark.tables.publishers.iceberg import table as iceberg_table
from destination_s3_spark.tables.publishers.iceberg.files import io_properties
from unit_tests.chain.bucket import Bucket, at_calls, name_of
from unit_tests.chain.one_table import TABLE, writer
from unit_tests.lake.memory_bucket import Crash, Fate, S3Call
from unit_tests.tables.publishers.iceberg.chained import SCHEMA, live, staged
from unit_tests.tables.publishers.iceberg.lake import NAME, published, warnings

SETTINGS = S3Settings("bucket")


def session(store: Bucket, folder: Path, sync_id: int) -> TableWriter:
    """A session with a catalog connection of its own, as another process has it."""
    made = writer(store, sync_id, publishers=[published(folder, SETTINGS, TABLE.folder)])
    made.open()
    made.ensure_schema(SCHEMA)
    return made


def replaced(store: Bucket, folder: Path, sync_id: int) -> None:
    """A sync that replaces all files of the table by two."""
    made = session(store, folder, sync_id)
    made.merge([staged(made, store), staged(made, store)], made.live_files().of(FileKind.FINAL), None)
    made.close()


def shown(store: Bucket, folder: Path) -> set[str]:
    """The files that readers of the catalog see. All of them exist."""
    catalog = SqlCatalog("lake", uri=f"sqlite:///{folder}/catalog.db", **io_properties(store, "bucket", "lake/users/_iceberg/"))
    return {task.file.file_path.removeprefix("s3://bucket/") for task in catalog.load_table(NAME).scan().plan_files()}


@pytest.fixture
def world(tmp_path: Path) -> Callable[[], tuple[Bucket, Path]]:
    """Makes a store and a catalog with a table that has been synced once."""
    first, number = Bucket(), 0
    (tmp_path / "first").mkdir()
    replaced(first, tmp_path / "first", 1)
    database = (tmp_path / "first" / "catalog.db").read_bytes()

    def make() -> tuple[Bucket, Path]:
        nonlocal number
        number += 1
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "catalog.db").write_bytes(database)
        return first.copy(), folder

    return make


@pytest.mark.parametrize("fault", [Fate.CRASH_BEFORE, Fate.CRASH_AFTER])
def test_a_death_at_any_call_of_the_store_heals_at_the_next_sync(world: Any, fault: Fate) -> None:
    store, folder = world()
    store.forget()
    replaced(store, folder, 2)
    calls = len(store.calls)
    assert shown(store, folder) == live(store)

    for number in range(1, calls + 1):
        store, folder = world()
        store.forget()
        store.hook = at_calls({number: fault})
        try:
            replaced(store, folder, 2)
        except Crash:
            pass
        except RuntimeError as error:  # the interpreter's own threads wrap what kills them
            raise AssertionError(number) from error
        store.hook = None
        replaced(store, folder, 3)

        assert shown(store, folder) == live(store), (number, fault)
        assert live(store) <= store.objects.keys()


@pytest.mark.parametrize("name", ["create_namespace", "create_table", "commit_table"])
@pytest.mark.parametrize("after", [False, True])
def test_a_death_between_calls_of_the_catalog_heals_at_the_next_sync(
    tmp_path: Path, name: str, after: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Bucket()
    call = getattr(SqlCatalog, name)

    def dies(self: SqlCatalog, *arguments: Any, **options: Any) -> Any:
        if after:
            call(self, *arguments, **options)
        raise Crash

    monkeypatch.setattr(SqlCatalog, name, dies)
    with pytest.raises(Crash):
        replaced(store, tmp_path, 1)
    monkeypatch.setattr(SqlCatalog, name, call)
    replaced(store, tmp_path, 2)

    assert shown(store, tmp_path) == live(store)


def test_a_commit_that_landed_and_is_reported_as_a_conflict_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lost answer: the request is sent again by a client or a proxy, and meets what it did the first time."""
    store = Bucket()
    replaced(store, tmp_path, 1)
    commit = SqlCatalog.commit_table
    refused: list[bool] = []

    def landed(self: SqlCatalog, *arguments: Any) -> Any:
        answer = commit(self, *arguments)
        if not refused:
            refused.append(True)
            raise CommitFailedException("Requirement failed: branch main has changed")
        return answer

    monkeypatch.setattr(SqlCatalog, "commit_table", landed)
    replaced(store, tmp_path, 2)
    assert refused
    assert shown(store, tmp_path) == live(store)
    replaced(store, tmp_path, 3)
    assert shown(store, tmp_path) == live(store)


def test_a_table_whose_manifests_are_gone_is_made_again_when_it_was_dropped(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = Bucket()
    replaced(store, tmp_path, 1)
    store.delete([key for key in store.objects if key.endswith(".avro")])
    replaced(store, tmp_path, 2)
    (warning,) = warnings(caplog)
    assert "The metadata of the Iceberg table shop.users is gone from the bucket: 's3://bucket/lake/users/_iceberg/" in warning
    assert "Drop the table in the catalog, without its files" in warning

    SqlCatalog("lake", uri=f"sqlite:///{tmp_path}/catalog.db").drop_table(NAME)
    replaced(store, tmp_path, 3)
    assert shown(store, tmp_path) == live(store)


def test_manifests_of_an_old_snapshot_may_be_gone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Bucket()
    replaced(store, tmp_path, 1)
    old = [key for key in store.objects if key.endswith(".avro")]
    replaced(store, tmp_path, 2)
    store.delete(old)
    monkeypatch.setattr(iceberg_table, "SNAPSHOTS_KEPT", timedelta(0))
    replaced(store, tmp_path, 3)

    assert warnings(caplog) == []
    assert shown(store, tmp_path) == live(store)


def test_a_failure_of_the_store_while_publishing_stays_a_failure_of_the_sync(tmp_path: Path) -> None:
    store = Bucket()
    made = session(store, tmp_path, 1)
    made.merge([staged(made, store)], (), None)
    made.merge([staged(made, store)], (), None)

    def no_manifests(call: S3Call) -> Fate | None:
        return Fate.LOST_BEFORE if name_of(call) == "put" and call.key.endswith(".avro") else None

    store.hook = no_manifests
    with pytest.raises(TransientError):
        made.merge([staged(made, store)], made.live_files().of(FileKind.FINAL), None)
    store.hook = None
    replaced(store, tmp_path, 2)

    assert shown(store, tmp_path) == live(store)


def test_a_publish_reads_each_metadata_file_once_and_no_data(tmp_path: Path) -> None:
    store = Bucket()
    replaced(store, tmp_path, 1)
    made = session(store, tmp_path, 2)
    store.forget()
    made.merge([staged(made, store)], (), None)

    gets = [key for name, key in store.calls if name == "get" and "/_iceberg/" in key]
    assert sorted(Counter(key for key in gets if key.endswith(".avro")).values()) == [1, 1], "the list and the manifest"
    assert len([key for key in gets if key.endswith(".json")]) == 2, "when the table is loaded, and by the catalog at the commit"
    assert len([key for name, key in store.calls if name == "put" and "/_iceberg/" in key]) == 3

"""Removal of a table's Delta log after `publish.delta` was switched off, whatever the session before left."""

from __future__ import annotations

from dataclasses import replace

import pytest

from destination_s3_spark.chain.territory import OrphanUploads
from destination_s3_spark.tables.commit.repair import repair
from unit_tests.cases import each
from unit_tests.chain.bucket import Bucket, name_of
from unit_tests.chain.delta_table import LOG, SHOWN, delta_calls
from unit_tests.chain.one_table import CHAIN, FIRST, STARTED, TABLE, land, synced, writer
from unit_tests.lake.memory_bucket import Crash, Fate, S3Call


def test_switched_off_the_log_is_removed() -> None:
    store = Bucket()
    for sync_id in range(1, 13):
        synced(store, sync_id, [SHOWN])
    assert any(key.startswith(LOG) for key in store.objects)
    synced(store, 13)
    assert not any(key.startswith(LOG) for key in store.objects)

    store.forget()
    synced(store, 14)
    assert delta_calls(store) == []


def test_switched_off_the_log_of_an_idle_table_is_removed() -> None:
    store = Bucket()
    synced(store, 1, [SHOWN])
    writer(store, 2).close()

    assert not any(key.startswith(LOG) for key in store.objects)


def died_after_publishing(store: Bucket, name: str) -> None:
    """The first session of the table with a Delta log, which dies at the call that follows a complete publication."""
    made = writer(store, 2, publishers=[SHOWN])
    land(made, store, 0, 100)
    made.commit([replace(FIRST, state_hash="sync 2")])
    published = False

    def dies(call: S3Call) -> Fate | None:
        nonlocal published
        published = published or any(key.startswith(LOG) for key in store.objects)
        return Fate.CRASH_BEFORE if published and name_of(call) == name else None

    store.hook = dies
    with pytest.raises(Crash):
        made.close()
    store.hook = None
    assert any(key.startswith(LOG) for key in store.objects)


@each("earlier", [0, 1])
@each("dies_at", ["create", "put"])
@each("idle", [False, True])
def test_switched_off_the_log_of_a_session_that_died_is_removed(earlier: int, dies_at: str, idle: bool) -> None:
    store = Bucket()
    for _ in range(earlier):
        synced(store)
    died_after_publishing(store, dies_at)
    if idle:
        writer(store, 3).close()
    else:
        synced(store, 3)
    assert not any(key.startswith(LOG) for key in store.objects)

    synced(store, 4)
    store.forget()
    synced(store, 5)
    assert delta_calls(store) == []


def test_an_unreadable_log_of_a_session_that_died_is_remembered() -> None:
    store = Bucket()
    died_after_publishing(store, "create")
    (commit,) = [key for key in store.objects if key.startswith(LOG)]
    intact, store.objects[commit] = store.objects[commit], b"{"
    synced(store, 3)
    assert commit in store.objects

    store.objects[commit] = intact
    synced(store, 4)
    assert commit not in store.objects


def test_switched_off_repair_removes_a_log_that_the_hint_does_not_know() -> None:
    store = Bucket()
    synced(store, 1, [SHOWN])
    store.objects.pop(f"{CHAIN}hint.json")
    done = repair(store, TABLE, [], OrphanUploads(store, "lake/"), STARTED)

    assert done is not None
    assert done.withdrawn
    assert not any(key.startswith(LOG) for key in store.objects)
    assert repair(store, TABLE, [], OrphanUploads(store, "lake/"), STARTED) is None

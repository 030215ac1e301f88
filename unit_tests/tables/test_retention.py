"""Which part of a change log is deleted: whole groups from its beginning, before its newest snapshot, once all their objects are old."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from destination_s3_spark.change_log.manifest import GroupName, LogKind, LogName
from destination_s3_spark.errors import SyncError
from destination_s3_spark.tables.retention import delete_log_before
from unit_tests.cases import each
from unit_tests.chain.bucket import FATES, Bucket, at_calls
from unit_tests.lake.memory_bucket import Crash

FOLDER = "lake/airbyte_changes/users/"
NOW = datetime(2026, 6, 1, tzinfo=UTC)
LIMIT = NOW - timedelta(days=30)


def group(number: int) -> GroupName:
    return GroupName(number * 10, f"{number:026d}")


def log(*ages: tuple[LogKind, int]) -> Bucket:
    """A log of groups with two files each: their kind, and their age in days."""
    store = Bucket()
    for number, (kind, days) in enumerate(ages):
        name = group(number)
        names = [LogName(*name, part, kind).file_name(".csv.gz") for part in range(2)]
        for found in (*names, name.manifest):
            store.objects[FOLDER + found] = b"x"
            store.memory.date(FOLDER + found, NOW - timedelta(days=days))
    return store


def left(store: Bucket) -> list[int]:
    """The groups that have all their objects. There must be nothing of any other."""
    counts = {number: sum(str(group(number)) in key for key in store.objects) for number in range(9)}
    assert set(counts.values()) <= {0, 3}
    return [number for number, count in counts.items() if count]


C, S, U = LogKind.CHANGES, LogKind.SNAPSHOT, LogKind.UPSERTS


@each(
    ("ages", "kept"),
    [
        (((S, 90), (C, 80), (C, 70)), [0, 1, 2]),
        (((S, 90), (C, 80), (S, 70), (C, 60)), [2, 3]),
        (((S, 90), (C, 80), (C, 20), (S, 10)), [2, 3]),
        (((S, 90), (C, 20), (C, 80), (S, 10)), [1, 2, 3]),
        (((S, 20), (C, 10), (S, 5)), [0, 1, 2]),
        (((U, 90), (U, 80)), [0, 1]),
        (((U, 90), (S, 80)), [1]),
        (((S, 90), (S, 80), (S, 70)), [2]),
        ((), []),
    ],
)
def test_old_groups_before_the_newest_snapshot_go(ages: tuple[tuple[LogKind, int], ...], kept: list[int]) -> None:
    store = log(*ages)
    deleted = delete_log_before(store, FOLDER, LIMIT)

    assert left(store) == kept
    assert deleted == len(ages) - len(kept)


def test_a_snapshot_without_a_manifest_does_not_count() -> None:
    store = log((S, 90), (C, 80), (S, 70))
    del store.objects[FOLDER + group(2).manifest]
    delete_log_before(store, FOLDER, LIMIT)

    assert FOLDER + group(0).manifest in store.objects


def test_other_objects_and_other_tables_stay() -> None:
    store = log((S, 90), (S, 80))
    others = {FOLDER + "notes.txt": b"x", FOLDER + "orders/" + group(0).manifest: b"x"}
    store.objects.update(others)
    for key in others:
        store.memory.date(key, NOW - timedelta(days=99))
    delete_log_before(store, FOLDER, LIMIT)

    assert others.items() <= store.objects.items()


def test_an_object_of_unknown_age_is_kept() -> None:
    store = log((S, 90), (S, 80))
    listed = [replace(info, modified=None) if info.key == FOLDER + group(0).manifest else info for info in store.list("")]
    store.list = lambda prefix: iter(listed)  # type: ignore[method-assign]
    delete_log_before(store, FOLDER, LIMIT)

    assert left(store) == [0, 1]


def test_a_crash_at_any_call_leaves_a_log_that_reads_and_the_next_sweep_ends_it() -> None:
    for call in range(1, 4):
        for fault in FATES:
            store = log((S, 90), (C, 80), (S, 70), (C, 60))
            store.hook = at_calls({call: fault})
            with suppress(Crash, SyncError):
                delete_log_before(store, FOLDER, LIMIT)
            store.hook = None
            for number in range(4):
                if FOLDER + group(number).manifest in store.objects:
                    assert sum(str(group(number)) in key for key in store.objects) == 3, (call, fault)
            delete_log_before(store, FOLDER, LIMIT)

            assert left(store) == [2, 3], (call, fault)

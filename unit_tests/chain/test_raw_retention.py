"""Raw files that are old enough: which may go, and that a crash, a timeout or a second writer at any call loses and doubles nothing."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from datetime import timedelta

import pytest

from destination_s3_spark.chain.events import MergeData
from destination_s3_spark.chain.files import FileKind
from destination_s3_spark.chain.live_files import LiveFiles, day
from destination_s3_spark.chain.log import Chain
from destination_s3_spark.chain.opening import Session
from destination_s3_spark.chain.state import Pending
from destination_s3_spark.chain.territory import OrphanUploads
from destination_s3_spark.errors import SyncError
from destination_s3_spark.tables.commit.writer import TableWriter
from destination_s3_spark.tables.publishers.symlink import MANIFEST, SymlinkManifest
from destination_s3_spark.tables.retention import delete_expired_raw, expired_raw
from unit_tests.cases import each
from unit_tests.chain.bucket import FATES, Bucket, at_calls
from unit_tests.chain.built_chain import T0, file
from unit_tests.chain.one_table import FIRST, STARTED, TABLE, kinds, land
from unit_tests.lake.memory_bucket import Crash

DAYS = 3
TODAY = day(T0)


def sync_on(store: Bucket, number: int, keep: int | None = DAYS) -> None:
    """The sync of a day: ten rows, then retention."""
    now = T0 + timedelta(days=number)
    chain, orphans = Chain(store, TABLE, lambda: now), OrphanUploads(store, "lake/")
    made = TableWriter(chain, Session(number + 1, 0, STARTED), orphans, publishers=(SymlinkManifest("bucket"),))
    made.chain.read()
    land(made, store, 0, 100)
    made.commit([replace(FIRST, state_hash=f"day {number}")])
    if keep is not None:
        delete_expired_raw(made, keep)
    made.close()


def live_of(store: Bucket) -> LiveFiles:
    chain = Chain(store, TABLE)
    chain.catch_up()
    return chain.live_files()


def raw_objects(store: Bucket) -> list[str]:
    return sorted(key for key in store.objects if key.startswith(f"{TABLE.folder}raw/"))


def test_raw_files_go_after_their_days_and_final_files_stay() -> None:
    store = Bucket()
    for number in range(8):
        sync_on(store, number)
    live = live_of(store)

    assert [found.landed_on for found in live.of(FileKind.RAW)] == [TODAY + number for number in (4, 5, 6, 7)]
    assert raw_objects(store) == sorted(found.key for found in live.of(FileKind.RAW))
    assert len(live.of(FileKind.FINAL)) == 8
    assert store.objects[TABLE.final_root + MANIFEST].count(b"\n") == 8
    assert kinds(store).count("MergeData") == 4


def test_several_syncs_a_day_delete_once() -> None:
    store = Bucket()
    for number in range(3):
        sync_on(store, number, keep=None)
    for _ in range(4):
        sync_on(store, 5)

    assert kinds(store).count("MergeData") == 1
    assert len(raw_objects(store)) == 1 + 4


def test_a_table_without_the_option_keeps_everything() -> None:
    store = Bucket()
    for number in range(6):
        sync_on(store, 100 * number, keep=None)

    assert len(raw_objects(store)) == 6


@each("completes_again", [True, False])
def test_one_fault_at_every_call_of_a_sweep(completes_again: bool) -> None:
    def begun() -> Bucket:
        store = Bucket(completes_again=completes_again)
        for number in range(4):
            sync_on(store, number)
        store.forget()
        return store

    clean = begun()
    sync_on(clean, 4)
    assert "MergeData" in kinds(clean)
    for call in range(1, len(clean.calls) + 1):
        for fault in FATES:
            store = begun()
            faults = {call: fault}
            store.hook = at_calls(faults)
            with suppress(Crash, SyncError):
                sync_on(store, 4)
            store.hook = None
            sync_on(store, 4)
            live = live_of(store)

            assert raw_objects(store) == sorted(found.key for found in live.of(FileKind.RAW)), (call, fault)
            assert min(found.landed_on or 0 for found in live.of(FileKind.RAW)) == TODAY + 1, (call, fault)
            finals = [key for key in store.objects if key.startswith(TABLE.final_root) and key.endswith(".parquet")]
            assert sorted(found.key for found in live.of(FileKind.FINAL)) == sorted(finals), (call, fault)
            # The platform has the STATE if the commit returned; then the second attempt is a sync of its own.
            assert len(live.of(FileKind.FINAL)) in (5, 6), (call, fault)
            assert store.uploads == {}, (call, fault)


def test_a_writer_that_was_taken_over_deletes_nothing() -> None:
    store = Bucket()
    for number in range(4):
        sync_on(store, number)
    chain = Chain(store, TABLE, lambda: T0 + timedelta(days=30))
    paused = TableWriter(chain, Session(9, 0, STARTED), OrphanUploads(store, "lake/"))
    paused.chain.read()
    paused.open()
    sync_on(store, 4, keep=None)
    with pytest.raises(SyncError, match="taken over"):
        delete_expired_raw(paused, 1)

    assert len(raw_objects(store)) == 5


def test_rows_that_are_not_in_the_final_table_stay() -> None:
    def raw(offset: int) -> object:
        return file(FileKind.RAW, f"raw-{offset}", offset=offset, landed_on=TODAY)

    landed = (raw(0), raw(10), raw(20))
    waiting = LiveFiles(files=(*landed, file(FileKind.DELTA, "delta", offset=10)))  # type: ignore[arg-type]
    assert [found.key for found in expired_raw(waiting, TODAY + 9)] == ["raw-0"]
    assert expired_raw(LiveFiles(files=landed, pending=Pending(5, 20, 9)), TODAY + 9) == ()  # type: ignore[arg-type]
    assert expired_raw(LiveFiles(files=landed), TODAY) == ()  # type: ignore[arg-type]
    assert len(expired_raw(LiveFiles(files=landed), TODAY + 1)) == 3  # type: ignore[arg-type]


def test_the_block_names_the_files_as_a_merge_does() -> None:
    store = Bucket()
    for number in range(5):
        sync_on(store, number)
    chain = Chain(store, TABLE)
    chain.catch_up()
    (merge,) = [block.event for block in chain.blocks() if isinstance(block.event, MergeData)]

    assert (merge.files, [found.kind for found in merge.files_removed], merge.consumed_offset) == ((), [FileKind.RAW], None)

"""Replaced files that stay for a while: what stays, what goes when, and that no fault at any call loses or leaves a file."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta

import pytest

from destination_s3_spark.chain.files import FileEntry, FileKind
from destination_s3_spark.chain.territory import OrphanUploads
from destination_s3_spark.errors import SyncError
from destination_s3_spark.formats.file_statistics import WrittenFile
from destination_s3_spark.tables.commit.repair import repair
from unit_tests.cases import each
from unit_tests.chain.bucket import FATES, Bucket, at_calls
from unit_tests.chain.hourly_syncs import chain_of, sync_at, writer_at
from unit_tests.chain.one_table import CHAIN, FIRST, STARTED, TABLE, land
from unit_tests.lake.memory_bucket import Crash


def final_objects(store: Bucket) -> set[str]:
    return {key for key in store.objects if key.startswith(TABLE.final_root)}


def live_finals(store: Bucket) -> set[str]:
    return {file.key for file in chain_of(store).live_files().of(FileKind.FINAL)}


def test_replaced_files_stay_for_their_time() -> None:
    store = Bucket()
    sync_at(store, 0)
    landed = final_objects(store) - live_finals(store)
    assert len(landed) == 1
    sync_at(store, 1)

    assert landed < final_objects(store)
    assert len(final_objects(store)) == 1 + 1 + 2
    sync_at(store, 2)

    assert not landed & final_objects(store)
    assert len(final_objects(store)) == 1 + 2 + 2
    assert chain_of(store).head.contents.kept_keys == final_objects(store) - live_finals(store)


def test_the_same_state_comes_from_blocks_and_from_a_snapshot() -> None:
    store = Bucket()
    for hour in range(60):
        sync_at(store, hour)
    hinted = chain_of(store).state
    assert hinted is not None
    assert hinted.snapshot is not None
    del store.objects[f"{CHAIN}hint.json"]

    assert chain_of(store).state == hinted
    assert len(hinted.contents.leaving) == 2


def test_raw_files_go_at_once() -> None:
    store = Bucket()
    sync_at(store, 0)
    made = writer_at(store, 1)
    made.open()
    raw = made.live_files().of(FileKind.RAW)
    made.merge((), raw, None)
    made.close()

    assert not {file.key for file in raw} & set(store.objects)


def test_without_the_option_files_go_at_once_and_earlier_ones_in_time() -> None:
    store = Bucket()
    sync_at(store, 0)
    kept = final_objects(store) - live_finals(store)
    sync_at(store, 1, timedelta())

    assert final_objects(store) == live_finals(store) | kept
    sync_at(store, 2, timedelta())
    assert final_objects(store) == live_finals(store)


def test_a_sync_without_records_deletes_what_has_expired() -> None:
    store = Bucket()
    sync_at(store, 0)
    writer_at(store, 1).close()
    assert final_objects(store) != live_finals(store)
    blocks = chain_of(store).head.sequence_number
    writer_at(store, 2).close()

    assert final_objects(store) == live_finals(store)
    assert chain_of(store).head.sequence_number == blocks + 2
    writer_at(store, 3).close()
    assert chain_of(store).head.sequence_number == blocks + 2


def test_repair_deletes_what_has_expired() -> None:
    store = Bucket()
    sync_at(store, 0, timedelta(seconds=1))
    assert final_objects(store) != live_finals(store)
    done = repair(store, TABLE, (), OrphanUploads(store, "lake/"), STARTED)

    assert done is not None
    assert final_objects(store) == live_finals(store)
    assert repair(store, TABLE, (), OrphanUploads(store, "lake/"), STARTED) is None


def test_repair_deletes_what_has_expired_though_the_table_stays_open_for_a_replay() -> None:
    store = Bucket()
    sync_at(store, 0)
    made = writer_at(store, 1)
    land(made, store, 0, 100)
    made.commit([FIRST])

    repair(store, TABLE, (), OrphanUploads(store, "lake/"), STARTED)

    assert final_objects(store) == live_finals(store)
    state = chain_of(store).head
    assert (state.closed, len(state.replay)) == (False, 1)


def test_files_that_a_taken_back_block_would_have_replaced_are_live_again() -> None:
    store = Bucket()
    sync_at(store, 0)
    made = writer_at(store, 1)
    made.open()
    old = made.live_files().of(FileKind.FINAL)
    upload = store.stage(f"{TABLE.final_root}m-{made.next_token()}.parquet", b"x" * 10)
    store.abort_upload(upload.key, upload.upload_id)
    before = chain_of(store).head.contents
    with pytest.raises(SyncError, match="taken back"):
        made.merge([FileEntry.staged(FileKind.FINAL, upload, WrittenFile(10))], old, None)

    assert chain_of(store).head.contents == before
    assert live_finals(store) == {file.key for file in old}


@each("completes_again", [True, False])
def test_one_fault_at_every_call(completes_again: bool) -> None:
    """Whatever happens, live files are there, and what else is in the folder is known to the chain and goes in time."""

    def begun() -> Bucket:
        store = Bucket(completes_again=completes_again)
        for hour in range(3):
            sync_at(store, hour)
        store.forget()
        return store

    clean = begun()
    sync_at(clean, 3)
    for call in range(1, len(clean.calls) + 1):
        for fault in FATES:
            store = begun()
            faults = {call: fault}
            store.hook = at_calls(faults)
            with suppress(Crash, SyncError):
                sync_at(store, 3)
            store.hook = None
            sync_at(store, 3)
            contents, live = chain_of(store).head.contents, live_finals(store)

            assert live <= final_objects(store), (call, fault)
            assert final_objects(store) - live <= contents.kept_keys, (call, fault)
            assert store.uploads == {}, (call, fault)
            writer_at(store, 9).close()
            assert final_objects(store) == live, (call, fault)
            assert chain_of(store).head.contents.leaving == (), (call, fault)

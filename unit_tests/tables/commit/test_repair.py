"""Repairing a table: what a dead session left is dealt with, and the next sync finds everything else as it was."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from destination_s3_spark.chain.files import FileKind
from destination_s3_spark.chain.log import Chain
from destination_s3_spark.chain.opening import Leftovers, Session, Settlement, WriteDisposition
from destination_s3_spark.chain.state import Pending, TableState
from destination_s3_spark.chain.territory import OrphanUploads
from destination_s3_spark.errors import Fenced
from destination_s3_spark.tables.commit.repair import Repair, repair
from destination_s3_spark.tables.commit.writer import TableWriter
from destination_s3_spark.tables.publishers.symlink import MANIFEST, SymlinkManifest
from unit_tests.cases import each
from unit_tests.chain.bucket import Bucket, at_calls, at_each
from unit_tests.chain.one_table import FIRST, SCHEMA, SECOND, STARTED, TABLE, crashed, kinds, land, staged, synced, writer
from unit_tests.lake.memory_bucket import Crash, Fate

MANIFEST_KEY = TABLE.final_root + MANIFEST


def repaired(store: Bucket, manifest: SymlinkManifest | None = None) -> Repair | None:
    return repair(store, TABLE, [manifest] if manifest else [], OrphanUploads(store, "lake/"), STARTED)


def head(store: Bucket) -> TableState:
    chain = Chain(store, TABLE)
    chain.catch_up()
    return chain.head


def dies(store: Bucket, name: str, fault: Fate, action: Callable[[], object]) -> None:
    store.hook = at_each(name, fault)
    with pytest.raises(Crash):
        action()
    store.hook = None


def dead_before_completing(store: Bucket) -> TableWriter:
    """A session that wrote its data block and died."""
    made = crashed(store, FIRST)
    land(made, store, 100, 200)
    dies(store, "complete_upload", Fate.CRASH_BEFORE, lambda: made.commit([SECOND]))
    return made


def session(store: Bucket, disposition: WriteDisposition, sync_id: int, generation_id: int) -> TableWriter:
    made = TableWriter(Chain(store, TABLE), Session(sync_id, generation_id, STARTED, disposition), OrphanUploads(store, "lake/"))
    made.chain.read()
    return made


def test_a_clean_table_is_not_touched() -> None:
    store = Bucket()
    synced(store)
    before = dict(store.objects)
    store.forget()

    assert repaired(store) is None
    assert store.objects == before
    assert set(store.names()) <= {"get", "head", "list", "list_uploads"}


def test_a_block_that_was_written_is_finished_and_may_still_be_replayed() -> None:
    store = Bucket()
    dead_before_completing(store)

    assert repaired(store) == Repair(Leftovers(False, Settlement.FINISHED, 0, 0))

    state = head(store)
    assert (state.unsettled is None, state.contents.rows, state.closed, len(state.replay)) == (True, 20, False, 2)
    assert "Close" not in kinds(store)
    again = writer(store)
    land(again, store, 0, 100)
    land(again, store, 100, 200)
    assert again.commit([FIRST, SECOND]).replayed == 20


def test_a_table_that_was_repaired_needs_nothing_more() -> None:
    store = Bucket()
    dead_before_completing(store)
    repaired(store)
    blocks = kinds(store)

    assert repaired(store) is None
    assert kinds(store) == blocks


def test_a_block_whose_uploads_are_gone_is_taken_back() -> None:
    store = Bucket()
    dead_before_completing(store)
    store.uploads.clear()

    done = repaired(store)

    assert done is not None
    assert done.leftovers.settlement is Settlement.TAKEN_BACK
    assert kinds(store)[-2:] == ["Void", "OpenEpoch"]
    assert (head(store).contents.rows, len(head(store).replay)) == (10, 1)


def test_open_uploads_and_scratch_objects_of_dead_sessions_go() -> None:
    store = Bucket()
    made = crashed(store, FIRST)
    land(made, store, 100, 200)
    store.objects[f"{TABLE.scratch_prefix}{made.next_token()}.parquet"] = b"sorted"
    store.objects[f"{TABLE.scratch_prefix}notes.txt"] = b"not ours"
    store.stage(f"{TABLE.scratch_prefix}{made.next_token()}/0.parquet", b"not sorted to its end")

    assert repaired(store) == Repair(Leftovers(False, Settlement.FINISHED, 3, 1))
    assert store.uploads == {}
    assert [key for key in store.objects if "scratch" in key] == [f"{TABLE.scratch_prefix}notes.txt"]


def test_what_a_clean_table_has_left_over_goes_too_and_it_is_closed_again() -> None:
    store = Bucket()
    synced(store)
    token = f"{head(store).identity.table_number}{1:08d}{77:08d}"
    store.stage(f"lake/users/late-{token}.parquet", b"x")
    store.objects[f"{TABLE.scratch_prefix}{token}.parquet"] = b"sorted"

    assert repaired(store) == Repair(Leftovers(True, None, 1, 1))
    assert store.uploads == {}
    assert kinds(store)[-2:] == ["OpenEpoch", "Close"]
    assert repaired(store) is None


def test_a_running_sync_is_fenced() -> None:
    store = Bucket()
    made = writer(store)
    land(made, store, 0, 100)
    repaired(store)

    with pytest.raises(Fenced):
        made.commit([FIRST])


def test_the_manifest_is_written_after_the_block_is_finished() -> None:
    store = Bucket()
    dead_before_completing(store)
    store.forget()

    assert repaired(store, SymlinkManifest("bucket")) == Repair(Leftovers(False, Settlement.FINISHED, 0, 0), ("symlink",))
    lines = store.objects[MANIFEST_KEY].decode().splitlines()
    assert [line.removeprefix("s3://bucket/") for line in lines] == sorted(key for key in store.objects if key.startswith("lake/users/f-"))
    assert len(lines) == 2


def test_a_pending_generation_stays_pending_and_is_gone_on_with() -> None:
    store = Bucket()
    synced(store)
    made = session(store, WriteDisposition.TRUNCATE, sync_id=2, generation_id=5)
    made.stage(staged(made, store, 0, 100, kinds=(FileKind.RAW, FileKind.DELTA)))
    made.commit([FIRST])
    before = head(store).contents

    repaired(store)

    assert head(store).contents == before
    assert before.pending == Pending(5, 10, 2)
    again = session(store, WriteDisposition.TRUNCATE, sync_id=3, generation_id=5)
    assert again.open().contents.pending == before.pending


def overwriting(store: Bucket, sync_id: int) -> TableWriter:
    return session(store, WriteDisposition.OVERWRITE, sync_id, generation_id=0)


@each("with_repair", [False, True])
def test_rows_of_another_overwriting_sync_are_never_taken_for_ones_own(with_repair: bool) -> None:
    store = Bucket()
    synced(store)
    dead = overwriting(store, 2)
    dead.stage(staged(dead, store, 0, 100, kinds=(FileKind.RAW, FileKind.DELTA)))
    dies(store, "complete_upload", Fate.CRASH_BEFORE, lambda: dead.commit([FIRST]))
    if with_repair:
        repaired(store)

    later = overwriting(store, 3).open().contents.pending

    assert later == Pending(0, 20, 3)


def test_rows_of_an_earlier_attempt_of_the_same_overwriting_sync_are_its_own() -> None:
    store = Bucket()
    synced(store)
    dead = overwriting(store, 2)
    dead.stage(staged(dead, store, 0, 100, kinds=(FileKind.RAW, FileKind.DELTA)))
    dies(store, "complete_upload", Fate.CRASH_BEFORE, lambda: dead.commit([FIRST]))
    repaired(store)

    assert overwriting(store, 2).open().contents.pending == Pending(0, 10, 2)


def replacing(store: Bucket) -> None:
    """A session that died in the middle of replacing the table's only file."""
    synced(store)
    made = writer(store, sync_id=2)
    made.open()
    made.ensure_schema(SCHEMA)
    new = staged(made, store, 0, 100, kinds=(FileKind.FINAL,)).files
    old = made.live_files().of(FileKind.FINAL)
    dies(store, "complete_upload", Fate.CRASH_BEFORE, lambda: made.merge(new, old, None))


def test_a_repair_that_dies_at_any_call_can_be_repeated() -> None:
    whole = Bucket()
    replacing(whole)
    whole.forget()
    repaired(whole, SymlinkManifest("bucket"))
    calls = len(whole.calls)
    files = sorted(key for key in whole.objects if key.startswith("lake/users/f-"))
    assert len(files) == 1

    for number in range(1, calls + 1):
        for fault in (Fate.CRASH_BEFORE, Fate.CRASH_AFTER):
            store = Bucket()
            replacing(store)
            store.forget()
            store.hook = at_calls({number: fault})
            with pytest.raises(Crash):
                repaired(store, SymlinkManifest("bucket"))
            store.hook = None
            repaired(store, SymlinkManifest("bucket"))

            assert sorted(key for key in store.objects if key.startswith("lake/users/f-")) == files, (number, fault)
            assert store.objects[MANIFEST_KEY].decode() == f"s3://bucket/{files[0]}\n"
            assert head(store).unsettled is None
            assert head(store).contents == head(whole).contents

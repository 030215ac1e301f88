"""A command that merges beside syncs: it leaves their tables alone, loses those that they open, and leaves nothing behind."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

import pytest

from destination_s3_spark.chain.files import FileKind
from destination_s3_spark.chain.log import Chain
from destination_s3_spark.chain.opening import SILENT_FOR, Session, SyncsFirst, WriteDisposition
from destination_s3_spark.chain.territory import OrphanUploads
from destination_s3_spark.errors import Fenced, TransientError
from destination_s3_spark.tables.commit.writer import TableWriter
from unit_tests.cases import each
from unit_tests.chain.bucket import Bucket, at_calls, at_each
from unit_tests.chain.one_table import CHAIN, DELTAS, FIRST, SECOND, STARTED, TABLE, crashed, final, kinds, land, synced, writer
from unit_tests.chain.one_table import staged as staged_slice
from unit_tests.lake.memory_bucket import Crash, Fate

MOST_CALLS = 60


def command(store: Bucket, *, later: timedelta = timedelta(), take_over: bool = False) -> TableWriter:
    """The writer of a command that has read the table, this long after now."""

    def clock() -> datetime:
        return datetime.now(STARTED.tzinfo) + later

    session = Session(0, 0, STARTED, WriteDisposition.MAINTAIN)
    orphans = OrphanUploads(store, "lake/")
    made = TableWriter(Chain(store, TABLE, clock), session, orphans, precedence=SyncsFirst(take_over=take_over))
    made.chain.read()
    made.catch_up()
    return made


def waiting() -> Bucket:
    """A table with ten rows that wait for a merge, whose sync has ended well."""
    store = Bucket()
    made = writer(store)
    made.stage(staged_slice(made, store, 0, 100, kinds=DELTAS))
    made.commit([FIRST])
    made.close()
    return store


def merge(store: Bucket, made: TableWriter, meanwhile: Callable[[], object] = lambda: None) -> None:
    """Merge what waits, and do something else before the commit."""
    made.open()
    deltas = made.live_files().of(FileKind.DELTA)
    if deltas:
        staged = final(made, store, sum(file.rows for file in deltas))
        store.put(f"{TABLE.scratch_prefix}{made.next_token()}/0.parquet", b"rows")
        meanwhile()
        made.merge([staged], deltas, deltas[-1].rows - 1)
        store.delete([key for key in store.objects if key.startswith(TABLE.scratch_prefix)])
    if made.ended_cleanly:
        made.close()


def test_a_sync_that_has_just_written_keeps_its_table() -> None:
    store = Bucket()
    sync = crashed(store, FIRST)
    before = kinds(store)
    with pytest.raises(TransientError, match=r"A sync may be writing to it \(sync id 1, .* last block is .* s old.*--take-over"):
        command(store).open()
    assert kinds(store) == before
    land(sync, store, 100, 200)
    sync.commit([SECOND])
    sync.close()
    command(store).open()


@each(("later", "take_over"), [(SILENT_FOR, False), (timedelta(), True)])
def test_a_dead_sync_loses_its_table_and_its_checkpoints_stay(later: timedelta, take_over: bool) -> None:
    store = Bucket()
    sync = crashed(store, FIRST)
    made = command(store, later=later, take_over=take_over)
    made.open()
    assert not made.ended_cleanly
    assert made.state is not None
    assert len(made.state.replay) == 1
    land(sync, store, 100, 200)
    with pytest.raises(Fenced):
        sync.commit([SECOND])


def test_just_before_that_it_does_not() -> None:
    store = Bucket()
    crashed(store, FIRST)
    with pytest.raises(TransientError, match="23 h 59 min old"):
        command(store, later=SILENT_FOR - timedelta(minutes=1)).open()


def test_a_command_that_died_is_no_sync() -> None:
    store = waiting()
    command(store).open()
    made = command(store)
    assert made.state is not None
    assert not made.state.closed
    made.open()


def test_a_sync_that_opens_the_table_between_two_calls_of_the_command_keeps_it() -> None:
    store = waiting()
    made, sync = command(store), writer(store, sync_id=2)
    sync.open()
    with pytest.raises(TransientError, match="sync id 2"):
        made.open()
    land(sync, store, 0, 100)
    sync.commit([FIRST])


def test_what_a_fenced_merge_has_staged_is_dropped_whenever_it_was_staged() -> None:
    store = waiting()
    made, sync = command(store), writer(store, sync_id=2)

    def meanwhile() -> None:
        sync.open()
        final(made, store, 3)  # of a task that runs on
        store.put(f"{TABLE.scratch_prefix}{made.next_token()}/0.parquet", b"rows")

    with pytest.raises(Fenced):
        merge(store, made, meanwhile)
    made.clear_up(OrphanUploads(store, "lake/"))
    assert store.uploads == {}
    assert [key for key in store.objects if key.startswith(TABLE.scratch_prefix)] == []
    land(sync, store, 0, 100)
    sync.commit([FIRST])
    assert len(sync.live_files().of(FileKind.DELTA)) == 1, "its rows wait on"


def test_nothing_is_dropped_of_a_merge_that_the_other_session_finishes() -> None:
    store = waiting()
    made = command(store)
    store.hook = at_each("complete_upload", Fate.CRASH_BEFORE)
    with pytest.raises(Crash):
        merge(store, made)
    store.hook = None
    made.clear_up(OrphanUploads(store, "lake/"))
    assert len(store.uploads) == 1
    sync = writer(store, sync_id=2)
    sync.open()
    assert sync.live_files().of(FileKind.DELTA) == ()
    assert sync.state is not None
    assert sync.state.contents.rows == 10


@each("next_one", [lambda store: merge(store, command(store)), lambda store: synced(store, 2)])
@each("fault", [Fate.CRASH_BEFORE, Fate.CRASH_AFTER])
def test_a_merge_that_dies_at_any_call_leaves_the_table_to_whoever_comes_next(fault: Fate, next_one: Callable[[Bucket], None]) -> None:
    died = 0
    for died in range(MOST_CALLS):
        store = waiting()
        first = len(store.calls) + 1
        store.hook = at_calls({first + died: fault})
        try:
            merge(store, command(store))
        except Crash:
            store.hook = None
        else:
            break
        next_one(store)
        made = command(store, later=SILENT_FOR)
        merge(store, made)
        assert made.state is not None
        assert made.state.contents.rows == made.state.contents.landed
        assert made.live_files().of(FileKind.DELTA) == ()
        data = {key for key in store.objects if not key.startswith(CHAIN)}
        assert data == {file.key for file in made.live_files().files}
        assert store.uploads == {}
    assert died > 8

"""Opening a table: which rows a session's own are to join or to replace, what it clears away, and what it costs."""

from __future__ import annotations

import math

import pytest
from msgspec.structs import replace

from destination_s3_spark.chain.events import AddData, Close, OffsetInterval, OpenEpoch, Seed, SetDataSchema
from destination_s3_spark.chain.files import FileEntry, FileKind, Token, table_number
from destination_s3_spark.chain.log import Chain
from destination_s3_spark.chain.opening import FILES_PER_BLOCK, Session, WriteDisposition, pending_in, take_snapshot_when_due
from destination_s3_spark.chain.state import Checkpoint, Pending
from destination_s3_spark.errors import Fenced
from destination_s3_spark.tables.commit.batch import TableCheckpoint
from unit_tests.cases import each
from unit_tests.chain.bucket import Bucket, at_each, name_of
from unit_tests.chain.built_chain import SCHEMA as SCHEMA_EVENT
from unit_tests.chain.built_chain import SEED, T0, Builder, add, begin, chain, file, publish
from unit_tests.chain.one_table import CHAIN, FIRST, SCHEMA, STARTED, TABLE, crashed, kinds, land, synced, writer
from unit_tests.lake.memory_bucket import Crash, Fate, S3Call

DELTA = (FileKind.RAW, FileKind.DELTA)
ADOPTED_FILE = file(FileKind.ADOPTED, "adopted.parquet", 0)
EMPTY = chain(replace(SEED, adopted=()), SCHEMA_EVENT, Close())
ADOPTED = chain(SEED, Close())
PUBLISHED = chain(SEED, SCHEMA_EVENT, add(0, 9), OpenEpoch(8, 5, T0), Close())
"""Ten rows of generation 0, the last session was of generation 5 and sync 8."""
REFRESHED = chain(SEED, SCHEMA_EVENT, add(0, 9), begin(5, 10), add(10, 14, kinds=DELTA), publish([], [ADOPTED_FILE]), Close())
"""Five rows of generation 5 replaced what was there."""
MIXED = chain(replace(SEED, adopted=()), SCHEMA_EVENT, add(0, 9), OpenEpoch(8, 5, T0), replace(add(10, 14), generation_id=5), Close())
"""Ten rows of generation 0, and five of generation 5."""
WAITING = chain(SEED, SCHEMA_EVENT, add(0, 9), begin(5, 10), add(10, 14, kinds=DELTA))
"""Ten rows, and five of generation 5 that wait; sync 9 landed them."""
FRESH = chain(replace(SEED, adopted=()), SCHEMA_EVENT, add(0, 9))
"""Sync 7 found an empty table and has landed ten rows."""
REPLACED = chain(SEED, SCHEMA_EVENT, begin(0, 0), add(0, 9, kinds=DELTA), publish([file(FileKind.FINAL, "f")], [], generation=0))
"""Sync 9 has published its rows, and has not ended."""

KEPT = Pending(5, 10, 9)
GENERATIONS = [
    ("equal generation, published: its rows join", REFRESHED, WriteDisposition.TRUNCATE, 5, 20, None),
    ("equal generation, rows of it only: its rows join", FRESH, WriteDisposition.TRUNCATE, 0, 20, None),
    ("equal generation, rows of another one only", PUBLISHED, WriteDisposition.TRUNCATE, 5, 20, Pending(5, 10, 20)),
    ("equal generation, rows of it and of another one", MIXED, WriteDisposition.TRUNCATE, 5, 20, Pending(5, 15, 20)),
    ("equal generation, adopted files", ADOPTED, WriteDisposition.TRUNCATE, 0, 20, Pending(0, 0, 20)),
    ("equal generation, pending: it goes on", WAITING, WriteDisposition.TRUNCATE, 5, 20, KEPT),
    ("lower generation, nothing pending: a new one begins", PUBLISHED, WriteDisposition.TRUNCATE, 4, 20, Pending(4, 10, 20)),
    ("higher generation, nothing pending: a new one begins", PUBLISHED, WriteDisposition.TRUNCATE, 6, 20, Pending(6, 10, 20)),
    ("lower generation, another pending: a new one begins", WAITING, WriteDisposition.TRUNCATE, 4, 20, Pending(4, 15, 20)),
    ("higher generation, another pending: a new one begins", WAITING, WriteDisposition.TRUNCATE, 6, 20, Pending(6, 15, 20)),
    ("the generation of the published rows while another is pending", WAITING, WriteDisposition.TRUNCATE, 0, 20, Pending(0, 15, 20)),
    ("a new generation of an empty table lands directly", EMPTY, WriteDisposition.TRUNCATE, 6, 20, None),
    ("a new generation beside adopted files", ADOPTED, WriteDisposition.TRUNCATE, 6, 20, Pending(6, 0, 20)),
    ("minimum 0: what is pending is promoted", WAITING, WriteDisposition.APPEND, 5, 20, None),
    ("minimum 0 of another generation", WAITING, WriteDisposition.APPEND, 6, 20, None),
    ("own rows, the sync that is pending goes on", WAITING, WriteDisposition.OVERWRITE, 5, 9, KEPT),
    ("own rows of another sync", WAITING, WriteDisposition.OVERWRITE, 5, 20, Pending(5, 15, 20)),
    ("own rows of a sync without a number", WAITING, WriteDisposition.OVERWRITE, 5, 0, Pending(5, 15, 0)),
    ("own rows on top of other syncs' rows", PUBLISHED, WriteDisposition.OVERWRITE, 5, 20, Pending(5, 10, 20)),
    ("own rows on top of what the last session added", PUBLISHED, WriteDisposition.OVERWRITE, 5, 8, Pending(5, 10, 8)),
    ("own rows of an empty table land directly", EMPTY, WriteDisposition.OVERWRITE, 0, 20, None),
    ("own rows, another attempt of the sync that found the table empty", FRESH, WriteDisposition.OVERWRITE, 0, 7, None),
    ("own rows, another sync than the one that found the table empty", FRESH, WriteDisposition.OVERWRITE, 0, 8, Pending(0, 10, 8)),
    ("own rows, another attempt of the sync that has published", REPLACED, WriteDisposition.OVERWRITE, 0, 9, None),
    ("own rows, another sync than the one that has published", REPLACED, WriteDisposition.OVERWRITE, 0, 10, Pending(0, 10, 10)),
    ("clearing up leaves what is pending", WAITING, WriteDisposition.MAINTAIN, 0, 20, KEPT),
    ("clearing up begins nothing", PUBLISHED, WriteDisposition.MAINTAIN, 0, 20, None),
]


@each("case, table, disposition, generation, sync_id, pending", GENERATIONS)
def test_what_is_pending_in_a_session(
    case: str, table: Builder, disposition: WriteDisposition, generation: int, sync_id: int, pending: Pending | None
) -> None:
    session = Session(sync_id, generation, STARTED, disposition)
    found = pending_in(table.head, session)
    assert found == pending

    opened = Builder()
    opened.state = table.head
    opened.append(OpenEpoch(sync_id, generation, STARTED, found))
    assert opened.head.contents.pending == pending, "the block that says so is a valid one"


TABLE_NUMBER = table_number(TABLE.table_id)


def test_own_rows_without_a_sync_number_always_replace() -> None:
    table = chain(replace(SEED, adopted=(), sync_id=0), SCHEMA_EVENT, replace(add(0, 9), sync_id=0))

    assert pending_in(table.head, Session(0, 0, STARTED, WriteDisposition.OVERWRITE)) == Pending(0, 10, 0)


def pending_session(store: Bucket, sync_id: int = 3) -> None:
    """A table with rows, and a session that dies over the commit of rows that are to replace them."""
    synced(store)
    made = writer(store, sync_id, 0, WriteDisposition.OVERWRITE)
    land(made, store, 0, 100)
    store.hook = at_each("complete_upload", Fate.CRASH_BEFORE)
    with pytest.raises(Crash):
        made.commit([FIRST])
    store.hook = None


def test_a_table_is_settled_before_it_is_decided_what_the_rows_are_to_it() -> None:
    store = Bucket()
    pending_session(store, sync_id=3)
    made = writer(store, 4, 0, WriteDisposition.OVERWRITE)
    state = made.open()

    assert state.contents.pending == Pending(0, 20, 4), "the rows of sync 3 are given up"
    assert {file.offset for file in made.live_files().dropped} == {10}
    assert kinds(store)[-3:] == ["AddData", "OpenEpoch", "OpenEpoch"]


def test_dying_between_the_two_blocks_of_an_opening_decides_nothing() -> None:
    """The first block names this sync; its next attempt must not take the other sync's rows for its own."""
    store = Bucket()
    pending_session(store, sync_id=3)
    creates: list[str] = []

    def die(call: S3Call) -> Fate | None:
        creates.extend([call.key] if name_of(call) == "create" else [])
        return Fate.CRASH_BEFORE if len(creates) == 3 else None  # the first is answered by the block that is there

    store.hook = die
    with pytest.raises(Crash):
        writer(store, 4, 0, WriteDisposition.OVERWRITE).open()
    store.hook = None
    assert kinds(store)[-1] == "OpenEpoch"
    made = writer(store, 4, 0, WriteDisposition.OVERWRITE)

    assert made.open().contents.pending == Pending(0, 20, 4)
    assert len(made.live_files().dropped) == 2


def test_an_opening_that_another_one_overtakes_gives_way_to_it() -> None:
    """Both find the same unsettled block; the later one settles it while the first one is between its two blocks."""
    store = Bucket()
    pending_session(store, sync_id=3)
    first, second = writer(store, sync_id=4), writer(store, sync_id=5)
    creates: list[str] = []

    def overtake(call: S3Call) -> None:
        creates.extend([call.key] if name_of(call) == "create" else [])
        if len(creates) == 3:
            store.hook = None
            land(second, store, 0, 100)
            second.commit([TableCheckpoint(100, "other records")])

    store.hook = overtake
    with pytest.raises(Fenced, match="sync id 5"):
        first.open()
    second.close()
    assert kinds(store)[-6:] == ["AddData", *["OpenEpoch"] * 3, "AddData", "Close"]


def scratch(epoch: int, number: int = table_number(TABLE.table_id)) -> str:
    return f"{TABLE.scratch_prefix}{Token(number, epoch, 1)}/0.parquet"


def test_only_scratch_of_older_sessions_of_this_table_is_deleted() -> None:
    store = Bucket()
    crashed(store, FIRST)
    foreign = [scratch(1, 10**9), f"{TABLE.scratch_prefix}notes.txt", f"{TABLE.folder}raw/f-{Token(table_number('users'), 1, 7)}.parquet"]
    own = [scratch(1), scratch(2)]
    younger = [scratch(3), scratch(4)]
    for key in [*foreign, *own, *younger]:
        store.objects[key] = b"rows"
    assert writer(store).open().epoch == 3

    assert not store.objects.keys() & set(own)
    assert store.objects.keys() >= {*foreign, *younger}


def test_scratch_is_not_looked_for_after_a_session_that_closed() -> None:
    store = Bucket()
    synced(store)
    store.forget()
    writer(store, 2).open()

    assert "list" not in store.names()


def long_chain(store: Bucket, blocks: int) -> Chain:
    """A table that was added to in many sessions, with Snapshots; closed, and with a hint."""
    made = Chain(store, TABLE, lambda: STARTED)
    made.append(Seed(TABLE.stream, TABLE.table_id, TABLE_NUMBER, TABLE.final_root, (), 1, 0, STARTED))
    made.append(SetDataSchema(SCHEMA))
    while made.head.sequence_number < blocks:
        offset = made.head.contents.next_offset
        entry = FileEntry(FileKind.FINAL, f"{TABLE.final_root}{Token(TABLE_NUMBER, 1, offset)}.parquet", 1, 1, "upload", ("etag",))
        checkpoint = Checkpoint(f"{offset}", 1, "00", 0)
        interval = OffsetInterval(offset, offset)
        made.append(AddData(0, 1, 0, offset - 1 if offset else None, interval, (entry,), (checkpoint,)))
        made.mark_settled()
        take_snapshot_when_due(made)
        if offset % 10 == 9:
            made.append(Close())
            made.append(OpenEpoch(1, 0, STARTED))
    made.append(Close())
    made.write_hint()
    store.forget()
    return made


def test_opening_a_table_of_5000_blocks_costs_next_to_nothing() -> None:
    store = Bucket()
    written = long_chain(store, 5000)
    made = writer(store, sync_id=2)
    made.open()
    assert store.names() == ["get", "create"], "with a hint"

    del store.objects[CHAIN + "hint.json"]
    store.forget()
    again = writer(store, sync_id=3)
    state = again.open()
    gets = store.names().count("get")

    assert gets <= 2 * math.log2(5000) + 5000 / FILES_PER_BLOCK, gets
    assert state.contents == written.head.contents
    store.forget()
    assert len(again.live_files().files) == written.head.contents.files(FileKind.FINAL) > 4000
    assert store.calls == []

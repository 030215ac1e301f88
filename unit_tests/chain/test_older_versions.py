"""Tables whose hint and Snapshots an earlier version wrote, which did not say how many rows are of an earlier generation."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from destination_s3_spark.chain.events import AddData, Close, Event, MergeData, OffsetInterval, OpenEpoch, Seed, SetDataSchema, Snapshot
from destination_s3_spark.chain.files import FileEntry, FileKind, KeyRange
from destination_s3_spark.chain.log import Chain
from destination_s3_spark.chain.opening import Session, WriteDisposition, pending_in
from destination_s3_spark.chain.state import Checkpoint, Contents, Pending, TableState
from destination_s3_spark.stream_id import StreamId
from unit_tests.chain.built_chain import T0, file
from unit_tests.chain.fake_store import FakeStore
from unit_tests.places import PlainTable

STREAM = StreamId("shop", "users")
PLAIN = PlainTable(STREAM, "users", "lake/airbyte_internal/users/", "lake/users/")
PREFIX = PLAIN.chain_prefix
APPENDED = (FileKind.RAW, FileKind.FINAL)
MERGED = FileEntry(FileKind.FINAL, "merged", 15, 150, "upload", ("e",), KeyRange("00", "ff", "k"), 0, 2)


def add(start: int, end: int, generation: int, kinds: Sequence[FileKind]) -> AddData:
    rows = end - start + 1
    files = tuple(file(kind, f"{kind.value}-{start}", rows) for kind in kinds)
    checkpoints = (Checkpoint(f"{end}", rows, "00", generation),)
    return AddData(0, 7, generation, start - 1 if start else None, OffsetInterval(start, end), files, checkpoints, {})


def two_generations(kinds: Sequence[FileKind], *more: Event) -> list[Event]:
    return [
        Seed(STREAM, "users", 1, "lake/users/", (), 7, 1, T0),
        SetDataSchema({"schemaId": 0}),
        add(0, 9, 1, kinds),
        OpenEpoch(8, 2, T0),
        add(10, 14, 2, kinds),
        *more,
    ]


def without_generations(state: TableState) -> TableState:
    def old(contents: Contents) -> Contents:
        return replace(contents, earlier_rows=0, current_from=None)

    undo = state.unsettled
    return replace(state, contents=old(state.contents), unsettled=None if undo is None else replace(undo, before=old(undo.before)))


def older_chain(store: FakeStore, events: Sequence[Event], *, snapshot: bool) -> None:
    """A chain that is not closed, with a Snapshot of the earlier version in it or a hint beside it."""
    chain = Chain(store, PLAIN, lambda: T0)
    for event in events:
        chain.append(event)
        chain.mark_settled()
    chain.state = without_generations(chain.head)
    if snapshot:
        live = chain.live_files()
        chain.append(Snapshot(chain.head, live.adopted, live.files, live.dropped))
    else:
        chain.append(Close())
        chain.write_hint()


def read(store: FakeStore) -> Chain:
    chain = Chain(store, PLAIN, lambda: T0)
    chain.read()
    chain.catch_up()
    return chain


TABLES = {
    "with a raw table": two_generations(APPENDED),
    "without one": two_generations([FileKind.FINAL]),
    "merged, with a raw table": two_generations(
        (FileKind.RAW, FileKind.DELTA),
        MergeData(0, 8, 2, 14, (MERGED,), (file(FileKind.DELTA, "delta-0"), file(FileKind.DELTA, "delta-10", 5))),
    ),
}


@pytest.mark.parametrize("snapshot", [True, False], ids=["from a Snapshot", "from a hint"])
@pytest.mark.parametrize("events", TABLES.values(), ids=TABLES)
def test_rows_of_earlier_generations_are_found_by_the_files(events: list[Event], snapshot: bool) -> None:
    store = FakeStore()
    older_chain(store, events, snapshot=snapshot)
    contents = read(store).head.contents

    assert (contents.earlier_rows, contents.current_rows, contents.current_from) == (10, 5, 0)
    session = Session(9, 2, T0, WriteDisposition.TRUNCATE)
    assert pending_in(read(store).head, session) == Pending(2, 15, 9)


def test_merged_rows_without_a_raw_table_count_as_rows_of_the_generation() -> None:
    store = FakeStore()
    merge = MergeData(0, 8, 2, 14, (MERGED,), (file(FileKind.DELTA, "delta-0"), file(FileKind.DELTA, "delta-10", 5)))
    older_chain(store, two_generations([FileKind.DELTA], merge), snapshot=False)
    contents = read(store).head.contents

    assert (contents.earlier_rows, contents.current_rows) == (0, 15)


def test_a_table_of_an_earlier_version_goes_on() -> None:
    store = FakeStore()
    older_chain(store, TABLES["with a raw table"], snapshot=True)
    chain = read(store)
    chain.append(OpenEpoch(9, 2, T0, Pending(2, 15, 9), keeps_generation=True))
    chain.append(Close())
    chain.write_hint()

    assert read(store).state == chain.state
    del store.objects[f"{PREFIX}hint.json"]
    assert read(store).state == chain.state

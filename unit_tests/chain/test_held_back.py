"""Replacements that are held back, and the operator's decision about them, with a death at each call."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from destination_s3_spark.chain.events import Close
from destination_s3_spark.chain.log import Chain
from destination_s3_spark.chain.opening import WriteDisposition
from destination_s3_spark.chain.state import Pending, TableState
from destination_s3_spark.errors import Bug
from destination_s3_spark.tables.commit.batch import TableCheckpoint
from destination_s3_spark.tables.commit.writer import TableWriter
from destination_s3_spark.tables.updates.held_back import Replacement, discard, held_back_in
from unit_tests.chain.bucket import Bucket, at_calls
from unit_tests.chain.one_table import CHAIN, DELTAS, FIRST, TABLE, final, finals, staged, synced, writer
from unit_tests.lake.memory_bucket import Crash, Fate

MOST_CALLS = 40


def held_back() -> tuple[Bucket, set[str]]:
    """A table of ten rows with five beside it, and the keys before those came."""
    store = Bucket()
    synced(store)
    before = data(store)
    made = writer(store, 0, 0, WriteDisposition.OVERWRITE)
    made.stage(staged(made, store, 0, 50, kinds=DELTAS))
    made.commit([TableCheckpoint(50, "half")])
    made.close(holds_back=True)
    return store, before


def data(store: Bucket) -> set[str]:
    return {key for key in store.objects if not key.startswith(CHAIN)}


def head(store: Bucket) -> TableState:
    chain = Chain(store, TABLE)
    chain.read()
    chain.catch_up()
    return chain.head


def accept(store: Bucket) -> None:
    made = writer(store, 0, 0, WriteDisposition.MAINTAIN)
    made.catch_up()
    if held_back_in(made.open()) is not None:
        live = made.live_files()
        made.replace([final(made, store, 5)], [file for file in live.files if not (live.is_pending(file) and file.kind is DELTAS[0])])
    made.close()


def drop(store: Bucket) -> None:
    discard(writer(store, 0, 0, WriteDisposition.DISCARD), lambda: None)


def deaths(decision: Callable[[Bucket], None]) -> Iterator[tuple[Bucket, set[str]]]:
    """Worlds in which the decision died before or after each of its calls."""
    for fault in (Fate.CRASH_BEFORE, Fate.CRASH_AFTER):
        for number in range(MOST_CALLS):
            store, before = held_back()
            first = len(store.calls) + 1
            store.hook = at_calls({first + number: fault})
            try:
                decision(store)
            except Crash:
                store.hook = None
                yield store, before
            else:
                break


def test_a_generation_that_is_held_back_is_closed_with_its_table() -> None:
    store, _ = held_back()
    state = head(store)
    assert (state.closed, state.contents.pending, state.contents.rows) == (True, Pending(0, 10, 0, held_back=True), 10)
    assert held_back_in(state) == Replacement(5, 10, 0)
    assert str(held_back_in(state)) == "5 rows in place of 10"


def test_a_generation_that_a_later_sync_completes_is_not_held_back_any_more() -> None:
    pending = Pending(2, 10, 7, held_back=True)
    assert Close(completes=True).ended(pending) == Pending(2, 10, 7, complete=True)
    assert Close(holds_back=True).ended(Pending(2, 10, 7, complete=True)) == Pending(2, 10, 7, complete=True)
    assert Close().ended(pending) == pending


def test_only_a_pending_generation_can_be_held_back() -> None:
    made = writer(Bucket())
    made.open()
    with pytest.raises(Bug, match="no generation to hold back"):
        made.close(holds_back=True)


def test_discarding_leaves_the_table_as_it_was() -> None:
    store, before = held_back()
    drop(store)
    state = head(store)
    assert (state.closed, state.contents.pending, state.contents.pending_rows, state.contents.rows) == (True, None, 0, 10)
    assert (state.contents.landed, data(store)) == (10, before)
    assert discard(writer(store, 0, 0, WriteDisposition.DISCARD), lambda: None) is None


def test_a_discard_that_dies_leaves_a_table_with_its_rows_or_what_can_be_discarded_again() -> None:
    tried = 0
    for tried, (store, before) in enumerate(deaths(drop), start=1):  # noqa: B007
        was = held_back_in(head(store))
        drop(store)
        state = head(store)
        assert (state.contents.pending, state.contents.rows, state.contents.landed) == (None, 10, 10)
        assert data(store) >= before
        made = writer(store, 0, 0, WriteDisposition.OVERWRITE)
        made.stage(staged(made, store, 0, 100, kinds=DELTAS))
        made.commit([FIRST])
        live = made.live_files()
        gone = [file for file in live.files if not (live.is_pending(file) and file.kind is DELTAS[0])]
        made.replace([final(made, store, 10)], [*gone, *live.dropped])
        made.close()
        assert len(data(store)) == 2, f"files of the generation that was dropped stay (held back still: {was is not None})"
    assert tried > 5


def test_an_accept_that_dies_replaces_the_table_or_can_be_tried_again() -> None:
    tried = 0
    for tried, (store, _) in enumerate(deaths(accept), start=1):  # noqa: B007
        accept(store)
        state = head(store)
        assert (state.contents.pending, state.contents.rows, state.unsettled) == (None, 5, None)
        assert len(finals(store)) == 1
        assert not store.uploads
    assert tried > 5


def test_the_next_generation_takes_the_place_of_one_that_was_held_back() -> None:
    store, _ = held_back()
    made: TableWriter = writer(store, 0, 0, WriteDisposition.OVERWRITE)
    made.stage(staged(made, store, 0, 100, kinds=DELTAS))
    made.commit([FIRST])
    state = head(store)
    assert state.contents.pending == Pending(0, 15, 0)
    assert (state.contents.pending_rows, held_back_in(state)) == (10, None)

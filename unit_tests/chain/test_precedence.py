"""Two syncs that open the same tables at the same moment: whatever the order of their calls, one of them keeps all of them."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from destination_s3_spark.chain.log import Chain
from destination_s3_spark.chain.opening import Precedence, Session, WriteDisposition
from destination_s3_spark.chain.territory import OrphanUploads, Table
from destination_s3_spark.errors import Fenced
from destination_s3_spark.stream_id import StreamId
from destination_s3_spark.tables.commit.writer import TableWriter
from unit_tests.chain.bucket import Bucket
from unit_tests.chain.one_table import SCHEMA, STARTED
from unit_tests.lake.memory_bucket import Fate, S3Call

SCHEDULES = 300
NAMES = ("a", "b", "c")


class Turns:
    """Lets threads make their calls one at a time, in an order that is drawn by lot."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._lock = threading.Condition()
        self._wait: list[str] = []
        self._next: str | None = None

    def run(self, parts: dict[str, Callable[[], None]]) -> None:
        self._running = len(parts)
        with ThreadPoolExecutor(len(parts)) as pool:
            for done in [pool.submit(self._thread, name, part) for name, part in parts.items()]:
                done.result()

    def before_call(self, _call: S3Call) -> Fate | None:
        """Wait until every thread is about to make a call, and this one's is drawn."""
        name = threading.current_thread().name
        with self._lock:
            self._wait.append(name)
            self._draw()
            self._lock.wait_for(lambda: self._next == name)
            self._next = None
        return None

    def _thread(self, name: str, part: Callable[[], None]) -> None:
        threading.current_thread().name = name
        try:
            part()
        finally:
            with self._lock:
                self._running -= 1
                self._draw()

    def _draw(self) -> None:
        if self._next is None and self._wait and len(self._wait) == self._running:
            self._next = self._wait.pop(self._chance.randrange(len(self._wait)))
            self._lock.notify_all()


def tables(
    store: Bucket, sync_id: int, precedence: Precedence | None, disposition: WriteDisposition = WriteDisposition.APPEND
) -> dict[str, TableWriter]:
    def table(name: str) -> TableWriter:
        place = Table(StreamId(None, name), name, f"lake/airbyte_internal/{name}/", f"lake/{name}/")
        session = Session(sync_id, 0, STARTED, disposition)
        return TableWriter(Chain(store, place), session, OrphanUploads(store, "lake/"), precedence=precedence)

    return {name: table(name) for name in NAMES}


def begun(store: Bucket) -> None:
    """The tables as a sync has left them that closed one of them and died."""
    for name, writer in tables(store, 1, None).items():
        writer.open()
        if name != "c":
            writer.close()


def winners(seed: int, *, together: bool) -> list[int]:
    """The syncs that keep their tables. `together`: their tables know of each other."""
    chance, store = random.Random(seed), Bucket()
    begun(store)
    won: list[int] = []

    def sync(sync_id: int, order: Sequence[str]) -> None:
        writers = tables(store, sync_id, Precedence() if together else None)
        try:
            for writer in writers.values():
                writer.chain.read()
            for name in order:
                writers[name].open()
            for writer in writers.values():
                writer.ensure_schema({**SCHEMA, "schemaId": writer.open().epoch})
        except Fenced:
            return
        won.append(sync_id)

    turns = Turns(chance)
    store.hook = turns.before_call
    # The first table is the same for both; the others are opened side by side, in any order.
    orders = [("a", *chance.sample(NAMES[1:], 2)) for _ in range(2)]
    turns.run({f"sync {number}": partial(sync, number, orders[number - 2]) for number in (2, 3)})
    return won


def test_one_of_two_syncs_keeps_all_tables() -> None:
    counts = [len(winners(seed, together=True)) for seed in range(SCHEDULES)]

    assert min(counts) >= 1


def test_tables_that_decide_each_for_itself_may_leave_no_winner() -> None:
    """So the schedules are ones that matter."""
    assert any(not winners(seed, together=False) for seed in range(SCHEDULES))


def test_a_sync_that_lost_its_first_table_takes_no_other_one_and_says_whose_it_is() -> None:
    store = Bucket()
    early, late = tables(store, 1, Precedence()), tables(store, 2, Precedence())
    early["a"].open()
    late["a"].open()
    late["b"].open()

    with pytest.raises(Fenced, match=r"Table a was taken over by another sync \(sync id 2"):
        early["b"].open()
    late["b"].ensure_schema(SCHEMA)


def test_a_sync_whose_table_a_command_opened_says_that_the_next_attempt_goes_on() -> None:
    store = Bucket()
    ours = tables(store, 1, Precedence())["a"]
    ours.open()
    tables(store, 0, None, WriteDisposition.MAINTAIN)["a"].open()

    with pytest.raises(Fenced, match=r"Table a was taken over by a command .*the next attempt goes on"):
        ours.ensure_schema(SCHEMA)


def test_a_table_that_was_closed_is_opened_without_another_call() -> None:
    store = Bucket()
    for writer in tables(store, 1, Precedence()).values():
        writer.open()
        writer.close()
    again = tables(store, 2, Precedence())
    for writer in again.values():
        writer.chain.read()
    store.forget()
    for writer in again.values():
        writer.open()

    assert store.names() == ["create"] * len(NAMES)


def test_own_blocks_in_the_first_table_are_nobody_elses() -> None:
    """Another thread of the sync may be writing to it while it is asked about."""
    store = Bucket()
    first = tables(store, 1, Precedence())["a"]
    first.open()
    chain = first.chain
    known = chain.state
    first.ensure_schema(SCHEMA)
    chain.state = known

    assert chain.taken_over() is None

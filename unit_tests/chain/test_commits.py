"""A STATE goes out after the commit of every record before it, and never when a table failed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import TypeVar

import pytest

from destination_s3_spark.chain.files import FileKind
from destination_s3_spark.chain.log import Chain
from destination_s3_spark.chain.opening import Session
from destination_s3_spark.chain.settle import MapCalls
from destination_s3_spark.chain.territory import OrphanUploads
from destination_s3_spark.errors import Bug, TransientError
from destination_s3_spark.protocol.state import StateKind, StateMessage, Totals
from destination_s3_spark.stream_id import StreamId
from destination_s3_spark.sync.checkpoints import Checkpoints
from destination_s3_spark.sync.commits import Commits
from destination_s3_spark.tables.commit.writer import TableWriter
from unit_tests.cases import each
from unit_tests.chain.bucket import Bucket, name_of
from unit_tests.chain.one_table import staged
from unit_tests.lake.memory_bucket import Fate
from unit_tests.places import PlainTable

T = TypeVar("T")
R = TypeVar("R")


class TwoTables:
    """Two tables, and one story of calls and emitted STATEs in their order."""

    def __init__(self, map_tables: MapCalls = map) -> None:
        self.store = Bucket()
        self.checkpoints = Checkpoints()
        self.emitted: list[tuple[str, int]] = []
        self._calls_before: list[int] = []
        self.totals: list[dict[int, Totals]] = []
        session, orphans = Session(1, 0, datetime(2026, 1, 1, tzinfo=UTC)), OrphanUploads(self.store, "lake/")
        both = [PlainTable(StreamId(None, name), name, f"lake/internal/{name}/", f"lake/{name}/") for name in ("a", "b")]
        self.writers = {stream: TableWriter(Chain(self.store, table), session, orphans) for stream, table in enumerate(both)}
        self.commits = Commits(self.writers, self.checkpoints, self._emit, map_tables)

    def _emit(self, message: StateMessage, records: int) -> None:
        self._calls_before.append(len(self.store.calls))
        self.emitted.append((message.state_hash, records))
        self.totals.append(dict(message.totals or {}))

    def story(self) -> list[str]:
        """The names of the calls, and STATE where one was emitted between them."""
        names = self.store.names()
        for calls in reversed(self._calls_before):
            names.insert(calls, "STATE")
        return names

    def stage(self, stream: int, start: int, end: int) -> None:
        self.commits.stage(stream, staged(self.writers[stream], self.store, start, end, kinds=[FileKind.FINAL]))

    def state(self, name: str, *ends: int, stream: int | None = None) -> None:
        kind = StateKind.GLOBAL if stream is None else StateKind.STREAM
        message = StateMessage(kind, stream, name, b"")
        by_stream = {one: ends[one] for one in message.covered(self.writers)}
        records = {one: end // 10 for one, end in by_stream.items()}
        self.checkpoints.state(message, by_stream, records, 0.0)


def test_the_order_of_effects_is_stage_block_complete_state_close() -> None:
    tables = TwoTables()
    tables.stage(0, 0, 50)
    tables.state("s", 50, 0)
    tables.commits.commit()
    tables.commits.close()

    story = ["create", "create", "create_upload", "upload_part", "create", "complete_upload", "STATE", "create", "put", "get"]
    assert tables.story() == story
    assert tables.emitted == [("s", 5)]


def test_a_global_state_waits_for_the_table_that_has_not_landed() -> None:
    tables = TwoTables()
    tables.stage(0, 0, 50)
    tables.state("s", 50, 20)
    assert tables.commits.commit()[0].rows == 5
    assert tables.emitted == []
    tables.stage(1, 0, 20)
    tables.commits.commit()

    assert tables.emitted == [("s", 7)]


def test_a_state_says_what_was_committed_up_to_it_and_not_what_came_later() -> None:
    tables = TwoTables()
    for stream, start, end in ((0, 0, 20), (0, 20, 50), (1, 0, 30), (1, 30, 50)):
        tables.stage(stream, start, end)
    tables.state("a", 20, 30, stream=0)
    tables.state("b", 50, 30, stream=1)
    tables.state("all", 50, 50)
    tables.commits.commit()

    assert [name for name, _ in tables.emitted] == ["a", "b", "all"]
    assert tables.totals == [
        {0: Totals(2, 18)},
        {0: Totals(2, 18), 1: Totals(3, 27)},
        {0: Totals(5, 45), 1: Totals(5, 45)},
    ]


def test_a_state_without_records_goes_out_at_the_next_commit() -> None:
    tables = TwoTables()
    tables.state("s", 0, 0)

    assert tables.commits.commit() == {}
    assert tables.emitted == [("s", 0)]
    assert tables.story() == ["STATE"]


@each("failing", [0, 1])
def test_no_state_goes_out_when_a_table_fails_though_the_other_is_committed(failing: int) -> None:
    tables = TwoTables()
    for stream in (0, 1):
        tables.stage(stream, 0, 50)
        tables.state(f"s{stream}", 50, 50, stream=stream)
    name = "ab"[failing]
    tables.store.hook = lambda call: Fate.LOST_BEFORE if name_of(call) == "create" and f"/{name}/" in call.key else None
    with pytest.raises(TransientError, match=f"table {name}"):
        tables.commits.commit()
    tables.store.hook = None

    assert tables.emitted == []
    other = tables.writers[1 - failing].state
    assert other is not None
    assert other.contents.rows == 5
    tables.commits.abandon()


def test_tables_may_be_committed_side_by_side() -> None:
    with ThreadPoolExecutor(2) as pool:
        tables = TwoTables(pool.map)
        for stream in (0, 1):
            tables.stage(stream, 0, 50)
        tables.state("s", 50, 50)
        results = tables.commits.commit()
        tables.commits.close()

    assert [result.rows for result in results.values()] == [5, 5]
    assert tables.emitted == [("s", 10)]


def test_uploads_of_one_table_may_be_completed_side_by_side() -> None:
    used: list[int] = []

    def map_files(function: Callable[[T], R], files: Iterable[T]) -> list[R]:
        found = [function(file) for file in files]
        used.append(len(found))
        return found

    tables = TwoTables()
    table = PlainTable(StreamId(None, "c"), "c", "lake/internal/c/", "lake/c/")
    session = Session(1, 0, datetime(2026, 1, 1, tzinfo=UTC))
    chain, orphans = Chain(tables.store, table), OrphanUploads(tables.store, "lake/")
    tables.writers[0] = TableWriter(chain, session, orphans, map_files=map_files)
    tables.commits = Commits(tables.writers, tables.checkpoints, lambda _message, _records: None)
    tables.stage(0, 0, 50)
    tables.stage(0, 50, 100)
    tables.state("s", 100, 0)
    tables.commits.commit()

    assert [count for count in used if count] == [2]


def test_a_slice_inside_an_unfinished_checkpoint_waits_for_its_end() -> None:
    tables = TwoTables()
    tables.stage(0, 0, 50)
    tables.state("s1", 50, 0, stream=0)
    tables.stage(0, 50, 80)
    assert tables.commits.commit()[0].rows == 5
    assert tables.commits.commit() == {}
    tables.stage(0, 80, 100)
    tables.state("s2", 100, 0, stream=0)

    assert tables.commits.commit()[0].rows == 5
    assert tables.emitted == [("s1", 5), ("s2", 5)]


def test_tables_are_not_closed_while_a_state_waits() -> None:
    tables = TwoTables()
    tables.stage(0, 0, 50)
    tables.state("s", 50, 10)
    tables.commits.commit()
    with pytest.raises(Bug, match="still waiting"):
        tables.commits.close()

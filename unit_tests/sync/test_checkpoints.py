"""Which records a STATE covers, what a commit can cover, and in which order STATEs go out."""

from __future__ import annotations

from threading import Thread

from destination_s3_spark.protocol.state import StateKind, StateMessage
from destination_s3_spark.sync.checkpoints import Checkpoints
from destination_s3_spark.tables.commit.batch import TableCheckpoint


def message(name: str, stream: int | None = 0, kind: StateKind = StateKind.STREAM) -> StateMessage:
    return StateMessage(kind, stream, name, b"")


def everything(name: str) -> StateMessage:
    return message(name, None, StateKind.GLOBAL)


class Source:
    """Registers STATEs; `counts` are records of 10 bytes per stream so far."""

    def __init__(self) -> None:
        self.checkpoints = Checkpoints()

    def state(self, state: StateMessage, *counts: int, now: float = 0.0) -> None:
        covered = {stream: counts[stream] for stream in state.covered(range(len(counts)))}
        self.checkpoints.state(state, {stream: 10 * count for stream, count in covered.items()}, covered, now)

    def out(self) -> list[tuple[str, int]]:
        return [(state.message.state_hash, state.records) for state in self.checkpoints.take_covered()]


def test_a_state_waits_until_its_records_are_committed() -> None:
    source = Source()
    source.state(message("a"), 3)
    assert source.out() == []
    source.checkpoints.committed(0, 20)
    assert source.out() == []
    source.checkpoints.committed(0, 30)

    assert source.out() == [("a", 3)]
    assert source.out() == []


def test_the_count_is_that_of_the_records_since_the_state_before() -> None:
    source = Source()
    for name, count in (("a", 3), ("b", 3), ("c", 7)):
        source.state(message(name), count)
    source.checkpoints.committed(0, 70)

    assert source.out() == [("a", 3), ("b", 0), ("c", 4)]


def test_a_global_state_counts_and_waits_for_all_streams() -> None:
    source = Source()
    source.state(everything("a"), 2, 3)
    source.checkpoints.committed(0, 20)
    assert source.out() == []
    source.checkpoints.committed(1, 30)

    assert source.out() == [("a", 5)]


def test_a_global_state_without_records_of_its_own_waits_for_the_one_before() -> None:
    source = Source()
    source.state(everything("a"), 2, 3)
    source.state(everything("b"), 2, 3)
    assert source.out() == []
    source.checkpoints.committed(0, 20)
    source.checkpoints.committed(1, 30)

    assert source.out() == [("a", 5), ("b", 0)]


def test_streams_do_not_wait_for_each_other_and_each_keeps_its_order() -> None:
    source = Source()
    source.state(message("slow 1", 0), 1, 0)
    source.state(message("quick 1", 1), 1, 1)
    source.state(message("slow 2", 0), 1, 1)
    source.state(message("quick 2", 1), 1, 2)
    source.checkpoints.committed(1, 20)
    assert source.out() == [("quick 1", 1), ("quick 2", 1)]
    source.checkpoints.committed(0, 10)

    assert source.out() == [("slow 1", 1), ("slow 2", 0)]


def test_a_global_state_goes_out_neither_before_nor_after_its_neighbours() -> None:
    source = Source()
    source.state(message("one", 0), 1, 0)
    source.state(everything("all"), 1, 2)
    source.state(message("two", 1), 1, 3)
    source.checkpoints.committed(1, 30)
    assert source.out() == []
    source.checkpoints.committed(0, 10)

    assert source.out() == [("one", 1), ("all", 2), ("two", 1)]


def test_a_state_of_an_unknown_stream_covers_nothing_and_keeps_its_place() -> None:
    source = Source()
    source.state(message("unknown 1", None), 1, 1)
    assert source.out() == [("unknown 1", 0)]
    source.state(everything("all"), 2, 2)
    source.state(message("unknown 2", None), 2, 2)
    assert source.out() == []
    assert source.checkpoints.boundaries(0) == (20,)


def test_a_legacy_state_covers_all_streams() -> None:
    source = Source()
    source.state(message("legacy", None, StateKind.LEGACY), 2, 1)
    source.checkpoints.committed(0, 20)
    assert source.out() == []
    source.checkpoints.committed(1, 10)

    assert source.out() == [("legacy", 3)]


def test_a_commit_covers_whole_checkpoints_up_to_the_end_of_a_slice() -> None:
    source = Source()
    for name, count in (("a", 1), ("b", 2), ("c", 4)):
        source.state(message(name), count)
    checkpoints = source.checkpoints

    assert checkpoints.boundaries(0) == (10, 20, 40)
    assert checkpoints.ready(0, {5, 15, 35}) == ()
    assert checkpoints.ready(0, {20, 35}) == (TableCheckpoint(10, "a"), TableCheckpoint(20, "b"))
    checkpoints.committed(0, 20)
    assert checkpoints.boundaries(0) == (40,)
    assert checkpoints.last_boundary(0) == 40
    assert checkpoints.ready(1, {10}) == ()


def test_the_tail_of_a_complete_stream_is_a_checkpoint_without_a_state() -> None:
    source = Source()
    source.state(message("a"), 1)
    source.checkpoints.complete(0, 30)
    source.checkpoints.complete(1, 0)

    assert source.checkpoints.ready(0, {30}) == (TableCheckpoint(10, "a"), TableCheckpoint(30, None))
    assert source.checkpoints.ready(1, {0}) == ()


def test_a_global_state_after_the_tail_waits_for_the_tail() -> None:
    source = Source()
    source.checkpoints.complete(0, 30)
    source.state(everything("all"), 3)
    assert source.out() == []
    source.checkpoints.committed(0, 30)

    assert source.out() == [("all", 3)]


def test_the_age_is_that_of_the_oldest_waiting_state() -> None:
    source = Source()
    assert source.checkpoints.oldest_waiting_since is None
    source.state(message("a"), 1, now=5.0)
    source.state(message("b"), 2, now=6.0)
    assert source.checkpoints.oldest_waiting_since == 5.0
    source.checkpoints.committed(0, 10)
    source.out()

    assert source.checkpoints.oldest_waiting_since == 6.0


def test_one_thread_may_register_while_another_commits() -> None:
    source = Source()
    total = 20_000

    def read() -> None:
        for count in range(1, total + 1):
            source.state(message(str(count)), count)

    reader = Thread(target=read)
    reader.start()
    out: list[tuple[str, int]] = []
    while len(out) < total:
        for end in source.checkpoints.boundaries(0)[-1:]:
            assert source.checkpoints.ready(0, {end})[-1].end == end
            source.checkpoints.committed(0, end)
        out += source.out()
        assert reader.is_alive() or source.checkpoints.boundaries(0) or len(out) == total, "a STATE is gone"
    reader.join()

    assert out == [(str(count), 1) for count in range(1, total + 1)]

"""The part of a commit that needs no store: which slices and checkpoints it has, and which of them are already in the table."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import pytest

from destination_s3_spark.chain.fold import REPLAY_LIMIT
from destination_s3_spark.chain.opening import Session
from destination_s3_spark.chain.state import Checkpoint, ReplayGuard
from destination_s3_spark.errors import Bug
from destination_s3_spark.tables.commit.batch import MULTISET_MODULUS, Batch, TableCheckpoint
from destination_s3_spark.tables.landing.slices import Segment, StagedSlice
from unit_tests.cases import each

SESSION = Session(7, 3, datetime(2026, 5, 4, tzinfo=UTC))


def of(*ends: int, start: int = 0) -> StagedSlice:
    """A slice without files whose segments end there, each with a record for ten bytes and its end as its multiset."""
    starts = (start, *ends[:-1])
    segments = tuple(Segment(end, (end - begin) // 10, end) for begin, end in zip(starts, ends, strict=True))
    return StagedSlice(start, ends[-1], 0, (), segments)


def cut(slices: Sequence[StagedSlice], ends: Sequence[int]) -> Batch:
    return Batch.cut(slices, [TableCheckpoint(end, f"state {end}") for end in ends], SESSION, slices[0].start if slices else 0)


def recorded(*ends: int) -> list[Checkpoint]:
    """What an earlier session left of the checkpoints with these ends, if each is a segment."""
    return list(cut([of(*ends)], ends).checkpoints)


def test_a_checkpoint_has_the_records_of_all_its_segments() -> None:
    batch = cut([of(50, 100), of(130, 200, start=100)], [100, 200])
    assert batch.checkpoints == (
        Checkpoint("state 100", 10, f"{150:032x}", 3, 7),
        Checkpoint("state 200", 10, f"{330:032x}", 3, 7),
    )
    assert (batch.ends, batch.records) == ((100, 200), 20)


def test_the_sum_of_a_multiset_has_128_bits() -> None:
    staged = StagedSlice(0, 20, 0, (), (Segment(10, 1, MULTISET_MODULUS - 1), Segment(20, 1, 3)))
    assert cut([staged], [20]).checkpoints[0].multiset_hash == f"{2:032x}"


def test_checkpoints_without_records_of_the_table_are_left_out() -> None:
    batch = Batch.cut(
        [of(100)], [TableCheckpoint(0, "none yet"), TableCheckpoint(100, "some"), TableCheckpoint(100, "no more")], SESSION, 0
    )
    assert [(checkpoint.state_hash, checkpoint.records) for checkpoint in batch.checkpoints] == [("some", 10)]
    assert cut([], [0]) == Batch((), (), ())


@each("end", [90, 110])
def test_a_checkpoint_that_ends_inside_or_behind_a_segment_is_a_bug(end: int) -> None:
    with pytest.raises(Bug, match=f"ends at byte {end} of the spool, the staged slices reach"):
        cut([of(100)], [end])


@each(
    ("committed", "replayed", "left"),
    [
        ([], [], [100, 200, 300]),
        ([100], [100], [200, 300]),
        ([100, 200], [100, 200], [300]),
        ([200], [], [100, 200, 300]),
        ([100, 200, 300], [100, 200, 300], []),
    ],
)
def test_the_leading_checkpoints_that_the_table_has_are_no_longer_in_the_rest(
    committed: list[int], replayed: list[int], left: list[int]
) -> None:
    ends = [100, 200, 300]
    batch = cut([of(100), of(200, start=100), of(300, start=200)], ends)
    earlier = [checkpoint for checkpoint, end in zip(batch.checkpoints, ends, strict=True) if end in committed]
    part = batch.split_replayed(ReplayGuard(earlier))
    rest = batch.after(part)
    assert ([*part.ends], [*rest.ends]) == (replayed, left)
    assert [staged.end for staged in (*part.slices, *rest.slices)] == ends


def test_a_slice_that_is_only_partly_a_replay_lands_again_as_a_whole() -> None:
    slices, ends = [of(100), of(200, 300, start=100)], [100, 200, 300]
    batch = cut(slices, ends)
    guard = ReplayGuard(batch.checkpoints[:2])
    part = batch.split_replayed(guard)
    assert (part.ends, part.slices) == ((100,), (slices[0],))
    assert batch.after(part).slices == (slices[1],)
    assert not guard.active


def test_more_checkpoints_than_a_chain_records_are_summed_up_from_the_oldest() -> None:
    count = REPLAY_LIMIT + 2
    batch = Batch((), (), tuple(Checkpoint(f"state {number}", 2, f"{number:032x}", 3, 7) for number in range(count)))
    found = batch.recorded()
    assert len(found) == REPLAY_LIMIT
    assert found[0] == Checkpoint("state 2", 6, f"{0 + 1 + 2:032x}", 3, 7)
    assert found[1:] == batch.checkpoints[3:]
    assert sum(checkpoint.records for checkpoint in found) == batch.records

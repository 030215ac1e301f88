import pytest
from hypothesis import given
from hypothesis import strategies as st

from destination_s3_spark.sync.batches import (
    OPEN_CHECKPOINT_MIN_BYTES,
    SLICE_MIN_BYTES,
    TASKS_PER_CORE,
    Backlog,
    Due,
    Limits,
    cut_ends,
    due,
    grouped,
    slice_bytes,
    slice_count,
)

MIB = 2**20
LIMITS = Limits(batch_bytes=512 * MIB, age_s=300, spool_bytes=4096 * MIB)


def test_a_waiting_state_alone_never_makes_a_batch() -> None:
    assert due({0: Backlog(0, 10, 10)}, oldest_state_age_s=299, spool_bytes=10, limits=LIMITS) is Due.NOTHING


def test_size_counts_all_streams_together() -> None:
    backlog = {stream: Backlog(0, 0, 64 * MIB) for stream in range(8)}
    assert due(backlog, oldest_state_age_s=0, spool_bytes=512 * MIB, limits=LIMITS) is Due.SIZE


def test_an_old_state_makes_a_batch_of_whole_checkpoints_only() -> None:
    backlog = {0: Backlog(0, 10, 50), 1: Backlog(0, 0, OPEN_CHECKPOINT_MIN_BYTES)}
    assert due(backlog, oldest_state_age_s=300, spool_bytes=60, limits=LIMITS) is Due.AGE
    assert cut_ends(backlog, Due.AGE) == {0: 10}


def test_half_a_full_spool_is_pressure() -> None:
    assert due({}, oldest_state_age_s=0, spool_bytes=2048 * MIB, limits=LIMITS) is Due.PRESSURE


def test_a_cut_prefers_the_checkpoint_end_and_leaves_the_rest_in_the_spool() -> None:
    assert cut_ends({0: Backlog(5, 100, 150)}, Due.SIZE) == {0: 100}


def test_a_long_open_checkpoint_is_cut_inside_and_a_short_one_waits() -> None:
    backlog = {0: Backlog(0, 0, OPEN_CHECKPOINT_MIN_BYTES), 1: Backlog(0, 0, 100), 2: Backlog(0, 7, 9)}
    assert cut_ends(backlog, Due.SIZE) == {0: OPEN_CHECKPOINT_MIN_BYTES, 2: 7}


def test_many_short_open_checkpoints_are_taken_when_nothing_else_can_be() -> None:
    assert cut_ends({0: Backlog(0, 0, 100), 1: Backlog(3, 3, 3)}, Due.PRESSURE) == {0: 100}


def test_pieces_are_about_as_large_as_asked_and_never_larger_than_allowed() -> None:
    assert slice_count(10, 100) == 1
    assert slice_count(400, 100) == 4
    assert slice_count(401, 100) == 5
    assert slice_count(400, 100, most_bytes=50) == 8
    assert slice_count(400, 100, most_bytes=500) == 4


def test_slices_are_as_large_as_keeps_the_cores_equally_long_at_work() -> None:
    assert slice_bytes([512 * MIB], cores=2) == 128 * MIB
    assert slice_bytes([190 * MIB, 100 * MIB, 220 * MIB], cores=2) == 85 * MIB  # 128 would leave one core with 305, the other with 205


@pytest.mark.parametrize("streams", [[], [0], [10], [SLICE_MIN_BYTES + 1], [1] * 1000, [SLICE_MIN_BYTES, 5]])
def test_small_batches_have_slices_of_the_least_size(streams: list[int]) -> None:
    assert slice_bytes(streams, cores=4) == SLICE_MIN_BYTES


def test_slices_are_never_too_many() -> None:
    streams = [1000 * MIB, 999 * MIB, 1]
    target = slice_bytes(streams, cores=16)
    assert sum(slice_count(stream, target) for stream in streams) <= 16 * TASKS_PER_CORE + len(streams)


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=300), st.integers(1, 8))
def test_groups_keep_every_item_and_are_never_empty(sizes: list[int], cores: int) -> None:
    groups = grouped(sizes, lambda size: size, cores)
    assert sorted(item for group in groups for item in group) == sorted(sizes)
    assert all(groups)
    if len(sizes) > 8 * cores:
        totals = [sum(group) for group in groups]
        assert max(totals) - min(totals) <= max(sizes)

from hypothesis import given
from hypothesis import strategies as st

from destination_s3_spark.sync.batches import (
    OPEN_CHECKPOINT_MIN_BYTES,
    SLICE_MIN_BYTES,
    Backlog,
    Due,
    Limits,
    cut_ends,
    due,
    grouped,
    pieces,
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


def test_pieces_follow_the_batch_and_the_cores() -> None:
    assert pieces(10, 10, cores=2) == 1
    assert pieces(512 * MIB, 512 * MIB, cores=2) == 4
    assert pieces(SLICE_MIN_BYTES + 1, SLICE_MIN_BYTES + 1, cores=16) == 2


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=300), st.integers(1, 8))
def test_groups_keep_every_item_and_are_never_empty(sizes: list[int], cores: int) -> None:
    groups = grouped(sizes, lambda size: size, cores)
    assert sorted(item for group in groups for item in group) == sorted(sizes)
    assert all(groups)
    if len(sizes) > 8 * cores:
        totals = [sum(group) for group in groups]
        assert max(totals) - min(totals) <= max(sizes)

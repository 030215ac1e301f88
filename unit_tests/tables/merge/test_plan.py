"""Which files a merge touches, and how its work is divided."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from destination_s3_spark.tables.merge.plan import LEAST_TASK_BYTES, MergePlan, PlannedRange, Run, Sizes, plan_merge
from destination_s3_spark.tables.merge.replaced_files import MOST_SMALL_FILES, SortedTableFile
from destination_s3_spark.tables.runs.sorted_file import RowGroup
from unit_tests.cases import each

TARGET = 1000
SIZES = Sizes(target_file_bytes=TARGET, budget_bytes=10**9)


def key(number: int) -> bytes:
    return number.to_bytes(2, "big")


def table_file(first: int, last: int, size: int = TARGET, rows: int = 100) -> SortedTableFile:
    return SortedTableFile(f"{first}-{last}", size, key(first), key(last), rows, size)


def run_of(*bounds: tuple[int, int], rows: int = 10, size: int = 100, name: str = "run") -> Run:
    return Run(name, size * len(bounds), 0, tuple(RowGroup(key(first), key(last), rows, size) for first, last in bounds))


def ranges(plan: MergePlan) -> list[tuple[bytes, bytes | None]]:
    return [(piece.low, piece.high) for piece in plan.ranges]


def replaced(plan: MergePlan) -> list[str]:
    return [file.key for file in plan.replaced]


def holds(piece: PlannedRange, wanted: bytes) -> bool:
    return piece.low <= wanted and (piece.high is None or wanted < piece.high)


def test_a_first_load_is_one_unbounded_range() -> None:
    plan = plan_merge([], [run_of((1, 5), (5, 9))], [], SIZES)

    assert ranges(plan) == [(b"", None)]
    assert plan.ranges[0].runs == (run_of((1, 5), (5, 9)),)
    assert plan.replaced == ()


def test_without_runs_there_is_nothing_to_do() -> None:
    plan = plan_merge([table_file(1, 5, size=1)], [], [run_of((2, 2), name="dead")], SIZES)

    assert (plan.ranges, plan.replaced) == ((), ())


def test_only_the_files_with_keys_of_a_run_are_replaced() -> None:
    plan = plan_merge([table_file(10, 19), table_file(20, 29), table_file(30, 39)], [run_of((22, 25))], [], SIZES)

    assert replaced(plan) == ["20-29"]
    assert ranges(plan) == [(key(19) + b"\0", key(30))]


def test_scattered_keys_touch_only_the_files_they_are_in() -> None:
    files = [table_file(10, 19), table_file(20, 29), table_file(30, 39), table_file(40, 49)]
    keys = pa.array([key(12), key(25), key(26), key(60)], pa.binary())

    run = run_of((12, 60), rows=4, size=400).divided(files, lambda number: keys)

    assert [(group.first, group.last, group.rows, group.bytes) for group in run.groups] == [
        (key(12), key(12), 1, 100),
        (key(25), key(26), 2, 200),
        (key(60), key(60), 1, 100),
    ]
    assert replaced(plan_merge(files, [run], [], SIZES)) == ["10-19", "20-29"]


def test_the_keys_of_a_group_within_one_file_are_not_looked_at() -> None:
    run = run_of((12, 15))

    assert run.divided([table_file(10, 19)], lambda number: pytest.fail("read")) == run


def test_one_key_on_a_bound_touches() -> None:
    files = [table_file(10, 19), table_file(20, 29)]

    assert replaced(plan_merge(files, [run_of((19, 19))], [], SIZES)) == ["10-19"]
    assert replaced(plan_merge(files, [run_of((20, 20))], [], SIZES)) == ["20-29"]


def test_new_keys_between_large_files_touch_neither() -> None:
    plan = plan_merge([table_file(10, 19), table_file(30, 39)], [run_of((22, 25))], [], SIZES)

    assert replaced(plan) == []
    assert ranges(plan) == [(key(19) + b"\0", key(30))]


def test_spans_between_files_that_stay_are_ranges_of_their_own() -> None:
    files = [table_file(first, first + 9) for first in range(0, 50, 10)]
    plan = plan_merge(files, [run_of((12, 13), name="a"), run_of((35, 36), name="b"), run_of((60, 61), name="c")], [], SIZES)

    assert replaced(plan) == ["10-19", "30-39"]
    assert [[part.key for part in piece.runs] for piece in plan.ranges] == [["a"], ["b"], ["c"]]
    assert plan.ranges[2].high is None


def test_files_whose_truncated_bounds_overlap_are_replaced_together() -> None:
    plan = plan_merge([table_file(10, 20), table_file(20, 30), table_file(30, 40), table_file(50, 60)], [run_of((11, 12))], [], SIZES)

    assert replaced(plan) == ["10-20", "20-30", "30-40"]


@each(("size", "joined"), [(TARGET // 4 - 1, True), (TARGET // 4, False)])
def test_a_small_last_file_takes_in_the_keys_appended_behind_it(size: int, joined: bool) -> None:
    plan = plan_merge([table_file(10, 19), table_file(20, 29, size)], [run_of((40, 49))], [], SIZES)

    assert replaced(plan) == (["20-29"] if joined else [])


def test_small_files_on_both_sides_of_a_touched_one_are_joined_with_it() -> None:
    sizes = [TARGET, 10, 10, TARGET, 10, 10, TARGET]
    files = [table_file(at * 10, at * 10 + 9, size) for at, size in enumerate(sizes)]

    assert replaced(plan_merge(files, [run_of((32, 33))], [], SIZES)) == ["10-19", "20-29", "30-39", "40-49", "50-59"]


def test_no_more_small_files_are_joined_than_make_up_a_file() -> None:
    files = [table_file(at * 10, at * 10 + 9, TARGET // 5) for at in range(MOST_SMALL_FILES)]

    assert replaced(plan_merge(files, [run_of((0, 1))], [], SIZES)) == ["0-9", "10-19", "20-29", "30-39", "40-49", "50-59"]


def test_small_files_far_from_the_keys_of_a_merge_are_joined_when_there_are_too_many() -> None:
    large = [table_file(at * 10, at * 10 + 9) for at in range(100, 103)]
    small = [table_file(at * 10, at * 10 + 9, 624) for at in range(MOST_SMALL_FILES - 1)]
    tiny = [table_file(2000, 2009, 10), table_file(2010, 2019, 30)]
    run, dead = run_of((1015, 1016)), run_of((0, 3000), name="dead")

    assert replaced(plan_merge([*small, tiny[0], *large], [run], [], SIZES)) == ["1010-1019"]
    plan = plan_merge([*small, *tiny, *large], [run], [dead], SIZES)
    assert replaced(plan) == ["1010-1019", "2000-2009", "2010-2019"]
    assert [(len(piece.table), len(piece.tombstones)) for piece in plan.ranges] == [(1, 1), (2, 0)]


def test_a_small_file_between_large_ones_is_joined_with_one_of_them() -> None:
    sizes = [700 if at % 2 else 300 for at in range(2 * MOST_SMALL_FILES + 1)]
    files = [table_file(at * 10, at * 10 + 9, size) for at, size in enumerate([*sizes, TARGET])]
    plan = plan_merge(files, [run_of((900, 901))], [], SIZES)

    assert replaced(plan) == ["0-9", "10-19"]
    assert [len(piece.table) for piece in plan.ranges] == [2, 0]


def test_a_merge_that_rewrites_much_joins_nothing_else() -> None:
    files = [table_file(at * 10, at * 10 + 9, 400) for at in range(3 * MOST_SMALL_FILES)]
    touched = [(at * 10, at * 10 + 1) for at in range(0, 10, 2)]

    assert len(plan_merge(files, [run_of(*touched, rows=1)], [], SIZES).replaced) == len(touched)


def test_files_of_different_partitions_are_not_joined() -> None:
    files = [replace(table_file(at * 10, at * 10 + 9, 100), low=key(at * 10), high=key(at * 10 + 10)) for at in range(2 * MOST_SMALL_FILES)]

    assert replaced(plan_merge(files, [run_of((900, 901))], [], SIZES)) == []


def test_tombstones_are_read_where_runs_are_and_touch_nothing() -> None:
    dead = run_of((5, 15), (15, 45), (45, 50), name="dead")
    plan = plan_merge([table_file(10, 19), table_file(40, 49)], [run_of((12, 13))], [dead], SIZES)

    assert replaced(plan) == ["10-19"]
    assert [(part.key, part.groups) for part in plan.ranges[0].tombstones] == [("dead", dead.groups[:2])]


def test_much_data_is_cut_into_ranges_of_about_the_target_size() -> None:
    target = 2 * LEAST_TASK_BYTES
    size = target // 10
    run = run_of(*((at, at + 1) for at in range(100)), size=size)
    plan = plan_merge([], [run], [], Sizes(target, 10**9))

    assert len(plan.ranges) == 10
    assert all(0.9 * target < piece.bytes < 1.3 * target for piece in plan.ranges)


def test_a_full_file_is_not_halved_for_a_few_new_rows() -> None:
    sizes = Sizes(LEAST_TASK_BYTES, 10**12)
    full = table_file(0, 100, size=LEAST_TASK_BYTES)

    assert len(plan_merge([full], [run_of(*((at, at + 1) for at in range(20)), rows=1)], [], sizes).ranges) == 1
    assert len(plan_merge([full], [run_of(*((at, at + 1) for at in range(60)), rows=1)], [], sizes).ranges) == 2


def test_a_task_writes_many_files_when_they_are_small() -> None:
    run = run_of(*((at, at + 1) for at in range(100)), size=LEAST_TASK_BYTES // 25)
    plan = plan_merge([], [run], [], Sizes(LEAST_TASK_BYTES // 10, 10**12))

    assert len(plan.ranges) == 4
    assert all(piece.bytes > 0.9 * LEAST_TASK_BYTES for piece in plan.ranges)


def test_many_runs_make_small_ranges_when_a_row_group_of_each_does_not_fit_in_memory() -> None:
    runs = [run_of(*((at, at + 1) for at in range(40)), size=100, name=f"run-{number}") for number in range(20)]
    budget = 1000
    plan = plan_merge([], runs, [], Sizes(10**9, budget))

    # The row group on each side of a cut belongs to both ranges.
    whole = sum(group.bytes for run in runs for group in run.groups)
    assert len(plan.ranges) == 40 < whole / budget
    assert len(plan_merge([], runs, [], Sizes(10**9, 2 * budget)).ranges) == 1


def test_many_runs_beside_each_other_are_read_one_after_the_other() -> None:
    runs = [run_of((10 * number, 10 * number + 9), size=100, name=f"run-{number}") for number in range(20)]

    assert len(plan_merge([], runs, [], Sizes(10**9, 1000)).ranges) == 1


def test_the_rows_of_a_group_lie_between_its_bounds() -> None:
    size = LEAST_TASK_BYTES // 80
    runs = [run_of(*((at + shift, at + shift + 10) for at in range(0, 160, 10)), size=size, name=f"{shift}") for shift in range(10)]
    plan = plan_merge([], runs, [], Sizes(LEAST_TASK_BYTES, 10**12))

    # Keys go from 0 to 169; the middle of where groups begin would be 80.
    assert [piece.high for piece in plan.ranges] == [key(85), None]


def test_rows_are_as_large_as_those_of_the_table() -> None:
    run = run_of(*((at, at + 1) for at in range(10)), rows=1000, size=LEAST_TASK_BYTES)
    stored = table_file(100, 109, size=LEAST_TASK_BYTES, rows=1000)
    small = table_file(100, 109, size=LEAST_TASK_BYTES // 10, rows=1000)
    sizes = Sizes(LEAST_TASK_BYTES, 10**12)

    assert len(plan_merge([stored], [run], [], sizes).ranges) == 10
    assert len(plan_merge([small], [run], [], sizes).ranges) == 1


def test_a_file_may_be_cut_and_is_read_by_each_part() -> None:
    stored = table_file(0, 100, size=LEAST_TASK_BYTES, rows=1000)
    run = run_of(*((at, at + 10) for at in range(0, 100, 10)), rows=1000, size=1)
    plan = plan_merge([stored], [run], [], Sizes(LEAST_TASK_BYTES, 10**12))

    assert len(plan.ranges) == 10
    assert all(piece.table == (stored,) for piece in plan.ranges)
    assert replaced(plan) == [stored.key]


bounds = st.tuples(st.integers(0, 60), st.integers(0, 6)).map(lambda pair: (pair[0], pair[0] + pair[1]))


@st.composite
def table_files(draw: st.DrawFn) -> list[SortedTableFile]:
    found = draw(st.lists(st.tuples(bounds, st.sampled_from([10, 249, TARGET])), max_size=12, unique_by=lambda item: item[0]))
    return [table_file(first, last, size) for (first, last), size in found]


@st.composite
def sorted_runs(draw: st.DrawFn, name: str) -> list[Run]:
    runs = []
    for number in range(draw(st.integers(0, 4))):
        edges = sorted(draw(st.lists(st.integers(0, 66), min_size=2, max_size=8)))
        runs.append(run_of(*pairwise(edges), size=draw(st.sampled_from([100, LEAST_TASK_BYTES])), name=f"{name}-{number}"))
    return runs


@given(table_files(), sorted_runs("run"), sorted_runs("dead"), st.sampled_from([150, 10**12]))
def test_a_plan_covers_each_key_once_and_reaches_into_no_file_that_stays(
    files: list[SortedTableFile], runs: list[Run], dead: list[Run], budget: int
) -> None:
    sizes = Sizes(TARGET, budget)
    plan = plan_merge(files, runs, dead, sizes)

    assert plan == plan_merge(files[::-1], runs, dead, sizes)
    assert sorted(ranges(plan)) == ranges(plan)
    assert all(one.high is not None and one.high <= other.low for one, other in pairwise(plan.ranges))
    merged = {(run.key, number) for run in runs for group in run.groups for number in range(group.first[1], group.last[1] + 1)}
    for _, number in merged:
        assert sum(holds(piece, key(number)) for piece in plan.ranges) == 1
    for file in files:
        inside = [key(number) for number in range(file.first[1], file.last[1] + 1)]
        touching = [piece for piece in plan.ranges if any(holds(piece, key) for key in inside)]
        if file in plan.replaced:
            assert all(sum(holds(piece, key) for piece in plan.ranges) == 1 for key in inside)
            assert all(file in piece.table for piece in touching)
        else:
            assert touching == []
            assert all(file not in piece.table for piece in plan.ranges)
    for piece in plan.ranges:
        for given_runs, parts in ((runs, piece.runs), (dead if piece.runs else [], piece.tombstones)):
            found = {part.key: part.groups for part in parts}
            for run in given_runs:
                for group in run.groups:
                    overlaps = group.last >= piece.low and (piece.high is None or group.first < piece.high)
                    assert (group in found.get(run.key, ())) == overlaps

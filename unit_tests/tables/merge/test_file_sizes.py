"""Sizes of a deduplicated table's files over many merges, and the part of the table that neighbouring updates rewrite.

Rows are blocks of keys without content, so a table of 10 GB is planned in seconds. Merges are the planner's, with the sizes it expects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from destination_s3_spark.tables.merge.plan import MergePlan, Run, Sizes, full_bytes, plan_merge
from destination_s3_spark.tables.merge.planning import LOOK_CLOSELY_BELOW
from destination_s3_spark.tables.merge.replaced_files import SortedTableFile
from destination_s3_spark.tables.runs.sorted_file import RowGroup
from destination_s3_spark.tables.updates.merged import FILES_OF_A_TABLE

Keys = npt.NDArray[np.int64]

MIB = 2**20
BLOCK = MIB // 8
"""Bytes of a final file for each key here."""
ROWS = 128
ARROW = 2.5
"""Times as much memory as bytes of a file."""
TARGET, LEAST = 128 * MIB, 8 * MIB
ALL = 10 * 1024 * MIB // BLOCK
LOAD = 100 * MIB // BLOCK


class SizedTable:
    """A deduplicated table of ascending files, each a list of keys."""

    def __init__(self) -> None:
        self.files: list[Keys] = []

    @property
    def keys(self) -> Keys:
        return np.concatenate(self.files) if self.files else np.empty(0, np.int64)

    def sizes(self) -> list[int]:
        return [len(file) * BLOCK for file in self.files]

    def target(self, new: int) -> int:
        return min(TARGET, max(LEAST, (sum(self.sizes()) + new * BLOCK) // FILES_OF_A_TABLE))

    def plan(self, load: Keys) -> MergePlan:
        files = [
            SortedTableFile(str(number), size, encoded(keys[0]), encoded(keys[-1]), len(keys) * ROWS, size)
            for number, (keys, size) in enumerate(zip(self.files, self.sizes(), strict=True))
        ]
        run = run_of(np.unique(load), files)
        return plan_merge(files, [run], [], Sizes(self.target(len(load)), 256 * MIB))

    def merge(self, load: Keys) -> None:
        plan = self.plan(load)
        replaced = {int(file.key) for file in plan.replaced}
        files = [keys for number, keys in enumerate(self.files) if number not in replaced]
        for piece in plan.ranges:
            keys = np.unique(np.concatenate([*(self.files[int(file.key)] for file in piece.table), load]))
            inside = keys[(keys >= decoded(piece.low)) & (keys < (2**62 if piece.high is None else decoded(piece.high)))]
            full = full_bytes(piece.rows * plan.row_bytes, self.target(len(load)))
            blocks = int(full / BLOCK) + 1
            files += [inside[start : start + blocks] for start in range(0, len(inside), blocks)]
        self.files = sorted(files, key=lambda keys: int(keys[0]))


def encoded(key: np.int64) -> bytes:
    return int(key).to_bytes(8, "big")


def decoded(bound: bytes) -> int:
    """The least key that is not below the bound."""
    return int.from_bytes(bound[:8].ljust(8, b"\0"), "big") + (len(bound) > 8)


def run_of(keys: Keys, files: Sequence[SortedTableFile]) -> Run:
    row_groups = [keys[start : start + 32] for start in range(0, len(keys), 32)]
    ends = [*(group[0] for group in row_groups[1:]), keys[-1]]
    groups = tuple(
        RowGroup(encoded(group[0]), encoded(end), len(group) * ROWS, int(len(group) * BLOCK * ARROW))
        for group, end in zip(row_groups, ends, strict=True)
    )
    run = Run("run", len(keys) * BLOCK, 0, groups)
    if len(keys) * LOOK_CLOSELY_BELOW * ROWS >= sum(file.rows for file in files):
        return run
    return run.divided(files, lambda number: pa.array([encoded(key) for key in row_groups[number]], pa.binary()))


def one_load(_: np.random.Generator) -> Iterator[Keys]:
    yield np.arange(ALL)


def ascending_loads(_: np.random.Generator) -> Iterator[Keys]:
    for start in range(0, ALL, LOAD):
        yield np.arange(start, start + LOAD)


def large_ascending_loads(_: np.random.Generator) -> Iterator[Keys]:
    for start in range(0, ALL, 10 * LOAD):
        yield np.arange(start, start + 10 * LOAD)


def ascending_loads_with_updates_of_recent_rows(chance: np.random.Generator) -> Iterator[Keys]:
    for start in range(0, ALL, LOAD):
        recent = chance.integers(max(0, start - 10 * LOAD), start + 1, LOAD // 3)
        yield np.concatenate([np.arange(start, start + LOAD), recent])


def ascending_loads_with_a_few_updates(chance: np.random.Generator) -> Iterator[Keys]:
    for start in range(0, ALL, LOAD):
        yield np.concatenate([np.arange(start, start + LOAD), chance.integers(0, start + 1, 10)])


def scattered_loads(chance: np.random.Generator) -> Iterator[Keys]:
    for _ in range(ALL // (5 * LOAD)):
        yield chance.integers(0, 2**50, 5 * LOAD)


BUILT = (
    one_load,
    ascending_loads,
    large_ascending_loads,
    ascending_loads_with_updates_of_recent_rows,
    ascending_loads_with_a_few_updates,
    scattered_loads,
)


@pytest.mark.parametrize("loads", BUILT, ids=lambda loads: str(loads.__name__))
def test_a_table_of_10_gb_has_few_small_files_and_neighbours_rewrite_little(loads: Callable[[np.random.Generator], Iterator[Keys]]) -> None:
    chance = np.random.default_rng(0)
    table = SizedTable()
    for load in loads(chance):
        table.merge(load)

    keys, sizes = table.keys, table.sizes()
    assert len(keys) > 0.95 * ALL
    assert max(sizes) <= 1.5 * TARGET
    assert sum(size < TARGET / 2 for size in sizes) <= 64
    part = len(keys) // 100
    shares = []
    for start in chance.integers(0, len(keys) - part, 40):
        rewritten = sum(file.bytes for file in table.plan(keys[start : start + part]).replaced)
        shares.append(rewritten / sum(sizes))
    assert max(shares) <= 0.03

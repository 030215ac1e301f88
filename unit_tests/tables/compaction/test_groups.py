"""Which small files are joined, and how often a row is rewritten over the years."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from destination_s3_spark.chain.files import FileEntry, FileKind
from destination_s3_spark.tables.compaction.groups import GROWTH, LEAST_FILES, groups
from unit_tests.cases import each
from unit_tests.sampling import examples

KIB, MIB = 2**10, 2**20
TARGET = 128 * MIB


def entries(sizes: Iterable[int], rows: int = 10, schema: int = 0, start: int = 0, folder: str = "t") -> list[FileEntry]:
    return [
        FileEntry(FileKind.FINAL, f"{folder}/{start + at * rows}", rows, size, schema_id=schema, generation_id=1, offset=start + at * rows)
        for at, size in enumerate(sizes)
    ]


def test_a_load_of_many_files_becomes_files_of_the_target() -> None:
    made = [sum(file.bytes for file in group) for group in groups(entries([11 * MIB] * 48), TARGET)]
    assert all(TARGET / 2 <= size <= 1.5 * TARGET for size in made)
    assert sum(made) == 48 * 11 * MIB


def test_a_few_small_files_stay() -> None:
    assert groups(entries([100 * KIB] * (LEAST_FILES - 1)), TARGET) == []
    assert groups(entries([TARGET // 2] * 100), TARGET) == []


def test_enough_small_files_are_joined() -> None:
    files = entries([100 * KIB] * LEAST_FILES)
    assert groups(files, TARGET) == [tuple(files)]
    assert groups(files[::-1], TARGET) == [tuple(files)]


def test_a_large_file_is_not_rewritten_for_the_sake_of_small_ones() -> None:
    files = entries([4 * MIB, *[10 * KIB] * (LEAST_FILES - 1)])
    assert groups(files, TARGET) == []
    files = entries([4 * MIB, *[10 * KIB] * LEAST_FILES])
    assert groups(files, TARGET) == [tuple(files[1:])]


@each(
    "others",
    [
        entries([KIB] * 10, start=100, schema=1),  # another schema
        entries([KIB] * 10, start=101),  # behind a gap
        entries([KIB] * 10, start=100, folder="u"),  # in another folder
        [FileEntry(FileKind.FINAL, "no offset", 10, KIB, schema_id=0, generation_id=1)] * 10,
    ],
)
def test_only_neighbours_of_a_kind_are_joined(others: list[FileEntry]) -> None:
    assert groups([*entries([KIB] * 10), *others], TARGET) == []


def test_files_with_raw_rows_are_joined_apart_from_those_without() -> None:
    files = entries([KIB] * 2 * LEAST_FILES)
    with_raw = set(files[:LEAST_FILES])
    assert groups(files, TARGET, with_raw.__contains__) == [tuple(files[:LEAST_FILES]), tuple(files[LEAST_FILES:])]


@examples(60)
@given(st.lists(st.integers(1, 200 * MIB), max_size=200), st.sampled_from([MIB, TARGET, 4096 * MIB]))
def test_groups_are_whole_apart_and_no_larger_than_they_may_be(sizes: list[int], target: int) -> None:
    files = entries(sizes)
    found = groups(files, target)
    taken = [file for group in found for file in group]
    assert len(taken) == len(set(taken))
    for group in found:
        at = files.index(group[0])
        assert list(group) == files[at : at + len(group)]
        size = sum(file.bytes for file in group)
        assert len(group) > 1
        assert size <= 1.5 * target
        assert size >= target / 2 or (len(group) >= LEAST_FILES and size >= GROWTH * max(file.bytes for file in group))


@each("seed", range(3))
def test_a_year_of_hourly_syncs_leaves_few_files_and_rewrites_a_row_a_few_times(seed: int) -> None:
    chance = random.Random(seed)
    files: list[FileEntry] = []
    rewritten: Counter[int] = Counter()
    most = 0
    for sync in range(8760):
        size = int(chance.choice([2, 20, 100, 2000]) * KIB * chance.uniform(0.5, 2))
        files.append(entries([size], start=sync * 10)[0])
        for group in groups(files, TARGET):
            first = group[0]
            joined = FileEntry(
                first.kind,
                first.key,
                sum(file.rows for file in group),
                sum(file.bytes for file in group),
                schema_id=0,
                generation_id=1,
                offset=first.offset,
            )
            rewritten.update(row for file in group for row in range((file.offset or 0), (file.offset or 0) + file.rows, 10))
            at = files.index(first)
            files[at : at + len(group)] = [joined]
        most = max(most, sum(file.bytes < TARGET / 2 for file in files))
    assert sum(file.rows for file in files) == 87600
    assert most <= 6 * LEAST_FILES
    assert max(rewritten.values()) <= 5
    assert sum(rewritten.values()) / 8760 <= 4

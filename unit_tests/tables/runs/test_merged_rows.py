from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from destination_s3_spark.schema.airbyte_type import Field, Scalar
from destination_s3_spark.tables.runs.keys import CURSOR, DELETED, KEY, OFFSET, CdcDeletion, KeySpec, encode_key
from destination_s3_spark.tables.runs.merged_rows import RowStream, complete_rows, merged_rows
from destination_s3_spark.tables.runs.sorted_file import MergeForm
from destination_s3_spark.tables.runs.winners import EXTRACTED_AT, sorted_by_key
from unit_tests.sampling import examples
from unit_tests.tables import reference_merge

_FIELDS = (Field("a", "a", Scalar.STRING), Field("b", "b", Scalar.INTEGER))
FORM = MergeForm(pa.schema([]), KeySpec(_FIELDS[:1], _FIELDS[1], None, CdcDeletion.HARD))


@pytest.fixture(scope="module")
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as pool:
        yield pool


def source(versions: Sequence[Any]) -> pa.Table:
    """The versions as a sorted source in merge form."""
    return sorted_by_key(
        pa.table(
            {
                "number": pa.array([version.number for version in versions], pa.int64()),
                EXTRACTED_AT: pa.array([version.extracted_at for version in versions], pa.timestamp("ms", "UTC")),
                KEY: encode_key([pa.array([version.key[0] for version in versions], pa.string())], [Scalar.STRING]),
                CURSOR: pa.array([version.cursor for version in versions], pa.int64()),
                DELETED: pa.array([version.deleted for version in versions], pa.bool_()),
                OFFSET: pa.array([version.offset for version in versions], pa.int64()),
            }
        )
    )


def portions(table: pa.Table, rows: int) -> Iterator[pa.Table]:
    return (table.slice(start, rows) for start in range(0, len(table), rows))


def merged(tables: Sequence[pa.Table], rows: Sequence[int], pool: ThreadPoolExecutor) -> list[pa.Table]:
    return list(merged_rows([RowStream(portions(*pair), pool) for pair in zip(tables, rows, strict=True)], FORM))


KEYS = st.tuples(st.none() | st.sampled_from(["", "a", "a\0", "ab", "b", "z" * 70]))
Row = tuple[Any, Any, int, bool]
VERSION = st.tuples(KEYS, st.none() | st.integers(0, 2), st.integers(0, 1), st.booleans())


@examples(300)
@given(st.lists(st.tuples(st.lists(VERSION, max_size=12), st.integers(1, 5)), max_size=4))
def test_the_winners_do_not_depend_on_how_rows_are_spread_and_read(pool: ThreadPoolExecutor, sources: list[tuple[list[Row], int]]) -> None:
    numbers = iter(range(100))
    histories = [[reference_merge.Version(number := next(numbers), *row, number) for row in rows] for rows, _ in sources]
    tables = merged([source(history) for history in histories], [rows for _, rows in sources], pool)

    found = [number for table in tables for number in table["number"].to_pylist()]
    expected = reference_merge.surviving([version for history in histories for version in history])
    assert found == [version.number for version in expected]
    assert all(len(table) for table in tables)


@given(st.lists(st.tuples(st.lists(VERSION, max_size=12), st.integers(1, 5)), max_size=4), st.sampled_from([1, 500, 2**20]))
def test_complete_rows_are_all_rows_in_tables_of_that_size_with_those_of_a_key_together(
    pool: ThreadPoolExecutor, sources: list[tuple[list[Row], int]], size: int
) -> None:
    numbers = iter(range(100))
    tables = [source([reference_merge.Version(number := next(numbers), *row, number) for row in rows]) for rows, _ in sources]
    streams = [RowStream(portions(table, rows), pool) for table, (_, rows) in zip(tables, sources, strict=True)]
    found = list(complete_rows(streams, size))

    assert sorted(number for table in found for number in table["number"].to_pylist()) == sorted(
        number for table in tables for number in table["number"].to_pylist()
    )
    assert all(max(before[KEY].to_pylist()) < min(after[KEY].to_pylist()) for before, after in pairwise(found))
    assert all(table.nbytes >= size for table in found[:-1])


def test_a_key_with_more_versions_than_fit_is_reduced_while_it_is_read(pool: ThreadPoolExecutor) -> None:
    history = [reference_merge.Version(number, ("k",), number * 7919 % 5003, 0, False, 0) for number in range(5003)]
    produced = 0
    streams: list[RowStream] = []
    waiting: list[int] = []

    def counted(table: pa.Table) -> Iterator[pa.Table]:
        nonlocal produced
        for portion in portions(table, 10):
            waiting.append(produced - sum(stream.taken for stream in streams))
            produced += len(portion)
            yield portion

    streams.append(RowStream(counted(source(history)), pool))
    [table] = merged_rows(streams, FORM)

    assert table[CURSOR].to_pylist() == [5002]
    assert streams[0].taken == produced == 5003
    assert max(waiting) <= 10


def test_each_table_goes_on_behind_the_one_before(pool: ThreadPoolExecutor) -> None:
    histories = [[reference_merge.Version(number, (f"{number:05}",), 0, 0, False, 0) for number in range(of, 1000, 3)] for of in range(3)]
    tables = merged([source(history) for history in histories], [7, 50, 1000], pool)

    assert len(tables) > 20
    assert all(one["number"][-1].as_py() < other["number"][0].as_py() for one, other in pairwise(tables))
    assert sum(map(len, tables)) == 1000


def test_a_source_is_not_read_before_its_first_key_is_reached(pool: ThreadPoolExecutor) -> None:
    read = [0] * 10
    streams: list[RowStream] = []

    def counted(of: int, table: pa.Table) -> Iterator[pa.Table]:
        for portion in portions(table, 10):
            read[of] += len(portion)
            yield portion

    for of in range(10):
        table = source([reference_merge.Version(number, (f"{number:05}",), 0, 0, False, 0) for number in range(100 * of, 100 * of + 100)])
        streams.append(RowStream(counted(of, table), pool, table[KEY][0].as_py()))
    seen = 0
    for table in merged_rows(reversed(streams), FORM):
        begun = [of for of in range(10) if read[of]]
        assert begun == [*range(len(begun))]
        assert len(begun) <= seen // 100 + 2
        assert table["number"].to_pylist() == [*range(seen, seen + len(table))]
        seen += len(table)

    assert seen == 1000


def test_many_sources_make_few_rounds(pool: ThreadPoolExecutor) -> None:
    histories = [[reference_merge.Version(number, (f"{number:05}",), 0, 0, False, 0) for number in range(of, 4000, 40)] for of in range(40)]
    tables = merged([source(history) for history in histories], [10] * 40, pool)

    # Each source has ten portions; a round for each of these would be 400.
    assert len(tables) <= 12
    assert sum(map(len, tables)) == 4000


def test_what_reading_raises_comes_through(pool: ThreadPoolExecutor) -> None:
    def failing() -> Iterator[pa.Table]:
        yield source([])
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        list(merged_rows([RowStream((table for table in failing() if len(table)), pool)], FORM))


def test_few_rows_of_a_large_row_group_do_not_keep_it_in_memory(pool: ThreadPoolExecutor) -> None:
    whole = source([reference_merge.Version(number, (f"{number:05}",), 0, 0, False, 0) for number in range(10_000)])
    stream = RowStream(iter([whole.slice(5000, 10)]), pool)
    stream.start()

    assert stream.fill()
    rows = stream.take(stream.last)
    assert rows["number"].to_pylist() == list(range(5000, 5010))
    assert rows.get_total_buffer_size() < whole.nbytes / 100


def test_without_sources_there_is_nothing() -> None:
    assert list(merged_rows([], FORM)) == []

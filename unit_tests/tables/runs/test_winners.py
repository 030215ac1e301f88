from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import permutations
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from destination_s3_spark.schema.airbyte_type import AirbyteType, Field, Scalar
from destination_s3_spark.schema.arrow import arrow_type
from destination_s3_spark.tables.runs.keys import CURSOR, DELETED, KEY, OFFSET, CdcDeletion, KeySpec, encode_key
from destination_s3_spark.tables.runs.winners import (
    BURIED_OFFSET,
    DEDUPLICATED,
    EXTRACTED_AT,
    STORED_OFFSET,
    key_order,
    sorted_by_key,
    winners,
)
from unit_tests.cases import each
from unit_tests.sampling import examples
from unit_tests.tables import reference_merge

CURSORS = {
    Scalar.STRING: st.sampled_from(["", "a", "a\0", "b", "é", "\U0001f600", "\uffff"]),
    Scalar.INTEGER: st.sampled_from([-(2**63), -1, 0, 1, 2**63 - 1]),
    Scalar.NUMBER: st.sampled_from([float("-inf"), -1.5, -0.0, 0.0, 2.5, float("inf"), float("nan")]),
    Scalar.BOOLEAN: st.booleans(),
    Scalar.DATE: st.dates(),
    Scalar.TIME_WITHOUT_TIMEZONE: st.times(),
    Scalar.TIMESTAMP_WITH_TIMEZONE: st.sampled_from([datetime(1960, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC)]),
}
KEYS = st.tuples(st.none() | st.integers(-1, 1), st.none() | st.sampled_from(["", "\0", "a"]))
Versions = list[Any]


def by(cursor: Scalar | None, *snapshots: int) -> KeySpec:
    key = (Field("a", "a", Scalar.INTEGER), Field("b", "b", Scalar.STRING))
    return KeySpec(key, None if cursor is None else Field("c", "c", cursor), None, CdcDeletion.HARD, snapshots=snapshots)


def merge_form(versions: Sequence[Any], cursor: AirbyteType | None, chunk_rows: int = 5) -> pa.Table:
    """The versions as rows to be merged, in chunks; the payload is each version's number and a nested column."""
    columns = {
        "number": pa.array([version.number for version in versions], pa.int64()),
        "nested": pa.array([{"of": [str(version.number)]} for version in versions], pa.struct([("of", pa.list_(pa.string()))])),
        EXTRACTED_AT: pa.array([version.extracted_at for version in versions], pa.timestamp("ms", "UTC")),
        KEY: encode_key(
            [pa.array([v.key[0] for v in versions], pa.int64()), pa.array([v.key[1] for v in versions], pa.string())],
            [Scalar.INTEGER, Scalar.STRING],
        ),
        DELETED: pa.array([version.deleted for version in versions], pa.bool_()),
        OFFSET: pa.array([version.offset for version in versions], pa.int64()),
    }
    if cursor is not None:
        columns[CURSOR] = pa.array([version.cursor for version in versions], arrow_type(cursor))
    table = pa.table(columns)
    return pa.Table.from_batches(table.to_batches(chunk_rows), table.schema)


@st.composite
def histories(draw: Any) -> tuple[KeySpec, list[tuple[Any, ...]]]:
    cursor = draw(st.none() | st.sampled_from(list(CURSORS)))
    value = st.none() if cursor is None else st.none() | CURSORS[cursor]
    offset = st.sampled_from([STORED_OFFSET]) | st.integers(0, 9)
    snapshots = sorted(draw(st.sets(st.integers(0, 3))))
    return by(cursor, *snapshots), draw(st.lists(st.tuples(KEYS, value, st.integers(0, 2), st.booleans(), offset), max_size=25))


@examples(500)
@given(histories(), st.integers(1, 8))
def test_the_winners_are_those_of_the_reference(history: tuple[KeySpec, list[tuple[Any, ...]]], chunk_rows: int) -> None:
    spec, rows = history
    cursor = None if spec.cursor is None else spec.cursor.type
    versions = [reference_merge.Version(number, *row) for number, row in enumerate(rows)]
    found = winners(merge_form(versions, cursor, chunk_rows), spec)
    expected = reference_merge.surviving(versions, spec.snapshots)
    assert found["number"].to_pylist() == [version.number for version in expected]
    whole = ["nested", KEY, DELETED, OFFSET]
    assert found.select(whole).equals(merge_form(expected, cursor).select(whole))


@pytest.fixture
def version() -> Any:
    def make(number: int, cursor: Any, extracted_at: int, offset: int, deleted: bool = False) -> Any:
        return reference_merge.Version(number, (1, None), cursor, extracted_at, deleted, offset)

    return make


@each(
    ("winner", "loser"),
    [
        ((2, 0, 0), (1, 9, 9)),  # by the cursor
        ((None, 1, 0), (None, 0, 9)),  # null cursors
        ((-5, 0, 0), (None, 9, 9)),  # a null cursor
        ((1, 1, 0), (1, 0, 9)),  # by the time of extraction
        ((1, 1, 4), (1, 1, 3)),  # by arrival
        ((1, 1, STORED_OFFSET), (1, 1, 7)),  # a tie keeps the table's row
        ((2, 1, 0), (1, 1, STORED_OFFSET)),  # newer than the table's row
        ((1, 2, 0), (1, 1, STORED_OFFSET)),  # read later
    ],
)
def test_one_order_decides(version: Any, winner: tuple[Any, ...], loser: tuple[Any, ...]) -> None:
    rows = [version(1, *winner), version(2, *loser)]
    for order in (rows, rows[::-1]):
        assert winners(merge_form(order, Scalar.INTEGER), by(Scalar.INTEGER))["number"].to_pylist() == [1]


def test_a_tombstone_of_the_table_outlives_a_late_older_row(version: Any) -> None:
    found = winners(merge_form([version(1, 5, 5, 0), version(2, 6, 4, BURIED_OFFSET, deleted=True)], Scalar.INTEGER), by(Scalar.INTEGER))
    assert found.select([DELETED, OFFSET]).to_pylist() == [{DELETED: True, OFFSET: BURIED_OFFSET}]


@each("offset", [STORED_OFFSET, DEDUPLICATED + 7])
@each("tombstone", [(None, 9), (None, 5)])
def test_a_tombstone_never_removes_the_row_that_the_table_has_beside_it(version: Any, tombstone: tuple[Any, int], offset: int) -> None:
    rows = [version(1, *tombstone, BURIED_OFFSET, deleted=True), version(2, None, 5, offset), version(3, None, 1, 0)]
    other = reference_merge.Version(4, (2, None), None, 1, True, BURIED_OFFSET)
    for order in permutations([*rows, other]):
        assert winners(merge_form(order, Scalar.INTEGER), by(Scalar.INTEGER))["number"].to_pylist() == [2, 4]


def test_rows_since_a_snapshot_without_cursors_outrank_all_older_ones(version: Any) -> None:
    changed, deleted = version(1, 9, 5, STORED_OFFSET), version(1, 9, 6, BURIED_OFFSET, deleted=True)
    again, change, late = version(2, None, 8, 0), version(3, 3, 9, 1), version(4, 4, 6, 2)
    spec = by(Scalar.INTEGER, 7)
    for before in (changed, deleted):
        for order in permutations([before, again, late]):
            assert winners(merge_form(order, Scalar.INTEGER), spec)["number"].to_pylist() == [2]
        for order in permutations([before, again, change]):
            assert winners(merge_form(order, Scalar.INTEGER), spec)["number"].to_pylist() == [3]


def test_without_a_cursor_the_time_of_extraction_decides(version: Any) -> None:
    rows = [version(1, None, 5, 3), version(2, None, 6, 2), version(3, None, 6, 1)]
    assert winners(merge_form(rows, None), by(None))["number"].to_pylist() == [2]


def test_no_rows_have_no_winners() -> None:
    empty = merge_form([], Scalar.STRING)
    assert winners(empty, by(Scalar.STRING)).equals(empty)
    assert sorted_by_key(empty).equals(empty)


def test_one_key_with_many_versions_has_one_winner() -> None:
    versions = [reference_merge.Version(number, (1, "a"), number * 7919 % 10_007, 0, False, 0) for number in range(10_007)]
    found = winners(merge_form(versions, Scalar.INTEGER, 1000), by(Scalar.INTEGER))
    assert found[CURSOR].to_pylist() == [10_006]


def test_sorting_keeps_the_order_of_arrival_inside_a_key() -> None:
    versions = [reference_merge.Version(number, (number % 3, None), None, 0, False, 9 - number) for number in range(9)]
    assert sorted_by_key(merge_form(versions, None, 2))["number"].to_pylist() == [0, 3, 6, 1, 4, 7, 2, 5, 8]
    assert key_order(pa.array([b"b", b"", b"b", b"a\0", b"a"])).to_pylist() == [1, 4, 3, 0, 2]

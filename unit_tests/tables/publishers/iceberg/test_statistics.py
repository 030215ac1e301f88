"""Statistics in Iceberg's manifests: readers skip the files that they can, and no other."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from io import BytesIO
from math import inf
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.conversions import from_bytes
from pyiceberg.expressions import (
    BooleanExpression,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    IsNull,
    LessThan,
    LessThanOrEqual,
    NotNull,
    Reference,
    StartsWith,
)
from pyiceberg.expressions.visitors import _InclusiveMetricsEvaluator
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.types import PrimitiveType

from destination_s3_spark.formats.file_statistics import UNBOUNDED, FileStatistics
from destination_s3_spark.formats.parquet_statistics import footer_statistics
from destination_s3_spark.schema.field_ids import first_ids
from destination_s3_spark.tables.publishers.iceberg import columns as iceberg_columns
from destination_s3_spark.tables.publishers.iceberg import table as iceberg_table
from destination_s3_spark.tables.publishers.iceberg.columns import metrics
from unit_tests.cases import each
from unit_tests.sampling import examples
from unit_tests.schema.of_arrow import fields_of
from unit_tests.tables.publishers.iceberg.lake import MICROS, Lake

DAY = timedelta(days=1)
MOMENT = datetime(2026, 11, 20, 12, 0, 0, 123456, tzinfo=UTC)
LONG = "ü" * 31 + "zz"


def iceberg_schema(columns: pa.Schema) -> Schema:
    return iceberg_columns.iceberg_schema(fields_of(columns), first_ids(columns))


def described(kind: pa.DataType, values: Sequence[Any]) -> dict[str, Any]:
    """Metrics of a Parquet file with one column, by way of the chain's JSON."""
    columns = pa.schema([("c", kind)])
    body = BytesIO()
    pq.write_table(pa.table({"c": pa.array(values, kind)}), body)
    statistics = footer_statistics(pq.ParquetFile(body).metadata)
    recorded = msgspec.json.decode(msgspec.json.encode(statistics), type=FileStatistics)
    return metrics(iceberg_schema(columns), recorded, len(values))


def bounds(kind: pa.DataType, found: dict[str, Any]) -> tuple[Any, Any]:
    typed = iceberg_schema(pa.schema([("c", kind)])).find_type("c")
    assert isinstance(typed, PrimitiveType)
    return from_bytes(typed, found["lower_bounds"][1]), from_bytes(typed, found["upper_bounds"][1])


@each(
    ("kind", "values", "expected"),
    [
        (pa.int64(), [3, None, -(2**63), 2**63 - 1], (-(2**63), 2**63 - 1)),
        (pa.bool_(), [True, None], (True, True)),
        (pa.float64(), [1.5, -2.5], (-2.5, 1.5)),
        (pa.float64(), [inf, -inf], (-inf, inf)),
        (pa.date32(), [date(1, 1, 1), date(9999, 12, 31)], ((date.min - date(1970, 1, 1)).days, (date.max - date(1970, 1, 1)).days)),
        (MICROS, [MOMENT], (1_795_176_000_123_000, 1_795_176_000_124_000)),
        (pa.string(), ["b", "a", ""], ("", "b")),
        (pa.string(), [LONG], (LONG[:32], LONG[:32] + "\U0010ffff")),
        (pa.decimal128(12, 2), [Decimal("-0.10"), Decimal("9999999999.99")], (Decimal("-0.10"), Decimal("9999999999.99"))),
        (pa.decimal128(38, 9), [Decimal("0.000000001")], (Decimal(0), Decimal("0.0001"))),
        (pa.decimal128(38, 0), [Decimal(123456789012345)], (Decimal(123456789012345), Decimal(123456789012345))),
    ],
)
def test_bounds_lie_at_or_beyond_the_values(kind: pa.DataType, values: list[Any], expected: tuple[Any, Any]) -> None:
    assert bounds(kind, described(kind, values)) == expected


def test_zeros_of_both_signs_lie_between_the_bounds() -> None:
    """Java compares -0.0 as less than 0.0."""
    for zeros in ([0.0], [-0.0], [-0.0, 0.0]):
        assert list(map(str, bounds(pa.float64(), described(pa.float64(), zeros)))) == ["-0.0", "0.0"]


def test_a_column_without_values_has_counts_alone() -> None:
    found = described(pa.int64(), [None, None])
    assert found == {"value_counts": {1: 2}, "null_value_counts": {1: 2}}


@each("statistics", [None, UNBOUNDED])
def test_a_file_without_statistics_has_no_metrics(statistics: FileStatistics | None) -> None:
    assert metrics(iceberg_schema(pa.schema([("c", pa.int64())])), statistics, 3) == {}


def test_columns_and_members_that_the_file_lacks_are_unknown() -> None:
    columns = pa.schema([("a", pa.int64()), ("s.z", pa.int64()), ("s", pa.struct([("x", pa.string()), ("y", pa.int64())]))])
    found = metrics(iceberg_schema(columns), FileStatistics({"s": {"x": "m"}}, {"s": {"x": "n"}}, {"s": {"x": 1}}), 3)
    member = iceberg_schema(columns).find_field("s.x").field_id
    bounds = {"lower_bounds": {member: b"m"}, "upper_bounds": {member: b"n"}}
    assert found == {"value_counts": {member: 3}, "null_value_counts": {member: 1}, **bounds}


COMPARISONS: Sequence[tuple[Any, Callable[[Any, Any], Any]]] = [
    (EqualTo, operator.eq),
    (LessThan, operator.lt),
    (LessThanOrEqual, operator.le),
    (GreaterThan, operator.gt),
    (GreaterThanOrEqual, operator.ge),
]
VALUES: Mapping[pa.DataType, st.SearchStrategy[Any]] = {
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.float64(): st.floats(allow_nan=False),
    pa.bool_(): st.booleans(),
    pa.string(): st.text(st.characters(exclude_categories=["Cs"]), max_size=40) | st.text("a\U0010ffff", min_size=30, max_size=40),
    pa.date32(): st.dates(),
    MICROS: st.datetimes(max_value=datetime(9999, 12, 31), timezones=st.just(UTC)),
    pa.decimal128(12, 2): st.decimals(min_value=-(10**10) + 1, max_value=10**10 - 1, places=2),
    pa.decimal128(38, 9): st.decimals(min_value=-(10**14), max_value=10**14, places=9),
}


@st.composite
def columns(draw: Callable[..., Any]) -> tuple[pa.DataType, list[Any], Any]:
    """A type, the values of a file, and a value to look for."""
    kind = draw(st.sampled_from(list(VALUES)))
    values = draw(st.lists(st.none() | VALUES[kind], min_size=1, max_size=6))
    present = [value for value in values if value is not None]
    return kind, values, draw(VALUES[kind] | st.sampled_from(present) if present else VALUES[kind])


@examples(300)
@given(columns())
def test_a_file_with_a_row_is_never_skipped(column: tuple[pa.DataType, list[Any], Any]) -> None:
    kind, values, wanted = column
    schema = iceberg_schema(pa.schema([("c", kind)]))
    file = DataFile.from_args(record_count=len(values), **described(kind, values))

    def opened(condition: BooleanExpression) -> bool:
        return _InclusiveMetricsEvaluator(schema, condition).eval(file)

    for condition, compare in COMPARISONS:
        if any(value is not None and compare(value, wanted) for value in values):
            assert opened(condition("c", wanted)), condition
    if kind == pa.string() and any(value is not None and value.startswith(wanted) for value in values):
        assert opened(StartsWith(term=Reference("c"), value=wanted))
    assert opened(IsNull(term=Reference("c"))) == (None in values)
    assert opened(NotNull(term=Reference("c"))) == any(value is not None for value in values)


EVERY_TYPE = [
    ("id", pa.int64()),
    ("text", pa.string()),
    ("number", pa.float64()),
    ("price", pa.decimal128(12, 2)),
    ("day", pa.date32()),
    ("moment", MICROS),
    ("person", pa.struct([("age", pa.int64())])),
]


def row(number: int) -> dict[str, Any]:
    return {
        "id": number,
        "text": f"{number:04d}",
        "number": number / 2,
        "price": Decimal(number),
        "day": date(2026, 1, 1) + number * DAY,
        "moment": MOMENT + number * DAY,
        "person": {"age": number},
    }


CONDITIONS = [
    "id = 12",
    "id > 5 and id < 15",
    "text = '0012'",
    "text like '001%'",
    "number = 6.0",
    "price = 12.00",
    "day = '2026-01-13'",
    "moment = '2026-12-02T12:00:00.123456+00:00'",
    "person.age = 12",
]


def opened(lake: Lake, condition: str) -> int:
    return sum(1 for _ in lake.iceberg().scan(condition).plan_files())


def test_a_filter_opens_the_files_that_it_needs(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(iceberg_table, "MANIFESTS_TO_MERGE", 2)
    for sync_id in range(3):
        lake.synced(sync_id + 1, EVERY_TYPE, *(row(number) for number in range(10 * sync_id, 10 * sync_id + 10)))

    assert {condition: opened(lake, condition) for condition in CONDITIONS} == {
        condition: 2 if condition == "id > 5 and id < 15" else 1 for condition in CONDITIONS
    }
    assert opened(lake, "_airbyte_extracted_at < '2000-01-01T00:00:00+00:00'") == 0
    assert lake.iceberg().scan("id = 12", selected_fields=("id",)).to_arrow()["id"].to_pylist() == [12]


def test_a_file_with_a_value_that_has_no_bound_is_skipped_by_its_other_columns(lake: Lake) -> None:
    columns = [("id", pa.int64()), ("price", pa.decimal128(38, 2))]
    for sync_id, price in enumerate((Decimal(10**20), Decimal(5))):
        lake.synced(sync_id + 1, columns, {"id": sync_id, "price": price}, {"id": sync_id, "price": None})

    conditions = {"id = 0": 1, "id = 1": 1, "price = 5.00": 2, f"price = {10**20}.00": 1, "price is null": 2}
    assert {condition: opened(lake, condition) for condition in conditions} == conditions
    found = lake.iceberg().scan(f"price = {10**20}.00", selected_fields=("id",)).to_arrow()
    assert found["id"].to_pylist() == [0]


def test_files_of_earlier_columns_are_still_skipped(lake: Lake) -> None:
    lake.synced(1, EVERY_TYPE, row(1))
    lake.synced(2, [("new", pa.int64()), *EVERY_TYPE], row(20) | {"new": 1}, schema_id=1)
    writer = lake.session(3)
    schema = lake.set_schema(writer, 1, [("new", pa.int64()), *EVERY_TYPE])
    lake.append(writer, schema, row(30) | {"new": 2})
    writer.close()

    assert [opened(lake, condition) for condition in ("id = 1", "id = 20", "new = 2", "id > 1")] == [1, 1, 2, 2]
    assert {found["id"]: found["new"] for found in lake.rows("id", "new")} == {1: None, 20: 1, 30: 2}


@pytest.fixture
def lake(make_table: Callable[..., Any], tmp_path: Path) -> Lake:
    return Lake(make_table(), tmp_path)

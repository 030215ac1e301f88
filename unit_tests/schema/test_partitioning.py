"""Partitions of rows: every row is in one, and its folder names its value."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from destination_s3_spark.schema.airbyte_type import Array, Decimal, Field, Object, Scalar, SchemalessObject, Union
from destination_s3_spark.schema.arrow import arrow_type
from destination_s3_spark.schema.partitioning import (
    LONGEST_TEXT,
    NULL_PARTITION,
    NotPartitionable,
    Partitioning,
    PartitionSpec,
    Transform,
    default_name,
    require_partitionable,
)
from unit_tests.cases import each

TIMESTAMPS = st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999_999), timezones=st.just(UTC))
VALUES: dict[Scalar, st.SearchStrategy[Any]] = {
    Scalar.DATE: st.dates(),
    Scalar.TIMESTAMP_WITH_TIMEZONE: TIMESTAMPS,
    Scalar.TIMESTAMP_WITHOUT_TIMEZONE: TIMESTAMPS,
    Scalar.BOOLEAN: st.booleans(),
    Scalar.INTEGER: st.integers(-(2**63), 2**63 - 1),
    Scalar.STRING: st.text(max_size=60) | st.just(NULL_PARTITION),
}
FORMATS = {Transform.YEAR: "{:%Y}", Transform.MONTH: "{:%Y-%m}", Transform.DAY: "{:%Y-%m-%d}", Transform.HOUR: "{:%Y-%m-%d-%H}"}


def allowed() -> list[tuple[Scalar, Transform]]:
    found = []
    for kind in VALUES:
        for transform in Transform:
            try:
                require_partitionable(kind, transform)
            except NotPartitionable:
                continue
            found.append((kind, transform))
    return found


def partitioning(kind: Scalar, transform: Transform) -> Partitioning:
    return Partitioning(PartitionSpec("c", transform, "c_x"), Field("c", "c", kind))


def expected(value: Any, transform: Transform) -> str:
    """The value of the partition, said again in Python's own terms. A text has several spellings, so only its meaning is compared."""
    if value is None or value == "":
        return NULL_PARTITION
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | str):
        return str(value)
    if transform is Transform.IDENTITY:
        return str(value.isoformat())
    year, rest = f"{value.year:04}", FORMATS[transform].removeprefix("{:%Y").removesuffix("}")
    return year + value.strftime(rest)


@given(data=st.data(), kind_and_transform=st.sampled_from(allowed()))
def test_rows_in_are_rows_out_and_each_is_in_its_partition(data: st.DataObject, kind_and_transform: tuple[Scalar, Transform]) -> None:
    kind, transform = kind_and_transform
    some = data.draw(st.lists(VALUES[kind], min_size=1, max_size=6))
    values = data.draw(st.lists(st.sampled_from(some) | st.none(), max_size=30))
    rows = pa.record_batch({"n": pa.array(range(len(values))), "c": pa.array(values, arrow_type(kind))})
    parts = list(partitioning(kind, transform).split(rows)) if values else []
    assert sorted(number for _, part in parts for number in part["n"].to_pylist()) == list(range(len(values)))
    assert len({value for value, _ in parts}) == len(parts)
    for value, part in parts:
        assert part.schema == rows.schema
        assert part["n"].to_pylist() == sorted(part["n"].to_pylist())
        for number, one in zip(part["n"].to_pylist(), part["c"].to_pylist(), strict=True):
            assert one == values[number]
            if isinstance(one, str) and one:
                assert value.isascii()
                assert not set(value) - set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.%")
                assert len(value) <= LONGEST_TEXT
                assert value == NULL_PARTITION or unquote(value) == one
                continue
            assert value == expected(one, transform)


def test_times_before_1970_and_after_9999_have_partitions() -> None:
    days = pa.array([-1, -719_162, 2_932_896, 2_932_897, None], pa.date32())
    rows = pa.record_batch({"c": days})
    found = [value for value, _ in partitioning(Scalar.DATE, Transform.DAY).split(rows)]
    assert found == ["1969-12-31", "0001-01-01", "9999-12-31", "10000-01-01", NULL_PARTITION]
    before = datetime(1970, 1, 1, tzinfo=UTC) - timedelta(microseconds=1)
    rows = pa.record_batch({"c": pa.array([before], pa.timestamp("us", "UTC"))})
    found = [next(partitioning(Scalar.TIMESTAMP_WITH_TIMEZONE, transform).split(rows))[0] for transform in list(Transform)[1:]]
    assert found == ["1969", "1969-12", "1969-12-31", "1969-12-31-23"]


def test_years_before_year_1_have_four_digits() -> None:
    """With fewer, Spark takes the folders of a table for texts, and refuses them where it is told that they are dates."""
    rows = pa.record_batch({"c": pa.array([-735_160, -719_529], pa.date32())})
    found = {transform: [value for value, _ in partitioning(Scalar.DATE, transform).split(rows)] for transform in list(Transform)[:4]}
    assert found == {
        Transform.IDENTITY: ["-0043-03-15", "-0001-12-31"],
        Transform.YEAR: ["-0043", "-0001"],
        Transform.MONTH: ["-0043-03", "-0001-12"],
        Transform.DAY: ["-0043-03-15", "-0001-12-31"],
    }


def test_texts_that_no_folder_can_name_are_with_the_nulls() -> None:
    texts = ["", None, "x" * (LONGEST_TEXT + 1), "ü" * LONGEST_TEXT, "a b/c", NULL_PARTITION, "a~b"]
    rows = pa.record_batch({"c": pa.array(texts), "n": pa.array(range(len(texts)))})
    found = {value: part["n"].to_pylist() for value, part in partitioning(Scalar.STRING, Transform.IDENTITY).split(rows)}
    assert found == {NULL_PARTITION: [0, 1, 2, 3], "a%20b%2Fc": [4], "%5F_HIVE_DEFAULT_PARTITION__": [5], "a%7Eb": [6]}


@each(
    ("kind", "transform", "reason"),
    [
        (Scalar.NUMBER, Transform.IDENTITY, "is none of date"),
        (Decimal(12, 2), Transform.IDENTITY, "is none of date"),
        (Scalar.TIME_WITH_TIMEZONE, Transform.HOUR, "is none of date"),
        (Object(()), Transform.IDENTITY, "is none of date"),
        (SchemalessObject(), Transform.IDENTITY, "is none of date"),
        (Array(Scalar.STRING), Transform.IDENTITY, "is none of date"),
        (Union((Scalar.STRING, Scalar.INTEGER)), Transform.IDENTITY, "is none of date"),
        (Scalar.TIMESTAMP_WITH_TIMEZONE, Transform.IDENTITY, "year, month, day or hour"),
        (Scalar.DATE, Transform.HOUR, "identity, year, month or day"),
        (Scalar.STRING, Transform.DAY, "identity only"),
        (Scalar.BOOLEAN, Transform.YEAR, "identity only"),
    ],
)
def test_columns_that_cannot_partition_are_refused(kind: Any, transform: Transform, reason: str) -> None:
    with pytest.raises(NotPartitionable) as refused:
        require_partitionable(kind, transform)
    assert reason in str(refused.value)


def test_a_default_name_begins_with_no_underscore() -> None:
    assert default_name("created_at", Transform.DAY) == "created_at_day"
    assert default_name("_ab_cdc_updated_at", Transform.HOUR) == "ab_cdc_updated_at_hour"

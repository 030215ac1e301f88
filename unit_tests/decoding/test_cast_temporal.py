"""Arrow's cast is only taken where it gives what the exact way gives."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from destination_s3_spark.decoding.cast_temporal import cast_temporals
from destination_s3_spark.decoding.temporal import TEMPORAL, temporal
from destination_s3_spark.schema.airbyte_type import Scalar

TYPES = {Scalar.DATE: pa.date32(), **dict.fromkeys(TEMPORAL - {Scalar.DATE}, pa.timestamp("us", "UTC"))}
KINDS = st.sampled_from([Scalar.DATE, Scalar.TIMESTAMP_WITH_TIMEZONE, Scalar.TIMESTAMP_WITHOUT_TIMEZONE])

PARTS = (
    st.sampled_from(["2024", "0001", "0000", "9999", "1969", "+2024", "24", "10000", "-2024"]),
    st.sampled_from(["-", "/", ""]),
    st.sampled_from(["02", "12", "13", "2", "00"]),
    st.sampled_from(["-", "/", ""]),
    st.sampled_from(["29", "30", "31", "1", "00"]),
    st.sampled_from(["T", " ", "", "t"]),
    st.sampled_from(["12:34:56", "12:34", "12", "1234", "123456", "24:00:00", "23:59:60", "00:00:00", ""]),
    st.sampled_from(["", ".1", ".123456", ".1234567", ".123456789", "."]),
    st.sampled_from(["", "Z", "z", "+05:30", "-0530", "+05", "+17:59", "+18:00", "-18:00", "+19:00", "+23:59", "+05:60", " Z", "-00:00"]),
)
TEXTS = st.one_of(st.tuples(*PARTS).map("".join), st.text("0123456789-:T Z+.", max_size=30))


@given(kind=KINDS, texts=st.lists(st.none() | TEXTS, min_size=1, max_size=4))
@example(kind=Scalar.TIMESTAMP_WITH_TIMEZONE, texts=["0000-12-31T23:00:00-05:00"])
@example(kind=Scalar.TIMESTAMP_WITH_TIMEZONE, texts=["2024-01-01T00:00:00+19:00", None])
@example(kind=Scalar.TIMESTAMP_WITHOUT_TIMEZONE, texts=["2024-01-01"])
@example(kind=Scalar.DATE, texts=["0000-02-29"])
def test_a_cast_column_is_what_its_texts_are_one_by_one(kind: Scalar, texts: list[str | None]) -> None:
    column = cast_temporals(kind, pa.array(texts, pa.string()), TYPES[kind])
    if column is not None:
        stored = column.cast(pa.int32() if kind is Scalar.DATE else pa.int64()).to_pylist()
        assert stored == [None if text is None else temporal(kind, text) for text in texts]


@pytest.mark.parametrize(
    ("kind", "texts"),
    [
        (Scalar.DATE, ["2024-02-29", None, "0001-01-01"]),
        (Scalar.TIMESTAMP_WITH_TIMEZONE, ["2024-02-29T12:34:56Z", None, "2024-02-29 12:34:56.123456-17:59"]),
        (Scalar.TIMESTAMP_WITHOUT_TIMEZONE, [None, "2024-02-29T12:34:56.1", "1969-12-31T23:59:59"]),
    ],
)
def test_plain_columns_are_cast(kind: Scalar, texts: list[str | None]) -> None:
    column = cast_temporals(kind, pa.array(texts, pa.string()), TYPES[kind])
    assert column is not None
    assert column.null_count == 1
    assert column.type == TYPES[kind]


@pytest.mark.parametrize("texts", [[], [None], [""]])
def test_columns_without_texts_are_no_error(texts: list[str | None]) -> None:
    for kind, arrow_type in TYPES.items():
        column = cast_temporals(kind, pa.array(texts, pa.string()), arrow_type)
        assert column is None or column.null_count == len(texts)

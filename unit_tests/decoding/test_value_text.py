"""Stored values as the JSON texts that typing makes them of."""

from __future__ import annotations

import decimal as exact
import json
from typing import Any

import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from destination_s3_spark.decoding.record_typer import RecordTyper
from destination_s3_spark.decoding.temporal import TEMPORAL
from destination_s3_spark.decoding.value_text import value_texts
from destination_s3_spark.schema.airbyte_type import Array, Decimal, Field, Object, Scalar, SchemalessArray, SchemalessObject, Union
from destination_s3_spark.schema.arrow import arrow_type
from unit_tests.cases import each
from unit_tests.sampling import examples

DAY_US = 86_400_000_000
INT64 = st.integers(-(2**63), 2**63 - 1)
STORED: dict[Scalar | Decimal, st.SearchStrategy[Any]] = {
    Scalar.STRING: st.text(st.characters(codec="utf-8"), max_size=4),
    Scalar.BOOLEAN: st.booleans(),
    Scalar.INTEGER: INT64,
    Scalar.NUMBER: st.floats(allow_nan=False, allow_infinity=False),
    **{
        of: st.decimals(allow_nan=False, allow_infinity=False, min_value=-9, max_value=9, places=of.scale)
        for of in (Decimal(10, 2), Decimal(38, 9), Decimal(1, 0))
    },
    Scalar.DATE: st.integers(-(2**31), 2**31 - 1) | st.integers(-1_000_000, 1_000_000),
    Scalar.TIME_WITH_TIMEZONE: st.integers(0, DAY_US - 1),
    Scalar.TIME_WITHOUT_TIMEZONE: st.integers(0, DAY_US - 1),
    Scalar.TIMESTAMP_WITH_TIMEZONE: INT64 | st.integers(-(10**17), 10**17),
    Scalar.TIMESTAMP_WITHOUT_TIMEZONE: INT64 | st.integers(-(10**9), 10**9),
}
RECORD = Object(
    (
        Field("a b", "a_b", Array(Scalar.TIMESTAMP_WITH_TIMEZONE)),
        Field('quo"te', "quote", Object((Field("\ud800", "_", Scalar.NUMBER), Field("é", "_1", SchemalessArray())))),
        Field("u", "u", Union((Scalar.DATE, Scalar.INTEGER, Array(Scalar.STRING), SchemalessObject()))),
    )
)


def retyped(texts: list[bytes | None], of: Any, make_plan: Any, make_line: Any, make_block: Any) -> tuple[pa.Array, list[Any]]:
    lines = [make_line("{}" if text is None else f'{{"x":{text.decode()}}}') for text in texts]
    typed = RecordTyper(make_plan([Field("x", "x", of)])).type_block(make_block(lines))
    return typed.final["x"], [meta["changes"] for meta in typed.final["_airbyte_meta"].to_pylist()]


@each("of", list(STORED), ids=str)
@settings(examples(40), suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_the_text_of_a_value_is_typed_as_that_value(
    of: Scalar | Decimal, data: Any, make_plan: Any, make_line: Any, make_block: Any
) -> None:
    stored = data.draw(st.lists(st.none() | STORED[of], max_size=8))
    kind = arrow_type(of)
    column = pa.array(stored, pa.int32() if of is Scalar.DATE else pa.int64() if of in TEMPORAL else kind)
    values = column if column.type == kind else column.view(kind)
    again, changes = retyped(value_texts(values, of), of, make_plan, make_line, make_block)
    assert again.equals(values)
    assert not any(changes)


@each(
    "text",
    [
        "{}",
        '{"a b":[]}',
        '{"a b":["2021-01-02T03:04:05.5Z",null,"0001-01-01T00:00:00Z BC"]}',
        '{"quo\\"te":{"\\ud800":-0.0,"é":[1, {"x": null}]}}',
        '{"u":"2021-01-02"}',
        '{"u":9007199254740993}',
        '{"u":["a",null,"\\u0000"]}',
        '{"u":{"deep":[1.50]}}',
    ],
)
def test_nested_values_are_typed_again_as_they_were(text: str, make_plan: Any, make_line: Any, make_block: Any) -> None:
    rows = [text.encode(), None, b'{"u":1}', text.encode()]
    first, changes = retyped(rows, RECORD, make_plan, make_line, make_block)
    assert not any(changes)
    texts = value_texts(first.slice(1), RECORD)
    again, changes = retyped(texts, RECORD, make_plan, make_line, make_block)
    assert again.equals(first.slice(1))
    assert not any(changes)


def test_what_is_null_is_left_out_of_an_object_and_stands_in_an_array() -> None:
    record = Object((Field("a", "a", Scalar.STRING), Field("b", "b", Array(Scalar.INTEGER))))
    values = pa.array([{"a": None, "b": [1, None]}, None, {"a": "x", "b": None}], arrow_type(record))
    assert value_texts(values, record) == [b'{"b":[1,null]}', None, b'{"a":"x"}']


@each(
    ("of", "text"),
    [
        (Decimal(10, 2), "-0.05"),
        (Decimal(10, 2), "99999999.99"),
        (Decimal(38, 9), "0.000000000"),
        (Decimal(38, 9), "-12345678901234567890123456789.000000001"),
        (Decimal(2, 2), "0.01"),
        (Decimal(38, 0), "-99999999999999999999999999999999999999"),
    ],
)
def test_decimals_have_all_digits_and_no_exponent(of: Decimal, text: str) -> None:
    values = pa.array([None, exact.Decimal(text), None], arrow_type(of))
    assert value_texts(values[1:], of) == [text.encode(), None]


@each(
    ("of", "stored", "text"),
    [
        (Scalar.DATE, 0, "1970-01-01"),
        (Scalar.DATE, 2932897, "+10000-01-01"),
        (Scalar.DATE, -719163, "0001-12-31 BC"),
        (Scalar.TIME_WITH_TIMEZONE, 1, "00:00:00.000001Z"),
        (Scalar.TIME_WITHOUT_TIMEZONE, DAY_US - 1_000_000, "23:59:59"),
        (Scalar.TIMESTAMP_WITH_TIMEZONE, -1, "1969-12-31T23:59:59.999999Z"),
        (Scalar.TIMESTAMP_WITHOUT_TIMEZONE, 0, "1970-01-01T00:00:00"),
    ],
)
def test_temporals_are_written_as_iso_8601(of: Scalar, stored: int, text: str) -> None:
    values = pa.array([stored], pa.int32() if of is Scalar.DATE else pa.int64()).view(arrow_type(of))
    assert value_texts(values, of) == [json.dumps(text).encode()]

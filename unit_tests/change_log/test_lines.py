from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from destination_s3_spark.change_log.lines import json_texts, plain_texts
from unit_tests.cases import each

UTC = pa.timestamp("us", tz="UTC")
DAY_US = 86_400_000_000


@each(
    ("kind", "value", "text"),
    [
        (pa.bool_(), True, "true"),
        (pa.bool_(), False, "false"),
        (pa.int64(), -(2**63), "-9223372036854775808"),
        (pa.int64(), 2**63 - 1, "9223372036854775807"),
        (pa.float64(), 1.5, "1.5"),
        (pa.float64(), 10.0, "10.0"),
        (pa.float64(), 0.1, "0.1"),
        (pa.float64(), -0.0, "-0.0"),
        (pa.float64(), 123456789012345.6, "123456789012345.6"),
        (pa.decimal128(10, 2), Decimal("-0.05"), "-0.05"),
        (pa.decimal128(38, 9), Decimal(0), "0.000000000"),
        (pa.decimal128(38, 9), Decimal("12345678901234567890.123456789"), "12345678901234567890.123456789"),
        (pa.string(), 'a"b,\n', 'a"b,\n'),
    ],
)
def test_plain_values(kind: pa.DataType, value: Any, text: str) -> None:
    assert plain_texts(pa.array([value, None], kind)).to_pylist() == [text, None]


@each(
    ("kind", "number", "text"),
    [
        (pa.date32(), 0, "1970-01-01"),
        (pa.date32(), -719_162, "0001-01-01"),
        (pa.date32(), 2_932_896, "9999-12-31"),
        (pa.date32(), 2_932_897, "10000-01-01"),
        (pa.time64("us"), 0, "00:00:00"),
        (pa.time64("us"), 1, "00:00:00.000001"),
        (pa.time64("us"), DAY_US - 1, "23:59:59.999999"),
        (pa.time64("us"), 500_000, "00:00:00.500000"),
        (UTC, 0, "1970-01-01T00:00:00Z"),
        (UTC, -1, "1969-12-31T23:59:59.999999Z"),
        (UTC, 1_700_000_000_123_000, "2023-11-14T22:13:20.123000Z"),
        (UTC, 253_402_300_800_000_000, "10000-01-01T00:00:00Z"),
        (pa.timestamp("us"), 1_700_000_000_000_000, "2023-11-14T22:13:20"),
        (pa.timestamp("ms", tz="UTC"), 1_700_000_000_123, "2023-11-14T22:13:20.123000Z"),
    ],
)
def test_dates_and_times(kind: pa.DataType, number: int, text: str) -> None:
    values = pa.array([number, None], pa.int32() if kind == pa.date32() else pa.int64()).view(kind)

    assert plain_texts(values).to_pylist() == [text, None]
    assert json_texts(values).to_pylist() == [f'"{text}"', None]


def test_containers_are_json_with_all_their_members() -> None:
    kind = pa.struct([("id", pa.int64()), ("at", pa.list_(UTC)), ("in", pa.struct([('q"', pa.string())]))])
    values = pa.array([{"id": 1, "at": [None, 0], "in": {'q"': "a\tb"}}, None, {"at": []}, {"in": {}}], kind)
    expected = [
        '{"id":1,"at":[null,"1970-01-01T00:00:00Z"],"in":{"q\\"":"a\\tb"}}',
        None,
        '{"id":null,"at":[],"in":null}',
        '{"id":null,"at":null,"in":{"q\\"":null}}',
    ]

    assert plain_texts(values).to_pylist() == json_texts(values).to_pylist() == expected


def test_a_part_of_a_column_is_its_own_values() -> None:
    values = pa.array([[{"a": n, "b": float(n), "c": str(n)}] * n for n in range(6)])

    part = json_texts(values.slice(2, 3))

    assert [json.loads(text) for text in part.to_pylist()] == values.slice(2, 3).to_pylist()
    assert json_texts(values.slice(6)).to_pylist() == []


@given(st.lists(st.none() | st.floats(allow_nan=False, allow_infinity=False)))
def test_a_double_reads_back_from_its_text(numbers: list[float | None]) -> None:
    written = plain_texts(pa.array(numbers, pa.float64())).to_pylist()

    assert [None if text is None else float(text) for text in written] == numbers
    assert json_texts(pa.array(numbers, pa.float64())).to_pylist() == written


@given(st.lists(st.none() | st.text(st.characters(exclude_categories=["Cs"]))), st.integers(0, 3))
def test_a_string_reads_back_from_its_json(strings: list[str | None], start: int) -> None:
    written = json_texts(pa.array(strings, pa.string()).slice(start)).to_pylist()

    assert [None if text is None else json.loads(text) for text in written] == strings[start:]

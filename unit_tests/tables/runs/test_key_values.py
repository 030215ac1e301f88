from __future__ import annotations

import math
from datetime import UTC, date, datetime, time
from decimal import Decimal as PyDecimal
from typing import Any

import pyarrow as pa

from destination_s3_spark.schema.airbyte_type import AirbyteType, Decimal, Field, Scalar
from destination_s3_spark.schema.arrow import arrow_type
from destination_s3_spark.tables.runs.keys import CdcDeletion, KeySpec, encode_key, key_bounds, key_range
from unit_tests.cases import each


def shown(kinds: list[AirbyteType], *keys: list[Any]) -> tuple[str, str] | None:
    """The bounds of a file with these two keys."""
    spec = KeySpec(tuple(Field(f"k{n}", f"k{n}", kind) for n, kind in enumerate(kinds)), None, None, CdcDeletion.HARD)
    columns = [pa.array([key[n] for key in keys], arrow_type(kind)) for n, kind in enumerate(kinds)]
    first, last = encode_key(columns, kinds).to_pylist()
    return key_bounds(key_range(first, last, spec.fingerprint), [spec])


MOMENT = datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=UTC)


@each(
    ("kind", "first", "last", "texts"),
    [
        (Scalar.INTEGER, -(2**63), 2**63 - 1, (str(-(2**63)), str(2**63 - 1))),
        (Scalar.INTEGER, None, 0, ("null", "0")),
        (Scalar.NUMBER, -1.5, math.inf, ("-1.5", "inf")),
        (Scalar.BOOLEAN, False, True, ("false", "true")),
        (Scalar.DATE, date(1, 1, 1), date(9999, 12, 31), ("0001-01-01", "9999-12-31")),
        (Scalar.DATE, -735_160, 3_672_031, ("0044-03-15 BC", "+12023-09-06")),
        (Scalar.TIMESTAMP_WITH_TIMEZONE, MOMENT, MOMENT, ("2026-01-02T03:04:05.000678Z",) * 2),
        (
            Decimal(38, 9),
            PyDecimal("-" + "9" * 29 + ".000000001"),
            PyDecimal("0.000000001"),
            ("-" + "9" * 29 + ".000000001", "0.000000001"),
        ),
        (Decimal(12, 2), None, PyDecimal("7.10"), ("null", "7.10")),
        (Decimal(38, 0), PyDecimal(-(10**38) + 1), PyDecimal(10**38 - 1), ("-" + "9" * 38, "9" * 38)),
        (Scalar.TIME_WITH_TIMEZONE, time(1, 2, 3), time(23, 59, 59, 1), ("01:02:03Z", "23:59:59.000001Z")),
        (Scalar.STRING, "a\x00b", "ü", ("a\x00b", "ü")),
        (Scalar.STRING, "", "\x00", ("", "\x00")),
    ],
)
def test_the_bounds_are_the_keys(kind: AirbyteType, first: Any, last: Any, texts: tuple[str, str]) -> None:
    assert shown([kind], [first], [last]) == texts


def test_a_key_of_several_columns_has_all_values() -> None:
    assert shown([Scalar.STRING, Scalar.INTEGER], ["a", 1], ["b", None]) == ("a, 1", "b, null")


def test_a_bound_that_was_cut_ends_in_an_ellipsis() -> None:
    first, last = shown([Scalar.STRING, Scalar.INTEGER], ["a" * 100, 1], ["b" * 60, 2])  # type: ignore[misc]

    assert first == "a" * 63 + "…"
    assert last.startswith("b" * 60)
    assert last.endswith("…")


def test_a_range_of_another_key_is_not_read() -> None:
    one, other = (KeySpec((Field("k", "k", kind),), None, None, CdcDeletion.HARD) for kind in (Scalar.INTEGER, Scalar.DATE))
    first, last = encode_key([pa.array([1, 2])], [Scalar.INTEGER]).to_pylist()

    assert key_bounds(key_range(first, last, one.fingerprint), [other]) is None

"""Conversion of stored values back to JSON texts, for values whose record is not available.

Typing such a text again gives the same value. The original text is lost: a null cannot be told from an absent value, and dates and times
are written in the form of ISO 8601.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import date, timedelta
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from destination_s3_spark.decoding.temporal import CYCLE_DAYS, DAY_US, SECOND_US
from destination_s3_spark.schema.airbyte_type import (
    MAX_PRECISION,
    AirbyteType,
    Array,
    Decimal,
    Field,
    Object,
    Scalar,
    SchemalessArray,
    SchemalessObject,
    Union,
    option_name,
)

Texts = list[bytes | None]
"""One JSON text per row. None is null."""
_DAYS_TO_2000 = 10_957
"""Days from 1970-01-01 to 2000-01-01."""


def value_texts(values: pa.Array[Any], of: AirbyteType) -> Texts:
    """Return the JSON texts of a column of this Airbyte type, stored as `schema.arrow.arrow_type` gives it."""
    match of:
        case Scalar():
            return _scalars(values, of)
        case Decimal():
            return [None if text is None else text.encode() for text in decimal_texts(values).to_pylist()]
        case SchemalessObject() | SchemalessArray():
            return [None if text is None else text.encode() for text in values.to_pylist()]
        case Object(fields):
            return _objects(values, fields)
        case Array(items):
            return _arrays(values, items)
        case Union(options):
            return _unions(values, options)


def decimal_texts(values: pa.Array[Any]) -> pa.StringArray:
    """Return the texts of decimals with all digits of their scale and without an exponent, unlike Arrow's: `0.00`, not `0E-2`."""
    scale = values.type.scale
    integers = pa.Array.from_buffers(pa.decimal128(MAX_PRECISION, 0), len(values), values.buffers(), offset=values.offset)
    texts = integers.cast(pa.string())
    if scale == 0:
        return texts
    digits = pc.utf8_lpad(pc.utf8_ltrim(texts, "-"), scale + 1, "0")
    sign = pc.if_else(pc.starts_with(texts, "-"), "-", "")
    return pc.binary_join_element_wise(sign, pc.binary_replace_slice(digits, -scale, -scale, "."), "")


def _scalars(values: pa.Array[Any], of: Scalar) -> Texts:
    text = TEMPORAL_TEXTS.get(of)
    if text is None:
        return [None if value is None else msgspec.json.encode(value) for value in values.to_pylist()]
    numbers = values.view(pa.int32() if of is Scalar.DATE else pa.int64()).to_pylist()
    return [None if number is None else f'"{text(number)}"'.encode() for number in numbers]


def moment_texts(values: pa.Array[Any]) -> list[str | None]:
    """Return the texts of dates, times of day or timestamps, in whatever unit. Python lacks years before 1 and after 9999."""
    if pa.types.is_date(values.type):
        kind, stored = Scalar.DATE, pa.date32()
    elif pa.types.is_time(values.type):
        kind, stored = Scalar.TIME_WITHOUT_TIMEZONE, pa.time64("us")
    else:
        zone = values.type.tz
        kind, stored = Scalar.TIMESTAMP_WITHOUT_TIMEZONE if zone is None else Scalar.TIMESTAMP_WITH_TIMEZONE, pa.timestamp("us", zone)
    numbers = values.cast(stored, safe=False).view(pa.int32() if kind is Scalar.DATE else pa.int64())
    return [None if number is None else TEMPORAL_TEXTS[kind](number) for number in numbers.to_pylist()]


def _objects(values: pa.StructArray, fields: tuple[Field, ...]) -> Texts:
    keys = [json.dumps(field.source).encode() + b":" for field in fields]
    members = [value_texts(values.field(field.name), field.type) for field in fields]
    rows = zip(*members, strict=True) if members else [()] * len(values)
    return [
        None if null else b"{" + b",".join(key + text for key, text in zip(keys, row, strict=True) if text is not None) + b"}"
        for null, row in zip(values.is_null().to_pylist(), rows, strict=True)
    ]


def _arrays(values: pa.ListArray[Any], items: AirbyteType) -> Texts:
    texts = [b"null" if text is None else text for text in value_texts(values.flatten(), items)]
    lengths = pc.list_value_length(values)
    ends = np.cumsum(pc.fill_null(lengths, 0).to_numpy(zero_copy_only=False)).tolist()
    spans = zip(lengths.to_pylist(), ends, strict=True)
    return [None if length is None else b"[" + b",".join(texts[end - length : end]) + b"]" for length, end in spans]


def _unions(values: pa.StructArray, options: tuple[AirbyteType, ...]) -> Texts:
    members = {option_name(option): value_texts(values.field(option_name(option)), option) for option in options}
    chosen = pc.if_else(values.is_valid(), values.field("type"), None).to_pylist()
    return [None if name is None else members[name][row] for row, name in enumerate(chosen)]


def _date(days: int) -> str:
    cycles, of_cycle = divmod(days - _DAYS_TO_2000, CYCLE_DAYS)
    day = date(2000, 1, 1) + timedelta(of_cycle)
    year = day.year + 400 * cycles
    era = "" if year > 0 else " BC"
    year = year if year > 0 else 1 - year
    return f"{'+' if year > 9999 else ''}{year:04}-{day.month:02}-{day.day:02}{era}"


def _time(of_day: int) -> str:
    seconds, microseconds = divmod(of_day, SECOND_US)
    fraction = f".{microseconds:06}" if microseconds else ""
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}{fraction}"


def _timestamp(zone: str) -> Callable[[int], str]:
    def text(microseconds: int) -> str:
        days, of_day = divmod(microseconds, DAY_US)
        date, space, era = _date(days).partition(" ")
        return f"{date}T{_time(of_day)}{zone}{space}{era}"

    return text


TEMPORAL_TEXTS: dict[Scalar, Callable[[int], str]] = {
    Scalar.DATE: _date,
    Scalar.TIME_WITH_TIMEZONE: lambda of_day: _time(of_day) + "Z",
    Scalar.TIME_WITHOUT_TIMEZONE: _time,
    Scalar.TIMESTAMP_WITH_TIMEZONE: _timestamp("Z"),
    Scalar.TIMESTAMP_WITHOUT_TIMEZONE: _timestamp(""),
}
"""The text of a date as the days since 1970, of a time as the microseconds since midnight or since 1970. It has years that Python lacks."""

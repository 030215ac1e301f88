"""Values of encoded keys, for people who look at the key ranges of files. The inverse of `keys.encode_key`."""

from __future__ import annotations

import decimal
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa

from destination_s3_spark.formats.file_statistics import KeyRange
from destination_s3_spark.schema.airbyte_type import MAX_PRECISION, Field
from destination_s3_spark.schema.arrow import arrow_type
from destination_s3_spark.tables.runs.keys import KeySpec, lower, partition_end, upper

_SIGN = 1 << 63
_END_OF_TEXT = b"\x00\x00"
_CUT = "…"
_EXACT = decimal.Context(prec=MAX_PRECISION)


def key_bounds(keys: KeyRange, specs: Sequence[KeySpec]) -> tuple[str, str] | None:
    """Return the least and the greatest key as text, or None if none of the specs wrote the range.

    A bound that was cut because it is long ends in an ellipsis.
    """
    spec = next((spec for spec in specs if spec.fingerprint == keys.of), None)
    if spec is None:
        return None
    return _text(_own(lower(keys), spec), spec.key), _text(_own(upper(keys), spec), spec.key)


def _own(encoded: bytes, spec: KeySpec) -> bytes:
    """Return the key without the partition before it."""
    end = partition_end(encoded, spec)
    return b"" if end is None else encoded[end:]


def _text(encoded: bytes, fields: Sequence[Field]) -> str:
    if encoded[:1] == b"\x02":
        return f"does not fit its type ({encoded[1:9].decode(errors='replace')}{_CUT})"
    values: list[str] = []
    for field in fields:
        if not encoded:
            return ", ".join(values if values and values[-1].endswith(_CUT) else [*values, _CUT])
        kind = arrow_type(field.type)
        value, encoded = _text_value(encoded) if pa.types.is_string(kind) else _fixed_value(encoded, kind)
        values.append(value)
    return ", ".join(values)


def _text_value(encoded: bytes) -> tuple[str, bytes]:
    if encoded[0] == 0:
        return "null", encoded[1:]
    at = 1
    while (end := encoded.find(b"\x00", at)) >= 0 and encoded[end : end + 2] == b"\x00\xff":
        at = end + 2
    if end < 0 or encoded[end : end + 2] != _END_OF_TEXT:
        return _plain(encoded[1:]) + _CUT, b""
    return _plain(encoded[1:end]), encoded[end + 2 :]


def _plain(text: bytes) -> str:
    return text.replace(b"\x00\xff", b"\x00").decode(errors="replace")


def _fixed_value(encoded: bytes, kind: pa.DataType) -> tuple[str, bytes]:
    width = 1 if pa.types.is_boolean(kind) else kind.bit_width // 8
    body, rest = encoded[1 : 1 + width], encoded[1 + width :]
    if len(body) < width:
        return _CUT, b""
    if encoded[0] == 0:
        return "null", rest
    number = int.from_bytes(body, "big")
    if pa.types.is_boolean(kind):
        return str(bool(number)).lower(), rest
    if pa.types.is_floating(kind):
        bits = number ^ _SIGN if number & _SIGN else ~number & (2 * _SIGN - 1)
        return str(pa.array([bits], pa.uint64()).view(kind)[0].as_py()), rest
    signed = number - (1 << (8 * width - 1))
    if pa.types.is_decimal(kind):
        return f"{Decimal(signed).scaleb(-kind.scale, _EXACT):f}", rest
    return _moment(pa.array([signed], pa.int32() if width == 4 else pa.int64()).view(kind)[0]), rest


def _moment(value: pa.Scalar[Any]) -> str:
    try:
        found = value.as_py()
    except (ValueError, OverflowError):  # outside of Python's years
        return str(value)
    return str(found) if isinstance(found, int) else str(found.isoformat())

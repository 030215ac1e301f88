"""Exact conversion of a JSON value's text to a typed scalar.

Every function takes the bytes of one well-formed JSON value in UTF-8 (NaN, Infinity and -Infinity included) without surrounding blanks.
It returns the value, or the Reason why the value becomes null. Working on the text keeps every digit: only the `number` type itself goes
through a binary float. The cost of a number is linear in the length of its text, not in its magnitude.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any, NamedTuple

from destination_s3_spark.decoding.changes import Reason
from destination_s3_spark.exact_json.values import QUOTE, string

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
DOUBLE_MAX = 1.7976931348623157e308
_NUMBER_MAX = Decimal("1.7976931348623157E308")
"""The largest double in its shortest decimal digits. Airbyte's own destinations end the range of numbers here."""
_INT64_DIGITS = 19
_EXACT_INTEGERS = 2**53
"""Below this, every integer is exact as a double."""

_NUMBER_STARTS = frozenset(b"-0123456789")

_NUMBER = re.compile(rb"([+-]?)(\d*)(?:\.(\d*))?(?:[eE]([+-]?\d+))?")
_INTEGER_TEXT = re.compile(rb"[+-]?\d+")
_NUMERIC_TEXT = re.compile(rb"[+-]?(?:\d++(?:\.\d*+)?|\.\d++)(?:[eE][+-]?\d++)?")
"""The quantifiers are possessive: a pattern that gives back digits takes quadratic time for a long text that is no number after all."""


class Rounded(NamedTuple):
    """A value that holds less than its text."""

    value: Any


def boolean(text: bytes) -> bool | Reason:
    """Read a boolean. Only JSON booleans are accepted."""
    if text == b"true":
        return True
    return False if text == b"false" else Reason.SERIALIZATION


def integer(text: bytes) -> int | Reason:
    """Read an int64 from an integer, a number with a zero fraction, or a string that holds a decimal integer."""
    if len(text) < _INT64_DIGITS and text.lstrip(b"-").isdigit():
        return int(text)
    if text[0] == QUOTE:
        inner = string(text).encode("utf-8", "replace")
        return _integral(inner) if _INTEGER_TEXT.fullmatch(inner) else Reason.SERIALIZATION
    return _integral(text) if text[0] in _NUMBER_STARTS else Reason.SERIALIZATION


def number(text: bytes) -> float | Reason:
    """Read a double from a number or a numeric string. Digits beyond the precision of a double are rounded."""
    if text[0] == QUOTE:
        inner = string(text).encode("utf-8", "replace")
        return _double(inner) if _NUMERIC_TEXT.fullmatch(inner) else Reason.SERIALIZATION
    if text == b"-0":
        return 0.0  # an integer has no negative zero
    return _double(text) if text[0] in _NUMBER_STARTS else Reason.SERIALIZATION


def decimal(text: bytes, precision: int, scale: int) -> Decimal | Rounded | Reason:
    """Read a decimal from a number or a numeric string.

    Digits beyond the scale are rounded, half away from zero. A number with too many digits before the point does not fit.
    """
    if text[0] == QUOTE:
        inner = string(text).encode("utf-8", "replace")
        return _decimal(inner, precision, scale) if _NUMERIC_TEXT.fullmatch(inner) else Reason.SERIALIZATION
    return _decimal(text, precision, scale) if text[0] in _NUMBER_STARTS else Reason.SERIALIZATION


def is_rounded(text: bytes, value: float) -> bool:
    """Return whether `number` made this value of integers that a double cannot tell apart, and the text is of another one."""
    if -_EXACT_INTEGERS < value < _EXACT_INTEGERS:
        return False
    return Decimal(string(text) if text[0] == QUOTE else text.decode()) != Decimal(value)


def _double(text: bytes) -> float | Reason:
    if text == b"-Infinity":
        return Reason.SERIALIZATION
    value = float(text)
    if -DOUBLE_MAX < value < DOUBLE_MAX:
        return value
    # `float` rounds a number slightly above the largest double down to it. Only the digits show whether it was above.
    if abs(value) == DOUBLE_MAX and Decimal(text.decode()).copy_abs() <= _NUMBER_MAX:
        return value
    return Reason.SIZE


def _integral(text: bytes) -> int | Reason:
    """Read an int64 from a decimal number. It counts digits, so that 1e999999999 is refused without being computed."""
    match = _NUMBER.fullmatch(text)
    if match is None:
        return Reason.SERIALIZATION
    sign, whole, fraction, exponent = match.groups(b"")
    digits = (whole + fraction).lstrip(b"0")
    if not digits:
        return 0
    significant = digits.rstrip(b"0")
    zeros = len(digits) - len(significant) - len(fraction) + _clamped(exponent)
    if zeros < 0:
        return Reason.SERIALIZATION
    if len(significant) + zeros > _INT64_DIGITS:
        return Reason.SIZE
    value = int(sign + significant) * 10**zeros
    return value if INT64_MIN <= value <= INT64_MAX else Reason.SIZE


def _decimal(text: bytes, precision: int, scale: int) -> Decimal | Rounded | Reason:
    """Read a decimal from a decimal number. Like `_integral`, it counts digits before it computes anything."""
    match = _NUMBER.fullmatch(text)
    if match is None:
        return Reason.SERIALIZATION
    sign, whole, fraction, exponent = match.groups(b"")
    digits = (whole + fraction).lstrip(b"0")
    if not digits:
        return Decimal(0)
    kept = len(digits) - len(fraction) + _clamped(exponent) + scale
    if kept > precision:
        return Reason.SIZE
    # The value is 0.<digits> * 10**kept, in units of the last place.
    unscaled = int(digits[: max(kept, 0)] or b"0") * 10 ** max(kept - len(digits), 0)
    cut = digits[max(kept, 0) :].strip(b"0")
    if kept >= 0 and digits[kept : kept + 1] >= b"5":
        unscaled += 1
    if unscaled == 10**precision:
        return Reason.SIZE
    value = Decimal(f"{sign.decode() if unscaled else ''}{unscaled}E-{scale}")
    return Rounded(value) if cut else value


def _clamped(exponent: bytes) -> int:
    """Return the exponent, clamped to +-10**13. That suffices to decide whether a number of fewer than 2**40 digits fits."""
    if not exponent:
        return 0
    digits = exponent.lstrip(b"+-0") or b"0"
    size = int(digits) if len(digits) <= 13 else 10**13
    return -size if exponent[:1] == b"-" else size

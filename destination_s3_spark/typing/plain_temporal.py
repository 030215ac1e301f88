"""Whole columns of plain ISO 8601 texts -> stored integers, in numpy.

Plain is `yyyy-MM-dd`, `HH:mm:ss` with up to nine more digits, a `T` or a blank between them, and `Z`, `+hh:mm`, `+hhmm`, `+hh` or
nothing behind. Texts of one length and one kind of offset have every digit in the same place, so a column is a few matrices of bytes
whose columns are digits. What is not plain is left to `temporal.temporal`, which gives the same results one by one.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from destination_s3_spark.schema.airbyte_type import Scalar
from destination_s3_spark.typing.temporal import DAY_US, SECOND_US

Ints = np.ndarray[Any, np.dtype[np.int64]]
Bools = np.ndarray[Any, np.dtype[np.bool_]]
Texts = np.ndarray[Any, np.dtype[np.uint8]]

_TIME_LENGTH = len("HH:mm:ss")
_FRACTION_DIGITS = 9
_LONGEST_TAIL = len("+hh:mm")
_PLAIN_OFFSET_HOURS = 17
"""Offsets of up to 18:00 exist; the plain way stops before so that minutes need no second look."""

_FIRST_MONTH = 12 + 1
"""January of the year 1, counted as 12 * year + month."""
_MONTHS = 9999 * 12
_MONTH_STARTS: Ints = np.arange(-1969 * 12, _MONTHS - 1969 * 12 + 1).astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)
"""Days since 1970-01-01 at which each month begins, from January of the year 1 to January 10000."""
_MONTH_LENGTHS: Ints = np.diff(_MONTH_STARTS)

_TIMES = frozenset((Scalar.TIME_WITH_TIMEZONE, Scalar.TIME_WITHOUT_TIMEZONE))
_SHIFTED = frozenset((Scalar.TIME_WITH_TIMEZONE, Scalar.TIMESTAMP_WITH_TIMEZONE))


class _Layout(NamedTuple):
    """Where each character of a text without its offset may lie, and which columns are its pairs of digits.

    Pairs are the year's two, month, day (dates only), hour, minute, second, and three of the fraction; where a fraction has no
    such digit, the pair names a column behind the last one, which holds zeros.
    """

    low: Texts
    span: Texts
    tens: list[int]
    ones: list[int]
    separator: int | None


def plain_temporals(kind: Scalar, texts: pa.StringArray) -> tuple[Ints, Bools]:
    """The stored integers of a string column, and which of them were read; the others are null, or not plain."""
    count = len(texts)
    _, offsets_buffer, data_buffer = texts.buffers()
    values, read = np.zeros(count, np.int64), np.zeros(count, np.bool_)
    if not count or data_buffer is None:
        return values, read
    offsets = np.frombuffer(offsets_buffer, np.int32)[texts.offset : texts.offset + count + 1]
    data = np.frombuffer(data_buffer, np.uint8)
    lengths = np.diff(offsets)
    shortest, longest = int(lengths.min()), int(lengths.max())
    if shortest == longest:
        if _TIME_LENGTH <= shortest <= _LONGEST:
            matrix = data[offsets[0] : offsets[-1]].reshape(count, shortest)
            return _of_one_length(kind, matrix)
        return values, read
    for length in range(max(shortest, _TIME_LENGTH), min(longest, _LONGEST) + 1):
        rows = np.flatnonzero(lengths == length)
        if len(rows):
            values[rows], read[rows] = _of_one_length(kind, data[offsets[rows][:, None] + np.arange(length)])
    return values, read


def _of_one_length(kind: Scalar, matrix: Texts) -> tuple[Ints, Bools]:
    tails = _tail_lengths(kind, matrix)
    first = int(tails[0])
    if (tails == first).all():
        return _of_one_tail(kind, matrix, first)
    values, read = np.zeros(len(matrix), np.int64), np.zeros(len(matrix), np.bool_)
    for tail in np.flatnonzero(np.bincount(tails)).tolist():
        these = tails == tail
        values[these], read[these] = _of_one_tail(kind, matrix[these], tail)
    return values, read


def _tail_lengths(kind: Scalar, matrix: Texts) -> Ints:
    """How many characters of each text are its offset from UTC."""
    tails = np.zeros(len(matrix), np.int64)
    tails[matrix[:, -1] == ord("Z")] = 1
    room = matrix.shape[1] - (_TIME_LENGTH if kind in _TIMES else len("yyyy-MM-ddTHH:mm:ss"))
    for width in (3, 5, _LONGEST_TAIL):
        if room >= width:
            sign = matrix[:, -width]
            tails[(sign == ord("+")) | (sign == ord("-"))] = width
    return tails


def _of_one_tail(kind: Scalar, matrix: Texts, tail: int) -> tuple[Ints, Bools]:
    layout = _LAYOUTS.get((kind in _TIMES, matrix.shape[1] - tail))
    dated_only = layout is not None and layout.separator is None and kind not in _TIMES
    if layout is None or (dated_only and (kind is not Scalar.DATE or tail)):
        return np.zeros(len(matrix), np.int64), np.zeros(len(matrix), np.bool_)
    digits = matrix[:, : len(layout.low)] - layout.low  # what is below the lowest byte allowed wraps around to a large number
    fits = digits <= layout.span
    valid: Bools = np.ones(len(matrix), np.bool_) if fits.all() else np.asarray(fits.all(axis=1))
    if layout.separator is not None:
        separator = digits[:, layout.separator]
        valid &= (separator == 0) | (separator == ord("T") - ord(" "))
    columns = np.zeros((len(layout.low) + 1, len(matrix)), np.uint8)
    columns[:-1] = digits.T
    pairs = (columns[layout.tens] * np.uint8(10) + columns[layout.ones]).astype(np.int32)
    days: Ints | int = 0
    if kind not in _TIMES:
        days = _days(pairs, valid)
        pairs = pairs[4:]
    if kind is Scalar.DATE:
        _check_time(pairs, valid)
        _offset_us(matrix, tail, valid)
        return np.asarray(days), valid
    local = days * DAY_US + _check_time(pairs, valid)
    offset_us = _offset_us(matrix, tail, valid)
    stored = local - offset_us if kind in _SHIFTED else local
    return np.asarray(stored % DAY_US if kind in _TIMES else stored), valid


def _days(pairs: np.ndarray[Any, np.dtype[np.int32]], valid: Bools) -> Ints:
    """Days since 1970-01-01; clears `valid` where the calendar has no such day."""
    month_of_year, day = pairs[2], pairs[3]
    month = (pairs[0] * 100 + pairs[1]) * 12 + month_of_year - _FIRST_MONTH
    valid &= (month_of_year >= 1) & (month_of_year <= 12) & (month >= 0) & (month < _MONTHS) & (day >= 1)
    month[~valid] = 0
    valid &= day <= _MONTH_LENGTHS[month]
    return np.asarray(_MONTH_STARTS[month] + (day - 1))


def _check_time(pairs: np.ndarray[Any, np.dtype[np.int32]], valid: Bools) -> Ints | int:
    """Microseconds of the day; clears `valid` where no clock shows such a time. 0 where the text has no time."""
    if not len(pairs):
        return 0
    hour, minute, second = pairs[:3]
    valid &= (hour <= 23) & (minute <= 59) & (second <= 59)
    whole: Ints = (hour * 3600 + minute * 60 + second).astype(np.int64) * SECOND_US
    if len(pairs) == 3:
        return whole
    return np.asarray(whole + (pairs[3] * 10_000 + pairs[4] * 100 + pairs[5]))


def _offset_us(matrix: Texts, tail: int, valid: Bools) -> Ints | int:
    """The offsets from UTC in microseconds; clears `valid` where the characters are no plain offset."""
    if tail <= 1:
        return 0
    digits = matrix[:, {3: [-2, -1], 5: [-4, -3, -2, -1], 6: [-5, -4, -2, -1]}[tail]] - np.uint8(ord("0"))
    valid &= (digits <= 9).all(axis=1)
    if tail == _LONGEST_TAIL:
        valid &= matrix[:, -3] == ord(":")
    numbers = digits.astype(np.int64).T
    hours = numbers[0] * 10 + numbers[1]
    minutes = numbers[2] * 10 + numbers[3] if tail > 3 else np.zeros_like(hours)
    valid &= (hours <= _PLAIN_OFFSET_HOURS) & (minutes <= 59)
    size = (hours * 60 + minutes) * 60 * SECOND_US
    return np.asarray(np.where(matrix[:, -tail] == ord("-"), -size, size))


def _layout(pattern: str) -> _Layout:
    """The layout of texts in which letters stand for digits and `?` for a `T` or a blank."""
    low = ["0" if letter.isalpha() else " " if letter == "?" else letter for letter in pattern]
    span = [9 if letter.isalpha() else ord("T") - ord(" ") if letter == "?" else 0 for letter in pattern]
    digits = [at for at, letter in enumerate(pattern) if letter.isalpha() and letter != "f"]
    fraction = [at for at, letter in enumerate(pattern) if letter == "f"][:6]
    if fraction:
        digits += fraction + [len(pattern)] * (6 - len(fraction))
    separator = pattern.index("?") if "?" in pattern else None
    low_bytes = np.frombuffer("".join(low).encode(), np.uint8)
    return _Layout(low_bytes, np.array(span, np.uint8), digits[::2], digits[1::2], separator)


def _layouts() -> dict[tuple[bool, int], _Layout]:
    """By whether it is a time of day, and by length."""
    times = ["HH:mm:ss", *("HH:mm:ss." + "f" * digits for digits in range(1, _FRACTION_DIGITS + 1))]
    dates = ["yyyy-MM-dd", *("yyyy-MM-dd?" + time for time in times)]
    return {(is_time, len(p)): _layout(p) for is_time, patterns in ((True, times), (False, dates)) for p in patterns}


_LAYOUTS = _layouts()
_LONGEST = max(length for _, length in _LAYOUTS) + _LONGEST_TAIL

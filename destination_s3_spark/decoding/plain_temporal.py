"""Conversion of whole columns of plain ISO 8601 texts to stored integers, in numpy.

A plain text is `yyyy-MM-dd`, `HH:mm:ss` with up to nine fractional digits, or both with a `T` or a blank between them. A time may be
followed by `Z`, `+hh:mm`, `+hhmm` or `+hh`. Texts of one length and one kind of offset have every digit in the same place, so a column
becomes a few matrices of bytes whose columns are digits. All other texts are left to `temporal.temporal`, which parses one text at a time.
Both give the same results for plain texts.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from destination_s3_spark.decoding.temporal import DAY_US, SECOND_US
from destination_s3_spark.schema.airbyte_type import Scalar

Ints = np.ndarray[Any, np.dtype[np.int64]]
Bools = np.ndarray[Any, np.dtype[np.bool_]]
Texts = np.ndarray[Any, np.dtype[np.uint8]]

_TAILS = {0: "", 1: "Z", 3: "~oo", 5: "~oopp", 6: "~oo:pp"}
"""Pattern of each form of UTC offset by its length. `~` is a sign, `o` and `p` are digits of the hours and minutes."""
_PLAIN_OFFSET_HOURS = 17
"""Largest hour of a plain offset. Offsets up to 18:00 are valid, but with 17 the minutes can be checked independently of the hours."""
_FRACTION = "abcefghij"
_PAIRS = ("yy", "YY", "MM", "dd", "HH", "mm", "ss", "ab", "ce", "fg", "oo", "pp")
"""The letters of each pair of digits in a pattern, from the first and last two digits of the year to the minutes of the offset."""
_COMMA = ord(",") - ord("+")

_FIRST_MONTH = 12 + 1
"""January of the year 1 as 12 * year + month."""
_MONTHS = 9999 * 12
_MONTH_STARTS: Ints = np.arange(-1969 * 12, _MONTHS - 1969 * 12 + 1).astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)
"""First day of each month, as days since 1970-01-01, from January of the year 1 to January 10000."""
_MONTH_LENGTHS: Ints = np.diff(_MONTH_STARTS)

_TIMES = frozenset((Scalar.TIME_WITH_TIMEZONE, Scalar.TIME_WITHOUT_TIMEZONE))
_TIMESTAMPS = frozenset((Scalar.TIMESTAMP_WITH_TIMEZONE, Scalar.TIMESTAMP_WITHOUT_TIMEZONE))
_SHIFTED = frozenset((Scalar.TIME_WITH_TIMEZONE, Scalar.TIMESTAMP_WITH_TIMEZONE))


class _Layout(NamedTuple):
    """The bytes allowed at each position of a text, and the positions of its pairs of digits.

    Position i allows bytes from `low[i]` to `low[i] + span[i]`. `tens` and `ones` hold the position of each pair's two digits: century,
    year, month, day, hour, minute, second, three pairs of the fraction, and hours and minutes of the offset. A digit that the text does
    not have gets the position behind the last one, where the matrix holds zeros.
    """

    low: Texts
    span: Texts
    tens: list[int]
    ones: list[int]
    separator: int | None
    sign: int | None


def plain_temporals(kind: Scalar, texts: pa.StringArray) -> tuple[Ints, Bools]:
    """Return the stored integers of a string column, and which of them were read. The other texts are null or not plain."""
    count = len(texts)
    _, offsets_buffer, data_buffer = texts.buffers()
    values, read = np.zeros(count, np.int64), np.zeros(count, np.bool_)
    if not count or data_buffer is None:
        return values, read
    offsets = np.frombuffer(offsets_buffer, np.int32)[texts.offset : texts.offset + count + 1]
    data = np.frombuffer(data_buffer, np.uint8)[offsets[0] : offsets[-1]]
    lengths = np.diff(offsets)
    longest = int(lengths.max())
    if int(lengths.min()) == longest:
        return _of_one_length(kind, data.reshape(count, longest)) if _SHORTEST <= longest <= _LONGEST else (values, read)
    for length in range(_SHORTEST, min(longest, _LONGEST) + 1):
        rows = np.flatnonzero(lengths == length)
        if len(rows):
            windows: Texts = np.ndarray((len(data) - length + 1, length), np.uint8, data, 0, (1, 1))
            values[rows], read[rows] = _of_one_length(kind, windows[offsets[rows] - offsets[0]])
    return values, read


def _of_one_length(kind: Scalar, matrix: Texts) -> tuple[Ints, Bools]:
    shortest = _SHORTEST if kind in _TIMES else len("yyyy-MM-dd?HH:mm:ss")
    widths = [width for width in (6, 5, 3) if matrix.shape[1] >= shortest + width]
    guess = _tail(matrix[0].tobytes(), widths)
    values, read = _of_one_tail(kind, matrix, guess)
    if not read.all():
        tails = np.array([_tail(text.tobytes(), widths) for text in matrix])
        for tail in set(tails.tolist()) - {guess}:
            these = tails == tail
            values[these], read[these] = _of_one_tail(kind, matrix[these], tail)
    return values, read


def _tail(text: bytes, widths: list[int]) -> int:
    """Return the number of characters of the text's UTC offset."""
    if text[-1] == ord("Z"):
        return 1
    return next((width for width in widths if text[-width] in b"+-"), 0)


def _of_one_tail(kind: Scalar, matrix: Texts, tail: int) -> tuple[Ints, Bools]:
    layout = _LAYOUTS.get((kind in _TIMES, matrix.shape[1], tail))
    if layout is None or (layout.separator is None and kind in _TIMESTAMPS):
        return np.zeros(len(matrix), np.int64), np.zeros(len(matrix), np.bool_)
    digits = matrix - layout.low  # a byte below the lowest allowed one wraps around to a large number
    fits = digits <= layout.span
    valid: Bools = np.ones(len(matrix), np.bool_) if fits.all() else np.asarray(fits.all(axis=1))
    if layout.separator is not None:
        separator = digits[:, layout.separator]
        valid &= (separator == 0) | (separator == ord("T") - ord(" "))
    columns = np.zeros((matrix.shape[1] + 1, len(matrix)), np.uint8)
    columns[:-1] = digits.T
    pairs = (columns[layout.tens] * np.uint8(10) + columns[layout.ones]).astype(np.int32)
    time_us = _time_us(pairs, valid)
    offset_us = 0 if layout.sign is None else _offset_us(pairs, columns[layout.sign], valid)
    if kind in _TIMES:
        return np.asarray((time_us - offset_us) % DAY_US if kind in _SHIFTED else time_us), valid
    days = _days(pairs, valid)
    if kind is Scalar.DATE:
        return days, valid
    local = days * DAY_US + time_us
    return np.asarray(local - offset_us if kind in _SHIFTED else local), valid


def _days(pairs: np.ndarray[Any, np.dtype[np.int32]], valid: Bools) -> Ints:
    """Return days since 1970-01-01, and clear `valid` where the calendar has no such day."""
    month_of_year, day = pairs[2], pairs[3]
    month = (pairs[0] * 100 + pairs[1]) * 12 + month_of_year - _FIRST_MONTH
    valid &= (month_of_year >= 1) & (month_of_year <= 12) & (month >= 0) & (month < _MONTHS) & (day >= 1)
    month[~valid] = 0
    valid &= day <= _MONTH_LENGTHS[month]
    return np.asarray(_MONTH_STARTS[month] + (day - 1))


def _time_us(pairs: np.ndarray[Any, np.dtype[np.int32]], valid: Bools) -> Ints:
    """Return microseconds of the day, and clear `valid` where the time does not exist."""
    hour, minute, second = pairs[4:7]
    valid &= (hour <= 23) & (minute <= 59) & (second <= 59)
    whole = ((hour * 60 + minute) * 60 + second).astype(np.int64) * SECOND_US
    return np.asarray(whole + ((pairs[7] * 100 + pairs[8]) * 100 + pairs[9]))


def _offset_us(pairs: np.ndarray[Any, np.dtype[np.int32]], sign: Texts, valid: Bools) -> Ints:
    """Return the UTC offsets in microseconds, and clear `valid` where an offset is not plain."""
    hours, minutes = pairs[10:]
    valid &= (hours <= _PLAIN_OFFSET_HOURS) & (minutes <= 59) & (sign != _COMMA)
    size = (hours * 60 + minutes).astype(np.int64) * (60 * SECOND_US)
    return np.asarray(np.where(sign == 0, size, -size))


def _layout(pattern: str) -> _Layout:
    """Return the layout of a pattern. Letters other than `Z` stand for digits, `?` for a `T` or a blank, and `~` for a sign."""
    ranges = {"?": (" ", "T"), "~": ("+", "-")}
    allowed = [ranges.get(letter, ("0", "9") if letter.isalpha() and letter != "Z" else (letter, letter)) for letter in pattern]
    missing = len(pattern)
    tens = [pattern.index(pair[0]) if pair[0] in pattern else missing for pair in _PAIRS]
    ones = [pattern.rindex(pair[1]) if pair[1] in pattern else missing for pair in _PAIRS]
    low = np.frombuffer("".join(first for first, _ in allowed).encode(), np.uint8)
    high = np.frombuffer("".join(last for _, last in allowed).encode(), np.uint8)
    separator = pattern.index("?") if "?" in pattern else None
    return _Layout(low, high - low, tens, ones, separator, pattern.index("~") if "~" in pattern else None)


def _layouts() -> dict[tuple[bool, int, int], _Layout]:
    """Return all layouts, keyed by whether the text is a time of day, by its length and by the length of its offset."""
    times = ["HH:mm:ss", *("HH:mm:ss." + _FRACTION[:digits] for digits in range(1, len(_FRACTION) + 1))]
    found = {(False, len("yyYY-MM-dd"), 0): _layout("yyYY-MM-dd")}
    for time in times:
        for tail, offset in _TAILS.items():
            for is_time, pattern in ((True, time + offset), (False, "yyYY-MM-dd?" + time + offset)):
                found[is_time, len(pattern), tail] = _layout(pattern)
    return found


_LAYOUTS = _layouts()
_SHORTEST = min(length for _, length, _ in _LAYOUTS)
_LONGEST = max(length for _, length, _ in _LAYOUTS)

"""Record lines that differ from an example in nothing but the values of `data` and `emitted_at`, taken apart without parsing them.

A source writes all lines of a stream alike. Once one of them is known to be a good record, a line with the same bytes around the two
values is one too, provided that each value's text is one complete JSON value of its own kind: then there is no other way to read the
line. The number is checked here; the text of `data` is not, so whoever decodes it must refuse what is not exactly one object.

Numbers have as many digits as the example's, so that all but `data` stands at fixed distances from the two ends of a line, and whole
columns of bytes are compared at once.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import numpy as np

from destination_s3_spark.exact_json.members import members

_NUMBER = re.compile(rb"[1-9][0-9]{0,17}")
_ZERO, _NEWLINE, _OPENING, _CLOSING = b"0\n{}"

Ints = np.ndarray[Any, np.dtype[np.int64]]
Bools = np.ndarray[Any, np.dtype[np.bool_]]
Texts = np.ndarray[Any, np.dtype[np.uint8]]


class Parts(NamedTuple):
    """Where in a text the lines and their `data` begin and end, the values of `emitted_at`, and which lines are like the example.

    For the others only the line's own places mean something.
    """

    line_starts: Ints
    line_ends: Ints
    data_starts: Ints
    data_ends: Ints
    emitted_at: Ints
    alike: Bools


class _Frame:
    """The bytes at one end of a line: fixed ones, and perhaps the digits of the number among them."""

    def __init__(self, text: bytes, digits: slice | None) -> None:
        self.width = len(text)
        self._low: Texts = np.frombuffer(text, np.uint8).copy()
        self._span: Texts = np.zeros(self.width, np.uint8)
        self._digits = digits
        if digits is not None:
            self._low[digits] = _ZERO
            self._span[digits] = 9
            self._low[digits.start] += 1  # no number begins with a zero
            self._span[digits.start] = 8

    def fits(self, text: Texts, starts: Ints) -> tuple[Bools, Ints | None]:
        """At which of these places the frame stands, and the numbers in it if it has one."""
        # Taken as one item each, which is several times as fast as byte by byte.
        windows: np.ndarray[Any, Any] = np.ndarray((len(text) - self.width + 1,), f"V{self.width}", text, 0, (1,))
        characters = windows[starts].view(np.uint8).reshape(-1, self.width)
        differences = characters - self._low  # what is below the lowest byte allowed wraps around to a large number
        fits: Bools = np.ones(len(starts), np.bool_)
        fits[np.flatnonzero(differences > self._span) // self.width] = False
        if self._digits is None:
            return fits, None
        digits = differences[:, self._digits].astype(np.int64)
        digits[:, 0] += 1
        return fits, digits @ 10 ** np.arange(digits.shape[1] - 1, -1, -1, dtype=np.int64)


class LinePattern:
    """The lines like one example. `before` and `behind` are what stands on both sides of its `data`."""

    def __init__(self, before: _Frame, behind: _Frame) -> None:
        self._before = before
        self._behind = behind

    @classmethod
    def of(cls, line: bytes) -> LinePattern | None:
        """The pattern of a good record line without its newline.

        None when it has a `meta`, which is not the same for all, or a time that is not after 1970.
        """
        record = {member.key: member for member in members(line)}["record"]
        inside = {member.key: member for member in members(line, record.start, record.end)}
        data, number = inside["data"], inside["emitted_at"]
        if "meta" in inside or not _NUMBER.fullmatch(line[number.start : number.end]):
            return None
        if number.start < data.start:
            return cls(_Frame(line[: data.start], slice(number.start, number.end)), _Frame(line[data.end :], None))
        digits = slice(number.start - data.end, number.end - data.end)
        return cls(_Frame(line[: data.start], None), _Frame(line[data.end :], digits))

    def take_apart(self, lines: bytes) -> Parts:
        """The parts of whole lines (at least one)."""
        text = np.frombuffer(lines, np.uint8)
        ends = np.flatnonzero(text == _NEWLINE)
        if not lines.endswith(b"\n"):
            ends = np.append(ends, len(lines))
        starts = np.concatenate([np.zeros(1, np.int64), ends[:-1] + 1])
        data_starts, data_ends = starts + self._before.width, ends - self._behind.width
        alike = data_ends - data_starts >= len(b"{}")
        emitted_at = np.zeros(len(starts), np.int64)
        rows = np.flatnonzero(alike)  # only these are long enough to look at both ends
        if len(rows):
            fits_before, early = self._before.fits(text, starts[rows])
            fits_behind, late = self._behind.fits(text, data_ends[rows])
            braced = (text[data_starts[rows]] == _OPENING) & (text[data_ends[rows] - 1] == _CLOSING)
            alike[rows] = fits_before & fits_behind & braced
            numbers = early if late is None else late
            assert numbers is not None  # noqa: S101 (one of the two frames has the digits)
            emitted_at[rows] = numbers
        return Parts(starts, ends, data_starts, data_ends, emitted_at, alike)

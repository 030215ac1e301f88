"""Splitting of record lines by the pattern of an example line, without parsing them.

A source writes all lines of a stream alike. Once one line is known to be a valid record, every line with the same bytes around the values
of `data` and `emitted_at` is valid too, if the two values are one complete JSON object and one number. Such a line has only one reading.
The number is checked here. The text of `data` is not: its decoder must refuse a text that is not exactly one object.

A number must have as many digits as the example's. Everything but `data` is then at a fixed distance from one of the two ends of a line,
so numpy compares whole columns of bytes at once.
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
    """The parts of each line of a text: starts and ends of the line and of its `data`, and the value of `emitted_at`.

    `alike` says which lines match the pattern. For the other lines, only `line_starts` and `line_ends` are meaningful.
    """

    line_starts: Ints
    line_ends: Ints
    data_starts: Ints
    data_ends: Ints
    emitted_at: Ints
    alike: Bools


class _Frame:
    """Bytes expected before or after `data`: fixed ones, with the digits of `emitted_at` if it is on this side."""

    def __init__(self, text: bytes, digits: slice | None) -> None:
        self.width = len(text)
        self._low: Texts = np.frombuffer(text, np.uint8).copy()
        self._span: Texts = np.zeros(self.width, np.uint8)
        self._digits = digits
        if digits is not None:
            self._low[digits] = _ZERO
            self._span[digits] = 9
            self._low[digits.start] += 1  # the first digit is not a zero
            self._span[digits.start] = 8

    def fits(self, text: Texts, starts: Ints) -> tuple[Bools, Ints | None]:
        """Return at which of these positions the text matches the frame, and the numbers there if the frame has one."""
        # One numpy item per window is several times as fast as copying byte by byte.
        windows: np.ndarray[Any, Any] = np.ndarray((len(text) - self.width + 1,), f"V{self.width}", text, 0, (1,))
        characters = windows[starts].view(np.uint8).reshape(-1, self.width)
        differences = characters - self._low  # a byte below the lowest allowed one wraps around to a large number
        fits: Bools = np.ones(len(starts), np.bool_)
        fits[np.flatnonzero(differences > self._span) // self.width] = False
        if self._digits is None:
            return fits, None
        digits = differences[:, self._digits].astype(np.int64)
        digits[:, 0] += 1
        return fits, digits @ 10 ** np.arange(digits.shape[1] - 1, -1, -1, dtype=np.int64)


class LinePattern:
    """Pattern of an example line: the frames before and behind its `data`."""

    def __init__(self, before: _Frame, behind: _Frame) -> None:
        self._before = before
        self._behind = behind

    @classmethod
    def of(cls, line: bytes) -> LinePattern | None:
        """Return the pattern of a valid record line, given without its newline.

        Return None if the line has a `meta`, which differs from line to line, or an `emitted_at` that is not a positive integer of at most
        18 digits.
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
        """Return the parts of whole lines, of which there must be at least one."""
        text = np.frombuffer(lines, np.uint8)
        ends = np.flatnonzero(text == _NEWLINE)
        if not lines.endswith(b"\n"):
            ends = np.append(ends, len(lines))
        starts = np.concatenate([np.zeros(1, np.int64), ends[:-1] + 1])
        data_starts, data_ends = starts + self._before.width, ends - self._behind.width
        alike = data_ends - data_starts >= len(b"{}")
        emitted_at = np.zeros(len(starts), np.int64)
        rows = np.flatnonzero(alike)  # only these lines are long enough for both frames
        if len(rows):
            fits_before, early = self._before.fits(text, starts[rows])
            fits_behind, late = self._behind.fits(text, data_ends[rows])
            braced = (text[data_starts[rows]] == _OPENING) & (text[data_ends[rows] - 1] == _CLOSING)
            alike[rows] = fits_before & fits_behind & braced
            numbers = early if late is None else late
            assert numbers is not None  # noqa: S101 (one of the two frames has the number)
            emitted_at[rows] = numbers
        return Parts(starts, ends, data_starts, data_ends, emitted_at, alike)

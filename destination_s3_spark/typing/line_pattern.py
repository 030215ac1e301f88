"""Record lines that differ from an example in nothing but the values of `data` and `emitted_at`, taken apart without parsing them.

A source writes all lines of a stream alike. Once one of them is known to be a good record, a line with the same bytes around the two
values is one too, provided that each value's text is one complete JSON value of its own kind: then there is no other way to read the
line. The number is checked here; the text of `data` is not, so whoever decodes it must refuse what is not exactly one object.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from destination_s3_spark.protocol.exact_json import members

_OBJECT = rb"(?P<data>\{.*\})"
_INTEGER = rb"(?P<emitted_at>-?(?:0|[1-9][0-9]{0,17}))"
_OTHER = rb"(?P<other>[^\n]*\n)"


class Parts(NamedTuple):
    """The lines of a part of a block, in order: `others` holds those unlike the example, whose `data` and `emitted_at` are empty."""

    data: tuple[bytes, ...]
    emitted_at: tuple[bytes, ...]
    others: tuple[bytes, ...]


class LinePattern:
    """The lines like one example."""

    def __init__(self, pattern: bytes) -> None:
        self._findall = re.compile(pattern + rb"\n|" + _OTHER).findall
        self._data_first = pattern.index(_OBJECT) < pattern.index(_INTEGER)

    @classmethod
    def of(cls, line: bytes) -> LinePattern | None:
        """The pattern of a good record line without its newline; None when it has a `meta`, which is not the same for all."""
        record = {member.key: member for member in members(line)}["record"]
        inside = {member.key: member for member in members(line, record.start, record.end)}
        if "meta" in inside:
            return None
        spans = sorted((inside[key].start, inside[key].end, group) for key, group in (("data", _OBJECT), ("emitted_at", _INTEGER)))
        (start, end, first), (second_start, second_end, second) = spans
        around = (line[:start], line[end:second_start], line[second_end:])
        before, between, behind = map(re.escape, around)
        return cls(before + first + between + second + behind)

    def take_apart(self, lines: bytes) -> Parts:
        """The parts of whole lines (at least one)."""
        first, second, others = zip(*self._findall(lines if lines.endswith(b"\n") else lines + b"\n"), strict=True)
        return Parts(first, second, others) if self._data_first else Parts(second, first, others)

"""JSON text as it was received -> JSON text that every reader takes: on one line, without blanks, without NaN and Infinity.

Digits, escapes (also of lone surrogates), the order of keys and duplicate keys stay as they are.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from destination_s3_spark.typing import exact

_STRING = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_TOKEN = re.compile(_STRING + rb"|[\[\]{},]|NaN|-?Infinity")
_STRINGS = re.compile(_STRING)
_TO_NON_NUMBER = re.compile(rb'(?:[^"NI-]++|-(?!I)|' + _STRING + rb")*+(NaN|-?Infinity)")
_STRING_OR_KEY = re.compile(_STRING + rb"(\s*+:)?")
_MOST_OWN = 16
"""Of so many NaN and Infinity in one record, each of which means to look at what is before it."""
_NON_NUMBERS = (b"NaN", b"Infinity")
_BLANKS = np.zeros(256, np.bool_)
_BLANKS[list(b" \t\r\n")] = True
_MARKS = np.zeros(256, np.bool_)
_MARKS[list(b"{}[],:")] = True

Step = tuple[int, str | None]
"""Into a member (its ordinal, its key) or an item (its index, None); compare the spots of `changes`."""


class NonNumber(NamedTuple):
    """Where a NaN or an Infinity stands in a text, and the steps that lead to it."""

    start: int
    end: int
    steps: tuple[Step, ...]


class _Level:
    """An open container: what its next value is."""

    __slots__ = ("is_object", "key", "ordinal")

    def __init__(self, *, is_object: bool) -> None:
        self.is_object = is_object
        self.ordinal = 0
        self.key: bytes | None = None

    def step(self) -> Step:
        if self.key is None:
            return self.ordinal, None
        return self.ordinal, exact.without_lone_surrogates(exact.string(self.key))


def non_numbers(text: bytes) -> Iterator[NonNumber]:
    """The numbers JSON does not have in a text that is well-formed but for them."""
    if not _may_have_non_numbers(text):
        return
    levels: list[_Level] = []
    for token in _TOKEN.finditer(text):
        mark = token.group()
        match mark:
            case b"{" | b"[":
                levels.append(_Level(is_object=mark == b"{"))
            case b"}" | b"]":
                levels.pop()
            case b",":
                levels[-1].ordinal += 1
                levels[-1].key = None
            case _ if mark[0] != exact.QUOTE:
                yield NonNumber(token.start(), token.end(), tuple(level.step() for level in levels))
            case _ if levels and levels[-1].is_object and levels[-1].key is None:
                levels[-1].key = mark


def _may_have_non_numbers(text: bytes) -> bool:
    return any(token in text for token in _NON_NUMBERS)


def own_non_numbers(text: bytes) -> Mapping[str, NonNumber]:
    """The same by key, of an object in which they are values of its own members alone; none where that is not plain to see.

    Several times as fast. The text is UTF-8 and need not be well-formed.
    """
    if not _may_have_non_numbers(text):
        return {}
    if b"\\" in text and any(match[1] and b"\\" in match[0] for match in _STRING_OR_KEY.finditer(text)):
        return {}  # a key with an escape can be the duplicate of one without
    found: dict[str, NonNumber] = {}
    at = 0
    while (match := _TO_NON_NUMBER.match(text, at)) is not None:
        at = match.end()
        key = _own_key(text, match.start(1))
        if key is None or text.count(b'"%b"' % key) > 1 or len(found) == _MOST_OWN:
            return {}
        found[key.decode()] = NonNumber(match.start(1), at, ())
    return found


def _own_key(text: bytes, value: int) -> bytes | None:
    """The key of an object's own member, given where its value begins."""
    named = text[:value].rstrip()
    quoted = named[:-1].rstrip()
    if named[-1:] != b":" or quoted[-1:] != b'"':
        return None
    outside = _STRINGS.sub(b"", quoted)
    depth = sum(outside.count(mark) for mark in (b"{", b"[")) - sum(outside.count(mark) for mark in (b"}", b"]"))
    return quoted[quoted.rindex(b'"', 0, -1) + 1 : -1] if depth == 1 else None


def without(found: Iterable[NonNumber], text: bytes) -> bytes:
    """The text with null in these places."""
    pieces = []
    position = 0
    for place in found:
        pieces += [text[position : place.start], exact.NULL]
        position = place.end
    return b"".join([*pieces, text[position:]])


def to_rewrite(texts: pa.StringArray, *tokens: bytes) -> np.ndarray[Any, Any]:
    """The rows of JSON texts that may hold blanks between tokens, a NaN, an Infinity or one of `tokens`: a few too many, never too few.

    Such blanks stand next to a bracket, comma or colon. The array must not be sliced.
    """
    _, offsets, data = texts.buffers()
    ends = np.frombuffer(offsets, np.int32)[1 : len(texts) + 1]
    line = data.to_pybytes()[: ends[-1]]
    text = np.frombuffer(line, np.uint8)
    blanks = np.flatnonzero(_BLANKS[text])
    suspects = blanks[_MARKS[text[blanks - 1]] | _MARKS[text[np.minimum(blanks + 1, len(text) - 1)]]]
    marked = [match.start() for token in (*_NON_NUMBERS, *tokens) if token in line for match in re.finditer(re.escape(token), line)]
    return np.unique(np.searchsorted(ends, np.concatenate([suspects, np.array(marked, np.int64)]), side="right"))

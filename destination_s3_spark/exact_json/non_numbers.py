"""Conversion of received JSON text to text that every reader accepts: one line, no insignificant whitespace, no NaN or Infinity.

Digits, escapes (including those of lone surrogates), the order of keys and duplicate keys stay unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from destination_s3_spark.exact_json.values import NULL, QUOTE, string, without_lone_surrogates

_STRING = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_TOKEN = re.compile(_STRING + rb"|[\[\]{},]|NaN|-?Infinity")
_NON_NUMBERS = (b"NaN", b"Infinity")
_BLANKS = np.zeros(256, np.bool_)
_BLANKS[list(b" \t\r\n")] = True
_MARKS = np.zeros(256, np.bool_)
_MARKS[list(b"{}[],:")] = True

Step = tuple[int, str | None]
"""Step into a member (its ordinal, its key) or an item (its index, None), like those in the spots of `changes`."""


class NonNumber(NamedTuple):
    """Position of a NaN or an Infinity in a text, and the steps that lead to it."""

    start: int
    end: int
    steps: tuple[Step, ...]


class _Level:
    """Position inside an open container: ordinal and key of its next value."""

    __slots__ = ("is_object", "key", "ordinal")

    def __init__(self, *, is_object: bool) -> None:
        self.is_object = is_object
        self.ordinal = 0
        self.key: bytes | None = None

    def step(self) -> Step:
        if self.key is None:
            return self.ordinal, None
        return self.ordinal, without_lone_surrogates(string(self.key))


def speaks_of_non_numbers(text: bytes) -> bool:
    """Return whether a text contains NaN or Infinity, also inside a string."""
    return b"NaN" in text or b"Infinity" in text


def non_numbers(text: bytes) -> Iterator[NonNumber]:
    """Yield the NaN and Infinity values of a text that is otherwise well-formed JSON."""
    if not speaks_of_non_numbers(text):
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
            case _ if mark[0] != QUOTE:
                yield NonNumber(token.start(), token.end(), tuple(level.step() for level in levels))
            case _ if levels and levels[-1].is_object and levels[-1].key is None:
                levels[-1].key = mark


def without(found: Iterable[NonNumber], text: bytes) -> bytes:
    """Return the text with null at these positions."""
    pieces = []
    position = 0
    for place in found:
        pieces += [text[position : place.start], NULL]
        position = place.end
    return b"".join([*pieces, text[position:]])


def to_rewrite(texts: pa.StringArray, *tokens: bytes) -> np.ndarray[Any, Any]:
    """Return the rows of JSON texts that may contain whitespace between tokens, NaN, Infinity or one of `tokens`.

    The result may contain a few rows too many but never misses one. Such whitespace is next to a bracket, comma or colon. The array must
    not be sliced.
    """
    _, offsets, data = texts.buffers()
    ends = np.frombuffer(offsets, np.int32)[1 : len(texts) + 1]
    line = data.to_pybytes()[: ends[-1]]
    text = np.frombuffer(line, np.uint8)
    blanks = np.flatnonzero(_BLANKS[text])
    suspects = blanks[_MARKS[text[blanks - 1]] | _MARKS[text[np.minimum(blanks + 1, len(text) - 1)]]]
    marked = [match.start() for token in (*_NON_NUMBERS, *tokens) if token in line for match in re.finditer(re.escape(token), line)]
    return np.unique(np.searchsorted(ends, np.concatenate([suspects, np.array(marked, np.int64)]), side="right"))

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
from destination_s3_spark.typing.exact import Text

_STRING = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_TOKEN = re.compile(_STRING + rb"|[\[\]{},]|NaN|-?Infinity")
_NON_NUMBERS = (b"NaN", b"Infinity")
_STAND_INS = {b"-Infinity": b" -0E-01 ", b"Infinity": b" -0E-02 ", b"NaN": b" -0E-03 "}
"""Numbers in their place, so unusual that hardly a text has them. A text with a non-number inside of a longer word, or behind a backslash
in a string, is no JSON, and the blanks keep it from becoming JSON.
"""
_ALONE = {stand_in.strip(): token for token, stand_in in _STAND_INS.items()}
_MARK = b"-0E-0"
_BETWEEN = b"\0"
"""Stands in no JSON text."""
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


def with_nulls(text: bytes) -> bytes:
    """The text with null for each NaN and Infinity, in strings and keys too: fast, and right but for what `marked_members` tells.

    It is well-formed only if the text is so but for its non-numbers.
    """
    for token in _tokens_in(text):
        text = text.replace(token, b" null ")
    return text


def marked(text: bytes) -> bytes | None:
    """The text with a number for each NaN and Infinity, in strings and keys too, by which they are found; None where it has such numbers.

    All of a marked text is looked at by msgspec and by searches for bytes: several times as fast as exactly.
    """
    if _MARK in text:
        return None
    for token in _tokens_in(text):
        text = text.replace(token, _STAND_INS[token])
    return text


def _tokens_in(text: bytes) -> Iterable[bytes]:
    return _STAND_INS if b"Infinity" in text else (b"NaN",)


def marked_members(marked: bytes) -> Mapping[str, bytes] | None:
    """The values of a marked object that hold a NaN or an Infinity, or a string that speaks of one, by key, marked; None if a key does."""
    values = exact.split_object(marked)
    keys = list(values)
    if _MARK.decode() in _BETWEEN.decode().join(keys):
        return None  # the key is another one now
    return {keys[ordinal]: value for ordinal, value in _with_marks(values.values())}


def marked_items(marked: bytes) -> Iterator[tuple[int, bytes]]:
    """The items of a marked array that hold a NaN or an Infinity, or a string that speaks of one, with their ordinals."""
    return _with_marks(exact.split_array(marked))


def _with_marks(values: Iterable[Text]) -> Iterator[tuple[int, bytes]]:
    """Those of the values, with their ordinals, that have a mark. To look for it in all at once is faster than in each."""
    joined = _BETWEEN.join(values)
    ordinal = end = 0
    while (at := joined.find(_MARK, end)) != -1:
        ordinal += joined.count(_BETWEEN, end, at)
        start = joined.rfind(_BETWEEN, 0, at) + 1
        end = joined.find(_BETWEEN, at)
        end = len(joined) if end == -1 else end
        yield ordinal, joined[start:end]


def unmarked(marked: bytes) -> bytes:
    """A value with the non-numbers instead of what stands in for them; a value that is nothing else has lost its blanks."""
    if marked in _ALONE:
        return _ALONE[marked]
    for token, stand_in in _STAND_INS.items():
        marked = marked.replace(stand_in, token)
    return marked


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

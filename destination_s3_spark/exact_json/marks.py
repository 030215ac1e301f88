"""Stand-in numbers for NaN and Infinity, which JSON lacks: a record is decoded with them, and they are then replaced again.

A text with a non-number inside a longer word, or after a backslash in a string, is not JSON and does not become JSON. The stand-ins also
replace such words inside strings, which get them back afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

_COMMON = b"8.7236145908172635E-1"
_STAND_INS: Mapping[bytes, bytes] = MappingProxyType(
    {b"-Infinity": b" %b9 " % _COMMON, b"Infinity": b" %b8 " % _COMMON, b"NaN": b" %b7 " % _COMMON}
)
"""Stand-in for each non-number. The spaces separate it from the adjacent text."""
_DIGITS = (b"8723614", b"5908172")
"""Halves of the first fourteen digits of every stand-in. Any spelling of one of these numbers has its decimal point inside at most one
half.
"""
MARKS = frozenset(map(float, _STAND_INS.values()))
"""The stand-ins as decoded numbers."""


def marked(text: bytes) -> bytes | None:
    """Return the text with stand-ins for non-numbers, or None if it already contains a half of their digits."""
    if _DIGITS[0] in text or _DIGITS[1] in text:
        return None
    if b"Infinity" in text:
        text = text.replace(b"-Infinity", _STAND_INS[b"-Infinity"]).replace(b"Infinity", _STAND_INS[b"Infinity"])
    return text.replace(b"NaN", _STAND_INS[b"NaN"])


def unmarked_strings(strings: Sequence[str | None]) -> Sequence[str | None]:
    """Return strings decoded from marked texts with their original content."""
    if _COMMON.decode() not in "\0".join(filter(None, strings)):
        return strings
    return [string and _unmarked(string.encode()).decode() for string in strings]


def unmarked_texts(texts: Sequence[Any]) -> Sequence[Any]:
    """Return texts of values (bytes or Raw, None for no value) from marked texts with their original content."""
    if _COMMON not in b"\0".join(filter(None, texts)):
        return texts
    return [None if text is None else _unmarked(bytes(text)) for text in texts]


def _unmarked(text: bytes) -> bytes:
    for token, stand_in in _STAND_INS.items():
        # A value that is only a stand-in has lost its spaces.
        text = token if text == stand_in.strip() else text.replace(stand_in, token)
    return text

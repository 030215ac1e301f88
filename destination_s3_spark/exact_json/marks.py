"""Numbers in the place of NaN and Infinity, which are no JSON: a record is decoded with them, and then they are taken out again.

A text with a non-number inside of a longer word, or behind a backslash in a string, is no JSON and does not become JSON. A string that
speaks of one is changed too, and given it back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

_COMMON = b"8.7236145908172635E-1"
_STAND_INS: Mapping[bytes, bytes] = MappingProxyType(
    {b"-Infinity": b" %b9 " % _COMMON, b"Infinity": b" %b8 " % _COMMON, b"NaN": b" %b7 " % _COMMON}
)
"""The blanks keep them apart from what stands next to them."""
_DIGITS = (b"8723614", b"5908172")
"""Every other way to write one of these numbers has the same first fourteen digits, and a point inside of one half of them at most."""
MARKS = frozenset(map(float, _STAND_INS.values()))
"""The numbers as they are decoded."""


def marked(text: bytes) -> bytes | None:
    """The text with numbers in the place of non-numbers; None where the digits of these numbers stand already."""
    if _DIGITS[0] in text or _DIGITS[1] in text:
        return None
    if b"Infinity" in text:
        text = text.replace(b"-Infinity", _STAND_INS[b"-Infinity"]).replace(b"Infinity", _STAND_INS[b"Infinity"])
    return text.replace(b"NaN", _STAND_INS[b"NaN"])


def unmarked_strings(strings: Sequence[str | None]) -> Sequence[str | None]:
    """Strings from marked texts as they were."""
    if _COMMON.decode() not in "\0".join(filter(None, strings)):
        return strings
    return [string and _unmarked(string.encode()).decode() for string in strings]


def unmarked_texts(texts: Sequence[Any]) -> Sequence[Any]:
    """Values' texts (bytes or Raw, None for none) from marked texts as they were."""
    if _COMMON not in b"\0".join(filter(None, texts)):
        return texts
    return [None if text is None else _unmarked(bytes(text)) for text in texts]


def _unmarked(text: bytes) -> bytes:
    for token, stand_in in _STAND_INS.items():
        # A value that is nothing else has lost the blanks.
        text = token if text == stand_in.strip() else text.replace(stand_in, token)
    return text

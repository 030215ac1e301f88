"""Positions of the members of a JSON object in its text, found without decoding any value.

They serve for text that a strict parser refuses or would change: NaN and Infinity, numbers of any size, lone surrogates, any depth,
duplicate keys. The grammar is checked at every level, so truncated text and trailing text are still errors. Bytes that are not UTF-8 are
left to the reader of the value. Errors are ValueErrors without content.
"""

from __future__ import annotations

import json
import re
from enum import Enum
from typing import NamedTuple

import msgspec

_TOKEN = re.compile(
    rb"[ \t\r\n]*+(?:"
    rb'(?P<string>"[^"\\\x00-\x1f]*+(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\x00-\x1f]*+)*+")'
    rb"|(?P<mark>[{}\[\],:])"
    rb"|(?P<atom>-?+(?:(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?+(?:[eE][+-]?+[0-9]++)?+|Infinity)|NaN|true|false|null)"
    rb")"
)
"""Pattern of one token. Its quantifiers are possessive, so that a string of 100 MB costs neither stack nor a second scan."""
_BLANK = re.compile(rb"[ \t\r\n]*+")
_ARRAY_OF_RAW = msgspec.json.Decoder(list[msgspec.Raw])
_OBJECT_END, _ARRAY_END = ord("}"), ord("]")


class Member(NamedTuple):
    """A member of an object: its decoded key and the position of its value in the text, without surrounding whitespace."""

    key: str
    start: int
    end: int


class _Expected(Enum):
    VALUE = "value"
    VALUE_OR_END = "value or ]"
    KEY = "key"
    KEY_OR_END = "key or }"
    COLON = ":"
    COMMA_OR_END = ", or the end"


_ENDS_ALLOWED = (_Expected.COMMA_OR_END, _Expected.KEY_OR_END, _Expected.VALUE_OR_END)
_VALUES_ALLOWED = (_Expected.VALUE, _Expected.VALUE_OR_END)
_KEYS_ALLOWED = (_Expected.KEY, _Expected.KEY_OR_END)


def members(text: bytes, start: int = 0, end: int | None = None) -> list[Member]:
    """Return the members of the object that fills `text[start:end]`, in order and with duplicates. Linear in time.

    Raises ValueError unless the range is one complete JSON object.
    """
    end = len(text) if end is None else end
    found: list[Member] = []
    token = _expect(b"{", next_token(text, start, end))
    token = next_token(text, token.end(), end)
    while token.group("mark") != b"}":
        key = token.group("string")
        if key is None:
            raise malformed()
        colon = _expect(b":", next_token(text, token.end(), end))
        value_start = after_blanks(text, colon.end(), end)
        behind = value_end(text, value_start, end)
        found.append(Member(decoded_key(key), value_start, behind))
        token = next_token(text, behind, end)
        if token.group("mark") == b"}":
            break
        token = next_token(text, _expect(b",", token).end(), end)
        if token.group("mark") == b"}":
            raise malformed()
    if after_blanks(text, token.end(), end) != end:
        raise malformed()
    return found


def elements(text: bytes, start: int = 0, end: int | None = None) -> list[tuple[int, int]]:
    """Return the positions of the elements of the array that fills `text[start:end]`, in order. Linear in time.

    Raises ValueError unless the range is one complete JSON array.
    """
    end = len(text) if end is None else end
    try:
        return _elements_at_once(text, start, end)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    found: list[tuple[int, int]] = []
    token = _expect(b"[", next_token(text, start, end))
    after = next_token(text, token.end(), end)
    token = after if after.group("mark") == b"]" else token
    while token.group("mark") != b"]":
        value_start = after_blanks(text, token.end(), end)
        found.append((value_start, value_end(text, value_start, end)))
        token = next_token(text, found[-1][1], end)
        if token.group("mark") not in (b",", b"]"):
            raise malformed()
    if after_blanks(text, token.end(), end) != end:
        raise malformed()
    return found


def _elements_at_once(text: bytes, start: int, end: int) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    position = start + 1
    for value in _ARRAY_OF_RAW.decode(text[start:end]):
        value_start = text.index(bytes(value), position, end)
        position = value_start + len(bytes(value))
        found.append((value_start, position))
    return found


def value_end(text: bytes, start: int, end: int) -> int:
    """Return the end of the JSON value that starts at `start`.

    The loop keeps a stack of open brackets, so each level of depth costs one byte.
    """
    closers = bytearray()
    expected = _Expected.VALUE
    position = start
    while True:
        token = next_token(text, position, end)
        position = token.end()
        if token.lastgroup == "mark":
            mark = text[position - 1]
            after = _after_mark(mark, expected, closers)
            if after is not None:
                expected = after
                continue
        elif token.lastgroup == "string" and expected in _KEYS_ALLOWED:
            expected = _Expected.COLON
            continue
        elif expected not in _VALUES_ALLOWED:
            raise malformed()
        if not closers:
            return position
        expected = _Expected.COMMA_OR_END


def _after_mark(mark: int, expected: _Expected, closers: bytearray) -> _Expected | None:
    """Return what may follow a bracket, comma or colon; None if it ended a value. Updates the stack of open brackets."""
    if mark == ord("{") and expected in _VALUES_ALLOWED:
        closers.append(_OBJECT_END)
        return _Expected.KEY_OR_END
    if mark == ord("[") and expected in _VALUES_ALLOWED:
        closers.append(_ARRAY_END)
        return _Expected.VALUE_OR_END
    if mark == ord(":") and expected is _Expected.COLON:
        return _Expected.VALUE
    if mark == ord(",") and expected is _Expected.COMMA_OR_END:
        return _Expected.KEY if closers[-1] == _OBJECT_END else _Expected.VALUE
    if closers and mark == closers[-1] and expected in _ENDS_ALLOWED:
        closers.pop()
        return None
    raise malformed()


def next_token(text: bytes, start: int, end: int) -> re.Match[bytes]:
    """Return the token that begins at `start`, or behind blanks there. Its group is `string`, `mark` or `atom`. Raises ValueError."""
    token = _TOKEN.match(text, start, end)
    if token is None:
        raise malformed()
    return token


def _expect(mark: bytes, token: re.Match[bytes]) -> re.Match[bytes]:
    if token.group("mark") != mark:
        raise malformed()
    return token


def after_blanks(text: bytes, start: int, end: int) -> int:
    """Return the position behind the blanks at `start`."""
    blanks = _BLANK.match(text, start, end)
    return blanks.end() if blanks else start


def decoded_key(quoted: bytes) -> str:
    """Decode a key. Bytes that are not UTF-8 become lone surrogates, which no known key contains."""
    text = quoted.decode("utf-8", "surrogateescape")
    return str(json.loads(text)) if "\\" in text else text[1:-1]


def malformed() -> ValueError:
    """Return the error for malformed JSON, without any of its content."""
    return ValueError("not one complete JSON object")

"""JSON values as text: extraction from objects and arrays, decoding of strings, and texts that every reader accepts.

No value becomes a number, so every digit, escape and duplicate is preserved. Texts are UTF-8 and well-formed JSON unless a function says
otherwise. NaN, Infinity and -Infinity count as JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

import msgspec

from destination_s3_spark.exact_json.members import malformed, members

QUOTE, OBJECT, ARRAY = ord('"'), ord("{"), ord("[")
"""First bytes of strings, objects and arrays."""
NULL = b"null"

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_STRING = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_STRINGS_AND_BLANKS = re.compile(rb"(" + _STRING + rb")|[ \t\r\n]++")
_BLANK = r"[ \t\r\n]*+"
_BLANKS = re.compile(_BLANK)
_OPENING = re.compile(rf"{_BLANK}\{{{_BLANK}(\}})?")
_KEY = re.compile(rf'{_BLANK}"([^"\\\x00-\x1f]*+(?:\\.[^"\\\x00-\x1f]*+)*+)"{_BLANK}:{_BLANK}')
_BEHIND = re.compile(rf"{_BLANK}([,}}])")
_ITEMS = re.compile(_STRING + rb"|[\[\]{},]")
_NON_NUMBERS = re.compile(_STRING + rb"|[\[\]{},]|NaN|-?Infinity")

Text = bytes | msgspec.Raw
"""A JSON value in the form it has in a line."""

_scan_string: Callable[[str, int], tuple[str, int]] = json.decoder.scanstring  # type: ignore[attr-defined]
_scan_value: Callable[[str, int], tuple[object, int]]
_scan_value = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=str).scan_once  # type: ignore[attr-defined]

_split = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_split_array = msgspec.json.Decoder(list[msgspec.Raw]).decode
_string = msgspec.json.Decoder(str).decode


def split_object(text: Text) -> dict[str, bytes]:
    """Return the values of an object by decoded key, as texts. Of duplicate keys the last one wins.

    Values may contain bytes that are not UTF-8, and then keys contain them as surrogates. Raises ValueError unless the text is one complete
    JSON object.
    """
    try:
        return {key: bytes(value) for key, value in _split(text).items()}
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        line = bytes(text)
    try:
        return _scanned(line.decode())
    except (UnicodeDecodeError, RecursionError):
        return {member.key: line[member.start : member.end] for member in members(line)}


def object_text(values: Mapping[str, bytes]) -> bytes:
    """Return the object with these members, the inverse of `split_object`. The values are texts."""
    return b"{" + b",".join(_name(key) + b":" + text for key, text in values.items()) + b"}"


def _name(key: str) -> bytes:
    try:
        return json.dumps(key, ensure_ascii=False).encode()
    except UnicodeEncodeError:  # half a surrogate pair, which only an escape can express
        return json.dumps(key).encode()


def _scanned(text: str) -> dict[str, bytes]:
    """Split an object with NaN, Infinity or lone surrogates like `split_object`, at the speed of the standard library's scanner."""
    found: dict[str, bytes] = {}
    opening = _match(_OPENING, text, 0)
    mark, at = opening[1] or ",", opening.end()
    while mark == ",":
        key = _match(_KEY, text, at)
        try:
            _, end = _scan_value(text, key.end())
        except (StopIteration, json.JSONDecodeError):
            raise malformed() from None
        name = key[1] if "\\" not in key[1] else _scan_string(text, key.start(1))[0]
        found[name] = text[key.end() : end].encode()
        behind = _match(_BEHIND, text, end)
        mark, at = behind[1], behind.end()
    if _match(_BLANKS, text, at).end() != len(text):
        raise malformed()
    return found


def _match(pattern: re.Pattern[str], text: str, at: int) -> re.Match[str]:
    match = pattern.match(text, at)
    if match is None:
        raise malformed()
    return match


def split_array(text: bytes) -> list[bytes]:
    """Return the items of a well-formed array, as texts."""
    try:
        return [bytes(item) for item in _split_array(text)]
    except (msgspec.DecodeError, RecursionError):
        return list(_items(text))


def _items(text: bytes) -> list[bytes]:
    found = []
    depth = 0
    start = 1
    for token in _ITEMS.finditer(text):
        mark = token.group()
        if mark in (b"[", b"{"):
            depth += 1
        elif depth == 1 and mark in (b",", b"]"):
            found.append(text[start : token.start()].strip())
            start = token.end()
        if mark in (b"]", b"}"):
            depth -= 1
    return [] if found == [b""] else found


def compact(text: bytes) -> bytes:
    """Return a container's text without insignificant whitespace. Digits, escapes, key order and duplicate keys stay unchanged."""
    if len(text.split(None, 1)) == 1:
        return text
    try:
        return msgspec.json.format(text, indent=-1)
    except (msgspec.DecodeError, RecursionError):
        return _STRINGS_AND_BLANKS.sub(rb"\1", text)


def string_value(text: bytes) -> str:
    """Decode a JSON string, which may contain lone surrogates. Raises ValueError for any other value and for text that is not UTF-8."""
    try:
        return _string(text)
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass
    try:
        value = json.loads(text.decode()) if text[:1] == b'"' else None
    except ValueError:
        value = None
    if not isinstance(value, str):
        raise ValueError("a name that is not readable text")
    return value


def string(quoted: bytes) -> str:
    """Decode a well-formed JSON string, which may contain lone surrogates."""
    if b"\\" not in quoted:
        return quoted[1:-1].decode()
    return _scan_string(quoted.decode(), 1)[0]


def without_lone_surrogates(text: str) -> str:
    """Replace each lone surrogate by U+FFFD. Return the same object if there is none."""
    return text if text.isascii() or _LONE_SURROGATE.search(text) is None else _LONE_SURROGATE.sub("\ufffd", text)


Step = tuple[int, str | None]
"""Step into a member (its ordinal, its key) or an item (its index, None)."""


class NonNumber(NamedTuple):
    """Position of a NaN or an Infinity in a text, and the steps that lead to it."""

    start: int
    end: int
    steps: tuple[Step, ...]


class _Container:
    """An open container: the ordinal and the key of its next value."""

    __slots__ = ("is_object", "key", "ordinal")

    def __init__(self, *, is_object: bool) -> None:
        self.is_object = is_object
        self.ordinal = 0
        self.key: bytes | None = None

    def step(self) -> Step:
        if self.key is None:
            return self.ordinal, None
        return self.ordinal, without_lone_surrogates(string(self.key))


def non_numbers(text: bytes) -> Iterator[NonNumber]:
    """Yield the NaN and Infinity values of a text that is otherwise well-formed JSON."""
    if b"NaN" not in text and b"Infinity" not in text:
        return
    around: list[_Container] = []
    for token in _NON_NUMBERS.finditer(text):
        mark = token.group()
        match mark:
            case b"{" | b"[":
                around.append(_Container(is_object=mark == b"{"))
            case b"}" | b"]":
                around.pop()
            case b",":
                around[-1].ordinal += 1
                around[-1].key = None
            case _ if mark[0] != QUOTE:
                yield NonNumber(token.start(), token.end(), tuple(container.step() for container in around))
            case _ if around and around[-1].is_object and around[-1].key is None:
                around[-1].key = mark


def with_nulls(found: Iterable[NonNumber], text: bytes) -> bytes:
    """Return the text with null at these positions."""
    parts = []
    position = 0
    for place in found:
        parts += [text[position : place.start], NULL]
        position = place.end
    return b"".join([*parts, text[position:]])

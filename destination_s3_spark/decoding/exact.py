"""One JSON value, as the text it stands in, -> one typed scalar, exactly.

Every function takes the bytes of one well-formed JSON value in UTF-8 (NaN, Infinity and -Infinity included) without blanks around it.
A function returns the value, or the Reason why the value becomes null. Working on the text keeps every digit: nothing here goes
through a binary float but the `number` type itself, and numbers of any length cost no more than their length.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from decimal import Decimal

import msgspec

from destination_s3_spark.decoding.changes import Reason
from destination_s3_spark.protocol.exact_json import members

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
DOUBLE_MAX = 1.7976931348623157e308
_NUMBER_MAX = Decimal("1.7976931348623157E308")
"""The largest double by its shortest digits, which is where Airbyte's own destinations see the end of the range."""
_INT64_DIGITS = 19

QUOTE, OBJECT, ARRAY = ord('"'), ord("{"), ord("[")
NULL = b"null"
_NUMBER_STARTS = frozenset(b"-0123456789")

_NUMBER = re.compile(rb"([+-]?)(\d*)(?:\.(\d*))?(?:[eE]([+-]?\d+))?")
_INTEGER_TEXT = re.compile(rb"[+-]?\d+")
_NUMERIC_TEXT = re.compile(rb"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
_PLAIN_INTEGER = re.compile(rb"-?\d{1,18}")
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_STRING = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_STRINGS_AND_BLANKS = re.compile(rb"(" + _STRING + rb")|[ \t\r\n]++")
_BLANK = r"[ \t\r\n]*+"
_BLANKS = re.compile(_BLANK)
_OPENING = re.compile(rf"{_BLANK}\{{{_BLANK}(\}})?")
_KEY = re.compile(rf'{_BLANK}"([^"\\\x00-\x1f]*+(?:\\.[^"\\\x00-\x1f]*+)*+)"{_BLANK}:{_BLANK}')
_BEHIND = re.compile(rf"{_BLANK}([,}}])")
_ITEMS = re.compile(_STRING + rb"|[\[\]{},]")

Text = bytes | msgspec.Raw
"""A JSON value as it stands in a line."""

scanstring: Callable[[str, int], tuple[str, int]] = json.decoder.scanstring  # type: ignore[attr-defined]
_scan_value: Callable[[str, int], tuple[object, int]]
_scan_value = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=str).scan_once  # type: ignore[attr-defined]

_split = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_split_array = msgspec.json.Decoder(list[msgspec.Raw]).decode


def split_object(text: Text) -> Mapping[str, Text]:
    """The values of an object by decoded key, as texts; of equal keys the last one. ValueError when it is no JSON object."""
    try:
        return _split(text)
    except (msgspec.DecodeError, RecursionError):
        line = bytes(text)
    try:
        return _scanned(line.decode())
    except RecursionError:
        return {member.key: line[member.start : member.end] for member in members(line)}


def _scanned(text: str) -> dict[str, Text]:
    """Like `split_object`, for NaN, Infinity and lone surrogates, at the speed of the standard library's scanner."""
    found: dict[str, Text] = {}
    opening = _match(_OPENING, text, 0)
    mark, at = opening[1] or ",", opening.end()
    while mark == ",":
        key = _match(_KEY, text, at)
        try:
            _, end = _scan_value(text, key.end())
        except StopIteration:
            raise _malformed() from None
        name = key[1] if "\\" not in key[1] else scanstring(text, key.start(1))[0]
        found[name] = text[key.end() : end].encode()
        behind = _match(_BEHIND, text, end)
        mark, at = behind[1], behind.end()
    if _match(_BLANKS, text, at).end() != len(text):
        raise _malformed()
    return found


def _match(pattern: re.Pattern[str], text: str, at: int) -> re.Match[str]:
    match = pattern.match(text, at)
    if match is None:
        raise _malformed()
    return match


def _malformed() -> ValueError:
    return ValueError("not one complete JSON object")


def split_array(text: bytes) -> list[bytes]:
    """The items of a well-formed array, as texts."""
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
    """A container's text without insignificant blanks; digits, escapes, key order and duplicate keys stay as they are."""
    if len(text.split(None, 1)) == 1:
        return text
    try:
        return msgspec.json.format(text, indent=-1)
    except (msgspec.DecodeError, RecursionError):
        return _STRINGS_AND_BLANKS.sub(rb"\1", text)


def string(quoted: bytes) -> str:
    """The Python text of a JSON string; it may hold lone surrogates."""
    if b"\\" not in quoted:
        return quoted[1:-1].decode()
    return scanstring(quoted.decode(), 1)[0]


def without_lone_surrogates(text: str) -> str:
    """The text with U+FFFD in place of each surrogate that has no partner; the same object when there is none."""
    return text if text.isascii() or _LONE_SURROGATE.search(text) is None else _LONE_SURROGATE.sub("\ufffd", text)


def boolean(text: bytes) -> bool | Reason:
    """JSON booleans only."""
    if text == b"true":
        return True
    return False if text == b"false" else Reason.SERIALIZATION


def integer(text: bytes) -> int | Reason:
    """Integers, numbers with a zero fraction and strings of a decimal integer, inside int64."""
    if _PLAIN_INTEGER.fullmatch(text):
        return int(text)
    if text[0] == QUOTE:
        inner = string(text).encode("utf-8", "replace")
        return _integral(inner) if _INTEGER_TEXT.fullmatch(inner) else Reason.SERIALIZATION
    return _integral(text) if text[0] in _NUMBER_STARTS else Reason.SERIALIZATION


def number(text: bytes) -> float | Reason:
    """Numbers and numeric strings inside the range of a double; digits beyond its precision are rounded."""
    if text[0] == QUOTE:
        inner = string(text).encode("utf-8", "replace")
        return _double(inner) if _NUMERIC_TEXT.fullmatch(inner) else Reason.SERIALIZATION
    if text == b"-0":
        return 0.0  # an integer zero has no sign
    return _double(text) if text[0] in _NUMBER_STARTS else Reason.SERIALIZATION


def is_rounded(text: bytes) -> bool:
    """Whether a number or numeric string that a double takes is another number than the double."""
    digits = text.strip(b'"').decode()
    return Decimal(digits) != Decimal(float(digits))


def _double(text: bytes) -> float | Reason:
    if text == b"-Infinity":
        return Reason.SERIALIZATION
    value = float(text)
    if -DOUBLE_MAX < value < DOUBLE_MAX:
        return value
    # A number a hair above the largest double is rounded down to it; whether it was beyond is told by its digits alone.
    if abs(value) == DOUBLE_MAX and Decimal(text.decode()).copy_abs() <= _NUMBER_MAX:
        return value
    return Reason.SIZE


def _integral(text: bytes) -> int | Reason:
    """The value of a decimal number by its digits, so that 1e999999999 costs nothing."""
    match = _NUMBER.fullmatch(text)
    if match is None:
        return Reason.SERIALIZATION
    sign, whole, fraction, exponent = match.groups(b"")
    digits = (whole + fraction).lstrip(b"0")
    if not digits:
        return 0
    significant = digits.rstrip(b"0")
    zeros = len(digits) - len(significant) - len(fraction) + _clamped(exponent)
    if zeros < 0:
        return Reason.SERIALIZATION
    if len(significant) + zeros > _INT64_DIGITS:
        return Reason.SIZE
    value = int(sign + significant) * 10**zeros
    return value if INT64_MIN <= value <= INT64_MAX else Reason.SIZE


def _clamped(exponent: bytes) -> int:
    """The exponent, cut to a size that decides every question about int64 whatever the number of digits before it (< 2**40)."""
    if not exponent:
        return 0
    digits = exponent.lstrip(b"+-0") or b"0"
    size = int(digits) if len(digits) <= 13 else 10**13
    return -size if exponent[:1] == b"-" else size

"""Record lines spoilt by their bytes, by their tokens or as JSON: some are no records then, some are odd, and most are plain."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from typing import Any

from destination_s3_spark.schema.airbyte_type import Array, Decimal, Object, Scalar, SchemalessArray, SchemalessObject, Union

_NUMBERS = (
    *[
        "0",
        "-0",
        "-0.0",
        "1",
        "-1",
        "1.0",
        "1e3",
        "1.5E+1",
        "1E-2",
        "0.1",
        "10.50",
        "0e5",
        "-0e-5",
        "0.30000000000000004",
        "5e-324",
        "1e-400",
        "999999999999999999",
        "-999999999999999999",
        "1000000000000000000",
        "9223372036854775807",
        "9223372036854775808",
        "-9223372036854775808",
        "9007199254740992",
        "9007199254740993",
        "9007199254740993.0",
        "123456789012345678.5",
        "0.123456789012345678",
        "1234567890123456789012e2",
        "1.7976931348623157e308",
        "1.7976931348623158e308",
        "1.7976931348623159e308",
        "1e400",
        "-1e400",
        "2.2250738585072011e-308",
        "1e22",
        "1e23",
        "01",
        "-",
        "1.",
        ".5",
        "+1",
        "1e",
        "0x1",
        "1_0",
        "--1",
        "NaN",
        "Infinity",
        "-Infinity",
        "-NaN",
        "Nan",
        "1NaN",
    ],
    "17976931348623157" + "0" * 292,
)


_STRINGS = (
    *('""', '"a"', '"1"', '"-00012"', '"1.0"', '"1e3"', '" 1"', '"n/a"', '"NaN"', '"true"', '"日本"', '"𝄞"', '"a\\u0000b"', '"\\""'),
    *('"\\ud800"', '"a\\ud83d\\ude00b"', '"\\udc00\\ud83d"', '"\\ud83d\\u0041"', '"\\u00e9\\n\\/"', '"\\u0031"', '"\\\\"', '"\\x"'),
    *('"\\u12"', '"{\\"a\\": [1, 2]}"', '"[ ]"', '"1234567"', '"12345678"'),
    '"1234567\\\\"',
    '"tab\there"',
    '"\x7f"',
    '"' + "x" * 300 + '"',
    '"' + "é" * 40 + '\\t"',
)


_TEMPORALS = tuple(
    text
    for line in (
        "2021-01-02|2021/1/2|2021.01.03|2021 Jan 04|21-01-01|2021-02-29|2024-02-29|1900-02-29|2000-02-29|2021-13-01|0000-01-01|0001-01-01",
        "9999-12-31|10000-01-01|+10000-01-01|2021-1-1 BC|2021-00-10|2021-01-00|2021-04-31|2021-01-02 |2021-01-02T03:04|2021-01-02 03:04Z",
        "2021-01-02T03:04:05|2021-01-02T03:04:05.1|2021-01-02 03:04:05.123456789Z|2021-01-02T|2021-01-02T03:04:05.123456+05:30",
        "2021-01-02T00:00:00Z|2021-01-02 00:00+00:30|2021-01-02T03:04:05.123456000Z|2021-01-02T03:04:05.0000001Z|12:34:56.1234567  ",
        "2021-01-02T03:04:05.5 |2021-01-02T03:04:05 PST  |10000-01-02T03:04:05Z|+999999-01-02|9999999999-01-02T00:00:00Z",
        "2021-01-02T03:04:05-0800|2021-01-02T03:04:05+08|2021-01-02T03:04:05+17:59|2021-01-02T03:04:05+18|2021-01-02T03:04:05+18:01",
        "2021-01-02T03:04:05+17:60|2021-01-02T24:00:00Z|2021-01-02T23:59:60Z|2021-01-02t03:04:05z|2021-07-02 03:04:05 PST",
        "2021-07-02T03:04:05 Europe/Berlin|2021-01-02T03:04:05,5Z|2021-01-02T03:04:05.Z|2021-01-02T03:04:05.Z1|2026/01/02 03:04:05",
        "2026-01-02  03:04:05|2026-01-02T 03:04:05Z|2021-01-02 T03:04:05Z|12:34|12:34:56|12:34:56.123456789|12:34:56-01:00|04:00:00+05:30",
        "24:00|24:00:00|25:00|12:60:00|1:02|infinity|1611405296|2021-01-02T03:04:05.1234567890Z|1969-12-31T23:59:59.999999Z",
        "0001-01-01T00:00:00+00:01|9999-12-31T23:59:59.999999-17:59|２０21-01-02|2021\\u002d01-02|2021-01-02T03:04:05-",
    )
    for text in line.split("|")
)


_OTHERS = (
    "null",
    "true",
    "false",
    "{}",
    "[]",
    "[null]",
    '{"lat":1}',
    "[[1,2],[3]]",
    '{"a": [1 , 2.50, "x y"]}',
    '[ "\\ud800" , NaN ]',
    "nul",
    "tru",
    "[1,]",
    "{,}",
)


_TOKENS = (
    b",",
    b":",
    b"{",
    b"}",
    b"[",
    b"]",
    b'"',
    b"\\",
    b" ",
    b"\t",
    b"\r",
    b"\0",
    b"\x1f",
    b"\x7f",
    b"\xff",
    b"\xe2\x82",
    b"\xc3",
    b"\xc3\xa9",
    b"\xed\xa0\x80",
    b"NaN",
    b"-Infinity",
    b"null",
    b"1",
    b"-",
    b"e5",
    b".",
    b"\\u0041",
    b"\\ud800",
    b"\\u00e9",
    b'"data":',
    b'"record":',
    b'"id":1,',
    b'"lat":2,',
)


def random_value(chance: random.Random, of: Any) -> str:  # noqa: C901 - one case per type
    """A text of this type, now and then of another one."""
    if chance.random() < 0.03:
        return chance.choice((*_NUMBERS, *_STRINGS, *_OTHERS))
    match of:
        case Object(fields):
            return "{" + ",".join(f"{json.dumps(field.source)}:{random_value(chance, field.type)}" for field in fields) + "}"
        case Array(items):
            return "[" + ",".join(random_value(chance, items) for _ in range(chance.randrange(4))) + "]"
        case Union(options):
            return random_value(chance, chance.choice(options))
        case SchemalessObject():
            return chance.choice(("{}", '{"a":1}', '{"a": "x y", "b":[1, 2]}', '{"a":{"a":null}}'))
        case SchemalessArray():
            return chance.choice(("[]", "[1]", '[ "x y", {"b":[1, 2]}]'))
        case Scalar.BOOLEAN:
            return chance.choice(("true", "false", "null"))
        case Scalar.INTEGER:
            return str(chance.randrange(-(10 ** chance.randrange(1, 20)), 10 ** chance.randrange(1, 20)))
        case Scalar.NUMBER | Decimal():
            return repr(chance.uniform(-1, 1) * 10 ** chance.randrange(-20, 20))
        case Scalar.STRING:
            return json.dumps(
                chance.choice(("", "text", "mit Ümläuten", "a longer text with blanks and \n newlines", "𝄞")),
                ensure_ascii=chance.random() < 0.5,
            )
    return f'"{chance.choice(_TEMPORALS[:1] * 20 + _TEMPORALS)}"'


def spoilt(line: bytes, chance: random.Random) -> bytes:
    """The line with one to three things done to it."""
    for _ in range(chance.choice((1, 1, 2, 3))):
        line = chance.choice(_WAYS)(line, chance)
    return line.replace(b"\n", b" ")


def _other_byte(line: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(len(line) + 1)
    return line[:at] + bytes([chance.randrange(256)]) + line[at + 1 :]


def _other_token(line: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(len(line) + 1)
    return line[:at] + chance.choice(_TOKENS) + line[at + chance.randrange(3) :]


def _cut(line: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(len(line) + 1)
    return line[:at] + line[at + chance.choice((1, 2, 5, 50, 10**6)) :]


def _repeated(line: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(len(line) + 1)
    return line[:at] + line[max(0, at - chance.randrange(60)) :]


def _in_json(change: Callable[[Any, random.Random], Any]) -> Callable[[bytes, random.Random], bytes]:
    def way(line: bytes, chance: random.Random) -> bytes:
        try:
            message = json.loads(line)
            message = change(message, chance)
        except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError):
            return line
        separators = chance.choice(((",", ":"), (", ", ": "), (" ,", " :"), (",\t", ":\r")))
        text = json.dumps(message, separators=separators, ensure_ascii=chance.random() < 0.5)
        for number, value in _values_of(text):
            text = text.replace(f'"@{number}@"', value)
        return text.encode("utf-8", "surrogatepass")

    return way


_given: list[str] = []


def _values_of(text: str) -> Iterator[tuple[int, str]]:
    yield from enumerate(_given)
    _given.clear()


def _stand_in(chance: random.Random) -> str:
    """A string that a value of any text takes the place of once all is written."""
    temporals = [f'"{text}"' for text in _TEMPORALS]
    _given.append(chance.choice(chance.choice((_NUMBERS, _STRINGS, temporals, _OTHERS, (_deep(chance),)))))
    return f"@{len(_given) - 1}@"


def _deep(chance: random.Random) -> str:
    depth = chance.choice((3, 100, 500, 505, 510, 515, 600, 3000))
    return "[" * depth + chance.choice(("", "1", '{"a":1}', "NaN")) + "]" * depth


def _other_value(message: Any, chance: random.Random) -> Any:
    place: Any = message["record"]["data"]
    while True:
        key = chance.choice(list(place) if isinstance(place, dict) else range(len(place)))
        if not isinstance(place[key], dict | list) or not place[key] or chance.random() < 0.3:
            place[key] = _stand_in(chance)
            return message
        place = place[key]


def _shuffled(message: Any, chance: random.Random) -> Any:
    if isinstance(message, dict):
        members = [(key, _shuffled(value, chance)) for key, value in message.items()]
        chance.shuffle(members)
        return dict(members)
    return message


def _more(message: Any, chance: random.Random) -> Any:
    place = chance.choice((message, message["record"], message["record"], message["record"]["data"]))
    changes = [{"field": "f", "change": "NULLED", "reason": chance.choice(("SOURCE_RETRIEVAL_ERROR", None, 5))}]
    members = [
        ("more", _stand_in(chance)),
        ("meta", {"changes": changes}),
        ("meta", None),
        ("meta", {}),
        ("meta", {"changes": []}),
        ("meta", 5),
    ]
    key, value = chance.choice(members)
    return {key: value, **place} if place is message and chance.random() < 0.5 else (place.__setitem__(key, value), message)[1]


def _envelope(message: Any, chance: random.Random) -> Any:
    record = message["record"]
    record[chance.choice(("stream", "namespace", "emitted_at", "data", "type"))] = _stand_in(chance)
    return message


_WAYS: tuple[Callable[[bytes, random.Random], bytes], ...] = (
    *(_other_byte, _other_token, _other_token, _cut, _repeated),
    *map(_in_json, (_other_value, _other_value, _other_value, _other_value, _shuffled, _more, lambda message, _: message)),
    lambda line, _: line + b"\r",
)

with_other_envelope = _in_json(_envelope)

"""Both typers over spoilt record lines: what one makes of a block, the other makes of it, too.

Lines are the demo shop's and such as hold every kind of value there is a rule for. They are spoilt by their bytes, by their tokens or as
JSON, so that some are no records, some are odd and most are plain. Run as a program it goes on for a while (`make fuzz`); a test takes a
few rounds.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Callable, Iterator, Sequence
from time import monotonic
from typing import Any

import pyarrow as pa

from destination_s3_spark.decoding.keyed_ids import carried_digest
from destination_s3_spark.decoding.plan import RowPlan
from destination_s3_spark.decoding.record_typer import MisroutedRecord, RecordTyper, TypedBlock, UnreadableRecord
from destination_s3_spark.demo import shop
from destination_s3_spark.demo.shop import Shop
from destination_s3_spark.kernel import KERNEL
from destination_s3_spark.protocol.catalog import parse_catalog
from destination_s3_spark.schema.airbyte_type import Array, Field, Object, Scalar, SchemalessArray, SchemalessObject, Union
from destination_s3_spark.schema.arrow import META_FIELDS, arrow_field
from destination_s3_spark.schema.json_schema import stream_fields
from destination_s3_spark.stream_id import StreamId
from unit_tests.decoding.native import native_typer

STREAM = StreamId("shop", "users")
_POINT = Object((Field("lat", "lat", Scalar.NUMBER), Field("é", "e", Scalar.TIMESTAMP_WITH_TIMEZONE), Field('q"\\', "q", Scalar.STRING)))
_FIELDS = (
    *(Field(scalar.value, scalar.value, scalar) for scalar in Scalar),
    Field("Integer", "Integer_1", Scalar.NUMBER),
    Field("o", "o", SchemalessObject()),
    Field("a", "a", SchemalessArray()),
    Field("point", "point", _POINT),
    Field("points", "points", Array(_POINT)),
    Field("grid", "grid", Array(Array(Scalar.INTEGER))),
    Field("days", "days", Array(Scalar.DATE)),
    Field("u", "u", Union((Scalar.INTEGER, Scalar.STRING, _POINT, Array(Scalar.BOOLEAN)))),
    Field("us", "us", Array(Union((Scalar.NUMBER, Scalar.DATE)))),
    Field("texts", "texts", Array(SchemalessObject())),
)
_KEY = (*(scalar.value for scalar in Scalar), "o", "point", "u")
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


class Disagreement(Exception):
    """The typers made different things of a block."""


class Source:
    """Good lines of one stream, to be spoilt, and the plan of its table."""

    def __init__(self, plan: RowPlan, lines: Sequence[bytes]) -> None:
        self.plan = plan
        self.lines = lines


def sources(chance: random.Random) -> list[Source]:
    """The demo shop's streams, and one with a column of every type."""
    streams = parse_catalog(json.dumps(Shop(7, 0.0).catalog(dict.fromkeys(shop.MIX, "append"))).encode()).streams
    lines = [line for chunk in Shop(chance.randrange(1000), 0.02, None).read(400) for line in chunk.lines.splitlines()]
    lines_of_all = [_any_line(chance) for _ in range(100)]
    found = [Source(_plan(STREAM, _FIELDS, key), lines_of_all) for key in ((), _KEY)]
    for stream in streams:
        prefix = f'{{"type":"RECORD","record":{{"namespace":"{stream.id.namespace}","stream":"{stream.id.name}"'.encode()
        fields = tuple(stream_fields(stream.json_schema, stream.id).fields)
        key = tuple(field.source for field in fields[:2])
        found.append(Source(_plan(stream.id, fields, key), [line for line in lines if line.startswith(prefix)]))
    return found


def _plan(stream: StreamId, fields: tuple[Field, ...], key: tuple[str, ...]) -> RowPlan:
    return RowPlan(stream, 7, 3, fields, pa.schema([*META_FIELDS, *map(arrow_field, fields)]), key=key)


def _any_line(chance: random.Random) -> bytes:
    members = [
        f"{json.dumps(field.source, ensure_ascii=chance.random() < 0.5)}:{_value(chance, field.type)}"
        for field in _FIELDS
        if chance.random() < 0.8
    ]
    data = "{" + ",".join(members) + "}"
    time = chance.randrange(10**13)
    return f'{{"type":"RECORD","record":{{"stream":"users","namespace":"shop","emitted_at":{time},"data":{data}}}}}'.encode()


def _value(chance: random.Random, of: Any) -> str:  # noqa: C901 - one case per type
    """A text of this type, now and then of another one."""
    if chance.random() < 0.03:
        return chance.choice((*_NUMBERS, *_STRINGS, *_OTHERS))
    match of:
        case Object(fields):
            return "{" + ",".join(f"{json.dumps(field.source)}:{_value(chance, field.type)}" for field in fields) + "}"
        case Array(items):
            return "[" + ",".join(_value(chance, items) for _ in range(chance.randrange(4))) + "]"
        case Union(options):
            return _value(chance, chance.choice(options))
        case SchemalessObject():
            return chance.choice(("{}", '{"a":1}', '{"a": "x y", "b":[1, 2]}', '{"a":{"a":null}}'))
        case SchemalessArray():
            return chance.choice(("[]", "[1]", '[ "x y", {"b":[1, 2]}]'))
        case Scalar.BOOLEAN:
            return chance.choice(("true", "false", "null"))
        case Scalar.INTEGER:
            return str(chance.randrange(-(10 ** chance.randrange(1, 20)), 10 ** chance.randrange(1, 20)))
        case Scalar.NUMBER:
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
_RARE: tuple[Callable[[bytes, random.Random], bytes], ...] = (_in_json(_envelope),)


def block(source: Source, chance: random.Random) -> bytes:
    """Some lines of a source: some as they are, some spoilt."""
    lines = []
    share = chance.choice((0.0, 0.05, 0.3, 1.0))
    for _ in range(chance.randrange(1, 30)):
        line = chance.choice(source.lines)
        if chance.random() < share:
            line = spoilt(line, chance) if chance.random() < 0.97 else chance.choice(_RARE)(line, chance)
        lines.append(line)
    return b"\n".join(lines) + chance.choice((b"\n", b"\n", b"\n", b""))


Outcome = tuple[str, Any]


def outcome(typer: RecordTyper, lines: bytes) -> Outcome:
    """All that a typer says of a block, but for the rows' ids."""
    try:
        typed = typer.type_block(lines)
    except (UnreadableRecord, MisroutedRecord) as error:
        return type(error).__name__, error.index
    return "typed", _said(typed)


def _said(typed: TypedBlock) -> Any:
    typed.final.validate(full=True)
    typed.raw.validate(full=True)
    final, raw = (batch.drop_columns(["_airbyte_raw_id"]) for batch in (typed.final, typed.raw))
    # As texts, because 0.0 and -0.0 are equal.
    values = {name: [repr(value) for value in stored(batch[name])] for batch in (final, raw) for name in batch.schema.names}
    ids = typed.final["_airbyte_raw_id"].equals(typed.raw["_airbyte_raw_id"]) and typed.final["_airbyte_raw_id"].null_count == 0
    keys = list(map(carried_digest, typed.final["_airbyte_raw_id"].to_pylist()))
    return typed.records, final.schema, raw.schema, values, typed.multiset, dict(typed.changes), dict(typed.misfits), ids, keys


def stored(array: pa.Array) -> list[Any]:
    """The values, those of time as the integers that are stored: Python knows no years beyond 9999."""
    values: list[Any] = array.cast(_as_integers(array.type)).to_pylist()
    return values


def _as_integers(of: pa.DataType) -> pa.DataType:
    if pa.types.is_temporal(of):
        return pa.int32() if pa.types.is_date32(of) else pa.int64()
    if pa.types.is_list(of):
        return pa.list_(_as_integers(of.value_type))
    return pa.struct([(field.name, _as_integers(field.type)) for field in of]) if pa.types.is_struct(of) else of


def readable(lines: bytes, typer: RecordTyper) -> bytes:
    """The lines that are records; without those that are none, the others are typed, too."""
    return b"".join(line + b"\n" for line in lines.split(b"\n") if _is_read(typer, line + b"\n"))


def _is_read(typer: RecordTyper, line: bytes) -> bool:
    try:
        return typer.type_block(line).records == 1
    except (UnreadableRecord, MisroutedRecord):
        return False


def run(seed: int, rounds: int, *, seconds: float | None = None) -> int:
    """Compare both typers over so many blocks, or for so long; the number of blocks. Raises Disagreement."""
    if KERNEL is None:
        raise SystemExit("There is no native kernel here.")
    chance = random.Random(seed)
    ends_at = None if seconds is None else monotonic() + seconds
    done = 0
    kept: list[tuple[Source, RecordTyper, RecordTyper]] = []
    while done < rounds if ends_at is None else monotonic() < ends_at:
        if done % 200 == 0:  # what they learnt is forgotten now and then
            kept = [
                (source, RecordTyper(source.plan), native_typer(source.plan, most_odd_lines=most))
                for source in sources(chance)
                for most in (0.5, 1.0)
            ]
        source, python, native = chance.choice(kept)
        lines = block(source, chance)
        for text in {lines, readable(lines, python)}:
            if text and outcome(python, text) != outcome(native, text):
                raise Disagreement(f"seed {seed}, block {done}: {text!r}")
        done += 1
    return done


def main() -> None:
    """Go on for a while."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=random.randrange(10**9))
    options = parser.parse_args()
    print(f"seed {options.seed}")
    print(f"{run(options.seed, 0, seconds=options.seconds)} blocks, no disagreement")


if __name__ == "__main__":
    main()

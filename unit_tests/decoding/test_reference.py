"""The reference over generated schemas and records: against the kernel, and against what Python itself makes of single values."""

from __future__ import annotations

import json
import random
import re
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from destination_s3_spark.decoding.record_line import UnreadableRecord
from destination_s3_spark.schema.airbyte_type import (
    Array,
    Decimal,
    Field,
    Object,
    Scalar,
    SchemalessArray,
    SchemalessObject,
    Union,
    option_name,
)
from unit_tests.cases import each
from unit_tests.sampling import examples

SOURCES = ["id", "a b", "é", 'quo"te', "back\\slash", "", "日本", "type", "x.y", "ctrl\x01", "[0]", "f0", "𝄞"]
TEMPORAL = [s for s in Scalar if s not in (Scalar.STRING, Scalar.BOOLEAN, Scalar.INTEGER, Scalar.NUMBER)]
DECIMALS = [Decimal(10, 2), Decimal(38, 9), Decimal(38, 0), Decimal(2, 2), Decimal(1, 0), Decimal(38, 38)]
NUMBERS = [
    *("0", "-0", "1", "-1", "1.0", "-0.0", "1e3", "1.5e1", "1E-2", "0.1", "10.50", "0e5", "1200e-2", "NaN", "Infinity", "-Infinity"),
    *("9223372036854775807", "9223372036854775808", "-9223372036854775808", "-9223372036854775809", "18446744073709551616"),
    *("0.005", "-0.005", "0.004999999999999999999", "99999999.99", "99999999.994", "99999999.995", "100000000", "-1.000", "9.5", "0.995"),
    *("12345678901234567890123456789.123456789", "99999999999999999999999999999999999999", "99999999999999999999999999999999999999.5"),
    *("0.99999999999999999999999999999999999999", "1e-38", "5e-39", "4.9e-39", "1e37", "1e38", "0.1e10", "100e-10", "12.5e-1", "12.55E1"),
    *("9007199254740993", "9007199254740993.0", "123456789012345678901234567890", "1e400", "-1e400", "1e-400", "4.9e-324"),
    *("1.7976931348623157e308", "1.7976931348623158e308", "1.7976931348623159e308", "1e999999999999999999999", "1e-99999999999999999999"),
    *("17976931348623157" + "0" * 292, "-1.7976931348623157000000000001e308", str(int(1.7976931348623157e308))),
]
STRINGS = [
    *(
        '"12.50"',
        '"-0.1"',
        '"99999999.995"',
        '"0"',
        '"1.5e-1"',
        '"00.5"',
        '"-0.0"',
        '""',
        '"a"',
        '"1"',
        '"+1"',
        '"-00012"',
        '"1.0"',
        '"1e3"',
        '".5"',
        '"5."',
        '"."',
        '"1_000"',
        '" 1"',
        '"1 "',
        '" "',
        '"0x10"',
        '"1e"',
    ),
    *('"NaN"', '"true"', '"null"', '"{}"', '"9223372036854775808"', '"1e400"', '"1e-400"', '"e1"', '"--1"', '"٣"', '"1٣"', '"日本"', '"𝄞"'),
    *(r'"\ud800"', r'"a\ud83d\ude00b"', r'"\udc00\ud83d"', r'"\u0000"', r'"\u00e9\n\/"', r'"\u0031"', r'"\""', r'"\\"'),
]
TEMPORALS = [
    *(
        "2021-01-02",
        "2021/1/2",
        "2021.01.03",
        "2021 Jan 04",
        "21-01-01",
        "2021-02-29",
        "2024-02-29",
        "1900-02-29",
        "2021-13-01",
        "0000-01-01",
    ),
    *(
        "2021-1-1 BC",
        "0001-01-01 AD",
        "0004-02-29 BC",
        "0005-02-29 BC",
        "+10000-01-01",
        "10000-01-01",
        "+300000-01-01T00:00:00Z",
        "20210101",
    ),
    *("2021-01-02T03:04", "2021-01-02 03:04Z", "2021-01-02T03:04:05", "2021-01-02T03:04:05.1", "2021-01-02 03:04:05.123456789Z"),
    *("2021-01-02T03:04:05.123456+05:30", "2021-01-02T03:04:05-0800", "2021-01-02T03:04:05+08", "2021-01-02T03:04:05+18:00"),
    *("2021-01-02T03:04:05+18:01", "2021-01-02T03:04:05+17:60", "2021-01-02T24:00:00Z", "2021-01-02T24:00:00.1Z", "2021-01-02T23:59:60Z"),
    *("2021-07-02 03:04:05 PST", "2021-07-02T03:04:05 Europe/Berlin", "2021-07-02T03:04:05 Nowhere/Land", "2021-01-02t03:04:05z"),
    *("2021-01-02T03:04:05Z BC", "2021-01-02 BC 03:04:05Z BC", "2021-01-02T03:04:05,5Z", "2021-01-02T03:04:05.Z", "2021-01-02 UTC"),
    *("2021-07-02T03:04:05 GMT+8", "12:34", "12:34:56", "12:34:56.123456789", "12:34:56-01:00", "04:00:00+05:30", "24:00", "01:01:01 PST"),
    *(
        "25:00",
        "12:34:56+0530",
        "12:34Z",
        "1:02",
        "infinity",
        "1611405296",
        "2021-01-02T03:04:05.1234567890Z",
        "9999-12-31T23:59:59.999999Z",
    ),
    *(
        "0001-01-01T00:00:00+00:00",
        "2021-01-02T03:04:05 +01:00",
        "2021-01-02T",
        "2021-01-02 ",
        "2021-01-02T03:04:05Z ",
        "2021-07-02 03:04:05 PST  ",
        "12:34:56.1 ",
        " 2021-01-02",
        "2021-01-02Tab",
        "２０21-01-02",
    ),
]
FREE = [Scalar.STRING, SchemalessObject(), SchemalessArray()]


@st.composite
def types(draw: Any, depth: int = 2) -> Any:
    kinds = ["scalar", "scalar", "scalar", "schemaless"] + (["object", "array", "union"] if depth else [])
    match draw(st.sampled_from(kinds)):
        case "object":
            return Object(tuple(draw(fields(depth - 1))))
        case "array":
            return Array(draw(types(depth - 1)))
        case "union":
            options = draw(
                st.lists(types(depth - 1).filter(lambda t: not isinstance(t, Union)), min_size=2, max_size=4, unique_by=option_name)
            )
            return Union(tuple(options))
        case "schemaless":
            return draw(st.sampled_from([SchemalessObject(), SchemalessArray()]))
    return draw(st.sampled_from([*Scalar, *DECIMALS[:3]]))


@st.composite
def fields(draw: Any, depth: int) -> list[Field]:
    sources = draw(st.lists(st.sampled_from(SOURCES), min_size=1, max_size=4, unique=True))
    return [Field(source, f"c{ordinal}", draw(types(depth))) for ordinal, source in enumerate(sources)]


blanks = st.sampled_from(["", "", "", " ", "\t ", "\r"])


@st.composite
def instants(draw: Any) -> str:
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=draw(st.integers(-60_000_000_000, 250_000_000_000)))
    form = draw(st.sampled_from(["%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M:%S", "%Y-%m-%d", "%H:%M:%S"]))
    text = moment.strftime(form.replace("%Y", f"{moment.year:04}"))
    if "%H" in form:
        text += draw(st.sampled_from(["", ".5", ".123", ".000001", ".123456789"])) + draw(
            st.sampled_from(["", "Z", "+02:00", "-0330", "+09"])
        )
    return text


@st.composite
def values(draw: Any, of: Any, depth: int = 3) -> str:  # noqa: C901 - one case per type
    if draw(st.integers(0, 5)) == 0:
        of = draw(types(1))
    match of:
        case Object(members):
            return draw(objects(members, depth))
        case Array(items):
            return draw(arrays(items, depth))
        case Union(options):
            return draw(values(draw(st.sampled_from(options)), depth - 1))
        case SchemalessObject():
            return draw(objects([Field(s, s, draw(st.sampled_from(FREE))) for s in SOURCES[:2]], depth))
        case SchemalessArray():
            return draw(arrays(draw(st.sampled_from(FREE)), depth))
        case Scalar.BOOLEAN:
            return draw(st.sampled_from(["true", "false", "null"]))
        case Scalar.INTEGER:
            return draw(st.sampled_from(NUMBERS) | st.integers(-(2**65), 2**65).map(str) | st.sampled_from(STRINGS))
        case Scalar.NUMBER:
            return draw(st.sampled_from(NUMBERS) | st.floats(allow_nan=False, allow_infinity=False).map(repr) | st.sampled_from(STRINGS))
        case Decimal():
            exact = st.decimals(allow_nan=False, allow_infinity=False) | st.decimals(-(10**8), 10**8, places=2)
            return draw(st.sampled_from(NUMBERS) | exact.map(str) | exact.map("{:f}".format) | st.sampled_from(STRINGS))
        case Scalar.STRING:
            return draw(st.sampled_from(STRINGS) | st.text(max_size=6).map(json.dumps) | st.sampled_from(NUMBERS))
    return draw((st.sampled_from(TEMPORALS) | instants()).map(lambda text: json.dumps(text, ensure_ascii=False)))


@st.composite
def objects(draw: Any, members: Any, depth: int) -> str:
    parts = []
    for field in members if depth > 0 else ():
        for _ in range(draw(st.sampled_from([0, 1, 1, 1, 1, 2]))):
            key = json.dumps(field.source, ensure_ascii=draw(st.booleans()))
            parts.append(f"{draw(blanks)}{key}{draw(blanks)}:{draw(blanks)}{draw(values(field.type, depth - 1))}{draw(blanks)}")
    if draw(st.integers(0, 3)) == 0:
        parts.insert(draw(st.integers(0, len(parts))), '"undeclared":[1, {"a": null}]')
    return "{" + (",".join(parts) or draw(blanks)) + "}"


@st.composite
def arrays(draw: Any, items: Any, depth: int) -> str:
    parts = [draw(values(items, depth - 1)) for _ in range(draw(st.integers(0, 3)) if depth > 0 else 0)]
    return "[" + (f"{draw(blanks)},{draw(blanks)}".join(parts) or draw(blanks)) + "]"


@st.composite
def tables(draw: Any) -> tuple[list[Field], list[str]]:
    declared = draw(fields(2))
    return declared, [draw(objects(declared, 4)) for _ in range(draw(st.integers(1, 6)))]


@settings(examples(150), derandomize=True, suppress_health_check=list(HealthCheck))
@given(table=tables())
def test_kernel_and_reference_type_alike(table: Any, assert_typed_alike: Any) -> None:
    declared, data = table
    assert_typed_alike(declared, data)


NON_NUMBERS = ["NaN", "Infinity", "-Infinity"]
PLAIN_SOURCES = ["id", "a b", "é", "x.y", "[0]", "z"]
ODD_SOURCES = ["NaN", "xInfinity", " null ", "-0E-0"]
PLAIN_STRINGS = ['"NaN"', r'"a \" -Infinity \\"', '"Infinity"', '" null "', '"{["', '"]"', '""']
plain_sources = st.integers(0, 15).flatmap(lambda chance: st.sampled_from(PLAIN_SOURCES if chance else ODD_SOURCES))


@st.composite
def plain_fields(draw: Any, depth: int) -> list[Field]:
    sources = draw(st.lists(plain_sources, min_size=1, max_size=4, unique=True))
    return [Field(source, f"c{ordinal}", draw(plain_types(depth))) for ordinal, source in enumerate(sources)]


@st.composite
def plain_types(draw: Any, depth: int) -> Any:
    match draw(st.integers(0, 5 if depth else 3)):
        case 4:
            return Array(draw(plain_types(depth - 1)))
        case 5:
            return Object(tuple(draw(plain_fields(depth - 1))))
        case 3:
            return draw(st.sampled_from([SchemalessObject(), SchemalessArray(), Union((Scalar.NUMBER, Array(Scalar.STRING)))]))
    return draw(st.sampled_from([Scalar.NUMBER, Scalar.INTEGER, Scalar.STRING, Scalar.BOOLEAN, Scalar.DATE]))


@st.composite
def plain_values(draw: Any, of: Any) -> str:
    """A value msgspec decodes as this type, but for the non-numbers in it."""
    if draw(st.integers(0, 4)) == 0:
        return draw(st.sampled_from(NON_NUMBERS))
    match of:
        case Object(members):
            return draw(plain_objects(members))
        case Array(items):
            return "[" + ",".join(f"{draw(blanks)}{draw(plain_values(items))}{draw(blanks)}" for _ in range(draw(st.integers(1, 3)))) + "]"
        case SchemalessObject():
            return draw(plain_objects([Field(source, source, Scalar.STRING) for source in PLAIN_SOURCES[:2]]))
        case SchemalessArray():
            return draw(plain_values(Array(Scalar.STRING)))
        case Union(options):
            return draw(plain_values(draw(st.sampled_from(options))))
        case Scalar.STRING:
            return draw(st.sampled_from(PLAIN_STRINGS))
        case Scalar.DATE:
            return draw(st.sampled_from(['"2021-01-02"', '"NaN"', '"2021-13-01"']))
    return draw(st.sampled_from(["1", "-2"])) if of is not Scalar.BOOLEAN else "true"


@st.composite
def plain_objects(draw: Any, members: Any) -> str:
    parts = [
        f"{draw(blanks)}{key}{draw(blanks)}:{draw(blanks)}{draw(plain_values(of))}{draw(blanks)}"
        for key, of in [(json.dumps(field.source, ensure_ascii=draw(st.booleans())), field.type) for field in members]
        for _ in range(draw(st.sampled_from([0, 1, 1, 1, 1, 2])))
    ]
    if draw(st.integers(0, 3)) == 0:
        undeclared = st.sampled_from(['"more":[1, {"a": NaN}]', '"more":NaN', '"more":{"NaNs":1}', '"more":"NaN"', '"x":" -0E-03 "'])
        parts.insert(draw(st.integers(0, len(parts))), draw(undeclared))
    return "{" + (",".join(parts) or draw(blanks)) + "}"


@st.composite
def plain_tables(draw: Any) -> tuple[list[Field], list[str]]:
    declared = draw(plain_fields(2))
    return declared, [draw(plain_objects(declared)) for _ in range(draw(st.integers(1, 4)))]


@settings(examples(150), derandomize=True, suppress_health_check=list(HealthCheck))
@given(table=plain_tables())
def test_non_numbers_at_any_depth_are_typed_alike(table: Any, assert_typed_alike: Any) -> None:
    declared, data = table
    assert_typed_alike(declared, data)


@settings(examples(300), derandomize=True, suppress_health_check=list(HealthCheck))
@given(table=plain_tables(), change=st.data())
def test_a_spoilt_record_is_refused_if_it_is_no_json(
    table: Any, change: Any, assert_typed_alike: Any, *, make_plan: Any, make_line: Any, make_block: Any, make_typer: Any
) -> None:
    declared, (data, *_) = table
    at = change.draw(st.integers(1, len(data) - 1))
    kept = at + change.draw(st.integers(0, 1))
    spoilt = data[:at] + change.draw(st.sampled_from(["", *',:[]{"\\-1N \x01', "NaN"])) + data[kept:]
    if is_object(spoilt):
        assert_typed_alike(declared, [spoilt])
        return
    with pytest.raises(UnreadableRecord):
        make_typer(make_plan(declared)).type_block(make_block([make_line(spoilt)]))


def is_object(text: str) -> bool:
    """Whether Python's parser, which takes NaN and Infinity too, takes the text as one object."""
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


@each("of", TEMPORAL, ids=lambda of: of.value)
def test_every_temporal_form_is_read_alike_in_a_column_and_alone(of: Scalar, assert_typed_alike: Any) -> None:
    assert_typed_alike([Field("x", "x", of)], [json.dumps({"x": text}, ensure_ascii=False) for text in TEMPORALS])


@each("of", [*Scalar, *DECIMALS], ids=str)
def test_every_kind_of_value_in_a_column_of_every_type(of: Scalar | Decimal, assert_typed_alike: Any) -> None:
    texts = [*NUMBERS, *STRINGS, "true", "false", "null", "{}", "[]", '{"a": [1, 2.50, "x y"]}', '[ "\\ud800" , NaN ]']
    assert_typed_alike([Field("x", "x", of)], ["{}", *(f'{{"x":{text}}}' for text in texts)])


def exact(text: str) -> Fraction | None:
    """The value of a number or numeric string."""
    match = re.fullmatch(r'"?([+-]?)([0-9]*)\.?([0-9]*)(?:[eE]([+-]?[0-9]{1,4}))?"?', text)
    if match is None or not match[2] + match[3] or (text[0] != '"' and not is_object(f'{{"x":{text}}}')):
        return None
    return Fraction(int((match[1] or "+") + match[2] + match[3])) * Fraction(10) ** (int(match[4] or 0) - len(match[3]))


NUMERIC = [text for text in [*NUMBERS, *STRINGS] if exact(text) is not None]


@each("text", NUMERIC)
def test_a_number_keeps_every_digit_that_its_type_holds(text: str, one_value: Any) -> None:
    value = exact(text)
    assert value is not None
    integral = (value.denominator == 1 and re.fullmatch('"?[+-]?[0-9]+"?', text)) or (text[0] != '"' and value.denominator == 1)
    assert one_value(Scalar.INTEGER, text)[0] == (int(value) if integral and -(2**63) <= value < 2**63 else None)
    number = one_value(Scalar.NUMBER, text)[0]
    assert number == (float(value) if abs(value) <= Fraction("1.7976931348623157e308") else None)
    for of in DECIMALS:
        stored, changes = one_value(of, text)
        unscaled = int(abs(value) * 10**of.scale + Fraction(1, 2))
        assert (None if stored is None else abs(Fraction(stored)) * 10**of.scale) == (unscaled if unscaled < 10**of.precision else None)
        assert bool(changes) == (stored is None or Fraction(stored) != value)


@each("of", [Scalar.TIMESTAMP_WITH_TIMEZONE, Scalar.TIMESTAMP_WITHOUT_TIMEZONE], ids=lambda of: of.value)
def test_any_moment_in_the_usual_forms_is_that_moment(of: Scalar, make_plan: Any, make_line: Any, make_block: Any, make_typer: Any) -> None:
    chance = random.Random(3)
    texts, expected = [], []
    for _ in range(2000):
        local = datetime(1, 1, 2, tzinfo=UTC) + timedelta(microseconds=chance.randrange(315_537_000_000 * 10**6))
        minutes = chance.choice((0, 0, chance.randrange(-18 * 60, 18 * 60 + 1)))
        digits = chance.choice((0, 0, 3, 6, 9))
        fraction = f".{local.microsecond:06}000"[: digits + 1] if digits else ""
        sign = "-" if minutes < 0 else "+"
        zone = (
            f"{sign}{abs(minutes) // 60:02}{chance.choice((':', ''))}{abs(minutes) % 60:02}"
            if minutes
            else chance.choice(("Z", "", "+00:00"))
        )
        texts.append(f"{local.year:04}-{local:%m-%d}{chance.choice('T ')}{local:%H:%M:%S}{fraction}{zone}")
        kept = local.replace(microsecond=local.microsecond // 10 ** (6 - min(digits, 6)) * 10 ** (6 - min(digits, 6)))
        shift = timedelta(minutes=minutes) if of is Scalar.TIMESTAMP_WITH_TIMEZONE else timedelta()
        expected.append((kept - shift - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1))
    final = make_typer(make_plan([Field("x", "x", of)])).type_block(make_block(make_line(json.dumps({"x": text})) for text in texts)).final
    assert final["x"].cast("int64").to_pylist() == expected


@given(texts=st.lists(st.text(), max_size=5))
def test_a_string_is_what_python_reads(texts: list[str], make_plan: Any, make_line: Any, make_block: Any, make_typer: Any) -> None:
    lines = make_block(make_line(json.dumps({"x": text}, ensure_ascii=escaped)) for text in texts for escaped in (True, False))
    typed = make_typer(make_plan([Field("x", "x", Scalar.STRING)])).type_block(lines)
    assert typed.final["x"].to_pylist() == [text for text in texts for _ in range(2)]

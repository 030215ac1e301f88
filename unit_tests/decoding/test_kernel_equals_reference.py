"""The kernel and the reference make the same of whatever comes: a few rounds of `fuzz`, and what it does not reach."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from destination_s3_spark.decoding import kernel_typer
from destination_s3_spark.decoding.record_typer import RecordTyper
from destination_s3_spark.decoding.temporal import ABBREVIATIONS, TEMPORAL
from destination_s3_spark.kernel import KERNEL
from destination_s3_spark.schema.airbyte_type import Array, Field, Object, Scalar, SchemalessObject
from unit_tests.cases import each
from unit_tests.decoding import fuzz
from unit_tests.sampling import sample

pytestmark = pytest.mark.skipif(KERNEL is None, reason="without the native kernel")


@pytest.mark.parametrize("seed", sample(range(4), 1))
def test_spoilt_lines(seed: int) -> None:
    assert fuzz.run(seed, 60) == 60


def test_a_disagreement_is_found(monkeypatch: Any) -> None:
    replaced = kernel_typer._replaced
    monkeypatch.setattr(kernel_typer, "_replaced", lambda *given: replaced(*given)[::-1])
    with pytest.raises(fuzz.Disagreement):
        fuzz.run(1, 60)


HUGE = {
    "wide": "é" * 20_000_000,
    "escaped": "\\u00e9" * 6_000_000,
    "plain": "a" * 40_000_000,
    "plain after an escape": "\\n" + "b" * 40_000_000,
}


@pytest.mark.slow
@each("name", HUGE)
def test_huge_values(name: str, make_plan: Any, make_line: Any, make_block: Any) -> None:
    text = HUGE[name]
    plan = make_plan([Field("x", "x", Scalar.STRING), Field("o", "o", SchemalessObject()), Field("n", "n", Scalar.INTEGER)])
    lines = make_block([make_line(f'{{"x":"{text}","o":{{"a": "{text}"}},"n":1}}'), make_line('{"n":2}')])
    python, native = RecordTyper(plan).type_block(lines), fuzz.kernel_typer(plan).type_block(lines)
    assert python.multiset == native.multiset
    for column in ("x", "o", "n"):
        assert python.final[column].equals(native.final[column])


@each("depth", [1, 400, 505, 506, 507, 508, 509, 510, 511, 512, 513, 514, 1000, 5000])
@each("where", ['{{"o":{}}}', '{{"more":{}}}', '{{"s":{}}}', '{{"a":{}}}', '{{"d":{{"d":{}}}}}'])
def test_depth(depth: int, where: str, make_plan: Any, make_line: Any, make_block: Any) -> None:
    inner = Object((Field("d", "d", SchemalessObject()),))
    plan = make_plan(
        [
            Field("o", "o", SchemalessObject()),
            Field("s", "s", Scalar.STRING),
            Field("a", "a", Array(Array(Scalar.DATE))),
            Field("d", "d", inner),
        ]
    )
    texts = ['{"a":' * depth + "1" + "}" * depth, "[" * depth + "]" * depth]
    lines = make_block(make_line(where.format(text)) for text in texts)
    assert fuzz.outcome(RecordTyper(plan), lines) == fuzz.outcome(fuzz.kernel_typer(plan), lines)


def test_many_columns_and_keys(make_plan: Any, make_line: Any, make_block: Any) -> None:
    plan = make_plan([Field(f"k{at}", f"k{at}", Scalar.INTEGER) for at in range(1000)])
    some = [",".join(f'"k{at}":{at}' for at in range(first, 1000, 7)) for first in range(30)]
    strange = [",".join(f'"other {row} {at}":{at}' for at in range(200)) for row in range(30)]
    lines = make_block(make_line(f"{{{known},{other}}}") for known, other in zip(some, strange, strict=True))
    assert fuzz.outcome(RecordTyper(plan), lines) == fuzz.outcome(fuzz.kernel_typer(plan), lines)


SEPARATORS = ["-", "/", "."] * 4 + ["", " ", "-/", "--", "- "]
DAYS = [["2021", "2024", "1900", "0000", "0001", "9999", "21", "10000", "+10000"], ["1", "01", "2", "02", "12", "13", "0", "Jan", "123"]]
DAYS.append(["1", "01", "28", "29", "30", "31", "32", "0", "00", "111"])
CLOCKS = ["03:04", "03:04:05", "3:04", "23:59:59", "24:00", "24:00:00", "03:60", "03:04:60", "03:04:5", "03:04:05.", "03:04:05,5"]
CLOCKS += ["03:04:05." + "123456789"[:digits] for digits in range(1, 10)] + ["03:04:05.1234567890"]
ZONES = ["", "z", " ", "+01", "+01:30", "-0330", " +02:00", " -08", "+01:3", "+18:00", "+17:59", "+1", "GMT+1", " UTC-3", "pst", "  PST"]
ZONES += ["Europe/Berlin", " America/New_York", "Nowhere", " BC", "Z BC", "+01:00:00"]
ZONES += [blank + name for name in ABBREVIATIONS for blank in ("", " ")]


@each("seed", range(3))
def test_dates_and_times_of_every_form(seed: int, make_plan: Any, make_line: Any, make_block: Any) -> None:
    chance = random.Random(seed)

    def text() -> str:
        year, month, day = map(chance.choice, DAYS)
        date = year + chance.choice(SEPARATORS) + month + chance.choice(SEPARATORS) + day
        time = chance.choice(CLOCKS) + chance.choice(ZONES)
        return chance.choice((date, date + chance.choice(ZONES), time, date + chance.choice(("T", " ", " T", "T ", "t", "")) + time))

    fields = [Field(of.value, of.value, of) for of in Scalar if of in TEMPORAL]
    plan = make_plan(fields)
    texts = [text() for _ in range(1000)]
    lines = make_block(make_line(json.dumps({field.source: text for field in fields})) for text in texts)
    python, native = RecordTyper(plan).type_block(lines), fuzz.kernel_typer(plan).type_block(lines)
    for field in fields:
        columns = (fuzz.stored(typed.final[field.name]) for typed in (python, native))
        for given, expected, value in zip(texts, *columns, strict=True):
            assert (field.source, given, value) == (field.source, given, expected)

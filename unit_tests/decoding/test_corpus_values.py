"""Airbyte's own cases over the typer: what newer destinations must make of single values, and all end-to-end records.

The data is that of the end-to-end tests (`unit_tests/lake/corpus`; its README names the origin and the licence).
"""

from __future__ import annotations

import json
import re
from datetime import UTC, date, datetime, time, timedelta
from decimal import Context, Decimal
from pathlib import Path
from typing import Any

import msgspec

from destination_s3_spark.schema.airbyte_type import AirbyteType, Array, Field, Object, Scalar, Union
from destination_s3_spark.schema.json_schema import stream_fields
from destination_s3_spark.stream_id import StreamId
from unit_tests.cases import each

CORPUS = Path(__file__).parents[1] / "lake" / "corpus"
COERCIONS: dict[str, Any] = json.loads((CORPUS / "data_coercion_cases.json").read_text(encoding="utf-8"))
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
FOO = Object((Field("foo", "foo", Scalar.STRING),))
NANOSECONDS = "years 0001-9999, nanoseconds"


class Message(msgspec.Struct):
    """A message line with the texts of its record's members."""

    record: dict[str, msgspec.Raw] | None = None


def number_text(text: str) -> str:
    """A number's digits; some are given as the sum of two."""
    match = re.fullmatch(r"(\S+)(?: ([+-]) (\S+) \(exact sum\))?", text)
    if match is None or match[2] is None:
        return text
    return str(Context(prec=2000).add(Decimal(match[1]), Decimal(match[2] + match[3])))


def moment_us(text: str) -> int:
    moment = datetime.fromisoformat(text)
    return (moment.replace(tzinfo=moment.tzinfo or UTC) - EPOCH) // MICROSECOND


def time_us(text: str) -> int:
    clock = time.fromisoformat(text)
    return timedelta(hours=clock.hour, minutes=clock.minute, seconds=clock.second, microseconds=clock.microsecond) // MICROSECOND


def disjoint(value: Any) -> dict[str, Any]:
    """The value in the record of the union (object|integer|string)."""
    name = {dict: "object", int: "integer", str: "string"}[type(value)]
    return {"object": None, "integer": None, "string": None, "type": name, name: value}


def cases(of: AirbyteType, found: list[dict[str, Any]], text: Any, value: Any) -> list[tuple[Any, ...]]:
    """(name, type, JSON text, stored value, reason) of each case; a value that only lost precision has no reason, as in destination-s3."""
    return [
        (
            case["name"],
            of,
            text(case["input"]),
            None if case["output"] is None else value(case["output"]),
            case["reason"] if case["kind"] == "nulled" else None,
        )
        for case in found
        if not case["name"].startswith("long string")
    ]


@each(
    ("name", "of", "text", "value", "reason"),
    [
        *cases(Scalar.INTEGER, COERCIONS["integer"]["int64"], str, int),
        *cases(Scalar.NUMBER, COERCIONS["number"]["float64"], number_text, float),
        *cases(Scalar.TIMESTAMP_WITH_TIMEZONE, COERCIONS["timestamp_with_timezone"][NANOSECONDS], json.dumps, moment_us),
        *cases(Scalar.TIMESTAMP_WITHOUT_TIMEZONE, COERCIONS["timestamp_without_timezone"][NANOSECONDS], json.dumps, moment_us),
        *cases(Scalar.TIME_WITH_TIMEZONE, COERCIONS["time_with_timezone"], json.dumps, time_us),
        *cases(Scalar.TIME_WITHOUT_TIMEZONE, COERCIONS["time_without_timezone"], json.dumps, time_us),
        *cases(Scalar.DATE, COERCIONS["date"], json.dumps, lambda text: (date.fromisoformat(text) - EPOCH.date()).days),
        *cases(Scalar.STRING, COERCIONS["string"], json.dumps, str),
        *cases(FOO, COERCIONS["object (declared {foo: string})"], json.dumps, lambda found: {"foo": None, **found}),
        *cases(Array(Scalar.STRING), COERCIONS["array (of string)"], json.dumps, list),
        *cases(
            Union((FOO, Scalar.INTEGER, Scalar.STRING)),
            COERCIONS["union (object|integer|string)"],
            json.dumps,
            disjoint,
        ),
    ],
)
def test_a_single_value_becomes_what_newer_destinations_make_of_it(
    name: str, of: AirbyteType, text: str, value: Any, reason: str | None, one_value: Any
) -> None:
    stored, changes = one_value(of, text)
    assert repr(stored) == repr(value) if isinstance(value, float) else stored == value
    assert [change["reason"] for change in changes] == ([] if reason is None else [reason])


def test_null_is_null_of_every_type_and_a_long_string_is_kept(one_value: Any) -> None:
    for of in (*Scalar, FOO, Array(Scalar.STRING), Union((FOO, Scalar.INTEGER))):
        assert one_value(of, "null") == (None, [])
    assert one_value(Scalar.STRING, f'"{"a" * 16_777_217}"') == ("a" * 16_777_217, [])


@each("of", list(Scalar), ids=lambda of: of.value)
def test_every_value_of_the_coercion_cases_is_typed_alike_in_every_type(of: Scalar, assert_typed_alike: Any) -> None:
    values = [case["input"] for case in every_case(COERCIONS) if not case["name"].startswith("long string")]
    numbers = [number_text(value) for value in values if isinstance(value, str) and value[:1] in "-0123456789" and value[-1:].isdigit()]
    texts = [*map(json.dumps, values), *(text for text in numbers if is_number(text))]
    assert len(texts) > 100
    assert_typed_alike([Field("x", "x", of)], [f'{{"x":{text}}}' for text in dict.fromkeys(texts)])


def every_case(group: Any) -> list[dict[str, Any]]:
    if isinstance(group, list):
        return group
    return [case for value in group.values() if isinstance(value, dict | list) for case in every_case(value) if isinstance(case, dict)]


def is_number(text: str) -> bool:
    try:
        return isinstance(json.loads(text), int | float)
    except ValueError:
        return False


@each("case", sorted(path.stem for path in CORPUS.glob("test*.json")))
def test_every_record_of_the_corpus_is_typed_alike(case: str, assert_typed_alike: Any) -> None:
    for sync in json.loads((CORPUS / f"{case}.json").read_text(encoding="utf-8"))["syncs"]:
        records = [message.record for line in sync["messages"] if (message := msgspec.json.decode(line, type=Message)).record]
        for entry in sync["catalog"]["streams"]:
            described = entry["stream"]
            fields = stream_fields(
                described["json_schema"], StreamId.of(described.get("namespace"), described["name"]), unfit_as_text=True
            ).fields
            data = [bytes(record["data"]).decode() for record in records if msgspec.json.decode(record["stream"]) == described["name"]]
            assert_typed_alike(fields, data)

"""Records with a column of every type, and a table of them after every kind of change."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from integration_tests.readers.published_table import PublishedTable
from unit_tests.lake.messages import EMITTED_AT_MS

DATE, MOMENT, CLOCK = ({"type": "string", "format": text} for text in ("date", "date-time", "time"))
ADDRESS = {
    "city": {"type": "string"},
    "zip": {"type": "integer"},
    "since": DATE,
    "place": {"type": "object", "properties": {"x": {"type": "number"}}},
}
ITEM = {"sku": {"type": "string"}, "count": {"type": "integer"}}
PROPERTIES: dict[str, Any] = {
    "id": {"type": "integer"},
    "text": {"type": "string"},
    "order no": {"type": "string"},
    "flag": {"type": "boolean"},
    "price": {"type": "number"},
    "amount": {"type": "number", "multipleOf": 0.01},
    "big": {"type": "integer", "airbyte_type": "big_integer"},
    "day": DATE,
    "moment": {**MOMENT, "airbyte_type": "timestamp_with_timezone"},
    "local": {**MOMENT, "airbyte_type": "timestamp_without_timezone"},
    "clock": {**CLOCK, "airbyte_type": "time_with_timezone"},
    "wall_clock": {**CLOCK, "airbyte_type": "time_without_timezone"},
    "address": {"type": "object", "properties": ADDRESS},
    "tags": {"type": "array", "items": {"type": "string"}},
    "lines": {"type": "array", "items": {"type": "object", "properties": ITEM}},
    "anything": {"type": "object"},
    "either": {"oneOf": [{"type": "integer"}, {"type": "string"}]},
}
GROWN = {
    **PROPERTIES,
    "score": {"type": "integer"},
    "seen": MOMENT,
    "address": {"type": "object", "properties": {**ADDRESS, "street": {"type": "string"}}},
    "lines": {"type": "array", "items": {"type": "object", "properties": {**ITEM, "note": {"type": "string"}}}},
}
RETYPED = {**GROWN, "price": {"type": "string"}}


FILTERED = ("appended or merged rows", "a column of another type")
"""The changes after which conditions are compared, too: there are files of different ranges of values, and then of different columns."""


def person(number: int, **more: Any) -> dict[str, Any]:
    """A record with all columns; every fifth one has nothing but its key."""
    if number % 5 == 4:
        return {"id": number, **more}
    return {
        "id": number,
        "text": f"né\n'{number}\"\\",
        "order no": f"A {number}",
        "flag": number % 2 == 0,
        "price": number * 1.1 - 3,
        "amount": number - 4.25,
        "big": (10**30 if number == 13 else 10**12) + number,
        "day": f"19{69 + number}-12-31",
        "moment": f"2026-02-03T04:05:{number:02d}.{number:06d}+02:00",
        "local": f"2026-02-{1 + number:02d}T00:00:00.5",
        "clock": f"{number % 24:02d}:30:00-01:00",
        "wall_clock": f"{number % 24:02d}:30:00.000001",
        "address": {"city": f"city {number % 3}", "zip": number - 5, "since": "2026-01-01", "place": {"x": number / 3}},
        "tags": [None, f"t{number}", ""] if number % 2 else [],
        "lines": [{"sku": "a", "count": number}, {"sku": None}] if number % 3 else None,
        "anything": {"k": [1, number]},
        "either": number if number % 2 else f"e{number}",
        **more,
    }


def grown(number: int) -> dict[str, Any]:
    lines = [{"sku": "b", "note": f"n{number}", "count": None}]
    return person(number, score=number * 10, seen="2026-05-06T07:08:09.101112Z", address={"city": "Bern", "street": "s"}, lines=lines)


def changes(table: PublishedTable) -> Iterator[str]:
    """Syncs of every kind, one after the other."""
    table.sync(map(person, range(12)), PROPERTIES, EMITTED_AT_MS)
    yield "first rows"
    table.sync(map(person, range(8, 16)), PROPERTIES, EMITTED_AT_MS + 86_400_123)
    yield "appended or merged rows"
    table.sync(map(grown, range(14, 18)), GROWN, EMITTED_AT_MS + 90_000_456)
    yield "new columns and members"
    table.sync([person(number, price="ten") for number in range(17, 20)], RETYPED, EMITTED_AT_MS + 100_000_789)
    yield "a column of another type"
    table.sync(map(grown, range(3)), RETYPED | {"price": {"type": "number"}}, EMITTED_AT_MS + 100_001_000, generation=2)
    yield "a refresh"

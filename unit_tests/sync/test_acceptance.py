"""What the platform's older acceptance suite looks at, with messages of our own: odd names, nested types, big numbers, times."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from unit_tests.lake.lake import Lake
from unit_tests.lake.messages import JsonObject, catalog, line
from unit_tests.lake.outcome import Outcome
from unit_tests.lake.shop import complete, record, stream
from unit_tests.lake.table_readers import Row, without_meta

TEXT, NUMBER, INTEGER, BOOLEAN = ({"type": name} for name in ("string", "number", "integer", "boolean"))
MOMENT = {"type": "string", "format": "date-time", "airbyte_type": "timestamp_with_timezone"}
WELL_KNOWN = "WellKnownTypes.json#/definitions/"


def of(**properties: JsonObject) -> JsonObject:
    return {"type": "object", "properties": properties}


SCHEMAS: dict[str, JsonObject] = {
    "exchange_rate": of(id=INTEGER, currency=TEXT, date=MOMENT, NZD=NUMBER, HKD=NUMBER, USD=NUMBER),
    "weather in Zürich": of(**{"Temperatur °C": NUMBER, "order": TEXT, "Select": BOOLEAN}),
    "well_known": of(
        text={"$ref": f"{WELL_KNOWN}String"},
        number={"$ref": f"{WELL_KNOWN}Number"},
        integer={"$ref": f"{WELL_KNOWN}Integer"},
        flag={"$ref": f"{WELL_KNOWN}Boolean"},
        day={"$ref": f"{WELL_KNOWN}Date"},
        moment={"$ref": f"{WELL_KNOWN}TimestampWithTimezone"},
        clock={"$ref": f"{WELL_KNOWN}TimeWithoutTimezone"},
    ),
    "nested": of(
        parent=of(name=TEXT, children={"type": "array", "items": of(age=INTEGER, seen=MOMENT)}),
        matrix={"type": "array", "items": {"type": "array", "items": NUMBER}},
    ),
    "numbers": of(n=NUMBER, i=INTEGER, integral={"type": "number", "airbyte_type": "integer"}),
    "nothing": of(id=INTEGER),
}
TEXTLESS = dict.fromkeys(("text", "number", "integer", "flag"))
DATA: dict[str, list[tuple[dict[str, Any], dict[str, Any]]]] = {
    "exchange_rate": [
        (
            {"id": 1, "currency": "USD", "date": "2020-08-29T00:00:00Z", "NZD": 1.14, "HKD": 7.15},
            {"id": 1, "currency": "USD", "date": 1_598_659_200_000_000, "NZD": 1.14, "HKD": 7.15, "USD": None},
        ),
        (
            {"id": "2", "currency": "EUR", "date": "2020-08-30 00:00:00", "NZD": "1.64", "USD": "1e1"},
            {"id": 2, "currency": "EUR", "date": 1_598_745_600_000_000, "NZD": 1.64, "HKD": None, "USD": 10.0},
        ),
    ],
    "weather in Zürich": [
        ({"Temperatur °C": -3.5, "order": "first", "Select": True}, {"Temperatur__C": -3.5, "order": "first", "Select": True}),
    ],
    "well_known": [
        (
            {"text": "ࠈൡሗ", "number": "-12345.678", "integer": "42", "flag": True},
            {"text": "ࠈൡሗ", "number": -12345.678, "integer": 42, "flag": True, "day": None, "moment": None, "clock": None},
        ),
        (
            {"day": "2021-01-23", "moment": "2022-11-22T01:23:45+05:00", "clock": "01:23:45"},
            {**TEXTLESS, "day": 18_650, "moment": 1_669_062_225_000_000, "clock": 5_025_000_000},
        ),
    ],
    "nested": [
        (
            {"parent": {"name": "A", "children": [{"age": 1, "seen": "1970-01-01T00:00:01Z"}, None, {}]}},
            {"parent": {"name": "A", "children": [{"age": 1, "seen": 1_000_000}, None, {"age": None, "seen": None}]}, "matrix": None},
        ),
        ({"matrix": [[1, 2.5], [], None]}, {"parent": None, "matrix": [[1.0, 2.5], [], None]}),
    ],
    "numbers": [
        ({"n": 9007199254740993, "i": 9007199254740993, "integral": 7}, {"n": 9007199254740992.0, "i": 9007199254740993, "integral": 7}),
        ({"n": -0.0, "i": 3.0, "integral": "-5"}, {"n": -0.0, "i": 3, "integral": -5}),
        ({"n": "NaN", "i": "Infinity", "integral": 0.5}, {"n": None, "i": None, "integral": None}),
    ],
    "nothing": [],
}  # fmt: skip


@pytest.fixture(scope="module")
def acceptance(make_lake: Callable[[], Lake]) -> tuple[Lake, Outcome]:
    """One sync of all streams, without a namespace and with LEGACY states, as the oldest sources send them."""
    lake = make_lake()
    messages = []
    for name, rows in DATA.items():
        messages += [record(sent, name, None) for sent, _ in rows]
        messages.append(line({"type": "STATE", "state": {"data": {"start_date": name}}}))
    statuses = [complete(name, None) for name in DATA]
    entries = [stream(name, None, schema=schema) for name, schema in SCHEMAS.items()]
    outcome = lake.connector().write(catalog(*entries), [*messages, *statuses]).expect_success()
    lake.verify_at_rest()
    return lake, outcome


@pytest.mark.parametrize("name", [name for name, rows in DATA.items() if rows])
def test_rows_arrive_as_expected(acceptance: tuple[Lake, Outcome], name: str) -> None:
    lake, _ = acceptance
    found: list[Row] = [without_meta(row) for row in lake.rows((None, name))]
    assert found == [expected for _, expected in DATA[name]]


def test_every_legacy_state_comes_back_in_order(acceptance: tuple[Lake, Outcome]) -> None:
    _, outcome = acceptance
    assert [found["data"]["start_date"] for found in outcome.states] == list(DATA)


def test_a_stream_without_records_has_no_table(acceptance: tuple[Lake, Outcome]) -> None:
    lake, _ = acceptance
    assert set(lake.chains()) == {(None, name) for name in DATA if name != "nothing"}

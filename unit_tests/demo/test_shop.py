from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import date, datetime
from typing import Any

import pytest

from demo import shop
from demo.shop import Shop
from destination_s3_spark.protocol.catalog import DestinationSyncMode, parse_catalog
from unit_tests.cases import each

RECORDS = 20_000
MODES = {"customers": "append_dedup", "products": "overwrite", "orders": "append"}


@pytest.fixture(scope="module")
def messages() -> list[dict[str, Any]]:
    return read(Shop(), RECORDS)


def read(source: Shop, records: int) -> list[dict[str, Any]]:
    return [json.loads(line) for chunk in source.read(records) for line in chunk.lines.splitlines()]


def records_of(messages: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    return (message["record"] for message in messages if message["type"] == "RECORD")


def digest(source: Shop) -> str:
    return hashlib.sha256(b"".join(chunk.lines for chunk in source.read(5_000))).hexdigest()


def test_the_same_seed_makes_the_same_bytes_and_another_seed_others() -> None:
    assert digest(Shop(seed=1)) == digest(Shop(seed=1)) != digest(Shop(seed=2))


def test_each_stream_gets_its_share_of_the_records(messages: list[dict[str, Any]]) -> None:
    assert Counter(record["stream"] for record in records_of(messages)) == shop.records_per_stream(RECORDS)
    assert sum(shop.records_per_stream(RECORDS).values()) == RECORDS


def test_the_number_of_records_is_rounded_up_to_a_full_cycle() -> None:
    assert len(list(records_of(read(Shop(), 11)))) == 20 == sum(shop.records_per_stream(11).values())


def test_chunks_count_what_they_hold() -> None:
    chunks = list(Shop(checkpoint_records=1_500).read(4_000))

    for chunk in chunks:
        types = Counter(json.loads(line)["type"] for line in chunk.lines.splitlines())
        assert (types["RECORD"], types["STATE"]) == (chunk.records, chunk.states)
    assert sum(chunk.records for chunk in chunks) == 4_000


def test_states_come_after_every_so_many_records_and_for_each_stream_at_the_end(messages: list[dict[str, Any]]) -> None:
    positions = []
    seen = 0
    for message in messages:
        seen += message["type"] == "RECORD"
        if message["type"] == "STATE":
            positions.append((seen, message["state"]["stream"]["stream_descriptor"]["name"]))

    assert [position for position, _ in positions[:-3]] == [5_000, 10_000, 15_000]
    assert {name for _, name in positions[:-3]} == set(MODES)
    assert positions[-3:] == [(RECORDS, name) for name in MODES]


def test_states_have_an_id_and_count_the_records_sent(messages: list[dict[str, Any]]) -> None:
    states = [message["state"] for message in messages if message["type"] == "STATE"]

    assert [state["id"] for state in states] == list(range(1, len(states) + 1))
    assert all(state["type"] == "STREAM" for state in states)
    assert {s["stream"]["stream_descriptor"]["name"]: s["stream"]["stream_state"]["records_sent"] for s in states[-3:]} == (
        shop.records_per_stream(RECORDS)
    )


def test_without_checkpoints_states_come_only_at_the_end() -> None:
    types = [message["type"] for message in read(Shop(checkpoint_records=None), 3_000)]

    assert types.count("STATE") == 3
    assert set(types[-6:-3]) == {"STATE"}


def test_every_stream_starts_runs_and_completes(messages: list[dict[str, Any]]) -> None:
    statuses = [message["trace"]["stream_status"] for message in messages if message["type"] == "TRACE"]

    for name in MODES:
        assert [s["status"] for s in statuses if s["stream_descriptor"]["name"] == name] == ["STARTED", "RUNNING", "COMPLETE"]


def test_some_records_carry_a_change_of_the_source(messages: list[dict[str, Any]]) -> None:
    changed = [record["meta"]["changes"] for record in records_of(messages) if "meta" in record]

    assert 0 < len(changed) < RECORDS // 100
    assert changed[0] == [{"field": "note", "change": "TRUNCATED", "reason": "SOURCE_FIELD_SIZE_LIMITATION"}]


def test_lines_are_as_long_as_the_size_estimate_says() -> None:
    assert sum(len(chunk.lines) for chunk in Shop().read(shop.records_for(10**7))) == pytest.approx(10**7, rel=0.02)


def test_the_catalog_is_one_this_connector_accepts() -> None:
    catalog = parse_catalog(json.dumps(Shop().catalog(MODES)).encode())

    modes = {stream.id.name: stream.destination_sync_mode for stream in catalog.streams}
    assert modes == {name: DestinationSyncMode(mode) for name, mode in MODES.items()}
    generations = {stream.id.name: (stream.generation_id, stream.minimum_generation_id) for stream in catalog.streams}
    assert generations == {"customers": (1, 0), "products": (1, 1), "orders": (1, 0)}


def test_records_have_exactly_the_declared_fields(messages: list[dict[str, Any]]) -> None:
    declared = {name: set(properties) for name, properties in properties_by_stream().items()}

    for record in records_of(messages):
        assert set(record["data"]) == declared[record["stream"]]


@each("stream", MODES)
def test_about_the_given_share_of_records_does_not_fit(messages: list[dict[str, Any]], stream: str) -> None:
    properties = properties_by_stream()[stream]
    data = [record["data"] for record in records_of(messages) if record["stream"] == stream]

    dirty = sum(not all(fits(record[name], schema) for name, schema in properties.items()) for record in data)

    assert dirty / len(data) == pytest.approx(0.01, rel=0.35)


def test_a_clean_shop_has_no_value_that_does_not_fit() -> None:
    properties = properties_by_stream()
    for record in records_of(read(Shop(dirty_share=0.0), 3_000)):
        for name, schema in properties[record["stream"]].items():
            assert fits(record["data"][name], schema), (record["stream"], name)


def properties_by_stream() -> dict[str, dict[str, Any]]:
    return {stream["stream"]["name"]: stream["stream"]["json_schema"]["properties"] for stream in Shop().catalog(MODES)["streams"]}


def fits(value: Any, schema: Mapping[str, Any]) -> bool:
    """Whether the value is of the declared type, in the forms the generator uses."""
    if value is None:
        return True
    kind = next(name for name in schema["type"] if name != "null")
    match kind:
        case "string":
            return isinstance(value, str) and _fits_format(value, schema.get("format"))
        case "boolean":
            return isinstance(value, bool)
        case "integer":
            return isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63
        case "number":
            return isinstance(value, int | float) and not isinstance(value, bool)
        case "array":
            return isinstance(value, list) and all(fits(item, schema["items"]) for item in value)
        case _:
            declared = schema.get("properties", {})
            return isinstance(value, dict) and all(fits(value.get(name), inner) for name, inner in declared.items())


def _fits_format(value: str, expected: str | None) -> bool:
    parse = {"date": date.fromisoformat, "date-time": datetime.fromisoformat}.get(expected or "")
    if parse is None:
        return True
    try:
        parse(value)
    except ValueError:
        return False
    return True

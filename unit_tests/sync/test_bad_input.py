"""Configurations, catalogs and lines that cannot be used: each ends the sync with an error that says what and where."""

from __future__ import annotations

import json
from typing import Any
from unittest.mock import patch

import pytest

from destination_s3_spark.errors import ConfigError
from destination_s3_spark.protocol.catalog import parse_catalog
from destination_s3_spark.schema.json_schema import MOST_LEVELS
from unit_tests.cases import each
from unit_tests.lake.contents import USERS
from unit_tests.lake.lake import Lake
from unit_tests.lake.messages import JsonObject, catalog, cursor_of, line, schema_of
from unit_tests.lake.shop import complete, record, state, stream, users

PLANTED = "planted-4711-marker"


def refused(lake: Lake, streams: JsonObject, **options: Any) -> str:
    """What `write` says when it refuses a catalog or configuration. It must do so before any STATE, and touch nothing."""
    outcome = lake.connector().write(streams, [*users([1]), state(1), complete()], **options).expect_failure("config_error")
    assert outcome.states == []
    assert lake.bucket.list_keys() == []
    return outcome.error_message


BAD_CONFIGURATIONS: list[tuple[dict[str, Any], list[str]]] = [
    ({"s3_bucket_name": None}, ["s3_bucket_name", "required"]),
    ({"format": {"format_type": "Excel"}}, ["format"]),
    ({"batching": {"max_batch_mb": "a lot"}}, ["batching.max_batch_mb"]),
    ({"batching": {"max_bach_mb": 5}}, ["batching.max_bach_mb"]),
    ({"spark": {"conf": {"spark.jars": "evil.jar"}}}, ["spark.jars"]),
    ({"s3_endpoint": "http://169.254.169.254/"}, ["s3_endpoint"]),
]


@each(("options", "named"), BAD_CONFIGURATIONS)
def test_a_configuration_that_cannot_be_used_names_the_option(lake: Lake, options: dict[str, Any], named: list[str]) -> None:
    message = refused(lake, catalog(stream()), **options)
    assert [name for name in named if name not in message] == [], message


def test_records_that_would_come_through_sockets_are_not_waited_for(lake: Lake) -> None:
    """The platform leaves stdin open and empty then."""
    with patch("destination_s3_spark.process.read_blocks", lambda _: pytest.fail("stdin was read")):
        outcome = lake.connector(environment={"DATA_CHANNEL_MEDIUM": "SOCKET"}).write(catalog(stream()), [])
    assert "DATA_CHANNEL_MEDIUM" in outcome.expect_failure("config_error").error_message
    lake.connector(environment={"DATA_CHANNEL_MEDIUM": "STDIO"}).write(catalog(stream()), [complete()]).expect_success()


def test_check_refuses_a_bad_configuration_too(lake: Lake) -> None:
    outcome = lake.connector().check(batching={"max_batch_mb": -1})
    said = json.dumps(outcome.messages)
    assert "batching.max_batch_mb" in said
    assert "SUCCEEDED" not in said


WITH_OBJECT: JsonObject = {
    "type": "object",
    "properties": {"id": {"type": "integer"}, "place": {"type": "object", "properties": {"city": {"type": "string"}}}},
}
BAD_STREAMS: list[tuple[JsonObject, list[str]]] = [
    (stream(mode="append_dedup"), ["shop.users", "primary_key"]),
    (stream(mode="append_dedup", primary_key=[["missing"]]), ["shop.users", "primary_key", "missing"]),
    (stream(mode="append_dedup", primary_key=[["id", "part"]]), ["shop.users", "primary_key", "id.part"]),
    (stream(mode="append_dedup", primary_key=[["id"], ["place"]], schema=WITH_OBJECT), ["shop.users", "primary_key", "place", "object"]),
    (stream(mode="append_dedup", primary_key=[["id"]], cursor_field=["missing"]), ["shop.users", "cursor_field", "missing"]),
    (
        stream(mode="append_dedup", primary_key=[["id"]], cursor_field=["place"], schema=WITH_OBJECT),
        ["shop.users", "cursor_field", "place", "object"],
    ),
    (stream(generation=3, minimum_generation=2), ["shop.users", "minimum_generation_id"]),
    (stream(generation=None), ["shop.users", "generation_id"]),
    (stream(mode="soft_delete"), ["shop.users", "soft_delete"]),
    (stream(schema={"type": "object", "properties": {"odd": {"type": "potato"}}}), ["shop.users", "odd"]),
]


@each(("entry", "named"), BAD_STREAMS)
def test_a_stream_that_cannot_be_written_names_stream_and_option(lake: Lake, entry: JsonObject, named: list[str]) -> None:
    message = refused(lake, catalog(stream("orders"), entry))
    assert [name for name in named if name not in message] == [], message
    assert "orders" not in message


@each("entry", [stream(mode="append_dedup", primary_key=[["id"]]), stream(generation=3, minimum_generation=3)])
def test_a_table_that_is_to_be_merged_or_replaced_shares_no_folder(lake: Lake, entry: JsonObject) -> None:
    message = refused(lake, catalog(stream("orders"), entry), s3_path_format="all/")
    assert [name for name in ("shop.users", "shop.orders", "s3_path_format") if name not in message] == [], message


@each("levels", [MOST_LEVELS, 200, 3_000])
def test_types_that_are_nested_too_deep_are_a_matter_of_the_configuration(lake: Lake, levels: int) -> None:
    """Written by hand, because Python's own encoder does not go so deep."""
    text = '{"type":["null","object"],"properties":{"in":' * levels + '{"type":"string"}' + "}}" * levels
    streams = json.dumps(catalog(stream("orders"), stream(schema=schema_of({"tree": "TREE"})))).replace('"TREE"', text)
    with pytest.raises(ConfigError, match="nested") as raised:
        lake.sync(parse_catalog(streams.encode()), [*users([1]), state(1), complete()])
    assert "shop.users" in raised.value.message
    assert lake.states == []


def test_a_stream_given_twice_is_refused(lake: Lake) -> None:
    assert "shop.users" in refused(lake, catalog(stream(), stream()))


def test_a_catalog_without_streams_is_refused(lake: Lake) -> None:
    assert "stream" in refused(lake, {"streams": []})


UNREADABLE = [
    pytest.param(
        b'{"type":"RECORD","record":{"stream":"users","namespace":"shop","data":{"id":1,"name":"%b' % PLANTED.encode(), id="cut off"
    ),
    pytest.param(record({"id": 1, "name": PLANTED}).rstrip() + record({"id": 2})[:-1], id="two on one line"),
    pytest.param(record({"id": 1, "name": PLANTED}).replace(b'"id":1', b'"id":tru')[:-1], id="no JSON inside of data"),
    pytest.param(b"a source prints" + record({"id": 1, "name": PLANTED})[:-1], id="behind something else"),
]


@pytest.mark.parametrize("broken", UNREADABLE)
def test_an_unreadable_record_stops_the_sync_and_is_found_by_its_byte_offset(lake: Lake, broken: bytes) -> None:
    before = [b"a line of noise\n", *users([1, 2, 3]), state(3)]
    outcome = lake.connector().write(catalog(stream()), [*before, broken + b"\n", *users([4]), state(4), complete()])

    message = outcome.expect_failure("system_error").error_message
    assert "shop.users" in message
    assert str(len(b"".join(before))) in message
    assert PLANTED not in outcome.describe()
    assert "ignored: 1 (0 of them blank), the first at byte 0." in outcome.warnings
    assert 4 not in [cursor_of(answer) for answer in outcome.state_lines]
    lake.verify()


def test_what_nobody_knows_is_tolerated_and_counted(lake: Lake) -> None:
    messages = [
        b"source says hello\n",
        b"\n",
        b"[1, 2]\n",
        line({"type": "HOLOGRAM", "hologram": {"depth": 3}}),
        line({"type": "LOG", "log": {"level": "INFO", "message": "from the source"}}),
        line({"type": "CONTROL", "control": {"type": "CONNECTOR_CONFIG", "emitted_at": 1.0, "connectorConfig": {"config": {}}}}),
        record({"id": 1, "name": "one"}, future={"field": 1}),
        record({"id": 9}, "strangers"),
        record({"id": 9}, "strangers"),
        record({"id": 9}, "users", "elsewhere"),
        record({"id": 2, "name": "two", "undeclared": True}),
        state(2, future="field"),
        state(1, "strangers"),
        complete(),
    ]
    outcome = lake.connector().write(catalog(stream()), messages).expect_success()
    assert lake.ids() == [1, 2]
    assert [row["name"] for row in lake.rows()] == ["one", "two"]
    assert list(lake.chains()) == [USERS]
    assert "strangers" in outcome.log_text
    assert "ignored: 3 (1 of them blank), the first at byte 0." in outcome.warnings
    assert any(b'"future":"field"' in answer for answer in outcome.state_lines)
    lake.verify_at_rest()

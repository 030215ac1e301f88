from __future__ import annotations

import json
from typing import Any

import pytest

from destination_s3_spark.errors import ConfigError
from destination_s3_spark.protocol.catalog import DestinationSyncMode, parse_catalog
from destination_s3_spark.protocol.discovered import configured_catalog, discovered_streams
from unit_tests.cases import each

SCHEMA = {"type": "object", "properties": {"id": {"type": "integer"}}}
BOTH = ["full_refresh", "incremental"]
ORDERS: dict[str, Any] = {
    "name": "orders", "namespace": "shop", "json_schema": SCHEMA, "supported_sync_modes": BOTH, "source_defined_cursor": True,
    "default_cursor_field": ["updated_at"], "source_defined_primary_key": [["id"]],
}  # fmt: skip
EVENTS: dict[str, Any] = {"name": "events", "json_schema": SCHEMA, "supported_sync_modes": BOTH, "source_defined_cursor": True}
COUNTRIES: dict[str, Any] = {"name": "countries", "json_schema": SCHEMA, "supported_sync_modes": ["full_refresh"]}
NESTED: dict[str, Any] = {**ORDERS, "name": "nested", "source_defined_primary_key": [["data", "id"]]}
STREAMS = [ORDERS, EVENTS, COUNTRIES, NESTED]


def modes(*streams: dict[str, Any], **choice: Any) -> dict[str, tuple[str, str]]:
    catalog = configured_catalog(streams or STREAMS, **choice)
    return {entry["stream"]["name"]: (entry["sync_mode"], entry["destination_sync_mode"]) for entry in catalog["streams"]}


def test_each_stream_gets_the_best_that_its_source_offers() -> None:
    assert modes() == {
        "orders": ("incremental", "append_dedup"),
        "events": ("incremental", "append"),
        "countries": ("full_refresh", "overwrite"),
        "nested": ("incremental", "append"),
    }


def test_keys_and_cursors_are_those_of_the_source_and_the_stream_is_unchanged() -> None:
    first, second, *_ = configured_catalog(STREAMS)["streams"]

    assert (first["primary_key"], first["cursor_field"], first["stream"]) == ([["id"]], ["updated_at"], ORDERS)
    assert (second["primary_key"], second["cursor_field"]) == ([], [])


def test_the_connector_takes_what_is_made() -> None:
    catalog = parse_catalog(json.dumps(configured_catalog(STREAMS)).encode())

    assert [str(stream.id) for stream in catalog.streams] == ["shop.orders", "events", "countries", "shop.nested"]
    assert catalog.streams[0].primary_key == (("id",),)
    assert not catalog.has_generations


@each(
    ("select", "names"),
    [
        (("orders",), ["orders"]),
        (("shop.orders", "countries"), ["orders", "countries"]),
        (("shop.*",), ["orders", "nested"]),
        (("*e*s",), ["orders", "events", "countries"]),
    ],
)
def test_streams_are_selected_by_name_or_pattern(select: tuple[str, ...], names: list[str]) -> None:
    assert list(modes(select=select)) == names


def test_modes_can_be_asked_for() -> None:
    assert modes(ORDERS, sync_mode="full_refresh") == {"orders": ("full_refresh", "overwrite")}
    asked = modes(ORDERS, sync_mode="full_refresh", mode=DestinationSyncMode.APPEND_DEDUP)
    assert asked == {"orders": ("full_refresh", "append_dedup")}


@each(
    ("stream", "choice", "words"),
    [
        (COUNTRIES, {"sync_mode": "incremental"}, "countries cannot be read incrementally: its source only reads it as a whole"),
        ({**EVENTS, "source_defined_cursor": False}, {"sync_mode": "incremental"}, "leaves the cursor to the user"),
        (EVENTS, {"mode": DestinationSyncMode.APPEND_DEDUP}, "events cannot be deduplicated"),
        (NESTED, {"mode": DestinationSyncMode.APPEND_DEDUP}, "shop.nested cannot be deduplicated"),
        (ORDERS, {"select": ("oders",)}, "no stream oders. Did you mean orders?"),
        (ORDERS, {"select": ("users",)}, "no stream users. It has shop.orders."),
    ],
)
def test_what_cannot_be_is_refused(stream: dict[str, Any], choice: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        configured_catalog([stream], **choice)
    assert words in caught.value.message


@each(
    "text",
    [
        json.dumps({"type": "CATALOG", "catalog": {"streams": [ORDERS]}}),
        '{"type":"LOG","log":{"level":"INFO","message":"x"}}\n\nnoise\n'
        + json.dumps({"type": "CATALOG", "catalog": {"streams": [ORDERS]}}),
        json.dumps({"streams": [ORDERS]}, indent=2),
    ],
)
def test_the_catalog_is_found_in_the_output_of_discover(text: str) -> None:
    assert discovered_streams(text.encode()) == [ORDERS]


@each("text", ["", "noise", '{"type":"LOG"}', '{"streams": []}', '{"streams": [1]}', "[1]", "\\xff"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="no catalog with streams"):
        discovered_streams(text.encode())

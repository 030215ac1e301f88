from __future__ import annotations

import json
from typing import Any

import pytest

from destination_s3_spark.errors import DataError
from destination_s3_spark.schema.arrow import schema_from_text
from destination_s3_spark.schema.json_schema import stream_fields
from destination_s3_spark.schema.placement import SchemaPolicy
from destination_s3_spark.schema.schema_event import arrow_from_event, from_event, stored_from_event, to_event
from destination_s3_spark.schema.table_schema import Evolution, evolve
from destination_s3_spark.stream_id import StreamId
from unit_tests.cases import each

STREAM = StreamId(None, "region")


@pytest.fixture
def evolution() -> Evolution:
    first = {"properties": {"id": {"type": "integer"}, "a/b~c": {"type": "string"}}, "required": ["id"]}
    second = {"properties": {"id": {"type": "integer"}, "o": {"type": "object", "properties": {"x": {"type": "number"}}}}}
    start = evolve(None, stream_fields(first, STREAM), STREAM, SchemaPolicy())
    return evolve(start.schema, stream_fields(second, STREAM), STREAM, SchemaPolicy())


@pytest.fixture
def event(evolution: Evolution) -> dict[str, Any]:
    recorded: dict[str, Any] = json.loads(json.dumps(to_event(evolution, "append_dedup", (("id",),), ("updated_at",))))
    return recorded


def test_the_event_carries_the_columns_the_changes_and_the_stream(event: dict[str, Any]) -> None:
    x = {"source": "x", "name": "x", "type": "number"}
    record = {"kind": "object", "fields": [x]}
    arrow = event.pop("arrowSchema")
    assert isinstance(arrow, str)
    assert event == {
        "kind": "SetDataSchema",
        "schemaId": 1,
        "mode": "append_dedup",
        "primaryKey": [["id"]],
        "cursor": ["updated_at"],
        "version": "1-0-1",
        "fields": [
            {"id": 1, "name": "id", "source": "id", "type": "integer", "addedIn": 0, "required": True, "present": True},
            {"id": 2, "name": "a_b_c", "source": "a/b~c", "type": "string", "addedIn": 0, "required": False, "present": False},
            {"id": 3, "name": "o", "source": "o", "type": record, "addedIn": 1, "required": False, "present": True},
        ],
        "changes": [
            {"kind": "KeyRemoval", "path": "/a~1b~0c", "old": "string"},
            {"kind": "KeyAddition", "path": "/o", "new": record},
        ],
        "fieldIds": [1, 2, 3, 4, 5, 6, 13, 7, 8, 9, 10, 11, 12, 14],
        "lastFieldId": 14,
    }


def test_the_arrow_schema_of_the_event_is_the_tables(event: dict[str, Any], evolution: Evolution) -> None:
    assert schema_from_text(event["arrowSchema"]).equals(evolution.schema.arrow, check_metadata=True)


def test_the_event_reads_back(event: dict[str, Any], evolution: Evolution) -> None:
    assert from_event(event) == evolution.schema


def test_unknown_keys_are_skipped_and_optional_ones_may_be_missing(event: dict[str, Any], evolution: Evolution) -> None:
    event["later"] = {"x": 1}
    event["fields"][2]["recoveredFrom"] = None
    event["fields"][2]["type"]["extra"] = True
    event["fields"][2]["type"]["fields"][0]["extra"] = True
    del event["fields"][2]["required"], event["fields"][2]["present"], event["changes"], event["arrowSchema"]
    assert from_event(event) == evolution.schema


@each(
    ("key", "value"),
    [("fields", None), ("fields", [{}]), ("version", "one"), ("version", "1-0"), ("schemaId", None), ("fields", [[]])],
)
def test_an_event_of_another_form_is_refused(event: dict[str, Any], key: str, value: object) -> None:
    with pytest.raises(DataError, match="SetDataSchema block cannot be read"):
        from_event({**event, key: value})


@each("value", [None, 7, "", "AAAA", "no base64", "/////wAAAAA="])
def test_columns_that_are_no_arrow_schema_are_refused(event: dict[str, Any], value: object) -> None:
    for columns_of in (arrow_from_event, stored_from_event):
        with pytest.raises(DataError, match="SetDataSchema block cannot be read"):
            columns_of({**event, "arrowSchema": value})


def test_an_unknown_type_asks_for_a_newer_connector(event: dict[str, Any]) -> None:
    event["fields"][0]["type"] = {"kind": "decimal", "precision": 38}
    with pytest.raises(DataError, match="Upgrade the connector"):
        from_event(event)

"""A table with a column of every type, of two syncs: full values, values that do not fit, none, and a column more."""

from __future__ import annotations

from typing import Any

from unit_tests.lake.lake import Lake
from unit_tests.lake.messages import catalog
from unit_tests.lake.shop import complete, record, state, stream

WIDE_SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["id"],
    "properties": {
        "id": {"type": "integer"},
        "text": {"type": ["null", "string"]},
        "flag": {"type": "boolean"},
        "ratio": {"type": "number"},
        "day": {"type": "string", "format": "date"},
        "moment": {"type": "string", "format": "date-time"},
        "local": {"type": "string", "format": "date-time", "airbyte_type": "timestamp_without_timezone"},
        "clock": {"type": "string", "format": "time", "airbyte_type": "time_with_timezone"},
        "wall_clock": {"type": "string", "format": "time", "airbyte_type": "time_without_timezone"},
        "address": {"type": "object", "properties": {"street": {"type": "string"}, "number": {"type": "integer"}}},
        "tags": {"type": "array", "items": {"type": "string"}},
        "lines": {"type": "array", "items": {"type": "object", "properties": {"sku": {"type": "string"}, "count": {"type": "integer"}}}},
        "anything": {"type": "object"},
        "either": {"oneOf": [{"type": "integer"}, {"type": "string"}]},
    },
}
FULL = {
    "id": 1, "text": 'é\n\u0000"', "flag": True, "ratio": 0.1, "day": "1969-12-31", "moment": "2024-02-29T23:59:59.123456+02:00",
    "local": "2024-02-29 23:59:59", "clock": "23:30:00-01:00", "wall_clock": "23:30:00.5",
    "address": {"street": "High St", "number": 5, "x": 1},
    "tags": ["a", None, ""], "lines": [{"sku": "s", "count": 2}, {"sku": None}], "anything": {"k": [1, 2.5]}, "either": "six",
}  # fmt: skip
BROKEN = {
    "id": 2, "flag": "yes", "ratio": "1e999", "day": "2021-02-30", "moment": 5, "address": "here", "tags": {"a": 1}, "either": 6,
    "lines": [{"count": "many"}],
}  # fmt: skip


def write_wide_table(lake: Lake) -> None:
    """Write it. The second sync brings a column more, so that the files have two schemas."""
    connector = lake.connector()
    first = [record(FULL), record(BROKEN), record({"id": 3}), state(3), complete()]
    connector.write(catalog(stream(schema=WIDE_SCHEMA)), first).expect_success()
    wider = {**WIDE_SCHEMA, "properties": {**WIDE_SCHEMA["properties"], "added": {"type": "integer"}}}
    second = [record({"id": 4, "added": 40}), state(4), complete()]
    connector.write(catalog(stream(schema=wider)), second).expect_success()
    lake.verify_at_rest()

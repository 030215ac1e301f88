"""One story for every kind of cluster: tables that are appended, deduplicated with updates and deletions, and refreshed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from integration_tests.connector import Connector
from integration_tests.lake import ProcessLake
from unit_tests.lake.chain_reader import StreamName
from unit_tests.lake.contents import USERS
from unit_tests.lake.messages import catalog
from unit_tests.lake.outcome import Outcome
from unit_tests.lake.shop import complete, record, state, stream, users
from unit_tests.lake.table_readers import Row

ORDERS: StreamName = ("shop", "orders")
ORDER_FIELDS = {
    "id": {"type": "integer"},
    "changed": {"type": "string", "format": "date-time", "airbyte_type": "timestamp_with_timezone"},
    "amount": {"type": "number"},
    "lines": {"type": "array", "items": {"type": "object", "properties": {"sku": {"type": "string"}, "count": {"type": "integer"}}}},
    "_ab_cdc_deleted_at": {"type": "string", "format": "date-time"},
}
RECORDS = 2_000
SYNCS = (1, 2, 3)
"""Append and first rows; half of the orders change and some are deleted; everything is replaced."""
STORY_TIMEOUT_S = 600
OF_EACH_COMMIT = "standalone"
"""The kind of cluster that needs nothing but Spark. The others have lanes of their own, which the night runs."""


def marks_on(kind: str) -> list[pytest.MarkDecorator]:
    """The marks of tests on a kind of cluster. They have time for all syncs of the story."""
    slow = [pytest.mark.slow, pytest.mark.timeout(len(SYNCS) * STORY_TIMEOUT_S)]
    return [*slow, *([] if kind == OF_EACH_COMMIT else [pytest.mark.clusters])]


def order(number: int, sync: int) -> dict[str, Any]:
    data = {
        "id": number,
        "changed": f"2026-01-{sync:02}T00:00:{number % 60:02}Z",
        "amount": "a lot" if number % 97 == 0 else number / 8,
        "lines": [{"sku": f"s{number % 7}", "count": number}] * (number % 3),
    }
    return {**data, "_ab_cdc_deleted_at": "2026-01-31T00:00:00Z"} if sync > 1 and number % 10 == 0 else data


def streams(sync: int) -> dict[str, Any]:
    """The catalog of a sync: users are appended, orders deduplicated; the third sync is a refresh of both."""
    now: dict[str, Any] = {"sync_id": sync, **({"generation": 2, "minimum_generation": 2} if sync == 3 else {})}
    schema = {"type": "object", "properties": ORDER_FIELDS}
    orders = stream("orders", schema=schema, mode="append_dedup", primary_key=[["id"]], cursor_field=["changed"], **now)
    return catalog(stream("users", **now), orders)


def messages(sync: int) -> list[bytes]:
    first = (sync - 1) * RECORDS // 2
    return [
        *users(range(first, first + RECORDS)),
        state(sync, "users"),
        *(record(order(number, sync), "orders") for number in range(first, first + RECORDS)),
        state(sync, "orders"),
        complete("users"),
        complete("orders"),
    ]


def run_sync(connector: Connector, sync: int, spark: dict[str, Any]) -> Outcome:
    return connector.write(streams(sync), messages(sync), timeout_s=STORY_TIMEOUT_S, spark=spark).expect_success()


def comparable(rows: list[Row]) -> list[str]:
    """The rows without their random ids, in an order of their own."""
    return sorted(json.dumps({name: value for name, value in row.items() if name != "_airbyte_raw_id"}, sort_keys=True) for row in rows)


Tables = tuple[list[str], list[str]]


def tables_of(lake: ProcessLake) -> Tables:
    """Both tables, comparable. Fails if anything is left over in the bucket."""
    lake.verify_at_rest()
    return comparable(lake.rows(USERS)), comparable(lake.rows(ORDERS))

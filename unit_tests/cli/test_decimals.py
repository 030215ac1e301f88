"""A table with decimals in its key, its cursor and its rows, through the commands."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

from unit_tests.lake.inline_connector import InlineConnector
from unit_tests.lake.lake import Lake
from unit_tests.lake.messages import JsonObject, catalog
from unit_tests.lake.shop import complete, record, state, stream

NUMBER = {"type": "number"}
SCHEMA: JsonObject = {
    "type": "object",
    "properties": {
        "price": NUMBER,
        "version": NUMBER,
        "rates": {"type": "array", "items": {"type": "number", "multipleOf": 0.001}},
        "count": {"type": "integer", "airbyte_type": "big_integer"},
        "_ab_cdc_deleted_at": {"type": "string"},
    },
}
CATALOG = catalog(stream(schema=SCHEMA, mode="append_dedup", primary_key=[["price"]], cursor_field=["version"]))
DECIMALS = [{"stream": "shop.users", "column": column, "precision": 30, "scale": 2} for column in ("price", "ver*")]
BIG = "1234567890123456789012345678.01"


def run(connector: InlineConnector, command: str, *arguments: str) -> str:
    done = connector.run(command, "--namespace", "shop", "--stream", "users", *arguments)
    assert done.exit_code == 0, done.stderr
    return done.text


def test_decimals_through_syncs_and_commands(lake: Lake) -> None:
    tables: dict[str, Any] = {"declared_decimals": True, "decimal_columns": DECIMALS}
    connector = lake.connector(tables=tables, change_log={"enabled": True, "format": "parquet"})
    first: list[dict[str, Any]] = [
        {"price": BIG, "version": 1, "count": 10**37},
        {"price": 0.1, "version": 10.5, "rates": [0.001, "1.5", 0.0005]},
        {"price": -3, "version": 1},
    ]
    second: list[dict[str, Any]] = [
        {"price": "0.10", "version": 9.75, "rates": []},
        {"price": "0.10", "version": 11},
        {"price": -3.0, "version": 2},
    ]
    for rows in (first, second):
        connector.write(CATALOG, [*(record(row) for row in rows), state(1), complete()]).expect_success()

    table = {row["price"]: row for row in lake.rows()}
    assert {price: row["version"] for price, row in table.items()} == {
        Decimal(-3): Decimal(2),
        Decimal("0.10"): Decimal(11),
        Decimal(BIG): Decimal(1),
    }
    events = run(connector, "changes", "--key", '{"price": 0.1}').splitlines()
    assert [json.loads(event, parse_float=str)["key"]["price"] for event in events] == ["0.10", "0.10"]
    assert '"rates":[0.001,1.500,0.001]' in events[0].replace(" ", "")
    event = run(connector, "changes", "--key", f'{{"price": {BIG}}}')
    assert f'"price":{BIG}' in event
    assert f'"count":{10**37}' in event
    assert "3 rows are as before, 0 are gone, 0 are new" in run(connector, "rebuild")
    assert "decimal128(30, 2)" in run(connector, "inspect")

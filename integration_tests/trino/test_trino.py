"""Trino's readings of published tables: through Glue, by the printed statements, and in the Iceberg catalog."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import uuid4

import pytest

from destination_s3_spark import tables
from integration_tests.connector import SCRIPT, TIMEOUT_S, Connector
from integration_tests.lake import ProcessLake
from integration_tests.readers.conditions import conditions, trino_literal
from integration_tests.trino.conftest import TrinoLake
from integration_tests.trino.trino_server import Trino
from unit_tests.lake.messages import catalog
from unit_tests.lake.shop import complete, record, state, stream
from unit_tests.lake.table_readers import Row, neutral

pytestmark = pytest.mark.trino_tests

PROPERTIES: dict[str, Any] = {
    "id": {"type": "integer"},
    "text": {"type": "string"},
    "flag": {"type": "boolean"},
    "price": {"type": "number"},
    "amount": {"type": "number", "multipleOf": 0.01},
    "big": {"type": "integer", "airbyte_type": "big_integer"},
    "day": {"type": "string", "format": "date"},
    "moment": {"type": "string", "format": "date-time", "airbyte_type": "timestamp_with_timezone"},
    "clock": {"type": "string", "format": "time", "airbyte_type": "time_without_timezone"},
    "address": {"type": "object", "properties": {"city": {"type": "string"}, "zip": {"type": "integer"}}},
    "tags": {"type": "array", "items": {"type": "string"}},
    "either": {"oneOf": [{"type": "integer"}, {"type": "string"}]},
}


def person(number: int) -> Row:
    """A record with all columns and times in whole milliseconds, which every catalog of Trino reads; every fifth one has only its key."""
    if number % 5 == 4:
        return {"id": number}
    return {
        "id": number,
        "text": f"né '{number}\"\\",
        "flag": number % 2 == 0,
        "price": number * 1.1 - 3,
        "amount": number - 4.25,
        "big": (10**20 if number == 3 else 10) + number,
        "day": f"20{10 + number}-12-31",
        "moment": f"2026-02-03T04:05:{number:02d}.{number:03d}Z",
        "clock": f"{number:02d}:30:00.5",
        "address": {"city": f"city {number % 3}", "zip": number} if number % 3 else None,
        "tags": [None, f"t{number}", ""] if number % 2 else [],
        "either": number if number % 2 else f"e{number}",
    }


class Shop:
    """The table `users` in a namespace of its own, with one way of publishing."""

    def __init__(self, lake: ProcessLake, trino: Trino, publish: Mapping[str, Any], partition: bool) -> None:
        self.lake, self.trino, self.namespace = lake, trino, f"shop_{uuid4().hex[:8]}"
        by = [{"stream": "users", "column": "day", "transform": "year"}] if partition else []
        self.options: dict[str, Any] = {
            "publish": publish,
            "format": {"format_type": "Parquet", "time_encoding": "int64", "extracted_at_encoding": "micros"},
            "tables": {"declared_decimals": True, "partition_by": by},
        }

    @property
    def connector(self) -> Connector:
        return self.lake.connector(environment={"AWS_ENDPOINT_URL_GLUE": self.lake.bucket.server.endpoint}, **self.options)

    def sync(self, *numbers: int, **more: Mapping[str, Any]) -> None:
        schema = {"type": "object", "properties": {**PROPERTIES, **more}}
        lines = [record(person(number) | dict.fromkeys(more, number), "users", self.namespace) for number in numbers]
        ended = [state(1, "users", self.namespace), complete("users", self.namespace)]
        outcome = self.connector.write(catalog(stream("users", self.namespace, schema=schema)), [*lines, *ended]).expect_success()
        assert "publish" not in outcome.warnings, outcome.warnings

    def chain_rows(self) -> list[Row]:
        found = tables.read(self.connector.config(), "users", self.namespace).to_table().to_pylist()
        return sorted(
            ({name: value for name, value in row.items() if not name.startswith("_")} for row in found), key=lambda row: row["id"]
        )

    def define(self) -> str:
        """Carry out the statement that `inspect --ddl trino` prints; returns it."""
        config = self.lake.directory / f"config-{self.namespace}.json"
        config.write_text(json.dumps(self.connector.config()))
        command = [str(SCRIPT), "inspect", "users", "--namespace", self.namespace, "--ddl", "trino", "--config", str(config)]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=TIMEOUT_S)
        return done.stdout

    def expect_equal_reading(self, catalog_name: str) -> None:
        """Trino has the chain's rows in this catalog, and finds them by every condition."""
        stored, name = self.chain_rows(), f'{catalog_name}."{self.namespace}".users'
        columns = list(stored[0])
        selected = [AS_TEXT if column == "moment" else f'"{column}"' for column in columns]
        found = self.trino.rows(f"SELECT {', '.join(selected)} FROM {name} ORDER BY id")
        assert found == [[as_trino_shows(row[column]) for column in columns] for row in stored]
        wanted = list(conditions(stored, trino_literal, '"'))
        # Each condition is a scan of its own, so that files are skipped.
        counts = [f"SELECT {number} AS number, count(*) AS found FROM {name} WHERE {one.sql}" for number, one in enumerate(wanted)]
        found = self.trino.rows(f"SELECT found FROM ({' UNION ALL '.join(counts)}) ORDER BY number")
        assert [(one.sql, count) for one, (count,) in zip(wanted, found, strict=True)] == [(one.sql, one.found) for one in wanted]


AS_TEXT = "CAST(CAST(moment AT TIME ZONE 'UTC' AS timestamp(6)) AS varchar)"
"""The moment in one form, whether it has a zone or not and whatever its precision is."""


def as_trino_shows(value: Any) -> Any:
    """The value as Trino's protocol has it."""
    match value:
        case Decimal():
            return f"{value:f}"
        case datetime():
            return value.strftime("%Y-%m-%d %H:%M:%S.%f")
        case date():
            return value.isoformat()
        case time():
            return neutral(value)
        case dict():
            return [as_trino_shows(member) for member in value.values()]
        case list():
            return [as_trino_shows(item) for item in value]
        case _:
            return value


WAYS: dict[str, tuple[str, dict[str, Any]]] = {
    "Delta through Glue": ("deltaglue", {"delta": True, "glue": {"database": "${NAMESPACE}"}}),
    "Delta by the statement": ("delta", {"delta": True}),
    "manifest through Glue": ("hiveglue", {"glue": {"database": "${NAMESPACE}"}}),
    "folder by the statement": ("hive", {}),
    "Iceberg": ("iceberg", {"iceberg": {"type": "rest"}}),
}


@pytest.mark.parametrize("partition", [False, True], ids=["one folder", "partitions"])
@pytest.mark.parametrize("way", WAYS)
def test_values_and_filters(way: str, partition: bool, moto_lake: ProcessLake, trino_lake: TrinoLake) -> None:
    catalog_name, publish = WAYS[way]
    if "iceberg" in publish:
        publish = {"iceberg": {"type": "rest", "uri": trino_lake.catalog}}
    shop = Shop(moto_lake, trino_lake.trino, publish, partition)
    shop.sync(*range(8))
    if "statement" in way:
        if catalog_name == "hive":
            trino_lake.trino.rows(f'CREATE SCHEMA hive."{shop.namespace}"')
        trino_lake.trino.run(shop.define().replace('CREATE TABLE IF NOT EXISTS "', 'CREATE TABLE IF NOT EXISTS hive."'))
    shop.expect_equal_reading(catalog_name)
    if catalog_name == "hive":
        return  # its columns are those of the statement
    shop.sync(*range(8, 12), score={"type": "integer"})
    trino_lake.trino.rows(f"CALL {catalog_name}.system.flush_metadata_cache()") if "glue" in catalog_name else None
    shop.expect_equal_reading(catalog_name)

"""Syncs of a stream with columns of every type into a table that is a Delta table, too, and comparisons of it with the chain's rows."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

from destination_s3_spark.protocol.catalog import Catalog, parse_catalog
from destination_s3_spark.storage.s3 import S3Store
from destination_s3_spark.tables.commit.repair import Repair, repair
from destination_s3_spark.tables.compaction import groups
from destination_s3_spark.tables.factory import TableFactory
from destination_s3_spark.tables.stream_table import StreamTable
from destination_s3_spark.tables.updates import choice
from unit_tests.sync.inline_lake import InlineLake, line, state, status
from unit_tests.tables.publishers.delta_readers import Row, expect_rows_of_the_chain

ROOT = "lake/users/"
DATE, MOMENT = {"type": "string", "format": "date"}, {"type": "string", "format": "date-time"}
PROPERTIES: dict[str, Any] = {
    "id": {"type": "integer"},
    "flag": {"type": "boolean"},
    "name": {"type": "string"},
    "price": {"type": "number"},
    "day": DATE,
    "at": {**MOMENT, "airbyte_type": "timestamp_with_timezone"},
    "seen": {**MOMENT, "airbyte_type": "timestamp_without_timezone"},
    "address": {"type": "object", "properties": {"city": {"type": "string"}, "zip": {"type": "integer"}, "since": DATE}},
    "tags": {"type": "array", "items": {"type": "string"}},
    "lines": {"type": "array", "items": {"type": "object", "properties": {"sku": {"type": "string"}, "count": {"type": "integer"}}}},
    "either": {"oneOf": [{"type": "integer"}, {"type": "string"}]},
}


class DeltaLake(InlineLake):
    def check(self, *, filters: bool = True) -> list[Row]:
        return expect_rows_of_the_chain(self.settings, self.raw_config(), "users", ROOT, filters=filters)

    def repair(self) -> Repair | None:
        factory, table = self._found()
        (found,) = factory.find().tables
        return repair(factory.store, found, table.writer.publishers, factory.orphans(), factory.started_at)

    def _found(self) -> tuple[TableFactory, StreamTable]:
        factory = TableFactory(self.config(), S3Store(self.settings), datetime.now(UTC))
        (found,) = factory.find().tables
        return factory, factory.of_found(found, factory.publishers(factory.find())[found.stream])

    def raw_config(self) -> dict[str, Any]:
        keys = self.settings.credentials
        assert keys is not None
        return {
            "s3_bucket_name": self.settings.bucket,
            "s3_bucket_path": "lake",
            "s3_bucket_region": self.settings.region,
            "s3_endpoint": self.settings.endpoint,
            "access_key_id": keys.access_key_id,
            "secret_access_key": keys.secret_access_key,
            "format": self.format,
        }


def join_every_third_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have compactions join three files of any size."""
    for module in (groups, choice):
        monkeypatch.setattr(module, "LEAST_FILES", 3)
    monkeypatch.setattr(groups, "GROWTH", 1)


def catalog(properties: Mapping[str, Any] = PROPERTIES, mode: str = "append", generation: int = 1, minimum: int = 0) -> Catalog:
    stream = {
        "stream": {"name": "users", "json_schema": {"type": "object", "properties": properties}, "supported_sync_modes": []},
        "sync_mode": "incremental",
        "destination_sync_mode": mode,
        "primary_key": [["id"]],
        "cursor_field": [],
        "generation_id": generation,
        "minimum_generation_id": minimum,
        "sync_id": generation,
    }
    return parse_catalog(json.dumps({"streams": [stream]}).encode())


def person(number: int, **more: Any) -> dict[str, Any]:
    if number % 5 == 4:
        return {"id": number, **more}
    return {
        "id": number,
        "flag": number % 2 == 0,
        "name": f"näme {number:02d}",
        "price": number * 1.5 - 3,
        "day": f"2026-01-{1 + number % 28:02d}",
        "at": f"2026-02-03T04:05:{number % 60:02d}.{number:06d}Z",
        "seen": f"2026-02-03T{number % 24:02d}:00:00",
        "address": {"city": f"city {number % 3}", "zip": 1000 + number, "since": f"202{number % 10}-01-01"},
        "tags": [f"t{number}"],
        "lines": [{"sku": "a", "count": number}],
        "either": number if number % 2 else f"e{number}",
        **more,
    }


def records(people: Iterable[Mapping[str, Any]], emitted_at: int = 1_700_000_000_123) -> bytes:
    return b"".join(line({"type": "RECORD", "record": {"stream": "users", "emitted_at": emitted_at, "data": data}}) for data in people)


def sync(lake: InlineLake, chosen: Catalog, people: Iterable[Mapping[str, Any]], emitted_at: int = 1_700_000_000_123) -> None:
    lake.sync(chosen, [records(people, emitted_at), state(1), status("COMPLETE")])

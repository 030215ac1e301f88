"""Syncs of a stream with columns of every type into a table that is a Delta table, too, and comparisons of it with the chain's rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from destination_s3_spark.tables.commit.repair import Repair, repair
from destination_s3_spark.tables.compaction import groups
from destination_s3_spark.tables.updates import choice
from unit_tests.lake.lake import Lake
from unit_tests.lake.messages import EMITTED_AT_MS, JsonObject, complete, records, schema_of, state, stream
from unit_tests.lake.messages import catalog as catalog_of
from unit_tests.tables.publishers.delta_readers import DeltaReaders, Row, expect_rows_of_the_chain

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


class DeltaLake(Lake):
    def readers(self) -> DeltaReaders:
        return DeltaReaders.of_copy(self.settings, ROOT, self.directory)

    def check(self, *, filters: bool = True) -> list[Row]:
        return expect_rows_of_the_chain(self.settings, self.raw_config(), "users", ROOT, filters=filters)

    def repair(self) -> Repair | None:
        factory = self.factory()
        every = factory.find()
        (found,) = every.tables
        return repair(self.store, found, factory.publishers(every)[found.stream], factory.orphans(), factory.started_at)


def join_every_third_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have compactions join three files of any size."""
    for module in (groups, choice):
        monkeypatch.setattr(module, "LEAST_FILES", 3)
    monkeypatch.setattr(groups, "GROWTH", 1)


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


def catalog(properties: Mapping[str, Any] = PROPERTIES, mode: str = "append", generation: int = 1, minimum: int = 0) -> JsonObject:
    ids: dict[str, Any] = {"generation": generation, "minimum_generation": minimum, "sync_id": generation}
    return catalog_of(stream(schema=schema_of(properties), mode=mode, key="id", **ids))


def sync(lake: Lake, chosen: JsonObject, people: Iterable[Mapping[str, Any]], emitted_at: int = EMITTED_AT_MS) -> None:
    lake.sync(chosen, [records(people, emitted_at=emitted_at), state(1), complete()])

"""Syncs into a lake with a partitioned table `users`, and what is in it."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import count
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq

from destination_s3_spark.chain.files import FileEntry, FileKind
from destination_s3_spark.chain.log import Chain
from destination_s3_spark.protocol.catalog import Catalog, parse_catalog
from destination_s3_spark.schema.partitioning import NULL_PARTITION
from destination_s3_spark.storage.s3 import S3Store
from destination_s3_spark.tables.factory import TableFactory
from destination_s3_spark.tables.found import find_tables
from destination_s3_spark.tables.updates.choice import rebuild_of
from destination_s3_spark.tables.updates.resources import Resources, TaskResources
from destination_s3_spark.tables.verification import verify
from unit_tests.places import TEMPLATE, table_of
from unit_tests.sync.inline_lake import InlineLake, line, state, status

CHAIN = "lake/airbyte_internal/_raw__stream_users/chain/"
AT = {"type": "string", "format": "date-time", "airbyte_type": "timestamp_with_timezone"}
SCHEMA = {"type": "object", "properties": {"id": {"type": "integer"}, "at": AT, "kind": {"type": "string"}}}
DAILY = {"stream": "users", "column": "at", "transform": "day"}
CLOCK = count(1000)
HOURLY = {"stream": "users", "column": "at", "transform": "hour", "name": "hours"}


def partitioned(*rules: dict[str, Any], **tables: Any) -> dict[str, Any]:
    return {"tables": {"partition_by": list(rules), "compaction": "on", **tables}}


def catalog(
    mode: str = "append",
    sync: int = 1,
    generation: int = 1,
    minimum: int = 0,
    schema: dict[str, Any] | None = None,
    key: Sequence[str] = ("id",),
) -> Catalog:
    entry = {
        "stream": {"name": "users", "json_schema": schema or SCHEMA, "supported_sync_modes": ["incremental"]},
        "sync_mode": "incremental",
        "destination_sync_mode": mode,
        "primary_key": [[one] for one in key],
        "cursor_field": [],
        "generation_id": generation,
        "minimum_generation_id": minimum,
        "sync_id": sync,
    }
    return parse_catalog(json.dumps({"streams": [entry]}).encode())


def record(number: int, days: int = 3) -> dict[str, Any]:
    """A record on one of a few days, or of none."""
    day = number % (days + 1)
    at = None if day == days else f"2026-11-{20 + day}T{2 + number % 22:02}:30:00+02:00"
    return {"id": number, "at": at, "kind": f"kind {number % 2}"}


def messages(records: Iterable[dict[str, Any]], *, complete: bool = True) -> Iterator[bytes]:
    number = 0
    for number, data in enumerate(records, 1):  # noqa: B007
        yield line({"type": "RECORD", "record": {"stream": "users", "emitted_at": next(CLOCK), "data": data}})
    yield state(number)
    if complete:
        yield status("COMPLETE")


def chain(lake: InlineLake) -> Chain:
    found = Chain(S3Store(lake.settings), table_of("users"))
    found.read()
    found.catch_up()
    return found


def finals(lake: InlineLake) -> tuple[FileEntry, ...]:
    return chain(lake).live_files().of(FileKind.FINAL)


def rows_of(lake: InlineLake, file: FileEntry) -> list[dict[str, Any]]:
    body = S3Store(lake.settings).get(file.key)
    if file.key.endswith(".avro"):
        return [{**row} for row in fastavro.reader(io.BytesIO(body))]
    return pq.read_table(pa.BufferReader(body)).to_pylist()


def day_of(at: datetime | None) -> str:
    return NULL_PARTITION if at is None else f"{at:%Y-%m-%d}"


def check(lake: InlineLake, ids: Iterable[int | str], folder: str = "at_day", value: Any = day_of) -> None:
    """Each record is once in the table, in the folder of its value; nothing else is there; and the chain agrees."""
    found = []
    for file in finals(lake):
        assert file.partition is not None
        assert f"/{folder}={file.partition}/" in file.key
        rows = rows_of(lake, file)
        assert {value(row["at"]) for row in rows} == {file.partition}
        assert len(rows) == file.rows
        found += [row["id"] for row in rows]
    assert sorted(found) == sorted(ids)
    store = S3Store(lake.settings)
    (table,) = find_tables(store, TEMPLATE).tables
    assert verify(store, table).problems == ()
    stored = {info.key for info in store.list("lake/users/") if info.key.endswith((".parquet", ".avro")) and "_delta_log" not in info.key}
    assert stored == {file.key for file in finals(lake)}


def rebuilt(lake: InlineLake) -> None:
    factory = TableFactory(lake.config(), S3Store(lake.settings), datetime.now(UTC))
    (found,) = factory.find().tables
    table = factory.of_found(found, ()).open()
    update = rebuild_of(table, Resources(TaskResources(lake.settings, 2**26), 2, None))
    work = next(update)
    while True:
        try:
            work = update.send([work.function(task) for task in work.tasks])
        except StopIteration:
            break
    table.writer.close()

"""Syncs into a lake with a partitioned table `users`, and what is in it."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from itertools import count
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq

from destination_s3_spark.chain.files import FileEntry, FileKind
from destination_s3_spark.schema.partitioning import NULL_PARTITION
from unit_tests.lake.lake import Lake
from unit_tests.lake.messages import JsonObject, complete, state, stream
from unit_tests.lake.messages import catalog as catalog_of
from unit_tests.lake.messages import record as record_of

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
) -> JsonObject:
    return catalog_of(stream(schema=schema or SCHEMA, mode=mode, key=key, generation=generation, minimum_generation=minimum, sync_id=sync))


def record(number: int, days: int = 3) -> dict[str, Any]:
    """A record on one of a few days, or of none."""
    day = number % (days + 1)
    at = None if day == days else f"2026-11-{20 + day}T{2 + number % 22:02}:30:00+02:00"
    return {"id": number, "at": at, "kind": f"kind {number % 2}"}


def messages(records: Iterable[dict[str, Any]], *, ends: bool = True) -> Iterator[bytes]:
    number = 0
    for number, data in enumerate(records, 1):  # noqa: B007
        yield record_of(data, emitted_at=next(CLOCK))
    yield state(number)
    if ends:
        yield complete()


def rows_of(lake: Lake, file: FileEntry) -> list[dict[str, Any]]:
    body = lake.store.get(file.key)
    if file.key.endswith(".avro"):
        return [{**row} for row in fastavro.reader(io.BytesIO(body))]
    return pq.read_table(pa.BufferReader(body)).to_pylist()


def day_of(at: datetime | None) -> str:
    return NULL_PARTITION if at is None else f"{at:%Y-%m-%d}"


def check(lake: Lake, ids: Iterable[int | str], folder: str = "at_day", value: Any = day_of) -> None:
    """Each record is once in the table, in the folder of its value; nothing else is there; and the chain agrees."""
    found = []
    for file in lake.live(FileKind.FINAL):
        assert file.partition is not None
        assert f"/{folder}={file.partition}/" in file.key
        rows = rows_of(lake, file)
        assert {value(row["at"]) for row in rows} == {file.partition}
        assert len(rows) == file.rows
        found += [row["id"] for row in rows]
    assert sorted(found) == sorted(ids)
    assert lake.verified().problems == ()
    stored = {
        info.key for info in lake.store.list("lake/users/") if info.key.endswith((".parquet", ".avro")) and "_delta_log" not in info.key
    }
    assert stored == {file.key for file in lake.live(FileKind.FINAL)}

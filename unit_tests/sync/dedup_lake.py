"""Syncs of a deduplicated table `users` with columns for a key and a note, and what is in it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from destination_s3_spark import tables
from destination_s3_spark.chain.files import FileEntry, FileKind
from destination_s3_spark.chain.state import Contents
from unit_tests.lake.lake import Lake
from unit_tests.lake.messages import JsonObject, catalog, complete, records, schema_of, state, stream

DELETED_AT = {"type": "string", "format": "date-time"}


def dedup_catalog(
    key: str = "id",
    key_type: str = "integer",
    generation: int = 1,
    minimum: int = 0,
    mode: str = "append_dedup",
    cursor: str = "",
    **columns: Mapping[str, Any],
) -> JsonObject:
    """Return the catalog of a stream with its key, a note (a text unless `columns` says otherwise) and these columns."""
    schema = schema_of({key: {"type": key_type}, "note": {"type": "string"}, **columns})
    ids: dict[str, Any] = {"generation": generation, "minimum_generation": minimum, "sync_id": generation}
    return catalog(stream(schema=schema, mode=mode, key=key, cursor=cursor, **ids))


def rows(found: Iterable[Mapping[str, Any]], emitted_at: int) -> bytes:
    return records(found, emitted_at=emitted_at)


def sync(lake: Lake, number: int, ids: Iterable[int], **catalog: Any) -> None:
    """Sync a row of each id, whose note also names the sync."""
    found = [{"id": i, "note": f"{i} of {number}"} for i in ids]
    lake.sync(dedup_catalog(**catalog), [rows(found, number), state(number), complete()])


def contents(lake: Lake) -> Contents:
    return lake.own_chain().head.contents


def runs(lake: Lake) -> list[FileEntry]:
    return [*lake.live(FileKind.DELTA)]


def table(lake: Lake) -> dict[Any, str]:
    """The notes that readers see, by id."""
    final = (pq.read_table(pa.BufferReader(content)) for content in lake.files(".parquet"))
    return dict(pair for file in final for pair in zip(file["id"].to_pylist(), file["note"].to_pylist(), strict=True))


def fresh(lake: Lake) -> Any:
    """Read the table with the rows that wait beside it."""
    return tables.read(lake.raw_config(), "users", fresh=True)

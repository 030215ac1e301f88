"""A table, its writers and small syncs of it over the fake bucket, for the tests of this folder."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

import pyarrow as pa

from destination_s3_spark.chain.files import FileEntry, FileKind
from destination_s3_spark.chain.log import Chain
from destination_s3_spark.chain.opening import Session, WriteDisposition
from destination_s3_spark.chain.territory import OrphanUploads
from destination_s3_spark.decoding.changes import ChangedField
from destination_s3_spark.formats.file_statistics import UNBOUNDED, WrittenFile
from destination_s3_spark.schema.arrow import schema_to_text
from destination_s3_spark.tables.commit.batch import TableCheckpoint
from destination_s3_spark.tables.commit.writer import TableWriter
from destination_s3_spark.tables.landing.slices import Segment, StagedSlice
from destination_s3_spark.tables.publishers.publication import Publisher
from unit_tests.chain.bucket import Bucket
from unit_tests.places import table_of

TABLE = replace(table_of("users", "shop"), final_root="lake/users/")
CHAIN = TABLE.chain_prefix
SCHEMA = {"schemaId": 0, "version": "1-0-0", "fields": [], "arrowSchema": schema_to_text(pa.schema([("id", pa.int64())]))}
STARTED = datetime(2026, 5, 4, 3, 2, 1, tzinfo=UTC)
DELTAS = (FileKind.RAW, FileKind.DELTA)
FIRST = TableCheckpoint(100, "first")
SECOND = TableCheckpoint(200, "second")


def writer(
    store: Bucket,
    sync_id: int = 1,
    generation_id: int = 0,
    disposition: WriteDisposition = WriteDisposition.APPEND,
    publishers: Sequence[Publisher] = (),
) -> TableWriter:
    session = Session(sync_id, generation_id, STARTED, disposition)
    made = TableWriter(Chain(store, TABLE), session, OrphanUploads(store, "lake/"), publishers=publishers)
    made.chain.read()
    return made


def staged(
    into: TableWriter,
    store: Bucket,
    start: int,
    end: int,
    segments: Sequence[Segment] | None = None,
    kinds: Sequence[FileKind] = (FileKind.RAW, FileKind.FINAL),
) -> StagedSlice:
    """A slice of (end - start) / 10 records, landed into one file per kind."""
    into.open()
    into.ensure_schema(SCHEMA)
    rows = (end - start) // 10
    keys = {kind: f"{_folder(kind)}f-{into.next_token()}.parquet" for kind in kinds}
    files = tuple(
        FileEntry.staged(kind, store.stage(key, b"x" * rows), WrittenFile(rows, statistics=UNBOUNDED)) for kind, key in keys.items()
    )
    changed = {ChangedField("id", "NULLED", "WHY"): 1}
    return StagedSlice(start, end, 0, files, tuple(segments or [Segment(end, rows, 5 * end)]), {}, changed)


def _folder(kind: FileKind) -> str:
    return TABLE.final_root if kind is FileKind.FINAL else f"{TABLE.folder}{kind.value}/"


def land(into: TableWriter, store: Bucket, start: int, end: int) -> None:
    into.stage(staged(into, store, start, end))


def event(store: Bucket, number: int) -> dict[str, object]:
    found: dict[str, object] = json.loads(store.objects[f"{CHAIN}{number:020d}.json"])["event"]
    return found


def kinds(store: Bucket) -> list[object]:
    numbers = sorted(key for key in store.objects if key.startswith(CHAIN) and "hint" not in key)
    return [event(store, number)["kind"] for number in range(len(numbers))]


def synced(store: Bucket, sync_id: int = 1, publishers: Sequence[Publisher] = ()) -> None:
    """A small sync from start to end."""
    made = writer(store, sync_id, publishers=publishers)
    land(made, store, 0, 100)
    made.commit([replace(FIRST, state_hash=f"sync {sync_id}")])
    made.close()


def crashed(store: Bucket, *checkpoints: TableCheckpoint) -> TableWriter:
    """A sync that committed and never closed."""
    made = writer(store)
    start = 0
    for checkpoint in checkpoints:
        land(made, store, start, checkpoint.end)
        made.commit([checkpoint])
        start = checkpoint.end
    return made


def final(into: TableWriter, store: Bucket, rows: int) -> FileEntry:
    return FileEntry.staged(FileKind.FINAL, store.stage(f"lake/users/f-{into.next_token()}.parquet", b"m" * rows), WrittenFile(rows))


def finals(store: Bucket) -> set[str]:
    return {key for key in store.objects if key.startswith("lake/users/f-")}

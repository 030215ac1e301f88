"""Hourly syncs of one table, which merge it into one file, under a clock of the test."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from destination_s3_spark.chain.files import FileEntry, FileKind
from destination_s3_spark.chain.log import Chain
from destination_s3_spark.chain.opening import Session
from destination_s3_spark.chain.territory import OrphanUploads
from destination_s3_spark.formats.file_statistics import WrittenFile
from destination_s3_spark.tables.commit.writer import TableWriter
from unit_tests.chain.bucket import Bucket
from unit_tests.chain.built_chain import T0
from unit_tests.chain.one_table import FIRST, STARTED, TABLE, land

KEEP = timedelta(hours=2)


def writer_at(store: Bucket, hour: int, keep: timedelta = KEEP) -> TableWriter:
    now = T0 + timedelta(hours=hour)
    chain, orphans = Chain(store, TABLE, lambda: now), OrphanUploads(store, "lake/")
    made = TableWriter(chain, Session(hour + 1, 0, STARTED), orphans, keep_replaced=keep)
    made.chain.read()
    return made


def sync_at(store: Bucket, hour: int, keep: timedelta = KEEP) -> None:
    """The sync of an hour: ten rows, which are then merged with all others into one file."""
    made = writer_at(store, hour, keep)
    land(made, store, 0, 100)
    made.commit([replace(FIRST, state_hash=f"hour {hour}")])
    old = made.live_files().of(FileKind.FINAL)
    rows = sum(file.rows for file in old)
    merged = FileEntry.staged(
        FileKind.FINAL, store.stage(f"{TABLE.final_root}m-{made.next_token()}.parquet", b"x" * rows), WrittenFile(rows)
    )
    made.merge([merged], old, None)
    made.close()


def chain_of(store: Bucket) -> Chain:
    chain = Chain(store, TABLE)
    chain.read()
    chain.catch_up()
    return chain

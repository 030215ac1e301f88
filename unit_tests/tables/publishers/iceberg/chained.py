"""A table in a chain whose files nobody reads, for what is published of it."""

from __future__ import annotations

import pyarrow as pa

from destination_s3_spark.chain.files import FileEntry, FileKind
from destination_s3_spark.chain.log import Chain
from destination_s3_spark.formats.file_statistics import WrittenFile
from destination_s3_spark.schema.arrow import schema_to_text
from destination_s3_spark.tables.commit.writer import TableWriter
from unit_tests.chain.bucket import Bucket
from unit_tests.chain.one_table import TABLE
from unit_tests.schema.of_arrow import recorded
from unit_tests.tables.publishers.iceberg.lake import MICROS_ENCODING, OWN_COLUMNS

SCHEMA = {
    "schemaId": 0,
    "version": "1-0-0",
    "fields": recorded([("id", pa.int64())]),
    "encodings": MICROS_ENCODING,
    "arrowSchema": schema_to_text(pa.schema([*OWN_COLUMNS, ("id", pa.int64())])),
}


def staged(made: TableWriter, store: Bucket) -> FileEntry:
    return FileEntry.staged(FileKind.FINAL, store.stage(f"lake/users/f-{made.next_token()}.parquet", b"x"), WrittenFile(1))


def live(store: Bucket) -> set[str]:
    chain = Chain(store, TABLE)
    chain.catch_up()
    return {file.key for file in chain.live_files().of(FileKind.FINAL)}

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from destination_s3_spark.chain.files import FileEntry, FileKind
from destination_s3_spark.errors import TransientError
from destination_s3_spark.formats.parquet import ParquetFile, ParquetOptions
from destination_s3_spark.storage.s3 import S3Store
from destination_s3_spark.storage.settings import ClientLimits, S3Settings
from destination_s3_spark.storage.staging import FIRST_PART_BYTES, StagedFileSink
from destination_s3_spark.tables.staged.staged_file import StagedFile

SCHEMA = pa.schema({"text": pa.large_binary()})
ONCE = ClientLimits(attempts=1, connect_timeout_s=2, read_timeout_s=10)


@pytest.fixture
def proxied(s3_settings: S3Settings, s3_proxy: Any) -> S3Settings:
    return replace(s3_settings, endpoint=s3_proxy.endpoint)


def rows_of(size: int) -> pa.RecordBatch:
    return pa.record_batch([pa.array([random.Random(7).randbytes(size)], pa.large_binary())], schema=SCHEMA)


def published(settings: S3Settings, rows: pa.RecordBatch) -> FileEntry:
    sink = StagedFileSink(replace(settings, limits=ONCE), "scratch")
    with StagedFile(FileKind.DELTA, sink, ParquetFile(sink, SCHEMA, ParquetOptions())) as file:
        file.write(rows)
        return file.publish()


@pytest.mark.parametrize(
    ("size", "requests"),
    [
        (1_000, ["PutObject"]),
        (FIRST_PART_BYTES, ["CreateMultipartUpload", "UploadPart", "UploadPart", "CompleteMultipartUpload"]),
    ],
)
def test_a_scratch_file_is_visible_after_as_few_requests_as_its_size_needs(
    proxied: S3Settings, s3_proxy: Any, s3_settings: S3Settings, size: int, requests: list[str]
) -> None:
    rows = rows_of(size)
    entry = published(proxied, rows)
    assert s3_proxy.operations() == requests
    body = S3Store(s3_settings).get("scratch")
    assert (entry.key, entry.bytes, entry.rows, entry.upload_id) == ("scratch", len(body), 1, None)
    assert pq.read_table(pa.BufferReader(body)).equals(pa.Table.from_batches([rows]))


def test_an_upload_that_has_gone_is_an_error(proxied: S3Settings, s3_proxy: Any, s3_error: Any, s3_settings: S3Settings) -> None:
    s3_proxy.script = lambda call: s3_error(404, "NoSuchUpload") if call.operation == "CompleteMultipartUpload" else call.forward()
    with pytest.raises(TransientError, match="has gone before it was complete"):
        published(proxied, rows_of(FIRST_PART_BYTES))
    assert S3Store(s3_settings).head("scratch") is None


def test_a_small_file_that_fails_leaves_nothing(proxied: S3Settings, s3_proxy: Any, s3_error: Any, s3_settings: S3Settings) -> None:
    s3_proxy.script = lambda call: s3_error(503, "SlowDown") if call.operation == "PutObject" else call.forward()
    with pytest.raises(TransientError, match="Writing"):
        published(proxied, rows_of(1_000))
    assert S3Store(s3_settings).head("scratch") is None

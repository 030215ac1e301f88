from __future__ import annotations

import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from destination_s3_spark.chain.files import FileEntry, FileKind
from destination_s3_spark.errors import TransientError
from destination_s3_spark.formats.parquet import ParquetFile, ParquetOptions
from destination_s3_spark.storage.settings import S3Settings
from destination_s3_spark.storage.staging import FIRST_PART_BYTES, StagedFileSink
from destination_s3_spark.tables.staged.staged_file import StagedFile
from unit_tests.lake.memory_bucket import MemoryBucket, Refusal
from unit_tests.lake.memory_client import bucket_of

SCHEMA = pa.schema({"text": pa.large_binary()})


@pytest.fixture
def memory(s3_settings: S3Settings) -> MemoryBucket:
    return bucket_of(s3_settings)


def rows_of(size: int) -> pa.RecordBatch:
    return pa.record_batch([pa.array([random.Random(7).randbytes(size)], pa.large_binary())], schema=SCHEMA)


def published(settings: S3Settings, rows: pa.RecordBatch) -> FileEntry:
    sink = StagedFileSink(settings, "scratch")
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
    s3_settings: S3Settings, memory: MemoryBucket, size: int, requests: list[str]
) -> None:
    rows = rows_of(size)
    entry = published(s3_settings, rows)
    assert memory.actions() == requests
    body = memory.objects["scratch"]
    assert (entry.key, entry.bytes, entry.rows, entry.upload_id) == ("scratch", len(body), 1, None)
    assert pq.read_table(pa.BufferReader(body)).equals(pa.Table.from_batches([rows]))


def test_an_upload_that_has_gone_is_an_error(s3_settings: S3Settings, memory: MemoryBucket) -> None:
    memory.fail("CompleteMultipartUpload", Refusal(404, "NoSuchUpload"))
    with pytest.raises(TransientError, match="has gone before it was complete"):
        published(s3_settings, rows_of(FIRST_PART_BYTES))
    assert memory.objects == {}


def test_a_small_file_that_fails_leaves_nothing(s3_settings: S3Settings, memory: MemoryBucket) -> None:
    memory.fail("PutObject", Refusal(503, "SlowDown"))
    with pytest.raises(TransientError, match="Writing"):
        published(s3_settings, rows_of(1_000))
    assert memory.objects == {}

from __future__ import annotations

import io
import os
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from destination_s3_spark.errors import ConfigError, DataError, TransientError
from destination_s3_spark.storage.object_store import ObjectNotFound
from destination_s3_spark.storage.ranged import TAIL_BYTES, WHOLE_BYTES, RangedFile
from destination_s3_spark.storage.s3 import S3Store
from destination_s3_spark.storage.settings import ClientLimits, S3Settings
from unit_tests.cases import each

ONCE = ClientLimits(attempts=1, connect_timeout_s=2, read_timeout_s=5)
BODY = random.Random(7).randbytes(5 * TAIL_BYTES)
Opened = Callable[[bytes], RangedFile]


@pytest.fixture
def opened(s3_settings: S3Settings, s3_proxy: Any) -> Opened:
    """An object with these bytes as a file, read through the proxy."""
    settings = replace(s3_settings, endpoint=s3_proxy.endpoint)

    def put_and_open(body: bytes) -> RangedFile:
        S3Store(replace(s3_settings, limits=ONCE)).put("t/file", body)
        return RangedFile(replace(settings, limits=ONCE), "t/file", len(body))

    return put_and_open


def test_it_reads_and_seeks_as_a_file_in_memory_does(opened: Opened) -> None:
    file, memory = opened(BODY), io.BytesIO(BODY)
    chosen = random.Random(3)
    for _ in range(60):
        whence = chosen.choice([os.SEEK_SET, os.SEEK_CUR, os.SEEK_END])
        base = {os.SEEK_SET: 0, os.SEEK_CUR: memory.tell(), os.SEEK_END: len(BODY)}[whence]
        offset = chosen.randrange(-100, len(BODY) + 200) - base
        if base + offset < 0:
            offset = -base
        assert file.seek(offset, whence) == memory.seek(offset, whence)
        size = chosen.choice([-1, 0, 1, 100, TAIL_BYTES, 5 * TAIL_BYTES])
        assert file.read(size) == memory.read(size)
        assert file.tell() == memory.tell()


def test_it_cannot_stand_before_its_start_nor_be_read_once_closed(opened: Opened) -> None:
    file = opened(b"abc")
    with pytest.raises(ValueError, match="before the start"):
        file.seek(-4, os.SEEK_END)
    file.close()
    with pytest.raises(ValueError, match="closed"):
        file.read()


def test_the_tail_is_fetched_once_and_what_lies_before_by_ranges(opened: Opened, s3_proxy: Any) -> None:
    file = opened(BODY)
    for position in (len(BODY) - 8, len(BODY) - TAIL_BYTES, len(BODY) - 50_000):
        file.seek(position)
        file.read(8)
    file.seek(10)
    assert file.read(90) == BODY[10:100]
    ranges = [call.headers["range"] for call in s3_proxy.calls]
    assert ranges == [f"bytes={len(BODY) - TAIL_BYTES}-{len(BODY) - 1}", "bytes=10-99"]


def test_a_small_file_is_fetched_at_once(opened: Opened, s3_proxy: Any) -> None:
    file = opened(BODY[:WHOLE_BYTES])
    file.seek(-8, os.SEEK_END)
    file.read(8)
    file.seek(0)
    assert file.read() == BODY[:WHOLE_BYTES]
    assert [call.headers["range"] for call in s3_proxy.calls] == [f"bytes=0-{WHOLE_BYTES - 1}"]


def test_nothing_is_asked_for_beyond_the_end(opened: Opened, s3_proxy: Any) -> None:
    file = opened(b"abc")
    file.seek(3)
    assert file.read() == b""
    assert file.read(5) == b""
    assert opened(b"").read() == b""
    assert s3_proxy.calls == []


def parquet(rows: int) -> bytes:
    source = random.Random(1)
    table = pa.table({f"c{column}": [source.random() for _ in range(rows)] for column in range(3)})
    sink = io.BytesIO()
    pq.write_table(table, sink, row_group_size=10_000, compression="none", use_dictionary=False)
    return sink.getvalue()


def test_a_row_group_of_parquet_takes_one_request_beside_the_footers(opened: Opened, s3_proxy: Any) -> None:
    body = parquet(50_000)
    file = pq.ParquetFile(opened(body), pre_buffer=True)
    assert len(s3_proxy.calls) == 1
    assert file.read_row_group(1).equals(pq.ParquetFile(io.BytesIO(body)).read_row_group(1))
    assert len(s3_proxy.calls) == 2


def test_a_small_parquet_file_takes_one_request(opened: Opened, s3_proxy: Any) -> None:
    body = parquet(1000)
    assert pq.ParquetFile(opened(body), pre_buffer=True).read().equals(pq.ParquetFile(io.BytesIO(body)).read())
    assert s3_proxy.actions() == ["GetObject"]


@pytest.mark.parametrize(
    ("status", "code", "error", "text"),
    [
        (404, "NoSuchKey", ObjectNotFound, "t/file"),
        (403, "AccessDenied", ConfigError, "s3:GetObject"),
        (503, "SlowDown", TransientError, "again"),
        (416, "InvalidRange", DataError, "not as long"),
    ],
)
def test_a_refusal_comes_out_of_the_parquet_reader_as_ours(
    opened: Opened, s3_proxy: Any, s3_error: Any, status: int, code: str, error: type[Exception], text: str
) -> None:
    file = pq.ParquetFile(opened(parquet(50_000)), pre_buffer=True)
    s3_proxy.fail("GetObject", s3_error(status, code))
    with pytest.raises(error, match=text):
        file.read_row_groups([0, 1])


def test_a_body_cut_short_is_read_again(opened: Opened, s3_proxy: Any, s3_error: Any) -> None:
    file = opened(b"whole body")
    headers = {"Content-Length": "10", "Content-Range": "bytes 0-9/10", "Connection": "close"}
    s3_proxy.fail("GetObject", replace(s3_error(206, ""), body=b"whole", headers=headers), times=1)
    assert file.read() == b"whole body"
    assert len(s3_proxy.calls) == 2


@each("recorded", [9, 11, 500_000])
def test_an_object_of_another_size_is_not_the_one_that_was_written(s3_settings: S3Settings, recorded: int) -> None:
    S3Store(replace(s3_settings, limits=ONCE)).put("t/file", b"0123456789")
    with pytest.raises(DataError, match=r"t/file.*not as long"):
        RangedFile(replace(s3_settings, limits=ONCE), "t/file", recorded).read()


def test_a_store_that_ignores_ranges_is_noticed(opened: Opened, s3_proxy: Any, s3_error: Any) -> None:
    s3_proxy.fail("GetObject", replace(s3_error(200, ""), body=BODY))
    file = opened(BODY)
    with pytest.raises(DataError, match="not as long"):
        file.read(10)

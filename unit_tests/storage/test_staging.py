from __future__ import annotations

import hashlib
import random
import sys
import threading
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from destination_s3_spark.errors import Bug, ConfigError, TransientError
from destination_s3_spark.storage import signing
from destination_s3_spark.storage.s3 import S3Store
from destination_s3_spark.storage.settings import ClientLimits, S3Settings
from destination_s3_spark.storage.staging import FIRST_PART_BYTES, StagedFileSink, part_bytes

ONCE = ClientLimits(attempts=1, connect_timeout_s=2, read_timeout_s=10)
MIB = 2**20


@pytest.fixture
def store(s3_settings: S3Settings) -> S3Store:
    return S3Store(replace(s3_settings, limits=ONCE))


@pytest.fixture
def proxied(s3_settings: S3Settings, s3_proxy: Any) -> S3Settings:
    return replace(s3_settings, endpoint=s3_proxy.endpoint)


def sink(settings: S3Settings, key: str = "k", metadata: dict[str, str] | None = None) -> StagedFileSink:
    return StagedFileSink(replace(settings, limits=ONCE), key, metadata)


def test_a_file_that_was_put_is_not_kept_in_memory(s3_settings: S3Settings) -> None:
    data = random.Random(1).randbytes(MIB)
    before = sys.getrefcount(data)
    with sink(s3_settings) as file:
        file.write(data)
        assert file.put()
        assert sys.getrefcount(data) == before


def write_and_stage(settings: S3Settings, size: int) -> None:
    with sink(settings) as file:
        for start in range(0, size, FIRST_PART_BYTES):
            file.write(bytes(min(FIRST_PART_BYTES, size - start)))
        file.stage()


def write_and_fail(settings: S3Settings) -> None:
    with sink(settings) as file:
        file.write(bytes(FIRST_PART_BYTES + 1))
        _ = 1 / 0


def test_a_parquet_file_written_by_pyarrow_arrives_whole_once_completed(store: S3Store) -> None:
    numbers = random.Random(5)
    table = pa.table(
        {"a": pa.array([numbers.random() for _ in range(300_000)]), "b": pa.array([numbers.randbytes(30) for _ in range(300_000)])}
    )
    with sink(store.settings, "t.parquet", {"ab-generation-id": "3"}) as file:
        with pq.ParquetWriter(file, table.schema, compression="zstd") as writer:
            writer.write_table(table, row_group_size=50_000)
        upload = file.stage()
    assert upload.key == "t.parquet"
    assert len(upload.part_etags) > 1
    assert store.head("t.parquet") is None
    store.complete_upload(upload)
    info = store.head("t.parquet")
    assert info is not None
    assert info.size == upload.size
    assert info.metadata == {"ab-generation-id": "3"}
    assert pq.read_table(pa.BufferReader(store.get("t.parquet"))).equals(table)


def test_a_buffer_may_change_after_it_was_written(store: S3Store) -> None:
    with sink(store.settings) as file:
        buffer = bytearray(b"one")
        file.write(buffer)
        file.write(memoryview(buffer))
        buffer[:] = b"two"
        file.write(buffer)
        upload = file.stage()
    store.complete_upload(upload)
    assert store.get("k") == b"oneonetwo"


@pytest.mark.parametrize("piece", [21 * MIB + 3, FIRST_PART_BYTES, 700_001])
def test_bytes_keep_their_order_however_they_are_written(store: S3Store, piece: int) -> None:
    body = random.Random(1).randbytes(21 * MIB + 3)
    with sink(store.settings) as file:
        for start in range(0, len(body), piece):
            chunk = body[start : start + piece]
            assert file.write(chunk if start % 2 else memoryview(chunk)) == len(chunk)
        assert file.tell() == len(body)
        upload = file.stage()
    assert (upload.size, len(upload.part_etags)) == (len(body), 3)
    store.complete_upload(upload)
    assert store.get("k") == body


@pytest.mark.parametrize("piece", [21 * MIB + 3, FIRST_PART_BYTES, 700_001])
@pytest.mark.parametrize("common", [23 * MIB, 22 * MIB + 5, 19 * MIB])
def test_a_copy_has_the_bytes_until_it_ends_and_its_own_after_them(store: S3Store, piece: int, common: int) -> None:
    data = random.Random(7).randbytes(23 * MIB)
    with sink(store.settings, "copy") as copy, StagedFileSink(store.settings, "k", copy=copy) as file:
        for start in range(0, len(data), piece):
            file.write(data[start : start + piece])
        file.end_copy(common)
        file.write(b"own end")
        copy.write(b"end of the copy")
        for staged in (file.stage(), copy.stage()):
            store.complete_upload(staged)
    assert store.get("k") == data + b"own end"
    assert store.get("copy") == data[: max(common, 20 * MIB)] + b"end of the copy"


def test_parts_of_a_copy_are_signed_by_their_own_hash_and_the_common_bytes_are_hashed_once(
    store: S3Store, proxied: S3Settings, s3_proxy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    hashed: list[int] = []

    def counted(data: memoryview) -> Any:
        hashed.append(len(data))
        return hashlib.sha256(data)

    monkeypatch.setattr(signing, "sha256", counted)
    with sink(proxied, "copy") as copy, StagedFileSink(proxied, "k", copy=copy) as file:
        file.write(random.Random(7).randbytes(13 * MIB))
        file.end_copy(12 * MIB)
        file.write(b"own end")
        copy.write(b"end of the copy")
        for staged in (file.stage(), copy.stage()):
            store.complete_upload(staged)
    signed = sorted(call.headers["x-amz-content-sha256"] for call in s3_proxy.calls if call.action == "UploadPart")
    bodies = [body[start:end] for body in map(store.get, ("k", "copy")) for start, end in ((0, 10 * MIB), (10 * MIB, None))]
    assert signed == sorted(hashlib.sha256(body).hexdigest() for body in bodies)
    assert sorted(hashed) == [2 * MIB, 10 * MIB]


def test_parts_that_finish_out_of_order_are_listed_in_order(store: S3Store, proxied: S3Settings, s3_proxy: Any) -> None:
    second_done = threading.Event()

    def slow_first(call: Any) -> Any:
        if "partNumber=1&" in call.target:
            assert second_done.wait(10)
        reply = call.forward()
        if "partNumber=2&" in call.target:
            second_done.set()
        return reply

    s3_proxy.script = slow_first
    with sink(proxied) as file:
        file.write(b"a" * FIRST_PART_BYTES + b"b" * FIRST_PART_BYTES + b"c")
        upload = file.stage()
    store.complete_upload(upload)
    assert store.get("k")[:: FIRST_PART_BYTES // 2] == b"aabbc"


def test_writing_waits_while_two_parts_are_in_flight(proxied: S3Settings, s3_proxy: Any) -> None:
    released = threading.Event()
    s3_proxy.script = lambda call: (call.action != "UploadPart" or released.wait(20)) and call.forward()
    with sink(proxied) as file:
        file.write(bytes(2 * FIRST_PART_BYTES))
        writer = threading.Thread(target=file.write, args=(bytes(FIRST_PART_BYTES),))
        writer.start()
        writer.join(0.3)
        assert writer.is_alive()
        released.set()
        writer.join(10)
        assert not writer.is_alive()
        assert len(file.stage().part_etags) == 3


@pytest.mark.parametrize(("status", "code", "error"), [(403, "AccessDenied", ConfigError), (503, "SlowDown", TransientError)])
def test_a_part_that_fails_stops_the_writing_and_the_upload_is_aborted(
    store: S3Store, proxied: S3Settings, s3_proxy: Any, s3_error: Any, status: int, code: str, error: type[Exception]
) -> None:
    s3_proxy.fail("UploadPart", s3_error(status, code))
    with pytest.raises(error, match="part 1"):
        write_and_stage(proxied, 10 * FIRST_PART_BYTES)
    assert "AbortMultipartUpload" in s3_proxy.actions()
    assert s3_proxy.actions().count("UploadPart") <= 4
    assert list(store.list_uploads("")) == []


def test_a_last_part_that_fails_is_raised_by_stage(proxied: S3Settings, s3_proxy: Any, s3_error: Any) -> None:
    s3_proxy.fail("UploadPart", s3_error(503, "SlowDown"))
    with pytest.raises(TransientError):
        write_and_stage(proxied, 1)


def test_an_error_of_the_writer_aborts_and_comes_through(store: S3Store) -> None:
    with pytest.raises(ZeroDivisionError):
        write_and_fail(store.settings)
    assert list(store.list_uploads("")) == []


def test_leaving_without_stage_aborts(store: S3Store) -> None:
    with sink(store.settings) as file:
        file.write(bytes(FIRST_PART_BYTES + 1))
        file.close()
    assert list(store.list_uploads("")) == []
    assert list(store.list("")) == []


def test_a_failed_abort_does_not_hide_the_first_error(
    proxied: S3Settings, s3_proxy: Any, s3_error: Any, caplog: pytest.LogCaptureFixture
) -> None:
    s3_proxy.fail("AbortMultipartUpload", s3_error(503, "SlowDown"))
    with pytest.raises(ZeroDivisionError):
        write_and_fail(proxied)
    assert "left behind" in caplog.text


def test_nothing_is_sent_before_the_first_part_is_full(proxied: S3Settings, s3_proxy: Any) -> None:
    with sink(proxied) as file:
        file.write(bytes(FIRST_PART_BYTES - 1))
    assert s3_proxy.calls == []


def test_an_empty_file_cannot_be_staged(store: S3Store) -> None:
    with pytest.raises(Bug), sink(store.settings) as file:
        file.stage()


def test_a_closed_file_takes_no_bytes_but_can_be_staged(store: S3Store) -> None:
    with sink(store.settings) as file:
        file.write(b"x")
        file.close()
        assert file.closed
        with pytest.raises(ValueError, match="closed"):
            file.write(b"y")
        assert file.stage() is file.stage()


def test_ten_thousand_parts_hold_the_largest_object_within_s3s_limits() -> None:
    sizes = [part_bytes(number) for number in range(1, 10_001)]
    assert sizes[0] == 10 * MIB
    assert min(sizes) >= 5 * MIB
    assert max(sizes) <= 5 * 2**30
    assert sum(sizes) >= 5 * 2**40

"""Logs of which somebody else wrote a part: no number in a name, and no small object, makes a loop or takes memory without end."""

from __future__ import annotations

import io
import tracemalloc
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from destination_s3_spark.delta_log import actions
from destination_s3_spark.delta_log.actions import Malformed, Transaction, decode_checkpoint, encode_checkpoint
from destination_s3_spark.delta_log.log import KEPT, DeltaLog, UnreadableLog
from destination_s3_spark.formats import parquet_pages
from unit_tests.cases import each
from unit_tests.chain.bucket import Bucket
from unit_tests.delta_log.written_log import METADATA, PROTOCOL, ROOT, added, begun

HUGE = 10**20 - 1
LOG = f"{ROOT}_delta_log/"


@each(
    "versions, said",
    [
        ((HUGE,), "version 99999999999999999999, which no Delta log has"),
        ((HUGE - 1, HUGE), "version 99999999999999999998, which no Delta log has"),
        ((2**63 - 1,), "its commit 3 is missing"),
        ((5,), "its commit 3 is missing"),
    ],
)
def test_a_commit_far_away(versions: tuple[int, ...], said: str) -> None:
    store = Bucket()
    log = begun(store, 3)
    for version in versions:
        store.put(f"{LOG}{version:020}.json", b"{}")
    with pytest.raises(UnreadableLog, match=said):
        log.read()


def test_a_checkpoint_far_away() -> None:
    store = Bucket()
    log = begun(store, 3)
    store.put(f"{LOG}{2**62:020}.checkpoint.parquet", b"")
    store.put(f"{LOG}{2**62 + 5:020}.json", b"{}")
    with pytest.raises(UnreadableLog, match=f"its commit {2**62 + 1} is missing"):
        log.read()


def test_a_clean_up_goes_by_what_is_there() -> None:
    store = Bucket()
    log = begun(store, 3)
    far = [f"{LOG}{2**62:020}{kind}" for kind in (".json", ".checkpoint.parquet")]
    for key in far:
        store.put(key, b"{}")
    log.clean_up(datetime.now(UTC) + KEPT + timedelta(days=1))
    assert sorted(store.objects) == sorted(far)


def file_of(rows: pa.Table, **options: Any) -> bytes:
    out = io.BytesIO()
    pq.write_table(rows, out, **options)
    return out.getvalue()


def with_text(text: str, copies: int) -> bytes:
    """A checkpoint with so many files that all have the same statistics."""
    body, _ = encode_checkpoint([PROTOCOL, METADATA, Transaction("t", 1, 1), *(added(number, stats="") for number in range(copies))])
    table = pq.read_table(io.BytesIO(body))
    add = table["add"].combine_chunks()
    stats = pa.DictionaryArray.from_arrays(pa.array([0] * len(add), pa.int32()), pa.array([text])).cast(pa.string())
    fields = list(add.type)
    members = [stats if field.name == "stats" else add.field(field.name) for field in fields]
    made = pa.StructArray.from_arrays(members, fields=fields, mask=add.is_null())
    return file_of(table.set_column(table.schema.get_field_index("add"), "add", made), compression="zstd")


def test_a_checkpoint_that_unpacks_to_a_million_times_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(actions, "MOST_CHECKPOINT_BYTES", 2**22)
    monkeypatch.setattr(parquet_pages, "BATCH_BYTES", 2**18)
    body = with_text("x" * 2**16, 1_000)
    assert len(body) < 60_000
    tracemalloc.start()
    try:
        with pytest.raises(Malformed, match="more bytes than any checkpoint has"):
            decode_checkpoint(body)
        assert tracemalloc.get_traced_memory()[1] < 2**23
    finally:
        tracemalloc.stop()


@each(
    "column",
    [
        pa.array(["x" * 2**18]),
        pa.array([[None] * 2**12] * 3, pa.list_(pa.null())),
        pa.array([None] * 10**5, pa.bool_()),
    ],
)
def test_pages_that_no_checkpoint_has(column: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_pages, "MOST_UNPACKED_BYTES", 2**17)
    monkeypatch.setattr(parquet_pages, "MOST_PAGE_VALUES", 2**12)
    every = {name: pa.nulls(len(column)) for name in ("protocol", "metaData")}
    with pytest.raises(Malformed, match="it is damaged: ValueError"):
        decode_checkpoint(file_of(pa.table({"add": column, **every}), compression="zstd"))


@each("cut", [1, 8, 100, 1000])
def test_a_damaged_checkpoint(cut: int) -> None:
    body, _ = encode_checkpoint([PROTOCOL, METADATA, added(1)])
    for broken in (body[:-cut], body[cut:], body[:cut] + body[2 * cut :], body[:cut] + bytes(cut) + body[2 * cut :]):
        try:
            decode_checkpoint(broken)
        except Malformed:
            continue


def test_a_read_through_a_store_says_which_object() -> None:
    store = Bucket()
    log = begun(store, 3)
    store.put(f"{LOG}{2:020}.checkpoint.parquet", with_text("x" * 2**10, 10)[:-9])
    with pytest.raises(UnreadableLog, match="its checkpoint 2 cannot be read"):
        DeltaLog(store, ROOT).read()
    assert log.holds(0, "") is False

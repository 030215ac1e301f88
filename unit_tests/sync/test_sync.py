"""The story of a sync with everything real but Spark: tasks run in this process, one after the other."""

import csv
import gzip
import io
import json
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from destination_s3_spark.errors import ConfigError, DataError, TransientError
from destination_s3_spark.storage.s3 import S3Store
from destination_s3_spark.storage.settings import S3Settings
from destination_s3_spark.stream_id import StreamId
from destination_s3_spark.sync.batches import Limits
from destination_s3_spark.sync.sync import LOOK_EVERY_S
from unit_tests.sync.inline_lake import InlineEngine, InlineLake, catalog, global_state, records, state, status


@pytest.fixture
def lake(s3_settings: S3Settings, tmp_path: Path) -> InlineLake:
    return InlineLake(s3_settings, tmp_path)


def test_complete_commits_the_tail_behind_the_last_state(lake: InlineLake) -> None:
    lake.sync(catalog("users"), [records(range(3)), state(3), records(range(3, 5)), status("COMPLETE")])
    assert lake.ids() == [0, 1, 2, 3, 4]
    assert [count for _, count in lake.acknowledged()] == [3.0]


@pytest.mark.parametrize("ending", [b"", status("INCOMPLETE")], ids=["no status", "INCOMPLETE"])
def test_without_complete_the_tail_is_dropped_and_the_sync_fails(lake: InlineLake, ending: bytes) -> None:
    with pytest.raises(TransientError, match="did not complete"):
        lake.sync(catalog("users"), [records(range(3)), state(3), records(range(3, 5)), ending])
    assert lake.ids() == [0, 1, 2]
    assert [count for _, count in lake.acknowledged()] == [3.0]
    assert not list(S3Store(lake.settings).list_uploads("lake/"))


def test_a_replay_after_a_failed_sync_lands_once(lake: InlineLake) -> None:
    sent = [records(range(3)), state(3), records(range(3, 6)), state(6)]
    with pytest.raises(TransientError):
        lake.sync(catalog("users"), sent)
    lake.sync(catalog("users"), [*sent, records([6]), status("COMPLETE")])
    assert lake.ids() == [0, 1, 2, 3, 4, 5, 6]
    assert [count for _, count in lake.acknowledged()] == [3.0, 3.0, 3.0, 3.0]


@pytest.mark.parametrize(("sync_id", "times"), [(1, 1), (2, 2)], ids=["another attempt", "a refresh that keeps the records"])
def test_records_of_a_new_generation_are_a_replay_only_in_the_same_sync(lake: InlineLake, sync_id: int, times: int) -> None:
    sent = [records(range(3)), state(3)]
    with pytest.raises(TransientError):
        lake.sync(catalog("users"), sent)
    again = catalog("users")
    streams = tuple(replace(stream, generation_id=2, sync_id=sync_id) for stream in again.streams)
    lake.sync(replace(again, streams=streams), [*sent, status("COMPLETE")])
    assert lake.ids() == sorted([0, 1, 2] * times)


def test_two_successful_syncs_of_the_same_data_land_twice(lake: InlineLake) -> None:
    for _ in range(2):
        lake.sync(catalog("users"), [records(range(3)), state(3), status("COMPLETE")])
    assert lake.ids() == [0, 0, 1, 1, 2, 2]


def test_a_global_state_waits_for_all_streams_and_counts_them_together(lake: InlineLake) -> None:
    lake.sync(
        catalog("users", "orders"),
        [
            records(range(2)),
            records(range(3), "orders"),
            global_state(1),
            records([9]),
            global_state(2),
            status("COMPLETE"),
            status("COMPLETE", "orders"),
        ],
    )
    assert [count for _, count in lake.acknowledged()] == [5.0, 1.0]
    assert (lake.ids(), lake.ids("orders")) == ([0, 1, 9], [0, 1, 2])


def test_a_state_without_records_still_comes_back(lake: InlineLake) -> None:
    lake.sync(catalog("users"), [state(1), status("COMPLETE")])
    assert [count for _, count in lake.acknowledged()] == [0.0]
    assert not list(S3Store(lake.settings).list("lake/"))


def test_a_stream_larger_than_the_spool_passes_through_it(lake: InlineLake) -> None:
    lake.limits = Limits(batch_bytes=50_000, age_s=3600, spool_bytes=100_000)
    blocks = [records(range(start, start + 500)) for start in range(0, 10_000, 500)]
    lake.sync(catalog("users"), [*blocks, state(1), status("COMPLETE")])
    assert lake.ids() == list(range(10_000))
    assert [count for _, count in lake.acknowledged()] == [10_000.0]


def test_reading_waits_for_the_running_batch_once_the_next_one_is_whole(lake: InlineLake, monkeypatch: pytest.MonkeyPatch) -> None:
    block_bytes = len(records(range(10_000, 10_500)))
    lake.limits = Limits(batch_bytes=2 * block_bytes, age_s=3600, spool_bytes=2**31)
    all_read = threading.Event()
    read_while_landing: list[int] = []
    blocks_read = 0

    def run(engine: InlineEngine, function: Any, groups: Any, progress: object = None) -> Any:
        all_read.wait(1.0 if not read_while_landing else 0)
        read_while_landing.append(blocks_read)
        return landed_at_once(engine, function, groups, progress)

    def slow_input() -> Iterator[bytes]:
        nonlocal blocks_read
        for start in range(10_000, 16_000, 500):
            yield records(range(start, start + 500))
            blocks_read += 1
            time.sleep(LOOK_EVERY_S)
        yield state(1)
        all_read.set()
        yield status("COMPLETE")

    landed_at_once = InlineEngine.run
    monkeypatch.setattr(InlineEngine, "run", run)
    lake.sync(catalog("users"), slow_input())
    assert read_while_landing[0] <= 5
    assert lake.ids() == list(range(10_000, 16_000))


def test_an_old_state_is_committed_while_the_input_stays_open(lake: InlineLake) -> None:
    lake.limits = Limits(batch_bytes=2**30, age_s=0.01, spool_bytes=2**31)

    def slow_input() -> Iterator[bytes]:
        yield records(range(3)) + state(3)
        while not lake.states:
            yield b""
        yield status("COMPLETE")

    lake.sync(catalog("users"), slow_input())
    assert lake.ids() == [0, 1, 2]


def test_an_unreadable_record_is_named_by_its_place_in_the_input(lake: InlineLake) -> None:
    good = records(range(3)) + state(3)
    bad = b'{"type": "RECORD", "record": {"stream": "users", "emitted_at": 1, "data": {"id": "hidden}}}\n'
    with pytest.raises(DataError, match=f"byte {len(good) + len(records([7]))} ") as raised:
        lake.sync(catalog("users"), [good + records([7]) + bad + status("COMPLETE")])
    assert "hidden" not in str(raised.value)
    assert raised.value.stream == StreamId(None, "users")
    assert lake.acknowledged() == []


def test_each_format_lands_in_files_of_its_own_under_one_root(lake: InlineLake) -> None:
    formats: list[dict[str, Any]] = [
        {"format_type": "Parquet"},
        {"format_type": "Avro", "compression_codec": {"codec": "snappy"}},
        {"format_type": "JSONL", "flattening": "Root level flattening"},
        {"format_type": "CSV", "compression": {"compression_type": "No Compression"}},
    ]
    for number, lake.format in enumerate(formats):
        lake.sync(catalog("users"), [records([number]), state(number), status("COMPLETE")])
    parquet, avro, jsonl, csv_file = (lake.files(suffix) for suffix in (".parquet", ".avro", ".jsonl.gz", ".csv"))
    assert [pq.read_table(pa.BufferReader(file))["id"].to_pylist() for file in parquet] == [[0]]
    assert [row["id"] for file in avro for row in fastavro.reader(io.BytesIO(file))] == [1]
    assert [json.loads(gzip.decompress(file))["id"] for file in jsonl] == [2]
    rows = [row for file in csv_file for row in csv.DictReader(io.StringIO(file.decode(), newline=""))]
    assert [json.loads(row["_airbyte_data"]) for row in rows] == [{"id": 3}]
    assert sum("_symlink" not in found.key for found in S3Store(lake.settings).list("lake/users/")) == 4
    assert [count for _, count in lake.acknowledged()] == [1.0] * 4
    raw = [pq.read_table(pa.BufferReader(S3Store(lake.settings).get(found.key))) for found in raw_files(lake)]
    assert sorted(text for table in raw for text in table["_airbyte_data"].to_pylist()) == [f'{{"id": {number}}}' for number in range(4)]


def raw_files(lake: InlineLake) -> list[Any]:
    return [found for found in S3Store(lake.settings).list("lake/airbyte_internal/") if "/raw/" in found.key]


ODD = {"type": "object", "properties": {"odd": {"type": "potato"}}}
TWO_LONGS = {"type": "object", "properties": {"x": {"oneOf": [{"type": "integer"}, {"type": "string", "format": "date-time"}]}}}


@pytest.mark.parametrize(("format_type", "schema"), [("Parquet", ODD), ("Avro", ODD), ("Avro", TWO_LONGS)])
def test_a_schema_the_format_cannot_hold_ends_the_sync_before_it_begins(lake: InlineLake, format_type: str, schema: dict[str, Any]) -> None:
    lake.format = {"format_type": format_type}
    with pytest.raises(ConfigError, match="users"):
        lake.sync(catalog("users", schema=schema), [])


@pytest.mark.parametrize("format_type", ["JSONL", "CSV"])
def test_text_formats_take_any_schema(lake: InlineLake, format_type: str) -> None:
    lake.format = {"format_type": format_type, "compression": {"compression_type": "No Compression"}}
    lake.sync(catalog("users", schema=ODD), [records([1]), state(1), status("COMPLETE")])
    assert len(lake.files(f".{format_type.lower()}")) == 1

"""The story of a sync with everything real but Spark: tasks run in this process, one after the other."""

import csv
import gzip
import io
import json
import threading
import time
from collections.abc import Iterable, Iterator
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from destination_s3_spark.errors import ConfigError, DataError, TransientError
from destination_s3_spark.stream_id import StreamId
from destination_s3_spark.sync.batches import Limits
from destination_s3_spark.sync.sync import LOOK_EVERY_S
from unit_tests.lake.inline_engine import InlineEngine
from unit_tests.lake.lake import Lake
from unit_tests.lake.messages import catalog, complete, global_state, record, state, status, stream, users


def block(ids: Iterable[int]) -> bytes:
    return b"".join(users(ids))


def test_complete_commits_the_tail_behind_the_last_state(lake: Lake) -> None:
    lake.sync(catalog(stream()), [*users(range(3)), state(3), *users(range(3, 5)), complete()])
    assert lake.ids_in_folder() == [0, 1, 2, 3, 4]
    assert [count for _, count in lake.acknowledged()] == [3.0]


@pytest.mark.parametrize("ending", [b"", status("INCOMPLETE")], ids=["no status", "INCOMPLETE"])
def test_without_complete_the_tail_is_dropped_and_the_sync_fails(lake: Lake, ending: bytes) -> None:
    with pytest.raises(TransientError, match="did not complete"):
        lake.sync(catalog(stream()), [*users(range(3)), state(3), *users(range(3, 5)), ending])
    assert lake.ids_in_folder() == [0, 1, 2]
    assert [count for _, count in lake.acknowledged()] == [3.0]
    assert not list(lake.store.list_uploads("lake/"))


def test_a_replay_after_a_failed_sync_lands_once(lake: Lake) -> None:
    sent = [*users(range(3)), state(3), *users(range(3, 6)), state(6)]
    with pytest.raises(TransientError):
        lake.sync(catalog(stream()), sent)
    lake.sync(catalog(stream()), [*sent, *users([6]), complete()])
    assert lake.ids_in_folder() == [0, 1, 2, 3, 4, 5, 6]
    assert [count for _, count in lake.acknowledged()] == [3.0, 3.0, 3.0, 3.0]


@pytest.mark.parametrize(("sync_id", "times"), [(1, 1), (2, 2)], ids=["another attempt", "a refresh that keeps the records"])
def test_records_of_a_new_generation_are_a_replay_only_in_the_same_sync(lake: Lake, sync_id: int, times: int) -> None:
    sent = [*users(range(3)), state(3)]
    with pytest.raises(TransientError):
        lake.sync(catalog(stream(sync_id=1)), sent)
    lake.sync(catalog(stream(generation=2, sync_id=sync_id)), [*sent, complete()])
    assert lake.ids_in_folder() == sorted([0, 1, 2] * times)


def test_two_successful_syncs_of_the_same_data_land_twice(lake: Lake) -> None:
    for _ in range(2):
        lake.sync(catalog(stream()), [*users(range(3)), state(3), complete()])
    assert lake.ids_in_folder() == [0, 0, 1, 1, 2, 2]


def test_a_global_state_waits_for_all_streams_and_counts_them_together(lake: Lake) -> None:
    lake.sync(
        catalog(stream(), stream("orders")),
        [
            *users(range(2)),
            *users(range(3), "orders"),
            global_state(1),
            *users([9]),
            global_state(2),
            complete(),
            complete("orders"),
        ],
    )
    assert [count for _, count in lake.acknowledged()] == [5.0, 1.0]
    assert (lake.ids_in_folder(), lake.ids_in_folder("orders")) == ([0, 1, 9], [0, 1, 2])


def test_a_state_without_records_still_comes_back(lake: Lake) -> None:
    lake.sync(catalog(stream()), [state(1), complete()])
    assert [count for _, count in lake.acknowledged()] == [0.0]
    assert not list(lake.store.list("lake/"))


def test_a_stream_larger_than_the_spool_passes_through_it(lake: Lake) -> None:
    lake.limits = Limits(batch_bytes=50_000, age_s=3600, spool_bytes=100_000)
    blocks = [block(range(start, start + 500)) for start in range(0, 10_000, 500)]
    lake.sync(catalog(stream()), [*blocks, state(1), complete()])
    assert lake.ids_in_folder() == list(range(10_000))
    assert [count for _, count in lake.acknowledged()] == [10_000.0]


def test_reading_waits_for_the_running_batch_once_the_next_one_is_whole(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    block_bytes = len(block(range(10_000, 10_500)))
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
            yield block(range(start, start + 500))
            blocks_read += 1
            time.sleep(LOOK_EVERY_S)
        yield state(1)
        all_read.set()
        yield complete()

    landed_at_once = InlineEngine.run
    monkeypatch.setattr(InlineEngine, "run", run)
    lake.sync(catalog(stream()), slow_input())
    assert read_while_landing[0] <= 5
    assert lake.ids_in_folder() == list(range(10_000, 16_000))


def test_an_old_state_is_committed_while_the_input_stays_open(lake: Lake) -> None:
    lake.limits = Limits(batch_bytes=2**30, age_s=0.01, spool_bytes=2**31)

    def slow_input() -> Iterator[bytes]:
        yield block(range(3)) + state(3)
        while not lake.states:
            yield b""
        yield complete()

    lake.sync(catalog(stream()), slow_input())
    assert lake.ids_in_folder() == [0, 1, 2]


def test_an_unreadable_record_is_named_by_its_place_in_the_input(lake: Lake) -> None:
    good = block(range(3)) + state(3)
    bad = b'{"type": "RECORD", "record": {"stream": "users", "emitted_at": 1, "data": {"id": "hidden}}}\n'
    with pytest.raises(DataError, match=f"byte {len(good) + len(block([7]))} ") as raised:
        lake.sync(catalog(stream()), [good + block([7]) + bad + complete()])
    assert "hidden" not in str(raised.value)
    assert raised.value.stream == StreamId(None, "users")
    assert lake.acknowledged() == []


def test_each_format_lands_in_files_of_its_own_under_one_root(lake: Lake) -> None:
    formats: list[dict[str, Any]] = [
        {"format_type": "Parquet"},
        {"format_type": "Avro", "compression_codec": {"codec": "snappy"}},
        {"format_type": "JSONL", "flattening": "Root level flattening"},
        {"format_type": "CSV", "compression": {"compression_type": "No Compression"}},
    ]
    for number, lake.format in enumerate(formats):
        lake.sync(catalog(stream()), [record({"id": number}), state(number), complete()])
    parquet, avro, jsonl, csv_file = (lake.files(suffix) for suffix in (".parquet", ".avro", ".jsonl.gz", ".csv"))
    assert [pq.read_table(pa.BufferReader(file))["id"].to_pylist() for file in parquet] == [[0]]
    assert [row["id"] for file in avro for row in fastavro.reader(io.BytesIO(file))] == [1]
    assert [json.loads(gzip.decompress(file))["id"] for file in jsonl] == [2]
    rows = [row for file in csv_file for row in csv.DictReader(io.StringIO(file.decode(), newline=""))]
    assert [json.loads(row["_airbyte_data"]) for row in rows] == [{"id": 3}]
    assert sum("_symlink" not in found.key for found in lake.store.list("lake/users/")) == 4
    assert [count for _, count in lake.acknowledged()] == [1.0] * 4
    raw = [pq.read_table(pa.BufferReader(lake.store.get(found.key))) for found in raw_files(lake)]
    assert sorted(text for table in raw for text in table["_airbyte_data"].to_pylist()) == [f'{{"id":{number}}}' for number in range(4)]


def raw_files(lake: Lake) -> list[Any]:
    return [found for found in lake.store.list("lake/airbyte_internal/") if "/raw/" in found.key]


ODD = {"type": "object", "properties": {"odd": {"type": "potato"}}}
TWO_LONGS = {"type": "object", "properties": {"x": {"oneOf": [{"type": "integer"}, {"type": "string", "format": "date-time"}]}}}


@pytest.mark.parametrize(("format_type", "schema"), [("Parquet", ODD), ("Avro", ODD), ("Avro", TWO_LONGS)])
def test_a_schema_the_format_cannot_hold_ends_the_sync_before_it_begins(lake: Lake, format_type: str, schema: dict[str, Any]) -> None:
    lake.format = {"format_type": format_type}
    with pytest.raises(ConfigError, match="users"):
        lake.sync(catalog(stream(schema=schema)), [])


@pytest.mark.parametrize("format_type", ["JSONL", "CSV"])
def test_text_formats_take_any_schema(lake: Lake, format_type: str) -> None:
    lake.format = {"format_type": format_type, "compression": {"compression_type": "No Compression"}}
    lake.sync(catalog(stream(schema=ODD)), [*users([1]), state(1), complete()])
    assert len(lake.files(f".{format_type.lower()}")) == 1

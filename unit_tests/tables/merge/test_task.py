"""Merging runs into tables of every format, over a real S3 server, against the plain reference."""

from __future__ import annotations

import gzip
import io
import json
import pickle
import random
from dataclasses import replace
from itertools import pairwise
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from destination_s3_spark.chain.files import FileKind
from destination_s3_spark.errors import DataError
from destination_s3_spark.formats.file_format import FileColumns
from destination_s3_spark.schema.airbyte_type import Field, Scalar
from destination_s3_spark.schema.arrow import RAW_SCHEMA, arrow_field
from destination_s3_spark.storage.settings import S3Settings
from destination_s3_spark.tables.merge.plan import Sizes
from destination_s3_spark.tables.merge.scratch_runs import CombineTask, combine_runs
from destination_s3_spark.tables.merge.task import CompactTask, MergedRange, compact_tombstones, merge_range
from destination_s3_spark.tables.runs.keys import KEY
from destination_s3_spark.tables.runs.merged_rows import RowSource
from destination_s3_spark.tables.runs.sorted_file import FIRST_KEYS
from destination_s3_spark.tables.updates.resources import TaskResources
from unit_tests.lake.memory_bucket import Refusal, S3Call
from unit_tests.lake.memory_client import bucket_of
from unit_tests.tables import reference_merge
from unit_tests.tables.merged_table import FIELDS, FORMATS, HARD, SOFT, STREAM, TYPED, Table, batches, key_range, table_format


@pytest.fixture
def table(s3_settings: S3Settings) -> Table:
    return Table(s3_settings, table_format())


@pytest.fixture
def version() -> Any:
    def make(number: int, key: Any, cursor: Any = 0, extracted_at: int = 0, deleted: bool = False) -> Any:
        return reference_merge.Version(number, (key,), cursor, extracted_at, deleted, number)

    return make


def history(make: Any, seed: int, first: int, rows: int, keys: int) -> list[Any]:
    numbers = random.Random(seed)

    def key() -> str | None:
        if numbers.random() < 0.2:
            return "skewed"
        return None if numbers.random() < 0.01 else f"{'k' * numbers.choice([1, 70])}{numbers.randrange(keys):05}"

    return [
        make(number, key(), numbers.choice([None, *range(20)]), numbers.randrange(3), numbers.random() < 0.15)
        for number in range(first, first + rows)
    ]


@pytest.mark.parametrize("name", FORMATS)
def test_a_table_is_what_the_reference_says_after_every_merge(s3_settings: S3Settings, version: Any, name: str) -> None:
    target = 12_000
    table = Table(s3_settings, table_format(name, target_file_bytes=target))
    sizes = Sizes(target, budget_bytes=100_000)
    kept: list[Any] = []
    ranges = 0
    for sync, keys in enumerate([800, 1200, 5]):
        arrived = history(version, sync, sync * 1000, 700, keys)
        parts = [arrived[:300], arrived[300:320], arrived[320:]]
        runs = [table.run(part, part[0].number) for part in parts]
        # The offsets in a run count its rows; the one of the run makes them those of the versions.
        merged = table.merge(runs, sizes)
        survivors = reference_merge.surviving([*kept, *arrived])
        kept = [replace(one, offset=reference_merge.STORED) for one in survivors]
        live = [one for one in survivors if not one.deleted]

        assert [number for numbers in table.numbers() for number in numbers] == [one.number for one in live]
        buried = {one.number for one in survivors if one.deleted and one in arrived}
        assert sum(written(each, FileKind.TOMBSTONE) for each in merged) == len(buried)
        assert sum(each.run_rows for each in merged) == 700
        assert sum(file.rows for file in table.files.values()) == len(live)
        ranges += len(merged)
    assert ranges > 5
    assert len(table.files) > 3
    assert [file.copy_of for file in table.states.values()] == (list(table.files) if table.form.has_state else [])
    assert list(table.store.list_uploads("")) == []


def written(done: MergedRange, kind: FileKind) -> int:
    return sum(file.rows for file in done.files if file.kind is kind)


def scratch_keys(name: object) -> tuple[str, ...]:
    return tuple(f"scratch/{name}/{number}.parquet" for number in range(100))


@pytest.mark.parametrize("name", FORMATS)
def test_runs_that_became_one_merge_to_the_same(s3_settings: S3Settings, version: Any, name: str) -> None:
    table = Table(s3_settings, table_format(name))
    table.merge([table.run(history(version, 1, 0, 300, 200))])
    arrived = history(version, 2, 1000, 600, 300)
    parts = [arrived[start : start + 60] for start in range(0, 600, 60)]
    runs = [table.run(part, part[0].number) for part in parts]
    sources = tuple(RowSource(FileKind.DELTA, one.key, one.size, one.offset, one.groups[0].first) for one in runs)
    task = CombineTask(
        sources[::2], table.form.form, scratch_keys("token"), TaskResources(s3_settings, 100_000), object_bytes=10_000, piece_bytes=4_000
    )
    done = combine_runs(pickle.loads(pickle.dumps(task)))
    combined = [table.object_run(file) for file in done.files]
    expected = Table(s3_settings, table.form, dict(table.files), dict(table.states), list(table.dead), 1000)

    assert len(done.files) > 2
    assert [file.key for file in done.files] == [f"scratch/token/{number}.parquet" for number in range(len(done.files))]
    keys = [pq.read_table(io.BytesIO(table.store.get(file.key)))[KEY].to_pylist() for file in done.files]
    assert all(one[-1] < other[0] for one, other in pairwise(keys))
    assert done.rows_read == 300 > sum(file.rows for file in done.files) == len({each.key for part in parts[::2] for each in part})
    [plain] = [merge_range(task) for task in expected.tasks(expected.plan(runs), 2**26)]
    [merged] = table.merge([*combined, *runs[1::2]])
    for kind in (FileKind.FINAL, FileKind.TOMBSTONE):
        assert written(merged, kind) == written(plain, kind)
    survivors = reference_merge.surviving(
        [*(replace(each, offset=reference_merge.STORED) for each in reference_merge.surviving(history(version, 1, 0, 300, 200))), *arrived]
    )
    assert [number for numbers in table.numbers() for number in numbers] == [each.number for each in survivors if not each.deleted]
    assert list(table.store.list_uploads("scratch")) == []


def test_files_that_no_run_reaches_are_neither_read_nor_replaced(table: Table, version: Any) -> None:
    table.merge([table.run([version(number, f"a{number:03}") for number in range(100)])])
    table.merge([table.run([version(number, f"c{number:03}") for number in range(100, 200)])], Sizes(20_000, 2**26))
    old = list(table.files)
    table.store.delete([old[0]])
    table.merge([table.run([version(500, "c150", cursor=1)])], Sizes(20_000, 2**26))

    assert len(table.files) == 2
    assert next(iter(table.files)) == old[0]


def test_a_range_without_live_rows_stages_no_final_file(table: Table, version: Any) -> None:
    [merged] = table.merge([table.run([version(1, "a", deleted=True)])])

    assert [file.kind for file in merged.files] == [FileKind.TOMBSTONE]
    assert written(merged, FileKind.TOMBSTONE) == 1


def test_a_table_can_become_empty(table: Table, version: Any) -> None:
    table.merge([table.run([version(1, "a")])])
    [merged] = table.merge([table.run([version(2, "a", cursor=1, deleted=True)])])

    assert table.files == {}
    assert (merged.run_rows, merged.table_rows) == (1, 1)


def test_a_late_older_row_stays_deleted_and_its_tombstone_is_not_written_again(table: Table, version: Any) -> None:
    table.merge([table.run([version(1, "a", cursor=5, deleted=True), version(2, "b")])])
    [merged] = table.merge([table.run([version(3, "a", cursor=4), version(4, "b", cursor=1)])])

    assert table.numbers() == [[4]]
    assert [file.kind for file in merged.files] == [FileKind.FINAL]
    table.merge([table.run([version(5, "a", cursor=6)])])
    assert table.numbers() == [[5, 4]]


def test_a_soft_deletion_keeps_the_values_of_its_row(s3_settings: S3Settings, version: Any) -> None:
    table = Table(s3_settings, table_format(spec=SOFT))
    table.merge([table.run([version(1, "a"), version(2, "a", cursor=1, deleted=True), version(3, "b", deleted=True)])])
    assert table.shown() == [("a", 1, True, 1), ("b", 0, True, None)]
    [rows] = table.stored(FileKind.FINAL)
    assert rows["_airbyte_raw_id"].to_pylist() == [str(UUID(int=2)), str(UUID(int=3))]


@pytest.mark.parametrize("name", FORMATS)
def test_a_table_with_soft_deletions_is_what_the_reference_says(s3_settings: S3Settings, version: Any, name: str) -> None:
    target, budget = 12_000, 100_000
    table = Table(s3_settings, table_format(name, SOFT, target))
    seen: list[Any] = []
    for sync, keys in enumerate([300, 250, 300]):
        arrived = history(version, sync, sync * 1000, 700, keys)
        parts = [arrived[start : start + 100] for start in range(0, 700, 100)]
        runs = [table.run(part, part[0].number) for part in parts]
        sources = tuple(RowSource(FileKind.DELTA, one.key, one.size, one.offset, one.groups[0].first) for one in runs[::2])
        done = combine_runs(
            CombineTask(
                sources, table.form.form, scratch_keys(sync), TaskResources(s3_settings, budget), object_bytes=10_000, piece_bytes=4_000
            )
        )
        table.merge([*map(table.object_run, done.files), *runs[1::2]], Sizes(target, budget))
        # In a tie the row of an earlier sync stays, and the later one of the same sync.
        seen += [replace(one, offset=one.offset - 10_000 * sync) for one in arrived]
        assert table.shown() == [
            (one.key[0], one.cursor, one.deleted, None if values.deleted else values.number) for one, values in reference_merge.softly(seen)
        ]
    assert len(table.files) > 3
    assert sum(file.rows for file in table.dead) > 50


def test_a_tie_keeps_the_row_of_the_table_and_inside_a_sync_the_last_arrival(table: Table, version: Any) -> None:
    table.merge([table.run([version(1, "a"), version(2, "a")], 0), table.run([version(3, "a")], 2)])
    assert table.numbers() == [[3]]
    table.merge([table.run([version(4, "a")], 3)])
    assert table.numbers() == [[3]]


def test_without_a_cursor_the_time_of_extraction_decides(s3_settings: S3Settings, version: Any) -> None:
    table = Table(s3_settings, table_format("jsonl", spec=replace(HARD, cursor=None)))
    table.merge([table.run([version(1, "a", extracted_at=5), version(2, "b", extracted_at=5)])])
    table.merge([table.run([version(3, "a", cursor=9, extracted_at=4), version(4, "b", extracted_at=6)])])
    assert table.numbers() == [[1, 4]]


def test_a_file_ends_at_its_size_and_the_last_grows_when_keys_run_out(s3_settings: S3Settings, version: Any) -> None:
    table = Table(s3_settings, table_format(target_file_bytes=50_000))
    run = table.run([version(number, f"{number:05}") for number in range(5000)])
    plan = table.plan([run])
    [many] = [merge_range(task) for task in table.tasks(plan, 2**20)]
    [few] = [merge_range(task) for task in table.tasks(plan, 2**20, files=2)]

    assert len(many.files) > 2
    sizes = [file.upload.size for file in many.files]
    assert all(30_000 <= size < 100_000 for size in sizes[:-1]), sizes
    assert len(few.files) == 2
    assert few.files[0].rows == many.files[0].rows
    assert written(many, FileKind.FINAL) == written(few, FileKind.FINAL) == 5000


@pytest.mark.parametrize("name", FORMATS)
def test_what_files_carry(s3_settings: S3Settings, version: Any, name: str) -> None:
    table = Table(s3_settings, table_format(name))
    table.merge([table.run([version(number, f"{number:05}", deleted=number == 7) for number in range(300)])])
    [final] = table.files.values()
    info = table.store.head(final.key)

    assert info is not None
    assert info.metadata == {"ab-generation-id": "3"}
    [rows] = table.sorted_files()
    bounds = key_range(rows)
    assert bounds.of == rows.sorted_by == HARD.fingerprint
    [dead] = table.stored(FileKind.TOMBSTONE)
    assert dead.column_names == ["_airbyte_key", "_airbyte_cursor", "_airbyte_extracted_at"]
    if name == "parquet":
        parquet = pq.ParquetFile(io.BytesIO(table.store.get(final.key)))
        assert parquet.schema_arrow.equals(TYPED)
        first_keys = json.loads(parquet.metadata.metadata[FIRST_KEYS.encode()])
        assert len(first_keys) == parquet.metadata.num_row_groups > 1
        assert first_keys[0] == bounds.first
    else:
        [state] = table.stored(FileKind.STATE)
        payload = TYPED if name == "avro" else RAW_SCHEMA
        assert state.column_names == [*payload.names, "_airbyte_key", "_airbyte_cursor"]
        assert state["_airbyte_raw_id"].to_pylist() == [str(UUID(int=number)) for number in range(300) if number != 7]


def test_text_keeps_what_the_source_wrote(s3_settings: S3Settings, version: Any) -> None:
    table = Table(s3_settings, table_format("jsonl"))
    raw, typed = batches([version(1, "a")])
    text = '{"id":"a","number":1.50,"undeclared":[1e3]}'
    raw = raw.set_column(4, RAW_SCHEMA.field(4), pa.array([text]))
    table.merge([table.land([(raw, typed)], 0)])
    table.merge([table.run([version(2, "b")])])

    [final] = table.files
    assert text in gzip.decompress(table.store.get(final)).decode()


def test_columns_that_older_files_do_not_have_are_null(s3_settings: S3Settings, version: Any) -> None:
    table = Table(s3_settings, table_format())
    added = Field("added", "added", Scalar.NUMBER)
    table.merge([table.run([version(1, "a"), version(2, "b")])])
    wider = pa.schema([*TYPED, arrow_field(added)])
    table.form = replace(table.form, columns=FileColumns(STREAM, (*FIELDS, added), wider))
    _, typed = batches([version(3, "b", cursor=1)])
    new = pa.RecordBatch.from_arrays([*typed.columns, pa.array([2.5])], schema=wider)
    table.merge([table.land([(new, new)], 0)])

    [stored] = table.stored(FileKind.FINAL)
    assert stored.schema.equals(wider)
    assert stored.select(["number", "added"]).to_pylist() == [{"number": 1, "added": None}, {"number": 3, "added": 2.5}]


def test_a_file_that_is_gone_is_named_and_nothing_stays_staged(table: Table, version: Any) -> None:
    table.merge([table.run([version(number, f"{number:05}") for number in range(100)])])
    [gone] = table.files
    run = table.run([version(200, "00050", cursor=1)])
    [task] = table.tasks(table.plan([run]), 2**20)
    table.store.delete([gone])

    with pytest.raises(DataError, match=gone):
        merge_range(task)
    assert list(table.store.list_uploads("")) == []


@pytest.mark.parametrize("name", FORMATS)
def test_an_upload_that_fails_leaves_nothing_staged(s3_settings: S3Settings, version: Any, name: str) -> None:
    table = Table(s3_settings, table_format(name, target_file_bytes=6000))
    run = table.run([version(number, f"{number:05}", deleted=number % 50 == 0) for number in range(1000)])
    [task] = table.tasks(table.plan([run]), 20_000)
    memory, before = bucket_of(s3_settings), bucket_of(s3_settings).counts()["UploadPart"]

    def third_fails(call: S3Call) -> Refusal | None:
        is_third = call.action == "UploadPart" and memory.counts()["UploadPart"] > before + 3
        return Refusal(403, "InvalidRequest") if is_third else None

    memory.hook = third_fails
    with pytest.raises(Exception, match="Uploading part"):
        merge_range(task)
    assert memory.counts()["UploadPart"] > before + 3
    assert list(table.store.list_uploads("")) == []


def test_a_task_travels_to_a_worker(table: Table, version: Any) -> None:
    [task] = table.tasks(table.plan([table.run([version(1, "a")])]), 2**20)
    merged = pickle.loads(pickle.dumps(merge_range(pickle.loads(pickle.dumps(task)))))

    assert written(merged, FileKind.FINAL) == 1


def test_tombstones_become_one_file_with_the_newest_of_each_key(table: Table, version: Any) -> None:
    for number in range(5):
        dead = [version(number, f"{key:03}", cursor=number, deleted=True) for key in range(number, 200, number + 1)]
        table.merge([table.run(dead)], Sizes(2**30, 2**26))
    assert len(table.dead) == 5
    sources = tuple(RowSource(FileKind.TOMBSTONE, file.key, file.upload.size) for file in table.dead)
    before = pa.concat_tables(table.stored(FileKind.TOMBSTONE))
    newest = before.group_by("_airbyte_key").aggregate([("_airbyte_cursor", "max")]).sort_by("_airbyte_key")

    file = compact_tombstones(CompactTask(sources, table.form, "compact", TaskResources(table.s3, 2000)))
    table.store.complete_upload(file.upload)
    table.dead = [file]

    [compact] = table.stored(FileKind.TOMBSTONE)
    assert file.kind is FileKind.TOMBSTONE
    assert file.rows == len(newest)
    assert compact["_airbyte_key"].to_pylist() == newest["_airbyte_key"].to_pylist()
    assert compact["_airbyte_cursor"].to_pylist() == newest["_airbyte_cursor_max"].to_pylist()
    table.merge([table.run([version(900 + key, f"{key:03}", cursor=0) for key in range(200)])])
    assert [number for numbers in table.numbers() for number in numbers] == []

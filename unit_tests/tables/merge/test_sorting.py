from __future__ import annotations

import io
import json
import pickle
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from destination_s3_spark.chain.files import FileEntry, FileKind
from destination_s3_spark.decoding.plan import RowPlan
from destination_s3_spark.errors import DataError
from destination_s3_spark.schema.airbyte_type import Field, Scalar
from destination_s3_spark.schema.arrow import META_FIELDS, RAW_SCHEMA, arrow_field
from destination_s3_spark.schema.placement import TableField
from destination_s3_spark.schema.table_schema import TableSchema
from destination_s3_spark.storage.s3 import S3Store
from destination_s3_spark.storage.settings import S3Settings
from destination_s3_spark.stream_id import StreamId
from destination_s3_spark.tables.merge.scratch_runs import COPIES, SortTask, sort_rows
from destination_s3_spark.tables.runs.keys import DELETED, KEY, OFFSET, CdcDeletion, KeySpec, encode_key, lower, upper
from destination_s3_spark.tables.runs.sorted_file import index_of
from destination_s3_spark.tables.stored.conversion import UnfitValues
from destination_s3_spark.tables.stored.rewrite import Stored
from destination_s3_spark.tables.updates.resources import TaskResources
from unit_tests.lake.memory_bucket import Refusal, S3Call
from unit_tests.lake.memory_client import bucket_of

FIELDS = (Field("id", "id", Scalar.INTEGER), Field("deleted", "deleted", Scalar.STRING), Field("text", "text", Scalar.STRING))
SCHEMA = TableSchema(0, tuple(TableField(at, each.name, each.source, each.type, 0) for at, each in enumerate(FIELDS)))
SPEC = KeySpec(FIELDS[:1], None, FIELDS[1], CdcDeletion.HARD)
PLAN = RowPlan(StreamId("shop", "users"), 7, 3, FIELDS, SCHEMA.arrow)
KEY_PLAN = replace(PLAN, fields=FIELDS[:2], table_schema=pa.schema([*META_FIELDS, *map(arrow_field, FIELDS[:2])]))
KEYS = random.Random(3).choices(range(2000), k=40_000)
"""The key of each stored row, in the order of arrival."""


def own_columns(rows: int) -> list[pa.Array]:
    meta = pa.array([{"sync_id": 1, "changes": []}] * rows, META_FIELDS[2].type)
    ids = pa.array([str(UUID(int=number)) for number in range(rows)])
    return [ids, pa.array(range(rows), pa.timestamp("ms", "UTC")), meta, pa.array([0] * rows, pa.int64())]


def typed_table(keys: Sequence[int]) -> pa.Table:
    data = [pa.array(keys, pa.int64()), pa.array(["x" if key % 10 == 0 else None for key in keys]), pa.array([f"t{key}" for key in keys])]
    return pa.table([*own_columns(len(keys)), *data], schema=SCHEMA.arrow)


def raw_table(keys: Sequence[int]) -> pa.Table:
    texts = [json.dumps({"id": key, "deleted": "x" if key % 10 == 0 else None, "text": f"t{key}", "more": 1.0}) for key in keys]
    return pa.table([*own_columns(len(keys)), pa.array(texts)], schema=RAW_SCHEMA)


@pytest.fixture
def store(s3_settings: S3Settings) -> S3Store:
    return S3Store(s3_settings)


@pytest.fixture
def put(store: S3Store) -> Any:
    def write(table: pa.Table, kind: FileKind) -> FileEntry:
        target = io.BytesIO()
        pq.write_table(table, target, row_group_size=7000)
        store.put("stored", target.getvalue())
        return FileEntry(kind, "stored", len(table), len(target.getvalue()))

    return write


def task_of(file: FileEntry, s3: S3Settings, payload: pa.Schema, budget_bytes: int = COPIES * 2**20) -> SortTask:
    plan, schema = (PLAN, SCHEMA) if file.kind is FileKind.FINAL else (KEY_PLAN if payload == RAW_SCHEMA else PLAN, None)
    return SortTask(
        Stored(file, (plan,), schema, SCHEMA, UnfitValues.REFUSE), payload, SPEC, "scratch/token-", TaskResources(s3, budget_bytes)
    )


def runs_of(store: S3Store, files: Sequence[FileEntry]) -> list[pa.Table]:
    return [pq.read_table(io.BytesIO(store.get(file.key))) for file in files]


@pytest.mark.parametrize(
    ("kind", "table", "payload", "count"),
    [(FileKind.FINAL, typed_table, SCHEMA.arrow, 3), (FileKind.RAW, raw_table, SCHEMA.arrow, 3), (FileKind.RAW, raw_table, RAW_SCHEMA, 4)],
    ids=["typed", "typed from raw", "text"],
)
def test_stored_rows_become_sorted_runs_that_know_the_order_of_arrival(
    store: S3Store, s3_settings: S3Settings, put: Any, kind: FileKind, table: Any, payload: pa.Schema, count: int
) -> None:
    stored = table(KEYS)
    files = sort_rows(pickle.loads(pickle.dumps(task_of(put(stored, kind), s3_settings, payload))))
    runs = runs_of(store, files)
    encoded = encode_key([pa.array(KEYS, pa.int64())], [Scalar.INTEGER])

    assert len(files) == count
    assert [file.key for file in files] == [f"scratch/token-{number}.parquet" for number in range(len(files))]
    assert sum(file.rows for file in files) == len(KEYS)
    first = 0
    for file, run in zip(files, runs, strict=True):
        offsets, keys = run[OFFSET].to_pylist(), run[KEY].to_pylist()
        assert sorted(offsets) == list(range(first, first + file.rows))
        assert list(zip(keys, offsets, strict=True)) == sorted(zip(keys, offsets, strict=True))
        assert keys == encoded.take(run[OFFSET]).to_pylist()
        assert run[DELETED].to_pylist() == [KEYS[offset] % 10 == 0 for offset in offsets]
        assert run.select(payload.names[:2]).equals(stored.take(run[OFFSET]).select(payload.names[:2]))
        assert file.keys is not None
        assert (lower(file.keys), upper(file.keys)) == (keys[0], keys[-1])
        assert (file.kind, file.upload_id, file.bytes) == (FileKind.DELTA, None, len(store.get(file.key)))
        assert index_of(pq.ParquetFile(io.BytesIO(store.get(file.key))).metadata)[0].first == keys[0]
        first += file.rows
    if payload == RAW_SCHEMA:
        assert all('"more": 1.0' in text for text in runs[0]["_airbyte_data"].to_pylist())
    else:
        assert runs[0]["text"].to_pylist() == [f"t{key}" for key in runs[0]["id"].to_pylist()]


def test_what_fits_is_one_run(store: S3Store, s3_settings: S3Settings, put: Any) -> None:
    [run] = sort_rows(task_of(put(typed_table(KEYS[:100]), FileKind.FINAL), s3_settings, SCHEMA.arrow, 2**26))

    assert run.rows == 100
    assert list(store.list_uploads("")) == []


def test_a_file_that_is_gone_is_named(store: S3Store, s3_settings: S3Settings, put: Any) -> None:
    task = task_of(put(typed_table(KEYS[:100]), FileKind.FINAL), s3_settings, SCHEMA.arrow)
    store.delete(["stored"])

    with pytest.raises(DataError, match="stored is gone"):
        sort_rows(task)


def test_an_upload_that_fails_leaves_no_run_half_written(store: S3Store, s3_settings: S3Settings, put: Any) -> None:
    task = task_of(put(typed_table(KEYS), FileKind.FINAL), s3_settings, SCHEMA.arrow)
    memory, before = bucket_of(s3_settings), bucket_of(s3_settings).counts()["PutObject"]

    def second_fails(call: S3Call) -> Refusal | None:
        is_second = call.action == "PutObject" and memory.counts()["PutObject"] > before + 1
        return Refusal(403, "InvalidRequest") if is_second else None

    memory.hook = second_fails
    with pytest.raises(Exception, match="Writing"):
        sort_rows(task)
    assert list(store.list_uploads("")) == []
    assert [info.key for info in store.list("scratch/")] == ["scratch/token-0.parquet"]

"""A deduplicated table in a bucket that is merged without Spark and without a chain, in every format."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any
from uuid import UUID

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq

from destination_s3_spark.chain.files import FileEntry, FileKind
from destination_s3_spark.decoding.plan import RowPlan, Values
from destination_s3_spark.formats.avro import AvroOptions
from destination_s3_spark.formats.csv import CsvOptions
from destination_s3_spark.formats.file_format import FileColumns, FileOptions
from destination_s3_spark.formats.file_statistics import KeyRange, WrittenFile
from destination_s3_spark.formats.jsonl import JsonlOptions
from destination_s3_spark.formats.parquet import ParquetCodec, ParquetOptions
from destination_s3_spark.schema.airbyte_type import Field, Scalar
from destination_s3_spark.schema.arrow import META_FIELDS, RAW_SCHEMA, arrow_field
from destination_s3_spark.storage.s3 import S3Store
from destination_s3_spark.storage.settings import S3Settings
from destination_s3_spark.stream_id import StreamId
from destination_s3_spark.tables.merge.plan import MergePlan, Run, Sizes, plan_merge
from destination_s3_spark.tables.merge.replaced_files import SortedTableFile
from destination_s3_spark.tables.merge.task import (
    MergedRange,
    MergeTask,
    merge_range,
    sources_of,
)
from destination_s3_spark.tables.runs.keys import CdcDeletion, KeySpec, lower, upper
from destination_s3_spark.tables.runs.sorted_file import RunFile, index_of, run_rows
from destination_s3_spark.tables.runs.table_format import FileKeys, TableFormat
from destination_s3_spark.tables.updates.resources import TaskResources

STREAM = StreamId("shop", "users")
FIELDS = (
    Field("id", "id", Scalar.STRING),
    Field("updated", "updated", Scalar.INTEGER),
    Field("_ab_cdc_deleted_at", "_ab_cdc_deleted_at", Scalar.STRING),
    Field("number", "number", Scalar.INTEGER),
    Field("text", "text", Scalar.STRING),
)
TYPED = pa.schema([*META_FIELDS, *map(arrow_field, FIELDS)])
HARD = KeySpec(FIELDS[:1], FIELDS[1], FIELDS[2], CdcDeletion.HARD)
SOFT = replace(HARD, deletion=CdcDeletion.SOFT)
CELLS = pa.schema([*META_FIELDS, *(pa.field(each.name, pa.string()) for each in FIELDS)])
FORMATS: dict[str, tuple[FileOptions, RowPlan | None]] = {
    "parquet": (ParquetOptions(ParquetCodec.ZSTD, row_group_bytes=4096), None),
    "avro": (AvroOptions(), None),
    "jsonl": (JsonlOptions(), RowPlan(STREAM, 7, 3, (), RAW_SCHEMA, Values.RECORD)),
    "csv": (CsvOptions(flattened=True), RowPlan(STREAM, 7, 3, tuple(replace(f, type=Scalar.STRING) for f in FIELDS), CELLS, Values.CELLS)),
}
LARGE = Sizes(target_file_bytes=2**30, budget_bytes=2**26)


def table_format(name: str = "parquet", spec: KeySpec = HARD, target_file_bytes: int = 2**30) -> TableFormat:
    options, plan = FORMATS[name]
    columns = FileColumns(STREAM, FIELDS if plan is None else (), TYPED if plan is None else plan.table_schema)
    return TableFormat(columns, options, plan, spec, 3, target_file_bytes)


def record(version: Any) -> dict[str, Any]:
    """What a source sends for a version. A deletion has no values."""
    own = {"id": version.key[0], "updated": version.cursor, "_ab_cdc_deleted_at": "2026-01-01" if version.deleted else None}
    if version.deleted:
        return {**own, "number": None, "text": None}
    return {**own, "number": version.number, "text": sha256(b"%d" % version.number).hexdigest()}


def batches(versions: Sequence[Any]) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """The raw and the typed rows of the versions."""
    records = [record(version) for version in versions]
    own = [
        pa.array([str(UUID(int=version.number)) for version in versions], pa.string()),
        pa.array([version.extracted_at for version in versions], pa.timestamp("ms", "UTC")),
        pa.array([{"sync_id": 7, "changes": []} for _ in versions], META_FIELDS[2].type),
        pa.array([3 for _ in versions], pa.int64()),
    ]
    typed = [pa.array([each[column.source] for each in records], arrow_field(column).type) for column in FIELDS]
    raw = pa.array([json.dumps(each, separators=(",", ":")) for each in records], pa.string())
    return pa.RecordBatch.from_arrays([*own, raw], schema=RAW_SCHEMA), pa.RecordBatch.from_arrays([*own, *typed], schema=TYPED)


@dataclass
class Table:
    """A deduplicated table as the chain would know it, merged without Spark."""

    s3: S3Settings
    form: TableFormat
    files: dict[str, FileEntry] = field(default_factory=dict)
    states: dict[str, FileEntry] = field(default_factory=dict)
    dead: list[FileEntry] = field(default_factory=list)
    names: int = 0

    @property
    def store(self) -> S3Store:
        return S3Store(self.s3)

    def name(self, folder: str) -> str:
        self.names += 1
        return f"{folder}/{self.names:05}"

    def run(self, versions: Sequence[Any], offset: int = 0, batch_rows: int = 64) -> Run:
        """A run of the versions, landed in their order."""
        parts = [batches(versions[start : start + batch_rows]) for start in range(0, len(versions), batch_rows)]
        return self.land([(raw if self.form.plan else typed, typed) for raw, typed in parts], offset)

    def land(self, rows: Sequence[tuple[pa.RecordBatch, pa.RecordBatch]], offset: int) -> Run:
        target = io.BytesIO()
        file = RunFile(target, self.form.form.payload, self.form.spec, 0)
        for batch, typed in rows:
            file.write(run_rows(batch, typed, self.form.spec))
        file.close()
        key = self.name("delta")
        self.store.put(key, target.getvalue())
        return Run(key, len(target.getvalue()), offset, index_of(pq.ParquetFile(target).metadata))

    def object_run(self, file: FileEntry) -> Run:
        body = self.store.get(file.key)
        assert (file.kind, file.bytes, file.upload_id) == (FileKind.DELTA, len(body), None)
        return Run(file.key, file.bytes, 0, index_of(pq.ParquetFile(io.BytesIO(body)).metadata))

    def plan(self, runs: Sequence[Run], sizes: Sizes = LARGE) -> MergePlan:
        files = [
            SortedTableFile(rows.key, rows.upload.size, lower(key_range(rows)), upper(key_range(rows)), rows.rows, final.upload.size)
            for final, rows in zip(self.files.values(), self.sorted_files(), strict=True)
        ]
        return plan_merge(files, runs, [self.tombstone_run(file) for file in self.dead], sizes)

    def tombstone_run(self, file: FileEntry) -> Run:
        index = index_of(pq.ParquetFile(io.BytesIO(self.store.get(file.key))).metadata)
        return Run(file.key, file.upload.size, 0, index)

    def tasks(self, plan: MergePlan, budget_bytes: int, files: int = 50) -> list[MergeTask]:
        def keys() -> tuple[FileKeys, ...]:
            return tuple(FileKeys(self.name("final"), self.name("state") if self.form.has_state else None) for _ in range(files))

        return [
            MergeTask(
                piece.low,
                piece.high,
                sources_of(piece, self.form),
                self.form,
                keys(),
                self.name("dead"),
                self.form.target_file_bytes,
                plan.row_bytes,
                TaskResources(self.s3, budget_bytes),
            )
            for piece in plan.ranges
        ]

    def merge(self, runs: Sequence[Run], sizes: Sizes = LARGE) -> list[MergedRange]:
        """Merge and commit."""
        plan = self.plan(runs, sizes)
        done = [merge_range(task) for task in self.tasks(plan, sizes.budget_bytes)]
        replaced = {old.key for old in plan.replaced}
        gone = [key for key, state in self.states.items() if key in replaced]
        gone += [key for key, rows in zip(self.files, self.sorted_files(), strict=True) if rows.key in replaced]
        self.store.delete(gone)
        self.files, self.states = ({key: files[key] for key in files.keys() - set(gone)} for files in (self.files, self.states))
        for file in (file for merged in done for file in merged.files):
            self.store.complete_upload(file.upload)
            if file.kind is FileKind.TOMBSTONE:
                self.dead.append(file)
            else:
                (self.files if file.kind is FileKind.FINAL else self.states)[file.key] = file
        self.states = dict(sorted(self.states.items(), key=lambda item: key_range(item[1]).first))
        copied = {state.copy_of: state for state in self.states.values()}
        self.files = dict(sorted(self.files.items(), key=lambda item: key_range(copied.get(item[0], item[1])).first))
        return done

    def sorted_files(self) -> list[FileEntry]:
        """The file with each final file's rows for merges, in the order of the final files."""
        copied = {state.copy_of: state for state in self.states.values()}
        return [copied.get(file.key, file) for file in self.files.values()]

    def numbers(self) -> list[list[int]]:
        """What readers see of each final file, in the order of keys."""
        return [[int(row["number"]) for row in rows_in(self.store.get(file.key), self.form.options)] for file in self.files.values()]

    def shown(self) -> list[tuple[str | None, int | None, bool, int | None]]:
        """The key, the cursor, whether it is marked as deleted, and the number of each row that readers see, in the order of keys."""
        return [
            (row["id"] or None, number_of(row["updated"]), bool(row["_ab_cdc_deleted_at"]), number_of(row["number"]))
            for file in self.files.values()
            for row in rows_in(self.store.get(file.key), self.form.options)
        ]

    def stored(self, kind: FileKind) -> list[pa.Table]:
        found = {FileKind.FINAL: self.files, FileKind.STATE: self.states}.get(kind, {file.key: file for file in self.dead})
        return [pq.read_table(io.BytesIO(self.store.get(key))) for key in found]


def key_range(file: FileEntry | WrittenFile) -> KeyRange:
    """The bounds of a sorted file's keys."""
    assert file.keys is not None
    return file.keys


def number_of(cell: Any) -> int | None:
    """A number of a row; CSV has it as text."""
    return None if cell in (None, "") else int(cell)


def rows_in(body: bytes, options: FileOptions) -> list[dict[str, Any]]:
    match options:
        case ParquetOptions():
            return list(pq.read_table(io.BytesIO(body)).to_pylist())
        case AvroOptions():
            return [dict(row) for row in fastavro.reader(io.BytesIO(body)) if isinstance(row, dict)]
        case JsonlOptions():
            return [json.loads(line)["_airbyte_data"] for line in gzip.decompress(body).splitlines()]
        case CsvOptions():
            return list(csv.DictReader(io.StringIO(gzip.decompress(body).decode(), newline="")))
        case other:
            raise AssertionError(f"no reader of {other}")

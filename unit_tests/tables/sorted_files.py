"""Sorted files of a few rows in memory, and reading them."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from typing import Any

import pyarrow as pa

from destination_s3_spark.chain.files import FileKind
from destination_s3_spark.formats.parquet import ParquetOptions
from destination_s3_spark.schema.airbyte_type import Field, Scalar
from destination_s3_spark.schema.arrow import META_FIELDS, RAW_SCHEMA, arrow_field
from destination_s3_spark.tables.runs.keys import KEY, CdcDeletion, KeySpec, encode_key, key_column
from destination_s3_spark.tables.runs.sorted_file import (
    RUN_OPTIONS,
    MergeForm,
    RunFile,
    SortedFile,
    SortedFileWriter,
    run_rows,
)
from destination_s3_spark.tables.runs.winners import EXTRACTED_AT

ID = Field("Id", "id", Scalar.INTEGER)
REGION = Field("region", "region", Scalar.STRING)
SEEN = Field("seen", "seen", Scalar.TIME_WITHOUT_TIMEZONE)
GONE = Field("_ab_cdc_deleted_at", "_ab_cdc_deleted_at", Scalar.STRING)
TEXT = Field("text", "text", Scalar.STRING)
SPEC = KeySpec((ID, REGION), SEEN, GONE, CdcDeletion.HARD)
TYPED = pa.schema([*META_FIELDS, *map(arrow_field, (GONE, ID, REGION, SEEN, TEXT))])
TINY = replace(RUN_OPTIONS, row_group_bytes=1)
"""A row group for every batch."""


def form(spec: KeySpec = SPEC, payload: pa.Schema = TYPED) -> MergeForm:
    return MergeForm(payload, spec)


def typed(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    """Rows with the meta columns filled in; the number of a row is its text unless said otherwise."""
    filled = [
        {
            "_airbyte_raw_id": f"id-{number}",
            EXTRACTED_AT: 7,
            "_airbyte_meta": {"sync_id": 1, "changes": []},
            "_airbyte_generation_id": 3,
            "text": str(number),
        }
        | row
        for number, row in enumerate(rows)
    ]
    return pa.RecordBatch.from_pylist(filled, schema=TYPED)


def raw(rows: pa.RecordBatch) -> pa.RecordBatch:
    data = pa.array([json.dumps({"text": text}) for text in rows["text"].to_pylist()])
    return pa.RecordBatch.from_arrays([*rows.columns[: len(META_FIELDS)], data], schema=RAW_SCHEMA)


def run_of(*batches: pa.RecordBatch, spec: KeySpec = SPEC, first_offset: int = 0) -> io.BytesIO:
    sink = io.BytesIO()
    run = RunFile(sink, batches[0].schema, spec, first_offset)
    for batch in batches:
        run.write(run_rows(batch, batch, spec))
    assert run.close().rows == sum(batch.num_rows for batch in batches)
    return sink


def sorted_file(rows: pa.RecordBatch, options: ParquetOptions = TINY, spec: KeySpec = SPEC, keys: Any = None, piece: int = 3) -> io.BytesIO:
    """A file of rows that are sorted already, in row groups of a few rows."""
    sink = io.BytesIO()
    file = SortedFileWriter(sink, rows.schema, spec, options)
    if KEY not in rows.schema.names:
        rows = rows.append_column(KEY, key_column(rows, spec) if keys is None else keys)
    for start in range(0, rows.num_rows, piece):
        file.write(rows.slice(start, piece))
    assert file.close().rows == rows.num_rows
    return sink


def read(file: Any, kind: FileKind, low: bytes = b"", high: bytes | None = None, **more: Any) -> pa.Table:
    shape = more.pop("form", form())
    portion = {"portion_bytes": more.pop("portion_bytes")} if "portion_bytes" in more else {}
    tables = list(SortedFile(file, kind, shape, **more).read(low, high, **portion))
    return pa.concat_tables([shape.schema.empty_table(), *tables])


def encoded(key_id: int | None, region: str | None = None) -> bytes:
    return encode_key([pa.array([key_id], pa.int64()), pa.array([region], pa.string())], [Scalar.INTEGER, Scalar.STRING])[0].as_py()


class Watched(io.BytesIO):
    """Remembers the sizes of what is read of it."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.reads: list[int] = []

    def read(self, size: int | None = -1) -> bytes:
        data = super().read(size)
        self.reads.append(len(data))
        return data

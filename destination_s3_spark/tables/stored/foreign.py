"""Rows of Parquet files that destination-s3 wrote, as they are stored and as rows of the table's current columns."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from decimal import Decimal as PythonDecimal
from typing import TypeAlias

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from destination_s3_spark.chain.files import FileEntry
from destination_s3_spark.decoding.kernel_typer import record_typer
from destination_s3_spark.decoding.plan import RowPlan
from destination_s3_spark.schema.airbyte_type import Decimal, Field, Scalar
from destination_s3_spark.storage.ranged import RangedFile
from destination_s3_spark.storage.settings import S3Settings
from destination_s3_spark.tables.stored.lines import StoredLines, record_line
from destination_s3_spark.tables.stored.rewrite import ROWS_AT_ONCE, Stored


@dataclass(frozen=True, slots=True)
class StoredForeign:
    """A Parquet file whose columns no block knows. Its single values are typed again by the plan, as those of records."""

    file: FileEntry
    plan: RowPlan

    def rows(self, s3: S3Settings) -> Iterator[tuple[None, pa.RecordBatch]]:
        """Yield batches of typed rows, as `Stored.rows` does."""
        return ((None, typed) for _, typed in self.copies(s3))

    def copies(self, s3: S3Settings) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch]]:
        """Yield batches of rows as they are stored, each with the same rows typed."""
        typer, stream = record_typer(self.plan), self.plan.stream
        single = {field.name: field for field in self.plan.fields if isinstance(field.type, Scalar | Decimal)}
        with closing(RangedFile(s3, self.file.key, self.file.bytes)) as source:
            file = pq.ParquetFile(source, pre_buffer=True)
            for group in range(file.num_row_groups):
                for batch in file.iter_batches(ROWS_AT_ONCE, row_groups=[group]):
                    rows = batch.select([name for name in batch.schema.names if name in single]).to_pylist()
                    lines = b"".join(record_line(stream, _object(row, single)) for row in rows)
                    yield batch, typer.type_block(lines).final


Source: TypeAlias = Stored | StoredLines | StoredForeign
"""A file of rows that is read whole."""


def _object(row: dict[str, object], fields: dict[str, Field]) -> bytes:
    return orjson.dumps({fields[name].source: value for name, value in row.items()}, default=_text)


def _text(value: object) -> object:
    return orjson.Fragment(f"{value:f}") if isinstance(value, PythonDecimal) else str(value)

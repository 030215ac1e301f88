"""Rows of files of text, of Avro and of destination-s3, as they are stored and as rows of the table's current columns."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal as PythonDecimal
from typing import TypeAlias

import orjson
import pyarrow as pa

from destination_s3_spark.chain.files import FileEntry
from destination_s3_spark.decoding.plan import RowPlan
from destination_s3_spark.decoding.record_line import UnreadableRecord
from destination_s3_spark.decoding.value_text import moment_texts
from destination_s3_spark.errors import DataError
from destination_s3_spark.formats.avro_rows import StoredAvro
from destination_s3_spark.formats.bounded import portions, reading
from destination_s3_spark.formats.parquet_pages import PagedFile
from destination_s3_spark.formats.read_back import StoredText
from destination_s3_spark.schema.airbyte_type import Decimal, Field, Scalar
from destination_s3_spark.storage.ranged import RangedFile
from destination_s3_spark.storage.settings import S3Settings
from destination_s3_spark.stream_id import StreamId
from destination_s3_spark.tables.stored.conversion import ColumnsTyper
from destination_s3_spark.tables.stored.rewrite import ROWS_AT_ONCE, Stored

LINES_AT_ONCE = 2_048
LINES_AT_ONCE_BYTES = 64 * 2**20


@dataclass(frozen=True, slots=True)
class Lines:
    """Rows of a file. `header`: what stands before the first of them."""

    header: bytes
    rows: list[bytes]
    typed: pa.RecordBatch


@dataclass(frozen=True, slots=True)
class StoredLines:
    """A final file of text or Avro, and the plans that type its records."""

    file: FileEntry
    text: StoredText | StoredAvro
    plans: Sequence[RowPlan]

    def rows(self, s3: S3Settings) -> Iterator[tuple[None, pa.RecordBatch]]:
        """Yield batches of typed rows."""
        return ((None, lines.typed) for lines in self.lines(s3))

    def lines(self, s3: S3Settings) -> Iterator[Lines]:
        """Yield rows in order. Raises DataError for a file that is damaged."""
        stream, typer = self.plans[0].stream, ColumnsTyper(self.plans)
        with RangedFile(s3, self.file.key, self.file.bytes) as source, _read(self.file, stream):
            for some in portions(self.text.rows(source), LINES_AT_ONCE, LINES_AT_ONCE_BYTES):
                header = b"".join(row for row, record in some if record is None)
                given = [(row, record) for row, record in some if record is not None]
                records = b"".join(record_line(stream, record) for _, record in given)
                yield Lines(header, [row for row, _ in given], typer.type_block(records))


@contextmanager
def _read(file: FileEntry, stream: StreamId) -> Iterator[None]:
    """Raise DataError for whatever a damaged file raises."""

    def damaged(fault: str) -> DataError:
        return DataError(
            f"Stream '{stream}': the file '{file.key}' is damaged ({fault}). Nothing was changed. Restore it from a backup or an older "
            "version, or run a refresh that removes the records.",
            stream=stream,
        )

    with reading(damaged):
        try:
            yield
        except UnreadableRecord as error:
            raise damaged(type(error).__name__) from None


def record_line(stream: StreamId, data: bytes) -> bytes:
    """Return the line of a record with this JSON object."""
    name, namespace = json.dumps(stream.name).encode(), json.dumps(stream.namespace).encode()
    return b'{"type":"RECORD","record":{"stream":%b,"namespace":%b,"emitted_at":0,"data":%b}}\n' % (name, namespace, data)


@dataclass(frozen=True, slots=True)
class StoredForeign:
    """A Parquet file whose columns no block knows. Its single values are typed again by the plans, as those of records."""

    file: FileEntry
    plans: Sequence[RowPlan]

    def rows(self, s3: S3Settings) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch]]:
        typer, stream = ColumnsTyper(self.plans), self.plans[0].stream
        wanted = {field.source for plan in self.plans for field in plan.fields if isinstance(field.type, Scalar | Decimal)}
        single = {field.name: field for field in self.plans[0].fields if field.source in wanted}
        with RangedFile(s3, self.file.key, self.file.bytes) as source, _read(self.file, stream):
            for batch in PagedFile(source).batches(ROWS_AT_ONCE):
                rows = batch.select([name for name in batch.schema.names if name in single])
                for number, field in enumerate(rows.schema):
                    if pa.types.is_temporal(field.type):
                        rows = rows.set_column(number, field.name, pa.array(moment_texts(rows[number]), pa.string()))
                lines = b"".join(record_line(stream, _object(row, single)) for row in rows.to_pylist())
                yield batch, typer.type_block(lines)


Source: TypeAlias = Stored | StoredLines | StoredForeign
"""A file of rows that is read whole."""


def _object(row: dict[str, object], fields: dict[str, Field]) -> bytes:
    return orjson.dumps({fields[name].source: value for name, value in row.items()}, default=_text)


def _text(value: object) -> object:
    return orjson.Fragment(f"{value:f}") if isinstance(value, PythonDecimal) else str(value)

"""Rows of final files of text or Avro, each as its bytes and as a row of the table's current columns."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import islice

import pyarrow as pa

from destination_s3_spark.chain.files import FileEntry
from destination_s3_spark.decoding.kernel_typer import record_typer
from destination_s3_spark.decoding.plan import RowPlan
from destination_s3_spark.decoding.record_line import UnreadableRecord
from destination_s3_spark.errors import DataError
from destination_s3_spark.formats.avro_rows import StoredAvro
from destination_s3_spark.formats.read_back import StoredText
from destination_s3_spark.storage.ranged import RangedFile
from destination_s3_spark.storage.settings import S3Settings
from destination_s3_spark.stream_id import StreamId

LINES_AT_ONCE = 2_048


@dataclass(frozen=True, slots=True)
class Lines:
    """Rows of a file. `header`: what stands before the first of them."""

    header: bytes
    rows: list[bytes]
    typed: pa.RecordBatch


@dataclass(frozen=True, slots=True)
class StoredLines:
    """A final file of text or Avro, and the plan that types its records."""

    file: FileEntry
    text: StoredText | StoredAvro
    plan: RowPlan

    def rows(self, s3: S3Settings) -> Iterator[tuple[None, pa.RecordBatch]]:
        """Yield batches of typed rows, as `Stored.rows` does."""
        return ((None, lines.typed) for lines in self.lines(s3))

    def lines(self, s3: S3Settings) -> Iterator[Lines]:
        """Yield rows in order. Raises DataError for a file that is damaged."""
        stream, typer = self.plan.stream, record_typer(self.plan)
        with closing(RangedFile(s3, self.file.key, self.file.bytes)) as source:
            try:
                found = self.text.rows(source)
                while some := list(islice(found, LINES_AT_ONCE)):
                    header = b"".join(row for row, record in some if record is None)
                    given = [(row, record) for row, record in some if record is not None]
                    records = b"".join(record_line(stream, record) for _, record in given)
                    yield Lines(header, [row for row, _ in given], typer.type_block(records).final)
            except (ValueError, EOFError, LookupError, UnreadableRecord) as error:
                raise DataError(
                    f"Stream '{stream}': the file '{self.file.key}' is damaged ({type(error).__name__}). Nothing was changed. Restore it "
                    "from a backup or an older version, or run a refresh that removes the records.",
                    stream=stream,
                ) from None


def record_line(stream: StreamId, data: bytes) -> bytes:
    """Return the line of a record with this JSON object."""
    name, namespace = json.dumps(stream.name).encode(), json.dumps(stream.namespace).encode()
    return b'{"type":"RECORD","record":{"stream":%b,"namespace":%b,"emitted_at":0,"data":%b}}\n' % (name, namespace, data)

"""The interface of a file being written, common to all formats."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from destination_s3_spark.formats.file_statistics import WrittenFile
from destination_s3_spark.schema.airbyte_type import Field
from destination_s3_spark.stream_id import StreamId


class Sink(Protocol):
    """The destination of a file's bytes."""

    def write(self, data: bytes | memoryview, /) -> int:
        """Accept all of the bytes."""

    def flush(self) -> None:
        """Accept the call of a file writer. The bytes need not become visible."""


class FileWriter(Protocol):
    """One file being written into a sink, which the caller has to finish. Use it in one thread and end it with `close` or `abandon`."""

    def write(self, batch: pa.RecordBatch) -> None:
        """Append rows. Raises pa.ArrowInvalid when the columns of the batch differ from those of the file."""

    def close(self) -> WrittenFile:
        """Write the buffered rest."""

    def abandon(self) -> None:
        """Release the sink without writing anything more to it."""


@dataclass(frozen=True, slots=True)
class FileColumns:
    """The columns of a stream's file. `arrow` is the schema of its batches, `fields` the data columns among them in the same order.

    Formats without their own type system need only `arrow`. Picklable.
    """

    stream: StreamId
    fields: tuple[Field, ...]
    arrow: pa.Schema


def require_columns(batch: pa.RecordBatch, schema: pa.Schema) -> None:
    """Raise pa.ArrowInvalid unless the columns have the names and types of the schema. Nullability may differ."""
    # Every format checks this, because Arrow would silently cast columns of another type.
    if batch.schema.names != schema.names or batch.schema.types != schema.types:
        raise pa.ArrowInvalid("the columns of a batch are not those of its file")

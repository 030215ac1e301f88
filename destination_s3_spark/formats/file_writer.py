"""What every final or raw file on its way looks like from outside, whatever its format."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from destination_s3_spark.schema.airbyte_type import Field
from destination_s3_spark.stream_id import StreamId


class Sink(Protocol):
    """Where the bytes of a file go."""

    def write(self, data: bytes | memoryview, /) -> int:
        """Take all of the bytes."""

    def flush(self) -> None:
        """Nothing has to become visible."""


class FileWriter(Protocol):
    """One file on its way into a sink, which stays the caller's to finish. For one thread; it ends with `close` or `abandon`."""

    def write(self, batch: pa.RecordBatch) -> None:
        """Append rows. pa.ArrowInvalid when the columns of the batch are not those of the file."""

    def close(self) -> int:
        """Write what is left and return the number of rows in the file."""

    def abandon(self) -> None:
        """Let go of the sink, which gets nothing more."""


@dataclass(frozen=True, slots=True)
class FileColumns:
    """The columns of a stream's file: `arrow` as batches bring them, `fields` the data columns among them, in their order.

    Formats without a type system of their own need only `arrow`. Picklable.
    """

    stream: StreamId
    fields: tuple[Field, ...]
    arrow: pa.Schema


def require_columns(batch: pa.RecordBatch, schema: pa.Schema) -> None:
    """Raise pa.ArrowInvalid unless names and types of the columns are those of the schema; nullability may differ."""
    # Checked by every format, because Arrow would cast columns of another type without a word.
    if batch.schema.names != schema.names or batch.schema.types != schema.types:
        raise pa.ArrowInvalid("the columns of a batch are not those of its file")

"""The interface of file formats: what each format's module provides, and the writers of its files."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import pyarrow as pa

from destination_s3_spark.decoding.plan import Values
from destination_s3_spark.formats.file_statistics import WrittenFile
from destination_s3_spark.schema.airbyte_type import Field
from destination_s3_spark.stream_id import StreamId

_PIECE_BYTES = 2**20

Content = TypeVar("Content")
"""What a file is made of: rows, or files to join."""


class Sink(Protocol):
    """The destination of a file's bytes."""

    def write(self, data: bytes | memoryview, /) -> int:
        """Accept all of the bytes."""


class SeekableFile(Protocol):
    """A file that is read: an object, by ranges, or bytes in memory."""

    def read(self, size: int = -1, /) -> bytes:
        """Read up to `size` bytes, or all that is left."""

    def seek(self, offset: int, whence: int = 0, /) -> int:
        """Move the position."""

    def tell(self) -> int:
        """Return the position."""


def in_pieces(file: SeekableFile) -> pa.NativeFile:
    """Return a file to read on in, by large pieces, because each read of an object is a request. The file is closed with it."""
    return pa.BufferedInputStream(pa.PythonFile(file, mode="r"), _PIECE_BYTES)


class FileWriter(ABC, Generic[Content]):
    """One file being written into a sink, which the caller has to finish. Use it in one thread and end it with `close` or `abandon`."""

    @abstractmethod
    def write(self, content: Content) -> None:
        """Append rows. Raises pa.ArrowInvalid when the columns of a batch differ in names or types from those of the file."""

    @abstractmethod
    def close(self) -> WrittenFile:
        """Write the buffered rest."""

    @abstractmethod
    def abandon(self) -> None:
        """Release the sink without writing anything more to it."""


class DirectWriter(FileWriter[Content]):
    """A writer that gives the sink all bytes at once. `_rows` counts the rows."""

    def __init__(self, sink: Sink) -> None:
        self._sink: Sink | None = sink
        self._rows = 0

    def close(self) -> WrittenFile:
        self._sink = None
        return WrittenFile(self._rows)

    def abandon(self) -> None:
        self._sink = None

    def _put(self, data: bytes | memoryview) -> None:
        if self._sink is not None:
            self._sink.write(data)


class DifferentColumns(Exception):
    """Files that were to be joined have different columns."""


@dataclass(frozen=True, slots=True)
class FileColumns:
    """The columns of a stream's file. `arrow` is the schema of its batches, `fields` the data columns among them in the same order.

    Formats without their own type system need only `arrow`. Picklable.
    """

    stream: StreamId
    fields: tuple[Field, ...]
    arrow: pa.Schema


class FileOptions(Protocol):
    """The options of a format's files. Picklable, so that a Spark task can carry them."""

    @property
    def extension(self) -> str:
        """The end of the files' keys."""

    @property
    def compressed(self) -> bool:
        """Whether the rows are compressed, so that a file is much smaller than the records it is made of."""

    @property
    def values(self) -> Values:
        """The form of the values in the files' rows."""

    def require_fitting(self, columns: FileColumns) -> None:
        """Raise ConfigError for columns that the format cannot hold. Called before a file is opened."""

    def open(self, sink: Sink, columns: FileColumns) -> FileWriter[pa.RecordBatch]:
        """Start a new file that is written into `sink`. The columns have passed `require_fitting`."""

    def open_joined(self, sink: Sink) -> FileWriter[SeekableFile]:
        """Start a file of the rows of files in this format, in order. Its `write` raises DifferentColumns.

        The files keep their column types: no value is converted.
        """


@dataclass(frozen=True, slots=True)
class FileFormat:
    title: str
    """The name of the format for users."""
    format_type: str
    """The name of the format in the configuration."""
    extensions: tuple[str, ...]
    """The possible ends of the files' keys."""
    typed: bool
    """Whether values have the types of their columns. In other formats they keep the types that the source sent."""
    sorted_rows: bool
    """Whether merges and Arrow read the files directly. For other formats they read a Parquet copy."""
    options: Callable[[Any], FileOptions]
    """Converts the user's options to the options of a file."""


def require_columns(batch: pa.RecordBatch, schema: pa.Schema) -> None:
    """Raise pa.ArrowInvalid unless the columns have the names and types of the schema. Nullability may differ."""
    # Every format checks this, because Arrow would silently cast columns of another type.
    if batch.schema.names != schema.names or batch.schema.types != schema.types:
        raise pa.ArrowInvalid("the columns of a batch are not those of its file")

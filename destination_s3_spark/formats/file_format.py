"""The description of a file format. Each format's module provides one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from destination_s3_spark.decoding.plan import Values
from destination_s3_spark.formats.file_writer import FileColumns, FileWriter, Sink


class DifferentColumns(Exception):
    """Files that were to be joined have different columns."""


class Readable(Protocol):
    """A seekable binary file."""

    def read(self, size: int = -1, /) -> bytes:
        """Read up to `size` bytes, or all that is left."""

    def seek(self, offset: int, whence: int = 0, /) -> int:
        """Set the position."""


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

    def open(self, sink: Sink, columns: FileColumns) -> FileWriter:
        """Start a new file that is written into `sink`. The columns have passed `require_fitting`."""

    def join(self, sources: Iterable[Readable], sink: Sink) -> int | None:
        """Write the rows of files in this format, in order, as one file. Return their number, or None if it is not known.

        The files keep their column types: no value is converted. Raises DifferentColumns.
        """


@dataclass(frozen=True, slots=True)
class FileFormat:
    """A file format."""

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

"""The record of a file format, of which each format's module gives one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from destination_s3_spark.decoding.plan import Values
from destination_s3_spark.formats.file_writer import FileColumns, FileWriter, Sink


class FileOptions(Protocol):
    """The options of a format's files. Picklable, so that a Spark task can carry them."""

    @property
    def extension(self) -> str:
        """The end of the files' keys."""

    @property
    def values(self) -> Values:
        """The values that rows of these files hold."""

    def require_fitting(self, columns: FileColumns) -> None:
        """Raise ConfigError, before there is a file, for columns that the format cannot hold."""

    def open(self, sink: Sink, columns: FileColumns) -> FileWriter:
        """Open a new file on its way into `sink`. The columns fit the format."""


@dataclass(frozen=True, slots=True)
class FileFormat:
    """A file format.

    `title` is its name for users, `format_type` the one in the configuration. Keys of its files end in one of `extensions`. `typed`: values
    have the types of their columns there, not those the source sent. `sorted_rows`: merges and Arrow read the files themselves; of other
    formats they read a Parquet copy. `options` makes the options of files from the user's.
    """

    title: str
    format_type: str
    extensions: tuple[str, ...]
    typed: bool
    sorted_rows: bool
    options: Callable[[Any], FileOptions]

"""The file formats there are. A new one is a module of this package and a line here."""

from __future__ import annotations

from typing import Protocol

from destination_s3_spark.formats.avro import AVRO
from destination_s3_spark.formats.csv import CSV
from destination_s3_spark.formats.file_format import FileFormat, FileOptions
from destination_s3_spark.formats.jsonl import JSONL
from destination_s3_spark.formats.parquet import PARQUET


class ChosenFormat(Protocol):
    """A user's options of a format."""

    @property
    def format_type(self) -> str:
        """The name of the format in the configuration."""


FORMATS: list[FileFormat] = [
    PARQUET,
    AVRO,
    JSONL,
    CSV,
]


def chosen_format(chosen: ChosenFormat) -> FileFormat:
    """Return the format of the user's options."""
    return next(known for known in FORMATS if known.format_type == chosen.format_type)


def file_options(chosen: ChosenFormat) -> FileOptions:
    """Make the options of files from the user's."""
    return chosen_format(chosen).options(chosen)


def format_of(key: str) -> FileFormat | None:
    """Return the format of an object by its key. None for a name without a known extension."""
    return next((known for known in FORMATS if key.endswith(known.extensions)), None)

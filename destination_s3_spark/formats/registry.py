"""The registry of file formats. A new format is a module of this package and an entry in FORMATS."""

from __future__ import annotations

from typing import TYPE_CHECKING

from destination_s3_spark.formats.avro import AVRO
from destination_s3_spark.formats.csv import CSV
from destination_s3_spark.formats.file_format import FileFormat
from destination_s3_spark.formats.jsonl import JSONL
from destination_s3_spark.formats.parquet import PARQUET

if TYPE_CHECKING:  # a cluster's executors have no pydantic
    from destination_s3_spark.config.format_options import Format

FORMATS: list[FileFormat] = [PARQUET, AVRO, JSONL, CSV]


def chosen_format(chosen: Format) -> FileFormat:
    return next(known for known in FORMATS if known.format_type == chosen.format_type)


def format_of(key: str) -> FileFormat | None:
    """Return the format of an object by the extension of its key, or None for an unknown extension."""
    return next((known for known in FORMATS if key.endswith(known.extensions)), None)


def extension_of(key: str) -> str:
    return max((extension for known in FORMATS for extension in known.extensions if key.endswith(extension)), key=len)

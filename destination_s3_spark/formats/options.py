"""The formats a table's files can have, chosen by their options."""

from __future__ import annotations

from typing import TypeAlias

from destination_s3_spark.formats.avro import AvroFile, AvroOptions
from destination_s3_spark.formats.avro_schema import row_type
from destination_s3_spark.formats.csv import CsvFile, CsvOptions
from destination_s3_spark.formats.file_writer import FileColumns, FileWriter, Sink
from destination_s3_spark.formats.jsonl import JsonlFile, JsonlOptions
from destination_s3_spark.formats.parquet import ParquetFile, ParquetOptions

FileOptions: TypeAlias = ParquetOptions | AvroOptions | JsonlOptions | CsvOptions
TextOptions: TypeAlias = JsonlOptions | CsvOptions
"""The formats whose values are those the source sent, whatever type it declared."""


def require_fitting(columns: FileColumns, options: FileOptions) -> None:
    """Raise ConfigError, before there is a file, for columns the format cannot hold."""
    if isinstance(options, AvroOptions):
        row_type(columns.stream, columns.fields)


def open_file(sink: Sink, columns: FileColumns, options: FileOptions) -> FileWriter:
    """A new file on its way into `sink`. The columns fit the format."""
    match options:
        case ParquetOptions():
            return ParquetFile(sink, columns.arrow, options)
        case AvroOptions():
            return AvroFile(sink, columns, options)
        case JsonlOptions():
            return JsonlFile(sink, columns.arrow, options)
        case CsvOptions():
            return CsvFile(sink, columns.arrow, options)

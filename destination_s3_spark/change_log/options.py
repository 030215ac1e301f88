"""The formats a change log can have, chosen by their options."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Protocol

import pyarrow as pa

from destination_s3_spark.change_log.events import AfterImage, BeforeImage, LogColumns, OperationCount
from destination_s3_spark.change_log.lines import UNCOUNTED, uncounted
from destination_s3_spark.change_log.replicant_csv import CsvChanges, CsvSnapshot, csv_text
from destination_s3_spark.change_log.replicant_json import ReplicantJsonChanges, ReplicantJsonSnapshot, replicant_json_text
from destination_s3_spark.change_log.typed_jsonl import TypedJsonlChanges, TypedJsonlSnapshot, jsonl_text
from destination_s3_spark.change_log.typed_parquet import PARQUET, ParquetChanges
from destination_s3_spark.formats.file_writer import FileWriter, Sink, require_columns
from destination_s3_spark.formats.parquet import ParquetFile


class ChangeLogFormat(Enum):
    """How events and rows are written; the value is the configuration's word."""

    REPLICANT_CSV = "replicant_csv"
    REPLICANT_JSON = "replicant_json"
    JSONL = "jsonl"
    PARQUET = "parquet"

    @property
    def extension(self) -> str:
        """What keys of such files end in."""
        return _EXTENSIONS[self]

    @property
    def compression(self) -> int:
        """About how many times as much of Arrow's memory events take, as `for_file` makes them, as in a file."""
        return 6 if self is ChangeLogFormat.REPLICANT_JSON else 3


_EXTENSIONS = {
    ChangeLogFormat.REPLICANT_CSV: ".csv.gz",
    ChangeLogFormat.REPLICANT_JSON: ".jsonl.gz",
    ChangeLogFormat.JSONL: ".jsonl.gz",
    ChangeLogFormat.PARQUET: ".parquet",
}


@dataclass(frozen=True, slots=True)
class ChangeLogOptions:
    """What a table's change log looks like. Only the CSV format has a header. Picklable."""

    format: ChangeLogFormat = ChangeLogFormat.REPLICANT_CSV
    before_image: BeforeImage = BeforeImage.KEY
    after_image: AfterImage = AfterImage.UPDATED
    include_header: bool = False

    @property
    def extension(self) -> str:
        """What keys of such files end in."""
        return self.format.extension


class ChangeFile(FileWriter, Protocol):
    """One file of events on its way into a sink; batches have `file_schema`."""

    @property
    def operation_count(self) -> OperationCount:
        """The count after the last event written."""


def file_schema(columns: LogColumns, options: ChangeLogOptions) -> pa.Schema:
    """What files of events are made of: the events themselves, or lines that lack their count. Both have `op` and `position`."""
    return columns.event_schema if options.format is ChangeLogFormat.PARQUET else UNCOUNTED


def for_file(events: pa.RecordBatch, columns: LogColumns, options: ChangeLogOptions) -> Iterable[pa.RecordBatch]:
    """Events in batches of `file_schema`. Whatever takes long is done here, and not by the file.

    pa.ArrowInvalid when their columns are not those of `LogColumns.event_schema`.
    """
    require_columns(events, columns.event_schema)
    match options.format:
        case ChangeLogFormat.REPLICANT_CSV:
            return uncounted(events, csv_text)
        case ChangeLogFormat.REPLICANT_JSON:
            return uncounted(events, partial(replicant_json_text, columns=columns))
        case ChangeLogFormat.JSONL:
            return uncounted(events, partial(jsonl_text, columns=columns))
        case ChangeLogFormat.PARQUET:
            return (events,)


def open_changes(sink: Sink, columns: LogColumns, options: ChangeLogOptions, start: OperationCount) -> ChangeFile:
    """A new file of events on its way into `sink`. `start` is the count before its first event."""
    match options.format:
        case ChangeLogFormat.REPLICANT_CSV:
            return CsvChanges(sink, columns, start, header=options.include_header)
        case ChangeLogFormat.REPLICANT_JSON:
            return ReplicantJsonChanges(sink, start)
        case ChangeLogFormat.JSONL:
            return TypedJsonlChanges(sink, start)
        case ChangeLogFormat.PARQUET:
            return ParquetChanges(sink, columns, start)


def open_snapshot(sink: Sink, columns: LogColumns, options: ChangeLogOptions) -> FileWriter:
    """A new file of rows on its way into `sink`; batches have `LogColumns.row_schema`."""
    match options.format:
        case ChangeLogFormat.REPLICANT_CSV:
            return CsvSnapshot(sink, columns, header=options.include_header)
        case ChangeLogFormat.REPLICANT_JSON:
            return ReplicantJsonSnapshot(sink, columns)
        case ChangeLogFormat.JSONL:
            return TypedJsonlSnapshot(sink, columns)
        case ChangeLogFormat.PARQUET:
            return ParquetFile(sink, columns.row_schema, PARQUET)

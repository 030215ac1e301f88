"""Options of a change log, and the writers of its formats."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import pyarrow as pa

from destination_s3_spark.chain.files import OperationCount
from destination_s3_spark.change_log.events import AfterImage, BeforeImage, LogColumns
from destination_s3_spark.change_log.replicant import CsvChanges, CsvSnapshot, ReplicantJsonChanges, ReplicantJsonSnapshot
from destination_s3_spark.change_log.typed import LOG_PARQUET, ParquetChanges, TypedJsonlChanges, TypedJsonlSnapshot
from destination_s3_spark.formats.file_format import FileWriter, Sink
from destination_s3_spark.formats.parquet import ParquetFile


class ChangeLogFormat(Enum):
    """The format of events and rows. The value is the one used in the configuration."""

    REPLICANT_CSV = "replicant_csv"
    REPLICANT_JSON = "replicant_json"
    JSONL = "jsonl"
    PARQUET = "parquet"


_EXTENSIONS = {
    ChangeLogFormat.REPLICANT_CSV: ".csv.gz",
    ChangeLogFormat.REPLICANT_JSON: ".jsonl.gz",
    ChangeLogFormat.JSONL: ".jsonl.gz",
    ChangeLogFormat.PARQUET: ".parquet",
}


@dataclass(frozen=True, slots=True)
class ChangeLogOptions:
    """The options of a table's change log. Only the CSV format has a header. Picklable."""

    format: ChangeLogFormat = ChangeLogFormat.REPLICANT_CSV
    before_image: BeforeImage = BeforeImage.KEY
    after_image: AfterImage = AfterImage.UPDATED
    include_header: bool = False

    @property
    def extension(self) -> str:
        return _EXTENSIONS[self.format]


def open_changes(sink: Sink, columns: LogColumns, options: ChangeLogOptions, start: OperationCount) -> FileWriter[pa.RecordBatch]:
    """Start a file of events in `sink`. Batches have `LogColumns.event_schema`. `start` is the count before the first event."""
    match options.format:
        case ChangeLogFormat.REPLICANT_CSV:
            return CsvChanges(sink, columns, start, header=options.include_header)
        case ChangeLogFormat.REPLICANT_JSON:
            return ReplicantJsonChanges(sink, columns, start)
        case ChangeLogFormat.JSONL:
            return TypedJsonlChanges(sink, columns, start)
        case ChangeLogFormat.PARQUET:
            return ParquetChanges(sink, columns, start)


def open_snapshot(sink: Sink, columns: LogColumns, options: ChangeLogOptions) -> FileWriter[pa.RecordBatch]:
    """Start a file of rows in `sink`. Batches have `LogColumns.row_schema`."""
    match options.format:
        case ChangeLogFormat.REPLICANT_CSV:
            return CsvSnapshot(sink, columns, header=options.include_header)
        case ChangeLogFormat.REPLICANT_JSON:
            return ReplicantJsonSnapshot(sink, columns)
        case ChangeLogFormat.JSONL:
            return TypedJsonlSnapshot(sink, columns)
        case ChangeLogFormat.PARQUET:
            return ParquetFile(sink, columns.row_schema, LOG_PARQUET)

"""Writes Parquet files with the physical types of destination-s3 V2.

Format 2.6, microsecond timestamps and times in UTC, three-level lists. The file carries the Arrow schema and no pandas metadata.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq

from destination_s3_spark.formats.file_writer import Sink, require_columns

MIB = 1024 * 1024


class Codec(Enum):
    """Compression codecs pyarrow can write; the values are destination-s3's. Its LZO is not among them. LZ4 is written as LZ4_RAW."""

    UNCOMPRESSED = "UNCOMPRESSED"
    SNAPPY = "SNAPPY"
    GZIP = "GZIP"
    BROTLI = "BROTLI"
    LZ4 = "LZ4"
    ZSTD = "ZSTD"


class Dictionary(Enum):
    """Whether columns are dictionary encoded, as long as their dictionary fits its page."""

    ON = "on"
    OFF = "off"


class TimeEncoding(Enum):
    """How times of day are stored. INT64 is the same number of microseconds without the logical type, for readers without TIME."""

    TIME = "time"
    INT64 = "int64"


@dataclass(frozen=True, slots=True)
class ParquetOptions:
    """Options of a Parquet file, sizes in bytes. A row group is written once its rows take `row_group_bytes` in Arrow's memory."""

    codec: Codec = Codec.UNCOMPRESSED
    row_group_bytes: int = 128 * MIB
    page_bytes: int = MIB
    dictionary_page_bytes: int = MIB
    dictionary: Dictionary = Dictionary.ON
    time_encoding: TimeEncoding = TimeEncoding.TIME

    extension: ClassVar[str] = ".parquet"


class _Outlet:
    """The way to the sink, until it is shut: Arrow's writer would otherwise still write a footer when it is garbage collected."""

    def __init__(self, sink: Sink) -> None:
        self._sink: Sink | None = sink
        self._position = 0
        self.closed = False

    def shut(self) -> None:
        self._sink = None

    def write(self, data: bytes) -> int:
        if self._sink is not None:
            self._sink.write(data)
        self._position += len(data)
        return len(data)

    def tell(self) -> int:
        return self._position

    def flush(self) -> None:
        if self._sink is not None:
            self._sink.flush()

    def writable(self) -> bool:
        return True


class ParquetFile:
    """One Parquet file on its way into `sink`, a binary file that needs `write` and `flush` and stays the caller's to finish.

    Use it in one thread. End it with `close`, or give it up with `abandon`.
    """

    def __init__(self, sink: Sink, schema: pa.Schema, options: ParquetOptions) -> None:
        self._schema = schema
        self._stored = stored_schema(schema, options.time_encoding)
        self._options = options
        self._batches: list[pa.RecordBatch] = []
        self._buffered_bytes = 0
        self._rows = 0
        self._outlet = _Outlet(sink)
        compression: Any = "none" if options.codec is Codec.UNCOMPRESSED else options.codec.value.lower()
        self._writer = pq.ParquetWriter(
            self._outlet,
            self._stored,
            version="2.6",
            compression=compression,
            use_dictionary=options.dictionary is Dictionary.ON,
            data_page_size=options.page_bytes,
            dictionary_pagesize_limit=options.dictionary_page_bytes,
            coerce_timestamps=None,  # each timestamp keeps its own unit: ms for the time of extraction, µs for data
            write_time_adjusted_to_utc=True,
        )

    def write(self, batch: pa.RecordBatch) -> None:
        """Append rows. pa.ArrowInvalid when names or types of the columns are not those of the schema; nullability may differ."""
        require_columns(batch, self._schema)
        if batch.num_rows == 0:
            return
        self._batches.append(pa.RecordBatch.from_arrays(batch.columns, schema=self._schema))
        self._buffered_bytes += batch.nbytes
        self._rows += batch.num_rows
        if self._buffered_bytes >= self._options.row_group_bytes:
            self._write_row_group()

    @property
    def at_row_group_start(self) -> bool:
        """Whether the next row will be the first of a row group."""
        return not self._batches

    def close(self, metadata: Mapping[str, str] | None = None) -> int:
        """Write what is buffered and the footer with this metadata, and return the number of rows in the file."""
        if self._batches:
            self._write_row_group()
        self._writer.add_key_value_metadata(dict(metadata or {}))
        self._writer.close()
        self._outlet.shut()
        return self._rows

    def abandon(self) -> None:
        """Let go of buffered rows and of the sink, which gets nothing more."""
        self._batches.clear()
        self._outlet.shut()

    def _write_row_group(self) -> None:
        table = pa.Table.from_batches(self._batches, self._schema)
        self._batches.clear()
        self._buffered_bytes = 0
        if self._stored is not self._schema:
            table = table.cast(self._stored)
        self._writer.write_table(table, row_group_size=table.num_rows)


def stored_schema(schema: pa.Schema, time_encoding: TimeEncoding) -> pa.Schema:
    """The schema as a file has it: with INT64 every time of day is an int64, also inside of records and lists."""
    if time_encoding is TimeEncoding.TIME:
        return schema
    return pa.schema([_without_time(field) for field in schema])


def _without_time(field: pa.Field[Any]) -> pa.Field[Any]:
    kind = field.type
    if pa.types.is_time(kind):
        return field.with_type(pa.int64())
    if pa.types.is_list(kind):
        return field.with_type(pa.list_(_without_time(kind.value_field)))
    if pa.types.is_struct(kind):
        return field.with_type(pa.struct([_without_time(kind.field(index)) for index in range(kind.num_fields)]))
    return field

"""Writer of Parquet files with the physical types of destination-s3 V2.

Files have format version 2.6, microsecond timestamps and times in UTC, and three-level lists. They carry the Arrow schema and no pandas
metadata. A table may have other encodings of times of day and of the extraction time.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from destination_s3_spark.decoding.plan import Values
from destination_s3_spark.formats.file_format import (
    DifferentColumns,
    FileColumns,
    FileFormat,
    FileWriter,
    SeekableFile,
    Sink,
    require_columns,
)
from destination_s3_spark.formats.file_statistics import WrittenFile
from destination_s3_spark.formats.parquet_statistics import LongTexts, footer_statistics
from destination_s3_spark.schema.encodings import DESTINATION_S3, Encodings, TimeEncoding, stored_schema

if TYPE_CHECKING:  # a cluster's executors have no pydantic
    from destination_s3_spark.config.format_options import ParquetFormat

MIB = 2**20

_ROWS_AT_ONCE = 16_384
"""Rows read at once when files are joined."""

_SAMPLE_RUNS = 8
_SAMPLE_RUN_ROWS = 256
_SAMPLE_LEAST = 512
"""Fewer sampled values are no evidence, and a dictionary for few values costs nothing."""
_MOSTLY_DISTINCT = 0.98
"""The share of distinct values in the 2,048 sampled rows above which a column gets no dictionary.

A column of 50,000 equally frequent values reaches this share, and its dictionary rarely fits into its page.
"""


class ParquetCodec(Enum):
    """Compression codecs that pyarrow can write, by destination-s3's names. Its LZO is missing. LZ4 is written as LZ4_RAW."""

    UNCOMPRESSED = "UNCOMPRESSED"
    SNAPPY = "SNAPPY"
    GZIP = "GZIP"
    BROTLI = "BROTLI"
    LZ4 = "LZ4"
    ZSTD = "ZSTD"


@dataclass(frozen=True, slots=True)
class ParquetOptions:
    """Options of a Parquet file. A row group is written when its rows occupy `row_group_bytes` of Arrow memory.

    `dictionary`: whether columns with repeating values are dictionary encoded, as long as the dictionary fits into its page.
    `statistics`: whether the chain gets the statistics of the file, for publishers that show them.
    """

    codec: ParquetCodec = ParquetCodec.UNCOMPRESSED
    row_group_bytes: int = 128 * MIB
    page_bytes: int = MIB
    dictionary_page_bytes: int = MIB
    dictionary: bool = True
    encodings: Encodings = DESTINATION_S3
    statistics: bool = False

    extension: ClassVar[str] = ".parquet"
    values: ClassVar[Values] = Values.TYPED

    @property
    def compressed(self) -> bool:
        return self.codec is not ParquetCodec.UNCOMPRESSED

    def require_fitting(self, columns: FileColumns) -> None:
        """Accept all columns, because Parquet has a type for each of them."""

    def open(self, sink: Sink, columns: FileColumns) -> ParquetFile:
        return ParquetFile(sink, columns.arrow, self)

    def open_joined(self, sink: Sink) -> JoinedParquetFile:
        """Start a file of the rows of Parquet files, in row groups of the usual size."""
        return JoinedParquetFile(sink, self._of_stored)

    def as_stored(self, sink: Sink, schema: pa.Schema) -> ParquetFile:
        """Start a file of rows as another file stores them, without its metadata, which may have bounds of rows that it has no more."""
        return ParquetFile(sink, schema.remove_metadata(), self._of_stored)

    @property
    def _of_stored(self) -> ParquetOptions:
        local = self.encodings.time is TimeEncoding.LOCAL  # columns already have their stored types
        return replace(self, encodings=Encodings(time=TimeEncoding.LOCAL) if local else DESTINATION_S3)


class _Outlet(io.RawIOBase):
    """A connection to the sink that can be shut. Otherwise Arrow's writer would write a footer when it is garbage collected."""

    def __init__(self, sink: Sink) -> None:
        super().__init__()
        self._sink: Sink | None = sink
        self._position = 0

    def shut(self) -> None:
        self._sink = None

    def write(self, data: bytes) -> int:  # type: ignore[override]
        if self._sink is not None:
            self._sink.write(data)
        self._position += len(data)
        return len(data)

    def tell(self) -> int:
        return self._position

    def writable(self) -> bool:
        return True


class ParquetFile(FileWriter[pa.RecordBatch]):
    """One Parquet file being written into a sink."""

    def __init__(self, sink: Sink, schema: pa.Schema, options: ParquetOptions) -> None:
        self.schema = schema
        self._stored = stored_schema(schema, options.encodings)
        self._options = options
        self._batches: list[pa.RecordBatch] = []
        self._buffered_bytes = 0
        self._rows = 0
        self._outlet = _Outlet(sink)
        self._writer: pq.ParquetWriter | None = None
        self._long_texts = LongTexts(self._stored) if options.statistics else None

    def write(self, batch: pa.RecordBatch) -> None:
        require_columns(batch, self.schema)
        if batch.num_rows == 0:
            return
        self._batches.append(pa.RecordBatch.from_arrays(batch.columns, schema=self.schema))
        self._buffered_bytes += batch.nbytes
        self._rows += batch.num_rows
        if self._buffered_bytes >= self._options.row_group_bytes:
            self._write_row_group()

    @property
    def at_row_group_start(self) -> bool:
        """Whether the next row will be the first of a row group."""
        return not self._batches

    def close(self, metadata: Mapping[str, str] | None = None) -> WrittenFile:
        """Write the buffered rows and the footer with this metadata."""
        self.end_pages()
        writer = self._writer or self._open(self._stored.empty_table())
        noted = {} if self._long_texts is None else self._long_texts.metadata()
        writer.add_key_value_metadata({**(metadata or {}), **noted})
        writer.close()
        self._outlet.shut()
        if self._long_texts is None:
            return WrittenFile(self._rows)
        # Not by a metadata_collector: a writer that is dropped after an error would fail to fill it.
        return WrittenFile(self._rows, statistics=footer_statistics(writer.writer.metadata))

    def end_pages(self) -> None:
        """Write the buffered rows. Only the footer may follow."""
        if self._batches:
            self._write_row_group()

    def abandon(self) -> None:
        self._batches.clear()
        self._outlet.shut()

    def _write_row_group(self) -> None:
        table = pa.Table.from_batches(self._batches, self.schema)
        self._batches.clear()
        self._buffered_bytes = 0
        if self._stored is not self.schema:
            table = table.cast(self._stored)
        if self._long_texts is not None:
            self._long_texts.add(table)
        if self._writer is None:
            self._writer = self._open(table)
        self._writer.write_table(table, row_group_size=table.num_rows)

    def _open(self, first: pa.Table) -> pq.ParquetWriter:
        """Open Arrow's writer with options chosen for the first rows."""
        options = self._options
        compression: Any = "none" if options.codec is ParquetCodec.UNCOMPRESSED else options.codec.value.lower()
        return pq.ParquetWriter(
            self._outlet,
            self._stored,
            version="2.6",
            compression=compression,
            use_dictionary=repeating_columns(first) if options.dictionary else False,
            data_page_size=options.page_bytes,
            dictionary_pagesize_limit=options.dictionary_page_bytes,
            coerce_timestamps=None,  # each timestamp keeps the unit of the stored schema
            write_time_adjusted_to_utc=options.encodings.time is not TimeEncoding.LOCAL,
        )


class JoinedParquetFile(FileWriter[SeekableFile]):
    """The rows of Parquet files in one file."""

    def __init__(self, sink: Sink, options: ParquetOptions) -> None:
        self._sink = sink
        self._options = options
        self._joined: ParquetFile | None = None

    def write(self, source: SeekableFile) -> None:
        file = pq.ParquetFile(source)
        schema = file.schema_arrow
        joined = self._joined = self._joined or ParquetFile(self._sink, schema, self._options)
        if not schema.equals(joined.schema):
            raise DifferentColumns
        # Row groups are requested one by one, because everything that Arrow reads ahead of a request stays in memory.
        for group in range(file.num_row_groups):
            for batch in file.iter_batches(_ROWS_AT_ONCE, row_groups=[group]):
                joined.write(batch)

    def close(self) -> WrittenFile:
        return WrittenFile(0) if self._joined is None else self._joined.close()

    def abandon(self) -> None:
        if self._joined is not None:
            self._joined.abandon()


def repeating_columns(table: pa.Table) -> list[str]:
    """Return the Parquet columns of a table whose values repeat, judging by a sample of rows from all parts of the table.

    For each other column Arrow would fill a dictionary until its page is full, and then drop it. That took a fifth of the encoding time.
    """
    leaves = chain.from_iterable(_leaves(array, name) for name, array in _some_rows(table))
    return [path for path, values in leaves if not _hardly_repeats(values)]


def _some_rows(table: pa.Table) -> Iterator[tuple[str, pa.Array[Any]]]:
    starts = {table.num_rows * run // _SAMPLE_RUNS for run in range(_SAMPLE_RUNS)}
    rows = pa.concat_tables([table.slice(start, _SAMPLE_RUN_ROWS) for start in sorted(starts)]).combine_chunks()
    for name, column in zip(rows.column_names, rows.columns, strict=True):
        yield name, column.chunk(0) if column.num_chunks else pa.array([], column.type)


def _leaves(array: pa.Array[Any], path: str) -> Iterator[tuple[str, pa.Array[Any]]]:
    """Yield the arrays without children, each with its Parquet path."""
    if isinstance(array, pa.StructArray):
        for member in array.type:
            yield from _leaves(array.field(member.name), f"{path}.{member.name}")
    elif isinstance(array, pa.ListArray):
        yield from _leaves(array.flatten(), f"{path}.list.element")
    else:
        yield path, array


def _hardly_repeats(values: pa.Array[Any]) -> bool:
    present = len(values) - values.null_count
    return bool(present >= _SAMPLE_LEAST and pc.count_distinct(values).as_py() > present * _MOSTLY_DISTINCT)


def _options(chosen: ParquetFormat) -> ParquetOptions:
    # The unit of the extraction time also depends on the publishers: `tables.configured` adds it.
    return ParquetOptions(
        codec=ParquetCodec(chosen.compression_codec),
        row_group_bytes=chosen.block_size_mb * MIB,
        page_bytes=chosen.page_size_kb * 1024,
        dictionary_page_bytes=chosen.dictionary_page_size_kb * 1024,
        dictionary=chosen.dictionary_encoding,
        encodings=Encodings(time=TimeEncoding(chosen.time_encoding)),
    )


PARQUET = FileFormat("Parquet", "Parquet", (ParquetOptions.extension,), typed=True, sorted_rows=True, options=_options)

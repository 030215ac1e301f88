"""Writer of the change log as typed Parquet with zstd. `new`, `old`, `key` and `exists` are structs with one member per column."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from destination_s3_spark.chain.operation_count import OperationCount
from destination_s3_spark.change_log.events import LogColumns, RunningCount, exists_columns
from destination_s3_spark.change_log.lines import cursor_pieces
from destination_s3_spark.formats.file_statistics import WrittenFile
from destination_s3_spark.formats.file_writer import Sink, require_columns
from destination_s3_spark.formats.parquet import Codec, ParquetFile, ParquetOptions
from destination_s3_spark.formats.text_file import text_join

PARQUET = ParquetOptions(codec=Codec.ZSTD)

_COUNTS = pa.struct([pa.field(f"{kind}_count", pa.int64(), nullable=False) for kind in ("insert", "update", "delete", "replace")])


def parquet_schema(columns: LogColumns) -> pa.Schema:
    """Return the schema of a file of events."""
    row = pa.struct(columns.fields)
    return pa.schema(
        [
            pa.field("op", pa.string(), nullable=False),
            pa.field("sequence", pa.int64(), nullable=False),
            pa.field("key", pa.struct([columns.fields[index] for index in columns.key_indices]), nullable=False),
            pa.field("new", row, nullable=False),
            pa.field("old", row, nullable=False),
            # Signed, because Spark has no unsigned types and would widen them.
            pa.field("exists", pa.struct([pa.field(field.name, pa.int8(), nullable=False) for field in columns.fields]), nullable=False),
            pa.field("cursor", pa.string(), nullable=False),
            pa.field("operation_count", _COUNTS, nullable=False),
        ]
    )


class ParquetChanges:
    """A Parquet file of events being written to a sink."""

    def __init__(self, sink: Sink, columns: LogColumns, start: OperationCount) -> None:
        self._events = columns.event_schema
        self._key = columns.key_indices
        self._schema = parquet_schema(columns)
        self._running = RunningCount(start)
        self._file = ParquetFile(sink, self._schema, PARQUET)

    @property
    def operation_count(self) -> OperationCount:
        """Count after the last event written."""
        return self._running.count

    def write(self, batch: pa.RecordBatch) -> None:
        """Append events. Raises pa.ArrowInvalid unless the batch has the file's columns."""
        require_columns(batch, self._events)
        op, cursor, _, exists, new, old = batch.columns
        news, olds = new.flatten(), old.flatten()
        bits = [pa.array(column.view("int8")) for column in exists_columns(exists)]
        counts = self._running.advance(op)
        kinds = (counts.insert, counts.update, counts.delete, pa.repeat(counts.replace, len(op)))
        # An image holds only values that exist, so the key comes from whichever image holds it.
        key = [pc.if_else(pc.is_valid(olds[index]), olds[index], news[index]) for index in self._key]
        cursors = text_join(*cursor_pieces(cursor))
        columns = {"op": op, "sequence": counts.total, "new": new, "old": old, "cursor": cursors}
        for name, members in (("key", key), ("exists", bits), ("operation_count", kinds)):
            columns[name] = pa.StructArray.from_arrays(members, fields=list(self._schema.field(name).type))
        self._file.write(pa.RecordBatch.from_arrays([columns[name] for name in self._schema.names], schema=self._schema))

    def close(self) -> WrittenFile:
        """Write the remaining events."""
        return self._file.close()

    def abandon(self) -> None:
        """Release the sink without writing anything more to it."""
        self._file.abandon()

"""Writers of the change log as typed JSON Lines and as typed Parquet with zstd. Values keep their types.

In JSON, `new` and `old` hold only the columns of their image. In Parquet, they, `key` and `exists` are structs with one member per column.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from destination_s3_spark.chain.files import OperationCount
from destination_s3_spark.change_log.events import IN_NEW, IN_OLD, LogColumns, RunningCount, exists_columns
from destination_s3_spark.change_log.lines import EventLines, LogLines, cursor_pieces, json_name, json_texts, object_pieces
from destination_s3_spark.formats.file_format import Sink, require_columns
from destination_s3_spark.formats.parquet import ParquetCodec, ParquetFile, ParquetOptions
from destination_s3_spark.formats.text_file import text_join

LOG_PARQUET = ParquetOptions(codec=ParquetCodec.ZSTD)

_COUNTS = pa.struct([pa.field(f"{kind}_count", pa.int64(), nullable=False) for kind in ("insert", "update", "delete", "replace")])


class TypedJsonlChanges(EventLines):
    def _lines(self, batch: pa.RecordBatch) -> pa.StringArray:
        op, cursor, _, exists, new, old = batch.columns
        bits = exists_columns(exists)
        names = [field.name for field in self._log.fields]
        new_values = [_where(values, bit & IN_NEW) for values, bit in zip(new.flatten(), bits, strict=True)]
        old_values = [_where(values, bit & IN_OLD) for values, bit in zip(old.flatten(), bits, strict=True)]
        indices = self._log.key_indices
        key = [pc.coalesce(old_values[index], new_values[index]) for index in indices]
        counts = self._running.advance(op)
        return text_join(
            '{"op":"', op,
            '","sequence":', counts.total.cast(pa.string()),
            ',"key":', *_object([names[index] for index in indices], key),
            ',"new":', *_object(names, new_values),
            ',"old":', *_object(names, old_values),
            ',"cursor":', *cursor_pieces(cursor),
            ',"operationCount":', *counts.json(),
            "}\n",
        )  # fmt: skip


class TypedJsonlSnapshot(LogLines):
    def _lines(self, batch: pa.RecordBatch) -> pa.StringArray:
        values = [pc.fill_null(json_texts(column), "null") for column in batch.columns]
        return text_join(*_object(batch.schema.names, values), "\n")


def _where(values: pa.Array[Any], exists: np.ndarray[Any, Any]) -> pa.StringArray:
    """Return the JSON of the values that exist, with the text `null` for null values. The result is null where a value does not exist."""
    if not exists.any():
        return pa.nulls(len(values), pa.string())
    texts = pc.fill_null(json_texts(values), "null")
    return texts if exists.all() else pc.if_else(pa.array(exists != 0), texts, None)


def _object(names: list[str], columns: Iterable[pa.StringArray]) -> tuple[str | pa.StringArray, ...]:
    return object_pieces([(f"{json_name(name)}:", column, "") for name, column in zip(names, columns, strict=True)])


def parquet_schema(columns: LogColumns) -> pa.Schema:
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


class ParquetChanges(ParquetFile):
    def __init__(self, sink: Sink, columns: LogColumns, start: OperationCount) -> None:
        self._events = columns.event_schema
        self._key = columns.key_indices
        self._running = RunningCount(start)
        super().__init__(sink, parquet_schema(columns), LOG_PARQUET)

    def write(self, batch: pa.RecordBatch) -> None:
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
            columns[name] = pa.StructArray.from_arrays(members, fields=list(self.schema.field(name).type))
        super().write(pa.RecordBatch.from_arrays([columns[name] for name in self.schema.names], schema=self.schema))

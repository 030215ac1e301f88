"""Writers of the change log as typed JSON Lines. Values keep their types; `new` and `old` hold only the columns of their image."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from destination_s3_spark.change_log import cells
from destination_s3_spark.change_log.events import IN_NEW, IN_OLD, LogColumns, exists_columns
from destination_s3_spark.change_log.lines import EventLines, LogLines, cursor_pieces, object_pieces
from destination_s3_spark.formats.file_writer import Sink
from destination_s3_spark.formats.text_file import text_join


class TypedJsonlChanges(EventLines):
    """A file of events being written to a sink."""

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
    """A file of rows being written to a sink."""

    def __init__(self, sink: Sink, columns: LogColumns) -> None:
        super().__init__(sink, columns, columns.row_schema)

    def _lines(self, batch: pa.RecordBatch) -> pa.StringArray:
        values = [pc.fill_null(cells.json_texts(column), "null") for column in batch.columns]
        return text_join(*_object(batch.schema.names, values), "\n")


def _where(values: pa.Array[Any], exists: np.ndarray[Any, Any]) -> pa.StringArray:
    """Return the JSON of the values that exist, with the text `null` for null values. The result is null where a value does not exist."""
    if not exists.any():
        return pa.nulls(len(values), pa.string())
    texts = pc.fill_null(cells.json_texts(values), "null")
    return texts if exists.all() else pc.if_else(pa.array(exists != 0), texts, None)


def _object(names: list[str], columns: Iterable[pa.StringArray]) -> tuple[str | pa.StringArray, ...]:
    return object_pieces([(f"{cells.json_name(name)}:", column, "") for name, column in zip(names, columns, strict=True)])

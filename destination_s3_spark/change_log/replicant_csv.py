"""Writers of the change log as Arcion Replicant's CSV.

An event has three cells per column (new value, old value, Exists) and three for the event itself. Snapshots have one cell per column. The
files follow RFC 4180, quote only where necessary and end lines in LF. A bare `NULL` is null or absent; Exists tells which. The text NULL is
quoted.
"""

from __future__ import annotations

from itertools import chain, starmap
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from destination_s3_spark.chain.operation_count import OperationCount
from destination_s3_spark.change_log import cells
from destination_s3_spark.change_log.events import EXISTS, LogColumns, exists_columns
from destination_s3_spark.change_log.lines import EventLines, LogLines, choices, cursor_pieces, line_ends
from destination_s3_spark.formats.file_writer import Sink
from destination_s3_spark.formats.text_file import text_join

NULL = "NULL"
EVENT_COLUMNS = ("opType", "cursor", "operationcount")
COLUMN_SUFFIXES = ("_New_Val", "_Old_Val", "_Exists_Val")

_Cells: TypeAlias = pa.StringArray | pa.StringScalar
_QUOTE_IN_QUOTES = '""'
_MARKS = (b",", b'"', b"\r", b"\n")
_NEEDS_QUOTES = '[,"\r\n]'


class CsvChanges(EventLines):
    """A CSV file of events being written to a sink."""

    def __init__(self, sink: Sink, columns: LogColumns, start: OperationCount, *, header: bool) -> None:
        super().__init__(sink, columns, start)
        if header:
            names = [field.name + suffix for field in columns.fields for suffix in COLUMN_SUFFIXES]
            self._put(_header([*names, *EVENT_COLUMNS]))

    def _lines(self, batch: pa.RecordBatch) -> pa.StringArray:
        op, cursor, _, exists, new, old = batch.columns
        images = zip(map(_cells, new.flatten()), map(_cells, old.flatten()), exists_columns(exists), strict=True)
        # A single join with few pieces: every further piece or join costs as much as a cell.
        return text_join(
            *chain.from_iterable(starmap(_column, images)),
            op, ',"', *cursor_pieces(cursor, _doubled), '","', *self._running.advance(op).json(quote=_QUOTE_IN_QUOTES), '"\n',
            null=NULL,
        )  # fmt: skip


class CsvSnapshot(LogLines):
    """A CSV file of rows being written to a sink."""

    def __init__(self, sink: Sink, columns: LogColumns, *, header: bool) -> None:
        super().__init__(sink, columns, columns.row_schema)
        if header:
            self._put(_header([field.name for field in columns.fields]))

    def _lines(self, batch: pa.RecordBatch) -> pa.StringArray:
        row = [_cells(column) for column in batch.columns]
        if len(row) == 1:  # many readers skip an empty line
            row = [pc.if_else(pc.equal(row[0], ""), '""', row[0])]
        pieces = [*chain.from_iterable((cell, ",") for cell in row)]
        pieces[-1] = line_ends(batch)
        return text_join(*pieces, null=NULL)


def _column(new: _Cells, old: _Cells, exists: np.ndarray[Any, Any]) -> tuple[_Cells | str, ...]:
    """Return the `text_join` pieces of a column's three cells, each with the comma after it."""
    if isinstance(old, pa.Array):
        return new, ",", old, choices(exists, [f",{bits}," for bits in EXISTS])
    return new, choices(exists, [f",{old},{bits}," for bits in EXISTS])


def _cells(values: pa.Array[Any]) -> _Cells:
    if values.null_count == len(values):
        return pa.scalar(NULL)
    texts = cells.texts(values)
    if cells.holds_free_text(values.type):
        texts = _quoted_where_needed(texts)
    return texts


def _quoted_where_needed(texts: pa.StringArray) -> pa.StringArray:
    data = cells.string_bytes(texts)
    needy = pc.equal(texts, NULL) if NULL.encode() in data else None
    if any(mark in data for mark in _MARKS):
        marked = pc.match_substring_regex(texts, _NEEDS_QUOTES)
        needy = marked if needy is None else pc.or_(marked, needy)
    return texts if needy is None else pc.if_else(needy, text_join('"', _doubled(texts), '"'), texts)


def _doubled(texts: pa.StringArray) -> pa.StringArray:
    return pc.replace_substring(texts, '"', _QUOTE_IN_QUOTES) if b'"' in cells.string_bytes(texts) else texts


def _header(names: list[str]) -> bytes:
    quoted = _quoted_where_needed(pa.array(names, pa.string()))
    return ",".join(quoted.to_pylist()).encode() + b"\n"

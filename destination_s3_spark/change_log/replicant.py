"""Writers of the change log as Arcion Replicant's JSON and CSV.

JSON has one object per line. Every value is a string. `"null"` stands for null, for an absent value and for that text itself. `before`,
`after` and `exists` name every column; `cursor` and `operationcount` are strings that hold JSON. Rows of snapshots are flat objects of
strings.

An event of CSV has three cells per column (new value, old value, Exists) and three for the event itself. Snapshots have one cell per
column. The files follow RFC 4180, quote only where necessary and end lines in LF. A bare `NULL` is null or absent; Exists tells which. The
text NULL is quoted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, starmap
from typing import Any, TypeAlias

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from destination_s3_spark.chain.files import OperationCount
from destination_s3_spark.change_log.events import EXISTS, LogColumns, exists_columns
from destination_s3_spark.change_log.lines import (
    EventLines,
    LogLines,
    choices,
    cursor_pieces,
    escaped,
    holds_free_text,
    json_name,
    line_ends,
    plain_texts,
    string_bytes,
)
from destination_s3_spark.formats.file_format import Sink
from destination_s3_spark.formats.text_file import text_join
from destination_s3_spark.stream_id import StreamId

JSON_NULL = "null"
_Texts: TypeAlias = pa.StringArray | str
_QUOTE_IN_STRING = '\\"'
CSV_NULL = "NULL"
EVENT_COLUMNS = ("opType", "cursor", "operationcount")
COLUMN_SUFFIXES = ("_New_Val", "_Old_Val", "_Exists_Val")

_Cells: TypeAlias = pa.StringArray | pa.StringScalar
_QUOTE_IN_QUOTES = '""'
_MARKS = (b",", b'"', b"\r", b"\n")
_NEEDS_QUOTES = '[,"\r\n]'


class ReplicantJsonChanges(EventLines):
    def _lines(self, batch: pa.RecordBatch) -> pa.StringArray:
        op, cursor, _, exists, new, old = batch.columns
        names = [field.name for field in self._log.fields]
        # A single join: every further join copies the whole line, which costs as much as joining all its cells.
        return text_join(
            f'{{"tableName":{_table_name(self._log.stream)},"opType":"', op,
            '","cursor":"', *cursor_pieces(cursor, escaped),
            '","before":', *_object(names, map(_texts, old.flatten())),
            ',"after":', *_object(names, map(_texts, new.flatten())),
            ',"exists":', *_object(names, (choices(bits, EXISTS) for bits in exists_columns(exists))),
            ',"operationcount":"', *self._running.advance(op).json(quote=_QUOTE_IN_STRING),
            '"}\n',
            null=JSON_NULL,
        )  # fmt: skip


class ReplicantJsonSnapshot(LogLines):
    def _lines(self, batch: pa.RecordBatch) -> pa.StringArray:
        return text_join(*_object(batch.schema.names, map(_texts, batch.columns)), line_ends(batch), null=JSON_NULL)


def objects_hash(*values: str | int | None) -> int:
    """Return the value of Java's `Objects.hash`, which Replicant uses as the hash of namespaces and tables."""
    return _folded(1, map(_hash_code, values))


def _hash_code(value: str | int | None) -> int:
    if not isinstance(value, str):
        return value or 0
    units = value.encode("utf-16-be")
    return _folded(0, (high << 8 | low for high, low in zip(units[::2], units[1::2], strict=True)))


def _folded(result: int, numbers: Iterable[int]) -> int:
    """Fold the numbers with `31 * result + number` in Java's 32-bit integer arithmetic."""
    for number in numbers:
        result = 31 * result + number
    return (result + 2**31) % 2**32 - 2**31


def _table_name(stream: StreamId) -> str:
    schema_hash = objects_hash(None, stream.namespace)
    namespace = {"catalog": None, "schema": stream.namespace, "hash": schema_hash}
    return msgspec.json.encode({"namespace": namespace, "name": stream.name, "hash": objects_hash(schema_hash, stream.name)}).decode()


def _object(names: list[str], columns: Iterable[_Texts]) -> Iterator[_Texts]:
    """Yield the `text_join` parts of an object of strings. The texts must be escaped already."""
    before = "{"
    for name, column in zip(names, columns, strict=True):
        yield f'{before}{json_name(name)}:"'
        yield column
        before = '",'
    yield '"}'


def _texts(values: pa.Array[Any]) -> _Texts:
    if values.null_count == len(values):
        return JSON_NULL
    texts = plain_texts(values)
    return escaped(texts) if holds_free_text(values.type) else texts


class CsvChanges(EventLines):
    def __init__(self, sink: Sink, columns: LogColumns, start: OperationCount, *, header: bool) -> None:
        super().__init__(sink, columns, start)
        if header:
            names = [field.name + suffix for field in columns.fields for suffix in COLUMN_SUFFIXES]
            self._put(_header([*names, *EVENT_COLUMNS]))

    def _lines(self, batch: pa.RecordBatch) -> pa.StringArray:
        op, cursor, _, exists, new, old = batch.columns
        images = zip(map(_cells, new.flatten()), map(_cells, old.flatten()), exists_columns(exists), strict=True)
        # A single join with few parts: every further part or join costs as much as a cell.
        return text_join(
            *chain.from_iterable(starmap(_column, images)),
            op, ',"', *cursor_pieces(cursor, _doubled), '","', *self._running.advance(op).json(quote=_QUOTE_IN_QUOTES), '"\n',
            null=CSV_NULL,
        )  # fmt: skip


class CsvSnapshot(LogLines):
    def __init__(self, sink: Sink, columns: LogColumns, *, header: bool) -> None:
        super().__init__(sink, columns)
        if header:
            self._put(_header([field.name for field in columns.fields]))

    def _lines(self, batch: pa.RecordBatch) -> pa.StringArray:
        row = [_cells(column) for column in batch.columns]
        if len(row) == 1:  # many readers skip an empty line
            row = [pc.if_else(pc.equal(row[0], ""), '""', row[0])]
        parts = [*chain.from_iterable((cell, ",") for cell in row)]
        parts[-1] = line_ends(batch)
        return text_join(*parts, null=CSV_NULL)


def _column(new: _Cells, old: _Cells, exists: np.ndarray[Any, Any]) -> tuple[_Cells | str, ...]:
    """Return the `text_join` parts of a column's three cells, each with the comma after it."""
    if isinstance(old, pa.Array):
        return new, ",", old, choices(exists, [f",{bits}," for bits in EXISTS])
    return new, choices(exists, [f",{old},{bits}," for bits in EXISTS])


def _cells(values: pa.Array[Any]) -> _Cells:
    if values.null_count == len(values):
        return pa.scalar(CSV_NULL)
    texts = plain_texts(values)
    if holds_free_text(values.type):
        texts = _quoted_where_needed(texts)
    return texts


def _quoted_where_needed(texts: pa.StringArray) -> pa.StringArray:
    data = string_bytes(texts)
    needy = pc.equal(texts, CSV_NULL) if CSV_NULL.encode() in data else None
    if any(mark in data for mark in _MARKS):
        marked = pc.match_substring_regex(texts, _NEEDS_QUOTES)
        needy = marked if needy is None else pc.or_(marked, needy)
    return texts if needy is None else pc.if_else(needy, text_join('"', _doubled(texts), '"'), texts)


def _doubled(texts: pa.StringArray) -> pa.StringArray:
    return pc.replace_substring(texts, '"', _QUOTE_IN_QUOTES) if b'"' in string_bytes(texts) else texts


def _header(names: list[str]) -> bytes:
    quoted = _quoted_where_needed(pa.array(names, pa.string()))
    return ",".join(quoted.to_pylist()).encode() + b"\n"

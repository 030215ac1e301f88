"""Writes the change log as the JSON of Arcion Replicant, one object a line. Every value is a string; `"null"` is null, absent or that text.

`before`, `after` and `exists` name every column, `cursor` and `operationcount` are strings that hold JSON. Rows of snapshots are flat
objects of strings.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from destination_s3_spark.change_log import cells
from destination_s3_spark.change_log.events import EXISTS, LogColumns, exists_columns
from destination_s3_spark.change_log.lines import EventLines, LogLines, choices, cursor_pieces, line_ends
from destination_s3_spark.formats.file_writer import Sink
from destination_s3_spark.formats.text_file import text_join
from destination_s3_spark.protocol.catalog import StreamId

NULL = "null"
_QUOTE_IN_STRING = '\\"'


class ReplicantJsonChanges(EventLines):
    """One file of events on its way into a sink."""

    def _lines(self, batch: pa.RecordBatch) -> pa.StringArray:
        op, _, text = batch.columns
        return text_join(text, *self._running.advance(op).json(quote=_QUOTE_IN_STRING), '"}\n')


class ReplicantJsonSnapshot(LogLines):
    """One file of rows on its way into a sink."""

    def __init__(self, sink: Sink, columns: LogColumns) -> None:
        super().__init__(sink, columns.row_schema)

    def _lines(self, batch: pa.RecordBatch) -> pa.StringArray:
        return text_join(_strings(batch.schema.names, map(_texts, batch.columns)), line_ends(batch))


def replicant_json_text(events: pa.RecordBatch, columns: LogColumns) -> pa.StringArray:
    """The objects of events up to their count, which stands last."""
    op, cursor, _, exists, new, old = events.columns
    names = [field.name for field in columns.fields]
    return text_join(
        f'{{"tableName":{_table_name(columns.stream)},"opType":"', op,
        '","cursor":"', *cursor_pieces(cursor, cells.escaped),
        '","before":', _strings(names, map(_texts, old.flatten())),
        ',"after":', _strings(names, map(_texts, new.flatten())),
        ',"exists":', _strings(names, (choices(bits, EXISTS) for bits in exists_columns(exists))),
        ',"operationcount":"',
    )  # fmt: skip


def objects_hash(*values: str | int | None) -> int:
    """Java's `Objects.hash`, by which Replicant numbers namespaces and tables."""
    return _folded(1, map(_hash_code, values))


def _hash_code(value: str | int | None) -> int:
    if not isinstance(value, str):
        return value or 0
    units = value.encode("utf-16-be")
    return _folded(0, (high << 8 | low for high, low in zip(units[::2], units[1::2], strict=True)))


def _folded(result: int, numbers: Iterable[int]) -> int:
    """What Java's 32-bit integers make of `31 * result + number`, number by number."""
    for number in numbers:
        result = 31 * result + number
    return (result + 2**31) % 2**32 - 2**31


def _table_name(stream: StreamId) -> str:
    schema_hash = objects_hash(None, stream.namespace)
    namespace = {"catalog": None, "schema": stream.namespace, "hash": schema_hash}
    return msgspec.json.encode({"namespace": namespace, "name": stream.name, "hash": objects_hash(schema_hash, stream.name)}).decode()


def _strings(names: list[str], columns: Iterable[pa.StringArray]) -> pa.StringArray:
    """An object of strings, from texts that need no more escapes."""
    members = chain.from_iterable((f'",{cells.json_name(name)}:"', column) for name, column in zip(names, columns, strict=True))
    return pc.binary_replace_slice(text_join(*members, '"}'), 0, 2, "{")


def _texts(values: pa.Array[Any]) -> pa.StringArray | pa.StringScalar:
    if values.null_count == len(values):
        return pa.scalar(NULL)
    texts = cells.texts(values)
    if cells.holds_free_text(values.type):
        texts = cells.escaped(texts)
    return pc.fill_null(texts, NULL)

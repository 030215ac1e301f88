"""Writers of the change log as Arcion Replicant's JSON, one object per line.

Every value is a string. `"null"` stands for null, for an absent value and for that text itself. `before`, `after` and `exists` name every
column; `cursor` and `operationcount` are strings that hold JSON. Rows of snapshots are flat objects of strings.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

import msgspec
import pyarrow as pa

from destination_s3_spark.change_log import cells
from destination_s3_spark.change_log.events import EXISTS, LogColumns, exists_columns
from destination_s3_spark.change_log.lines import EventLines, LogLines, choices, cursor_pieces, line_ends
from destination_s3_spark.formats.file_writer import Sink
from destination_s3_spark.formats.text_file import text_join
from destination_s3_spark.stream_id import StreamId

NULL = "null"
_Texts: TypeAlias = pa.StringArray | str
_QUOTE_IN_STRING = '\\"'


class ReplicantJsonChanges(EventLines):
    """A file of events being written to a sink."""

    def _lines(self, batch: pa.RecordBatch) -> pa.StringArray:
        op, cursor, _, exists, new, old = batch.columns
        names = [field.name for field in self._log.fields]
        # A single join: every further join copies the whole line, which costs as much as joining all its cells.
        return text_join(
            f'{{"tableName":{_table_name(self._log.stream)},"opType":"', op,
            '","cursor":"', *cursor_pieces(cursor, cells.escaped),
            '","before":', *_object(names, map(_texts, old.flatten())),
            ',"after":', *_object(names, map(_texts, new.flatten())),
            ',"exists":', *_object(names, (choices(bits, EXISTS) for bits in exists_columns(exists))),
            ',"operationcount":"', *self._running.advance(op).json(quote=_QUOTE_IN_STRING),
            '"}\n',
            null=NULL,
        )  # fmt: skip


class ReplicantJsonSnapshot(LogLines):
    """A file of rows being written to a sink."""

    def __init__(self, sink: Sink, columns: LogColumns) -> None:
        super().__init__(sink, columns, columns.row_schema)

    def _lines(self, batch: pa.RecordBatch) -> pa.StringArray:
        return text_join(*_object(batch.schema.names, map(_texts, batch.columns)), line_ends(batch), null=NULL)


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
    """Yield the `text_join` pieces of an object of strings. The texts must be escaped already."""
    before = "{"
    for name, column in zip(names, columns, strict=True):
        yield f'{before}{cells.json_name(name)}:"'
        yield column
        before = '",'
    yield '"}'


def _texts(values: pa.Array[Any]) -> _Texts:
    if values.null_count == len(values):
        return NULL
    texts = cells.texts(values)
    return cells.escaped(texts) if cells.holds_free_text(values.type) else texts

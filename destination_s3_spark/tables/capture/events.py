"""What merged records did to their rows: the events of the change log, from the rows of a key in their order.

Comes in: all rows of some keys in merge form, the table's own included. Goes out: the winners, and an event for each record that changed
its row: inserted (I), updated (U) or deleted (D) it, with the images of the row before and after that the log is to show. A record that
is older than what the table has, or changes nothing, makes no event. A value the source did not provide is that of the row before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from destination_s3_spark.change_log.cells import json_texts
from destination_s3_spark.change_log.events import IN_NEW, IN_OLD, AfterImage, BeforeImage, LogColumns, Operation
from destination_s3_spark.decoding.plain_temporal import plain_temporals
from destination_s3_spark.schema.airbyte_type import Scalar
from destination_s3_spark.schema.arrow import contiguous
from destination_s3_spark.tables.capture.history import Flags, History, Indices
from destination_s3_spark.tables.capture.provided import Provided
from destination_s3_spark.tables.runs.keys import OFFSET
from destination_s3_spark.tables.runs.winners import EXTRACTED_AT

UPDATED_AT = "_ab_cdc_updated_at"
"""The field in which CDC sources say when a change was made."""
POSITION = "position"
"""Column of events: where they stand in the log. Those at one position are of one key."""

OPERATIONS = tuple(operation.value for operation in Operation)
"""No Arrow array: Arrow imports pandas for the first one of a process, and most syncs need none."""
_INSERT, _UPDATE, _DELETE = range(3)
_VERSION = 1
"""`v` of the cursor cell: which members it has."""


@dataclass(frozen=True, slots=True)
class Images:
    """What events show. Picklable.

    `cursor` are the columns that say where in the source's log a record stands, as (JSON key, column).
    """

    columns: LogColumns
    before: BeforeImage
    after: AfterImage
    cursor: tuple[tuple[str, pa.Field[Any]], ...]


def cursor_members(cursor: Iterable[tuple[str, pa.Field[Any]]]) -> Iterator[pa.Field[Any]]:
    """What the cursor of an event says: the fields of `Images.cursor`, and in milliseconds since 1970 when the change was made and read."""
    for source, column in cursor:
        yield pa.field(source, column.type)
        if source == UPDATED_AT:
            yield pa.field("timestamp", pa.int64())
    yield pa.field("extractionTimestamp", pa.int64())
    yield pa.field("v", pa.int8())


@dataclass(frozen=True, slots=True)
class Values:
    """The columns of a history. `at` are its rows' places in `table`; columns with values that were not provided stand in `provided`."""

    history: History
    table: pa.Table
    at: Indices
    provided: Mapping[str, Provided]

    def take(self, name: str, rows: Indices) -> pa.Array[Any]:
        """The values of a column in these rows of the history."""
        return self._taken(name, rows, self.at[rows], np.ones(len(rows), np.bool_))

    def image(self, fields: Sequence[pa.Field[Any]], rows: Indices, shown: Sequence[Flags]) -> list[pa.Array[Any]]:
        """The values of columns in these rows of the history; each is null where it is not `shown`."""
        at = self.at[rows]
        return [self._taken(field.name, rows, at, flags) for field, flags in zip(fields, shown, strict=True)]

    def _taken(self, name: str, rows: Indices, at: Indices, shown: Flags) -> pa.Array[Any]:
        found = self.provided.get(name)
        column, places = (self.table[name], at) if found is None else (found.values, rows)
        if not shown.any():
            return pa.nulls(len(rows), column.type)
        # Arrow would go through all indices to make the same of them and a mask.
        bitmap = None if shown.all() else pa.py_buffer(np.packbits(shown, bitorder="little"))
        return contiguous(column.take(pa.Array.from_buffers(pa.int64(), len(rows), [bitmap, pa.py_buffer(np.ascontiguousarray(places))])))

    def column(self, name: str) -> pa.Array[Any]:
        """A column in all rows of the history."""
        found = self.provided.get(name)
        if found is not None:
            return found.values
        column = contiguous(self.table[name])
        # Most often every row of the history has one in the table.
        return column if len(column) == len(self.at) else column.take(pa.array(self.at))

    def given(self, name: str, rows: Indices) -> Flags:
        """Which of these records had a value for the column."""
        found = self.provided.get(name)
        return np.ones(len(rows), np.bool_) if found is None else found.given[rows]


@dataclass(frozen=True, slots=True)
class Events:
    """Which records of a history made an event, as numbers of its rows, what each did, and per column of the log what it changed.

    Of one key the oldest comes first.
    """

    rows: Indices
    operation: np.ndarray[Any, np.dtype[np.int8]]
    changed: tuple[Flags, ...]

    @classmethod
    def of(cls, values: Values, columns: LogColumns) -> Events:
        """The events of a history."""
        history = values.history
        on_live, gone = history.on_live, history.gone
        operation = np.full(len(history.rows), -1, np.int8)
        operation[history.record & gone & on_live] = _DELETE
        operation[history.record & ~gone & ~on_live] = _INSERT
        updates = history.record & ~gone & on_live
        changed = np.zeros((len(columns.fields), len(history.rows)), np.bool_)
        for of_column, field in zip(changed, columns.fields, strict=True):
            if field.name not in columns.key:
                column = values.column(field.name)
                of_column[:-1] = _differ(column[:-1], column[1:]) & updates[:-1]
        operation[changed.any(axis=0)] = _UPDATE
        rows = np.flatnonzero(operation >= 0)[::-1]
        return cls(rows, operation[rows], tuple(changed[:, rows]))

    def batch(self, values: Values, merged: pa.Table, images: Images) -> pa.RecordBatch:
        """The events as the log has them, `LogColumns.event_schema`; `merged` are the rows in merge form that the history is of."""
        columns = images.columns
        exists = self._exists(values, images)
        new = values.image(columns.fields, self.rows, [(bits & IN_NEW) > 0 for bits in exists])
        before = np.minimum(self.rows + 1, len(values.at) - 1)
        old = values.image(columns.fields, before, [(bits & IN_OLD) > 0 for bits in exists])
        position = self._positions(values.history, np.asarray(merged[OFFSET])[values.history.rows])
        digits = np.ascontiguousarray(np.stack(exists, axis=1))
        arrays = [
            pa.array(OPERATIONS).take(pa.array(self.operation)),
            pa.StructArray.from_arrays(list(self._cursors(values, merged, images)), fields=columns.cursor),
            pa.array(position),
            pa.FixedSizeBinaryArray.from_buffers(pa.binary(digits.shape[1]), len(digits), [None, pa.py_buffer(digits)]),
            pa.StructArray.from_arrays(new, fields=columns.fields),
            pa.StructArray.from_arrays(old, fields=columns.fields),
        ]
        return pa.record_batch(arrays, schema=columns.event_schema)

    def _exists(self, values: Values, images: Images) -> list[np.ndarray[Any, np.dtype[np.uint8]]]:
        """Per column, in which image of each event it stands."""
        inserts, updates, deletes = (self.operation == kind for kind in (_INSERT, _UPDATE, _DELETE))
        found = []
        for field, changed in zip(images.columns.fields, self.changed, strict=True):
            in_old = (updates | deletes) & (images.before is BeforeImage.ALL or field.name in images.columns.key)
            in_new = inserts | (updates & (changed | (images.after is AfterImage.ALL)))
            in_new &= values.given(field.name, self.rows)
            found.append((in_new * IN_NEW + in_old * IN_OLD).astype(np.uint8))
        return found

    def _cursors(self, values: Values, merged: pa.Table, images: Images) -> Iterator[pa.Array[Any]]:
        """The members of `cursor_members`."""
        for source, field in images.cursor:
            column = values.take(field.name, self.rows)
            yield column
            if source == UPDATED_AT:
                yield _milliseconds(column)
        yield _milliseconds(contiguous(merged[EXTRACTED_AT].take(pa.array(values.history.rows[self.rows]))))
        yield pa.repeat(pa.scalar(_VERSION, pa.int8()), len(self.rows))

    def _positions(self, history: History, offsets: Indices) -> Indices:
        """Where each event stands in the log: the arrival of its record, or of a later one of its key that is older by the cursor."""
        arrived = offsets[self.rows]
        if not len(arrived):
            return arrived
        group = history.group[self.rows]
        since = arrived - arrived.min()
        # The highest so far among the events of the same key: of each later key, all are higher.
        base = (group.max() - group) * (since.max() + 1)
        highest: Indices = np.maximum.accumulate(base + since) - base + arrived.min()
        return highest


def _differ(new: pa.Array[Any], old: pa.Array[Any]) -> Flags:
    """Where values are not the same; null is the same as null."""
    if pa.types.is_nested(new.type):
        new, old = json_texts(new), json_texts(old)
    different = pc.not_equal(new, old)
    if different.null_count:
        different = pc.coalesce(different, pc.xor(new.is_null(), old.is_null()))
    differ: Flags = different.to_numpy(zero_copy_only=False)
    return differ


def _milliseconds(times: pa.Array[Any]) -> pa.Int64Array:
    """Timestamps, or their usual text, as milliseconds since 1970 UTC; null for what is none."""
    if pa.types.is_string(times.type):
        microseconds, valid = plain_temporals(Scalar.TIMESTAMP_WITH_TIMEZONE, times.fill_null(""))
        times = pa.array(microseconds, pa.int64(), mask=~valid).cast(pa.timestamp("us", "UTC"))
    return times.cast(pa.timestamp("ms", "UTC"), safe=False).cast(pa.int64())

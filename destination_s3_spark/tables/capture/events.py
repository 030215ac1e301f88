"""Events of the change log, derived from the history of each key's rows.

A record that is older than the table's row or changes nothing makes no event. A value that the source did not provide is taken from the
previous row: Debezium writes a placeholder for a large value that an update did not change, because the source's log does not contain it
(TOAST in Postgres).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from destination_s3_spark.change_log.events import IN_NEW, IN_OLD, AfterImage, BeforeImage, LogColumns, Operation
from destination_s3_spark.change_log.lines import json_texts
from destination_s3_spark.change_log.options import ChangeLogOptions
from destination_s3_spark.decoding.changes import Reason
from destination_s3_spark.decoding.temporal import temporal
from destination_s3_spark.schema.airbyte_type import Scalar
from destination_s3_spark.schema.arrow import MICROS, contiguous
from destination_s3_spark.tables.columns.row_plan import UPDATED_AT
from destination_s3_spark.tables.runs.keys import OFFSET
from destination_s3_spark.tables.runs.refreshed import ComparedRows
from destination_s3_spark.tables.runs.soft_deletions import DATA, Resolution
from destination_s3_spark.tables.runs.winners import BURIED_OFFSET, EXTRACTED_AT, Flags, Indices, Ranking

POSITION = "position"
"""Column of events: the position in the log. All events at the same position have the same key."""

OPERATIONS = tuple(operation.value for operation in Operation)
"""The operations by code. Not an Arrow array, because the first array of a process imports pandas, and most syncs need none."""
_INSERT, _UPDATE, _DELETE = range(3)
_VERSION = 1
"""`v` of the cursor cell: the version of its members."""
INFERRED = "inferred"
"""Member of the cursor that is true in the deletion of a row that a refresh lacks."""
PLACEHOLDER = "__debezium_unavailable_value"


@dataclass(frozen=True, slots=True)
class Images:
    """The content of events. Picklable.

    `cursor` holds the columns with the record's position in the source's log, as (JSON key, column).
    `infers`: whether some deletions are inferred, because a refresh lacks the rows.
    """

    columns: LogColumns
    options: ChangeLogOptions
    cursor: tuple[tuple[str, pa.Field[Any]], ...]
    infers: bool


def cursor_members(cursor: Iterable[tuple[str, pa.Field[Any]]], *, infers: bool) -> Iterator[pa.Field[Any]]:
    """Yield the members of an event's cursor: the fields of `Images.cursor`, and the times of the change and of its extraction.

    Both times are in milliseconds since 1970. With `infers`, the last one tells that a deletion is inferred.
    """
    for source, column in cursor:
        yield pa.field(source, column.type)
        if source == UPDATED_AT:
            yield pa.field("timestamp", pa.int64())
    yield pa.field("extractionTimestamp", pa.int64())
    yield pa.field("v", pa.int8())
    if infers:
        yield pa.field(INFERRED, pa.bool_())


@dataclass(frozen=True, slots=True)
class EventValues:
    """The columns of a history. `provided` holds those in which some records left values out."""

    history: History
    table: pa.Table
    provided: Mapping[str, Provided]

    def take(self, name: str, rows: Indices, shown: Flags | None = None) -> pa.Array[Any]:
        """Return the values of a column in these rows of the history. Values that are not `shown` are null."""
        found = self.provided.get(name)
        column = self.table[name] if found is None else found.values
        if shown is not None and not shown.any():
            return pa.nulls(len(rows), column.type)
        # Built from buffers, because Arrow's conversion of indices and a mask would copy all indices for the same result.
        bitmap = None if shown is None or shown.all() else pa.py_buffer(np.packbits(shown, bitorder="little"))
        return contiguous(column.take(pa.Array.from_buffers(pa.int64(), len(rows), [bitmap, pa.py_buffer(np.ascontiguousarray(rows))])))

    def column(self, name: str) -> pa.Array[Any]:
        found = self.provided.get(name)
        return contiguous(self.table[name]) if found is None else found.values

    def given(self, name: str, rows: Indices) -> Flags:
        """Flag the records among these rows that provided a value for the column."""
        found = self.provided.get(name)
        return np.ones(len(rows), np.bool_) if found is None else (found.given | found.emptied)[rows]


@dataclass(frozen=True, slots=True)
class Events:
    """The events of a history. Events of the same key are in order, the oldest first."""

    rows: Indices
    """The row of the history that made each event."""
    operation: np.ndarray[Any, np.dtype[np.int8]]
    """The operation of each event, as an index of OPERATIONS."""
    changed: tuple[Flags, ...]
    """For each column of the log, whether each event is an update that changed it."""

    @classmethod
    def of(cls, values: EventValues, columns: LogColumns) -> Events:
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
                of_column[:-1] = differ(column[:-1], column[1:]) & updates[:-1]
        operation[changed.any(axis=0)] = _UPDATE
        rows = np.flatnonzero(operation >= 0)[::-1]
        return cls(rows, operation[rows], tuple(changed[:, rows]))

    def batch(self, values: EventValues, merged: pa.Table, images: Images) -> pa.RecordBatch:
        """Return the events in the log's `LogColumns.event_schema`. `merged` holds the rows in merge form behind the history."""
        columns = images.columns
        exists = self._exists(values, images)
        new = [values.take(field.name, self.rows, (bits & IN_NEW) > 0) for field, bits in zip(columns.fields, exists, strict=True)]
        before = np.minimum(self.rows + 1, len(values.table) - 1)
        old = [values.take(field.name, before, (bits & IN_OLD) > 0) for field, bits in zip(columns.fields, exists, strict=True)]
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

    def _exists(self, values: EventValues, images: Images) -> list[np.ndarray[Any, np.dtype[np.uint8]]]:
        """Return for each column the bits of the images, new and old, in which each event has a value."""
        inserts, updates, deletes = (self.operation == kind for kind in (_INSERT, _UPDATE, _DELETE))
        found = []
        for field, changed in zip(images.columns.fields, self.changed, strict=True):
            in_old = (updates | deletes) & (images.options.before_image is BeforeImage.ALL or field.name in images.columns.key)
            in_new = inserts | (updates & (changed | (images.options.after_image is AfterImage.ALL)))
            in_new &= values.given(field.name, self.rows)
            found.append((in_new * IN_NEW + in_old * IN_OLD).astype(np.uint8))
        return found

    def _cursors(self, values: EventValues, merged: pa.Table, images: Images) -> Iterator[pa.Array[Any]]:
        """Yield the columns of `cursor_members`. No record tells the position of an inferred deletion."""
        inferred = values.history.inferred[self.rows]
        known = pa.array(~inferred) if inferred.any() else None
        for source, field in images.cursor:
            column = values.take(field.name, self.rows)
            column = column if known is None else pc.if_else(known, column, None)
            yield column
            if source == UPDATED_AT:
                yield _milliseconds(column)
        yield _milliseconds(contiguous(merged[EXTRACTED_AT].take(pa.array(values.history.rows[self.rows]))))
        yield pa.repeat(pa.scalar(_VERSION, pa.int8()), len(self.rows))
        if images.infers:
            yield pa.array(inferred, mask=~inferred)

    def _positions(self, history: History, offsets: Indices) -> Indices:
        """Return the position of each event in the log: the arrival of its record.

        If a record arrived after a newer one of the same key (by the cursor), the newer event takes the later position.
        """
        arrived = offsets[self.rows]
        if not len(arrived):
            return arrived
        group = history.group[self.rows]
        since = arrived - arrived.min()
        # A running maximum per key: the base raises all events of each later key above those of the previous one.
        base = (group.max() - group) * (since.max() + 1)
        highest: Indices = np.maximum.accumulate(base + since) - base + arrived.min()
        return highest


def differ(new: pa.Array[Any], old: pa.Array[Any]) -> Flags:
    """Flag the values that differ. Null equals null."""
    if pa.types.is_nested(new.type):
        new, old = json_texts(new), json_texts(old)
    different = pc.not_equal(new, old)
    if different.null_count:
        different = pc.coalesce(different, pc.xor(new.is_null(), old.is_null()))
    differ: Flags = different.to_numpy(zero_copy_only=False)
    return differ


def _milliseconds(times: pa.Array[Any]) -> pa.Int64Array:
    """Convert timestamps, or texts of them, to milliseconds since 1970 UTC. Other text becomes null."""
    if pa.types.is_string(times.type):
        times = moments(times)
    return times.cast(pa.timestamp("ms", "UTC"), safe=False).cast(pa.int64())


def moments(texts: pa.StringArray) -> pa.TimestampArray:
    """Return texts of timestamps as times in UTC, in microseconds. Other text becomes null."""
    encoded = texts.dictionary_encode()
    read = [temporal(Scalar.TIMESTAMP_WITH_TIMEZONE, text) for text in encoded.dictionary.to_pylist()]
    times = pa.array([None if isinstance(value, Reason) else value for value in read], MICROS)
    return times.take(encoded.indices)


@dataclass(frozen=True)
class History:
    """The rows of each key, newest first."""

    rows: Indices
    """The indices of the rows in merge form."""
    group: Indices
    """The number of each row's key in the order of the ranking."""
    record: Flags
    """Whether each row is a record of the merge. Otherwise it is from the table."""
    gone: Flags
    """Whether each row is a deletion."""
    own: Flags
    """Whether each row is of a refresh that replaces others."""
    inferred: Flags
    """Whether each row is the deletion of a row that a refresh lacks."""

    @classmethod
    def of(cls, merged: pa.Table, ranking: Ranking, gone: Flags, *, net: bool = False, compared: ComparedRows | None = None) -> History:
        """Derive the history from rows and their ranking. `gone` flags deletions. With `net` only the newest record of a key counts.

        `compared`: the rows, if they are of a refresh and of the table that it replaces.
        """
        stored: Flags = (np.asarray(merged[OFFSET]) >= BURIED_OFFSET)[ranking.order]
        group = np.cumsum(ranking.first) - 1
        seen: Indices = np.cumsum(stored)
        seen -= (seen - stored)[ranking.first][group]
        # Records that rank below the newest stored row of their key, live or deleted, are too old to count.
        record = (seen == 0) & ranking.first if net else seen == 0
        has_records = np.zeros(len(group), np.bool_)
        has_records[group[record]] = True
        kept = np.flatnonzero((record | (stored & (seen == 1))) & has_records[group])
        rows = ranking.order[kept]
        none = np.zeros(len(rows), np.bool_)
        own, inferred = (none, none) if compared is None else (compared.own[rows], compared.inferred[rows])
        return cls(rows, group[kept], record[kept], gone[rows], own, inferred)

    @classmethod
    def of_late(cls, made_of: Resolution) -> History:
        """Make the history of rows that arrived after their deletion: each of them, followed by the table's deleted row."""
        pairs = np.stack([made_of.values[made_of.late], made_of.table], axis=1).ravel()
        record = np.tile([True, False], len(made_of.late))
        none = np.zeros(len(pairs), np.bool_)
        return cls(pairs, made_of.late.repeat(2), record, none, none, none)

    @cached_property
    def on_live(self) -> Flags:
        """Whether a live row of the same key preceded each row. That row is the next one in the history."""
        if not len(self.rows):
            return self.gone
        same_key = np.append(self.group[1:] == self.group[:-1], False)
        live: Flags = same_key & ~np.append(self.gone[1:], True)
        return live

    @property
    def begins(self) -> Flags:
        """Whether each row has no row before it that its values may come from. One that a refresh replaces is none."""
        flags: Flags = ~self.on_live | (self.own & ~np.append(self.own[1:], False))
        return flags


@dataclass(frozen=True, slots=True)
class Provided:
    """A column of a history with the missing values filled in."""

    values: pa.Array[Any]
    given: Flags
    """Whether each record provided a value or null."""
    lost: Flags
    """Whether each record lacked a value and had no previous row with one."""
    emptied: Flags
    """Whether each record lacked a value, and so has null in place of that of a row which a refresh replaces."""


def has_placeholder(values: pa.Array[Any] | pa.ChunkedArray[Any]) -> bool:
    """Tell whether the column has a placeholder. Only text columns can have one."""
    return pa.types.is_string(values.type) and bool(pc.any(pc.equal(values, PLACEHOLDER)).as_py())


def may_have_placeholder(rows: pa.Table, *, of_text: bool) -> bool:
    """Tell whether rows in merge form may have a placeholder, in a column or in their JSON text."""
    if of_text:
        return bool(pc.any(pc.match_substring(rows[DATA], PLACEHOLDER)).as_py())
    return any(map(has_placeholder, rows.columns))


def provided(values: pa.Array[Any], history: History) -> Provided:
    """Replace each placeholder of a column by the value of the previous row, or by null if there is none."""
    absent = pc.equal(values, PLACEHOLDER).fill_null(False).to_numpy(zero_copy_only=False) & history.record
    # Rows are newest first, so a value comes from the next row that has one. The search stops at a record without a previous live row.
    stops = np.where(~absent | history.begins, np.arange(len(absent)), len(absent))
    source = np.minimum.accumulate(stops[::-1])[::-1]
    lost = absent[source]
    return Provided(values.take(pa.array(source, mask=lost)), ~absent, lost, absent & history.begins & history.on_live)

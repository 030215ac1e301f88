"""Rows of softly deleted keys, each made of its deletion and of the row that the deletion deletes.

Input: rows in merge form and their ranking. If the winner of a key is a deletion, its row has the key, the cursor, the `_ab_cdc_` fields
and the connector's own columns of the deletion. It keeps all other values of the newest row of the key that is no deletion. Without such
a row it is the deletion as sent. So it does not matter in which order the versions of a key arrive.

A deleted row in the table does not tell how old the values are that it keeps. A tombstone remembers the cursor and the extraction time of
the row they come from. A row that arrives late replaces them only if it ranks above this tombstone.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from destination_s3_spark.decoding.plan import RowPlan
from destination_s3_spark.exact_json.values import object_text, split_object
from destination_s3_spark.formats.file_format import FileColumns
from destination_s3_spark.schema.airbyte_type import Field, Scalar
from destination_s3_spark.schema.arrow import META_FIELDS, MICROS, RAW_SCHEMA, arrow_columns, contiguous, with_columns
from destination_s3_spark.tables.runs.keys import CDC_FIELDS, DELETED, META, OFFSET, KeySpec
from destination_s3_spark.tables.runs.winners import EARLIER, Flags, Indices, Ranking, ranking
from destination_s3_spark.tables.stored.conversion import typed_rows

GENERATION_ID = META_FIELDS[3].name
DATA = RAW_SCHEMA.names[-1]
"""The column that holds the record's JSON text in raw rows."""
_TIMES = (Scalar.STRING, Scalar.TIMESTAMP_WITH_TIMEZONE, Scalar.TIMESTAMP_WITHOUT_TIMEZONE)


@dataclass(frozen=True, slots=True)
class Resolution:
    """The rows that make the row of each key, as indices, in the order of the keys."""

    winners: Indices
    values: Indices
    """The row whose values each key's row has: the winner itself, unless it is a deletion of another row."""
    origins: Indices
    """The rows that tombstones have to remember, because their values are in the row of a deletion."""
    late: Indices
    """The numbers of the keys whose values come from a row that is older than the table's deleted row."""
    table: Indices
    """The table's deleted row of each key in `late`."""

    @classmethod
    def of_winners(cls, winners: Indices) -> Resolution:
        """Return the resolution of rows among which no row deletes another one softly."""
        none = np.zeros(0, np.int64)
        return cls(winners, winners, none, none, none)


@dataclass(frozen=True, slots=True)
class SoftDeletions:
    """The soft deletions of a table. Picklable."""

    deleted_at: Field
    deciding: frozenset[str]
    """The JSON keys of the key and the cursor, which a deleted row has from its deletion."""
    kept: frozenset[str]
    """The columns whose values a deleted row keeps. Empty for text rows, which keep members of their record."""
    plan: RowPlan | None
    """The plan that types the deletion field of text rows. None if rows are typed."""

    @classmethod
    def of(cls, spec: KeySpec, columns: FileColumns, *, of_text: bool) -> SoftDeletions | None:
        """Return the soft deletions of a table with final files of these columns, or None if its rows cannot have any.

        They are of use with hard deletions, too: rows of earlier syncs may be softly deleted.
        """
        if spec.deleted_at is None:
            return None
        deciding = frozenset(field.source for field in (*spec.key, *(() if spec.cursor is None else (spec.cursor,))))
        kept = frozenset(field.name for field in columns.fields if not _is_of_deletion(field.source, deciding))
        plan = RowPlan(columns.stream, 0, 0, (spec.deleted_at,), arrow_columns([spec.deleted_at])) if of_text else None
        return cls(spec.deleted_at, deciding, kept, plan)

    def decisive(self, rows: pa.Table, spec: KeySpec) -> pa.Table:
        """Return the rows that decide what the row of each key is: its winner, and below a deletion at most three others.

        They are in the order of their ranking. Rows that decide among some of a key's rows also decide among all of them.
        """
        ranked = ranking(rows, spec)
        versions = self._versions(rows, ranked)
        if versions is None:
            return rows.take(pa.array(ranked.winners))
        found = np.concatenate([np.flatnonzero(ranked.first), versions.row, versions.tombstone, versions.stored])
        places = np.unique(found[found < len(ranked.order)])
        return rows.take(pa.array(ranked.order[places]))

    def applied(self, decisive: pa.Table) -> pa.Table:
        """Return the row of each key, followed by the tombstones to write."""
        ranked = Ranking.of_ranked(decisive)
        if ranked.first.all():
            return decisive
        return self.table_rows(decisive, ranked)

    def table_rows(self, rows: pa.Table, ranked: Ranking) -> pa.Table:
        """Return the row of each key, followed by the tombstones to write, given the ranking of all rows."""
        resolution = self.resolution(rows, ranked)
        return with_tombstones(self.completed(rows, resolution), rows, resolution)

    def resolution(self, rows: pa.Table, ranked: Ranking) -> Resolution:
        """Find the rows that make the row of each key."""
        versions = self._versions(rows, ranked)
        if versions is None:
            return Resolution.of_winners(ranked.winners)
        deletes_row = versions.row < versions.tombstone
        is_marked = versions.stored < len(ranked.order)
        values = np.where(deletes_row, versions.row, np.where(is_marked, versions.stored, np.flatnonzero(ranked.first)))
        late = np.flatnonzero(deletes_row & (versions.stored < versions.row))
        order = ranked.order
        return Resolution(ranked.winners, order[values], order[versions.row[deletes_row]], late, order[versions.stored[late]])

    def completed(self, rows: pa.Table, resolution: Resolution) -> pa.Table:
        """Return the row of each key."""
        winners, values = resolution.winners, resolution.values
        changed = np.flatnonzero(winners != values)
        if not len(changed):
            return rows.take(pa.array(winners))
        columns = [rows[name].take(pa.array(values if name in self.kept else winners)) for name in rows.column_names]
        best = pa.table(columns, schema=rows.schema)
        if self.plan is not None:
            texts = rows[DATA].take(pa.array(values))
            best = edited(best, DATA, changed, lambda row, deletion: self._record(deletion, texts[row].as_py()))
        metas = contiguous(rows[META].take(pa.array(values[changed])))
        has_changes = _has_changes(metas) | _has_changes(contiguous(best[META].take(pa.array(changed))))
        of_values = dict(zip(changed[has_changes].tolist(), metas.filter(pa.array(has_changes)).to_pylist(), strict=True))
        return edited(best, META, changed[has_changes], lambda row, deletion: self._meta(deletion, of_values[row]))

    @property
    def can_mark(self) -> bool:
        """Whether the deletion field can hold a time, so that rows which a refresh lacks can be marked."""
        return self.deleted_at.type in _TIMES

    def marked(self, rows: pa.Table, at: int, sync_id: int, generation_id: int) -> pa.Table:
        """Return rows as deleted by a refresh that lacks them, at a time in microseconds since 1970."""
        metas = contiguous(rows[META])
        sync = pa.repeat(pa.scalar(sync_id, metas.type.field("sync_id").type), len(rows))
        members = [sync if member.name == "sync_id" else metas.field(member.name) for member in metas.type]
        generations = pa.repeat(pa.scalar(generation_id, pa.int64()), len(rows))
        rows = with_columns(rows, {META: pa.StructArray.from_arrays(members, fields=list(metas.type)), GENERATION_ID: generations})
        moment = pa.array([at], MICROS)
        text = moment[0].as_py().isoformat(timespec="microseconds").removesuffix("+00:00")
        text += "" if self.deleted_at.type is Scalar.TIMESTAMP_WITHOUT_TIMEZONE else "Z"
        if self.plan is not None:
            mark = {self.deleted_at.source: json.dumps(text).encode()}
            every = np.arange(len(rows))
            return edited(rows, DATA, every, lambda _, record: object_text(split_object(record.encode()) | mark).decode())
        kind = rows.schema.field(self.deleted_at.name).type
        value = pa.scalar(text) if pa.types.is_string(kind) else moment.cast(kind)[0]
        return with_columns(rows, {self.deleted_at.name: pa.repeat(value, len(rows))})

    @property
    def needs(self) -> frozenset[str]:
        """The columns that tell whether a row is softly deleted."""
        return frozenset([self.deleted_at.name] if self.plan is None else RAW_SCHEMA.names)

    def as_hard(self, rows: pa.Table) -> pa.Table:
        """Return the rows of a run with their soft deletions as hard ones."""
        deleted = np.asarray(contiguous(rows[DELETED])) | self.deletes(rows, np.arange(len(rows)))
        return with_columns(rows, {DELETED: pa.array(deleted)})

    def deletes(self, rows: pa.Table, at: Indices) -> Flags:
        """Flag the rows at these indices that delete their key softly."""
        if self.plan is None:
            marked = np.asarray(contiguous(rows[self.deleted_at.name]).is_valid())[at]
        else:
            typed = typed_rows(rows.select(RAW_SCHEMA.names).take(pa.array(at)), self.plan)
            marked = np.asarray(contiguous(typed[self.deleted_at.name]).is_valid())
        flags: Flags = marked & ~np.asarray(contiguous(rows[DELETED]))[at]
        return flags

    def _versions(self, rows: pa.Table, ranked: Ranking) -> _Versions | None:
        """Find the versions below the winner of each key whose winner is a deletion, or return None if no such key has any."""
        order, starts = ranked.order, np.flatnonzero(ranked.first)
        contested = starts[np.diff(np.append(starts, len(order))) > 1]
        deleted = contested[self.deletes(rows, order[contested])] if len(contested) else contested
        if not len(deleted):
            return None
        group = np.cumsum(ranked.first) - 1
        is_deleted = np.zeros(len(starts), np.bool_)
        is_deleted[group[deleted]] = True
        places = np.flatnonzero(is_deleted[group])
        versions = order[places]
        buried, deletes = np.asarray(contiguous(rows[DELETED]))[versions], self.deletes(rows, versions)
        stored = deletes & (np.asarray(contiguous(rows[OFFSET]))[versions] >= EARLIER)

        def first(flags: Flags) -> Indices:
            keys, at = np.unique(group[places[flags]], return_index=True)
            found = np.full(len(starts), len(order), np.int64)
            found[keys] = places[flags][at]
            return found

        return _Versions(first(~buried & ~deletes), first(buried), first(stored))

    def _record(self, deletion: str, row: str) -> str:
        own = {name: text for name, text in split_object(deletion.encode()).items() if _is_of_deletion(name, self.deciding)}
        kept = {name: text for name, text in split_object(row.encode()).items() if not _is_of_deletion(name, self.deciding)}
        return object_text(kept | own).decode()

    def _meta(self, deletion: dict[str, Any], row: dict[str, Any]) -> dict[str, Any]:
        """Return the deletion's metadata with the changes made to the values that the row has from either."""
        own = [change for change in deletion["changes"] if _is_of_deletion(change["field"] or "", self.deciding)]
        kept = [change for change in row["changes"] if not _is_of_deletion(change["field"] or "", self.deciding)]
        return {**deletion, "changes": [*kept, *own]}


@dataclass(frozen=True, slots=True)
class _Versions:
    """For each key, the positions in a ranking of versions below a deletion. A version that does not exist has the number of all rows."""

    row: Indices
    """The newest row that is no deletion."""
    tombstone: Indices
    """The newest tombstone."""
    stored: Indices
    """The newest deletion that is a row of the table."""


def with_tombstones(best: pa.Table, rows: pa.Table, resolution: Resolution) -> pa.Table:
    """Append the tombstones that remember how old the values of deleted rows are."""
    if not len(resolution.origins):
        return best
    origins = rows.take(pa.array(resolution.origins))
    own = {DELETED: pa.repeat(True, len(origins)), OFFSET: pa.repeat(pa.scalar(0, pa.int64()), len(origins))}
    return pa.concat_tables([best, with_columns(origins, own)])


def _is_of_deletion(source: str, deciding: frozenset[str]) -> bool:
    """Tell whether a deleted row has the field of this JSON key from its deletion."""
    return source in deciding or source.startswith(CDC_FIELDS)


def _has_changes(metas: pa.StructArray) -> Flags:
    flags: Flags = np.asarray(pc.greater(pc.list_value_length(metas.field("changes")).fill_null(0), 0))
    return flags


def replaced(table: pa.Table, name: str, at: Iterable[int] | Indices, values: pa.Array[Any]) -> pa.Table:
    """Return the table with these values of a column in the rows `at`."""
    places = np.asarray(at, np.int64)
    indices = np.arange(len(table))
    indices[places] = len(table) + np.arange(len(places))
    return with_columns(table, {name: pa.concat_arrays([contiguous(table[name]), values]).take(pa.array(indices))})


def edited(table: pa.Table, name: str, at: Indices, edit: Callable[[int, Any], Any]) -> pa.Table:
    """Return the table with a column edited in the rows `at`. `edit` takes a row and its value, and returns the new value."""
    if not len(at):
        return table
    column = contiguous(table[name])
    values = [edit(row, column[row].as_py()) for row in at.tolist()]
    return replaced(table, name, at, pa.array(values, column.type))

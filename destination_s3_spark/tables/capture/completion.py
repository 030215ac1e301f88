"""Values that records of a table with a change log left out, taken from the row before.

Debezium writes a placeholder for a large value that an update did not change.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from destination_s3_spark.decoding.plan import RowPlan
from destination_s3_spark.exact_json.values import object_text, split_object
from destination_s3_spark.schema.arrow import RAW_SCHEMA, contiguous
from destination_s3_spark.tables.capture.events import EventValues, History, has_placeholder, may_have_placeholder, provided
from destination_s3_spark.tables.columns.row_plan import typed_plan
from destination_s3_spark.tables.open_table import OpenTable
from destination_s3_spark.tables.runs.keys import CDC_FIELDS, DELETED, META, KeySpec
from destination_s3_spark.tables.runs.refreshed import ComparedRows, RefreshComparison
from destination_s3_spark.tables.runs.soft_deletions import DATA, Resolution, edited, replaced, with_tombstones
from destination_s3_spark.tables.runs.sorted_file import MergeForm
from destination_s3_spark.tables.runs.winners import Ranking, ranking
from destination_s3_spark.tables.stored.conversion import typed_rows

NOT_PROVIDED = {"change": "NULLED", "reason": "SOURCE_RETRIEVAL_ERROR"}
"""The entry in `_airbyte_meta.changes` for a value that no row of the key had."""


@dataclass(frozen=True, slots=True)
class CompletedRows:
    """The rows of some keys. `best`: the row of each key, completed. `values`: the history of the keys, if it was needed."""

    rows: pa.Table
    best: pa.Table
    made_of: Resolution
    values: EventValues | None

    @property
    def table_rows(self) -> pa.Table:
        """The rows and tombstones of the table."""
        return with_tombstones(self.best, self.rows, self.made_of)


@dataclass(frozen=True, slots=True)
class RowCompletion:
    """How the rows of a table are completed. Picklable."""

    columns: tuple[str, ...]
    """The table's columns."""
    plan: RowPlan | None
    """The plan that types text rows. None if rows are typed already."""
    sources: Mapping[str, str]
    """The JSON key of each data column, by its name. Those of the key are not among them, because no record leaves them out."""
    net: bool
    """Whether only the newest record of a key counts."""

    def of(self, rows: pa.Table, form: MergeForm, comparison: RefreshComparison | None, *, with_values: bool = False) -> CompletedRows:
        """Complete the rows of some keys, which must be all of them. `with_values`: also if no record left anything out."""
        soft = form.soft
        compared = None if comparison is None else comparison.of(rows)
        if compared is None:
            ranked = ranking(rows, form.spec)
            made_of = Resolution.of_winners(ranked.winners) if soft is None else soft.resolution(rows, ranked)
        else:
            rows, ranked, made_of = compared.rows, compared.ranked, compared.resolution
        best = rows.take(pa.array(made_of.winners)) if soft is None else soft.completed(rows, made_of)
        values = None
        if with_values or may_have_placeholder(rows, of_text=self.plan is not None):
            history = self._history(rows, ranked, form, compared)
            if len(history.rows):
                values = self._values(rows, history)
                best = self._filled(best, values, made_of)
            if len(made_of.late):
                best = self._filled(best, self._values(rows, History.of_late(made_of)), made_of)
        return CompletedRows(rows, best if compared is None else best.filter(pa.array(compared.stays)), made_of, values)

    def _history(self, rows: pa.Table, ranked: Ranking, form: MergeForm, compared: ComparedRows | None) -> History:
        history = History.of(rows, ranked, np.asarray(rows[DELETED].combine_chunks()), net=self.net, compared=compared)
        if form.marks is None:
            return history
        # With hard deletions only rows of the table may be marked.
        at = np.flatnonzero(~history.record) if form.soft is None else np.arange(len(history.rows))
        gone = history.gone.copy()
        gone[at] |= form.marks.deletes(rows, history.rows[at])
        return replace(history, gone=gone)

    def _values(self, rows: pa.Table, history: History) -> EventValues:
        names = RAW_SCHEMA.names if self.plan is not None else [name for name in self.columns if name in rows.column_names]
        stored = rows.select(names).take(pa.array(history.rows))
        if self.plan is not None:
            stored = typed_rows(stored, self.plan)
        found = {}
        for name in self.sources:
            if name in stored.column_names and has_placeholder(stored[name]):
                found[name] = provided(contiguous(stored[name]), history)
        return EventValues(history, stored, found)

    def _filled(self, best: pa.Table, values: EventValues, made_of: Resolution) -> pa.Table:
        """Fill the placeholders in the winners that have their values from rows of the history.

        A value that no row had becomes null and is recorded in the row's `_airbyte_meta.changes`.
        """
        history, sources = values.history, self.sources
        is_shown = (history.rows == made_of.values[history.group]) & history.record
        lost: dict[int, list[str]] = {}
        texts: dict[int, dict[str, str | None]] = {}
        for name, found in values.provided.items():
            rows = np.flatnonzero(is_shown & ~found.given)
            at = history.group[rows]
            for place in at[found.lost[rows]].tolist():
                lost.setdefault(place, []).append(sources[name])
            taken = found.values.take(pa.array(rows))
            if self.plan is not None:
                for place, text in zip(at.tolist(), taken.to_pylist(), strict=True):
                    texts.setdefault(place, {})[sources[name]] = text
            else:
                best = replaced(best, name, at, taken)
        best = edited(best, DATA, np.array(list(texts), np.int64), lambda place, record: _with_members(record, texts[place]))
        return edited(best, META, np.array(list(lost), np.int64), lambda place, meta: _with_changes(meta, lost[place]))


def completion_of(table: OpenTable, spec: KeySpec, *, logged: bool) -> RowCompletion:
    """Return how the rows of a table with this key are completed. `logged`: whether the change log has the rows before them already.

    Only the newest record counts then, unless records have a position in the source's log.
    """
    columns, key = table.schema.fields, {field.source for field in spec.key}
    return RowCompletion(
        columns=tuple(column.name for column in columns),
        plan=typed_plan(table.stream, table.schema) if table.layout.of_text else None,
        sources={one.name: one.source for one in columns if one.source not in key and not one.source.startswith(CDC_FIELDS)},
        net=logged and not any(column.source.startswith(CDC_FIELDS) for column in columns),
    )


def _with_members(record: str, members: Mapping[str, str | None]) -> str:
    """Return the record's JSON with new values for some members. The values of all other members keep their bytes."""
    new = {key: json.dumps(text, ensure_ascii=False).encode() for key, text in members.items()}
    return object_text(split_object(record.encode()) | new).decode()


def _with_changes(meta: dict[str, Any], fields: list[str]) -> dict[str, Any]:
    return {**meta, "changes": [*meta["changes"], *({"field": field, **NOT_PROVIDED} for field in fields)]}

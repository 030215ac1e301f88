"""Versions of rows: what records and the table's rows make of the versions that are valid now. Pure functions without I/O.

The rows of a key are taken in the order of the table's ranking. A version begins with a row that differs from the one before in a tracked
column, and ends where the next one begins or a deletion is. So the version that stays valid is the table's row. Times never go backwards:
a row whose time is before that of a lower one begins where that one does.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from destination_s3_spark.schema.arrow import MICROS, contiguous, with_columns
from destination_s3_spark.tables.capture.events import PLACEHOLDER, differ, has_placeholder
from destination_s3_spark.tables.columns.validity import IS_CURRENT, IS_DELETED, VALID_FROM, VALID_FROM_SYNC, VALID_TO
from destination_s3_spark.tables.history.chosen import Late, RankedRows, compared, merged
from destination_s3_spark.tables.history.ends import Ends
from destination_s3_spark.tables.history.form import HistoryForm
from destination_s3_spark.tables.runs.keys import DELETED, KEY, META, OFFSET
from destination_s3_spark.tables.runs.refreshed import Notice
from destination_s3_spark.tables.runs.winners import (
    BURIED_OFFSET,
    ENDED_OFFSET,
    OPENED_OFFSET,
    WAITED_BELOW,
    Flags,
    Indices,
    Ranking,
    key_order,
    ranking_at,
)


class Mode(Enum):
    """How rows make versions."""

    BEGIN = "begin"
    """There are rows, and no versions yet. Every row of the table, and every record, may be one."""
    MERGE = "merge"
    """Records go on from the table's rows, whose versions are those that are valid, or begin an empty table."""
    COMPARE = "compare"
    """The row that each key gets takes the place of its version, if it differs. A key that gets none was deleted."""


@dataclass(frozen=True, slots=True)
class Versions:
    """The versions of some keys after a merge.

    `current`: those that are valid. `closed`: those that have ended with this merge. `late`: records that are older than the version that
    is valid, or than the deletion of their key, with their place: VALID_FROM is their time, VALID_TO the time at which they ended at the
    latest, and IS_DELETED says that the key is deleted then. `changed`: whether `current` differs from the versions that were valid before.
    """

    current: pa.Table
    closed: pa.Table
    late: pa.Table
    changed: bool


def versions_of(rows: pa.Table, form: HistoryForm, mode: Mode, notice: Notice, ends: Ends) -> Versions:
    """Find the versions of all keys of `rows`, which must hold all rows of its keys. In a merge all of them have records."""
    syncs = pc.coalesce(contiguous(rows[VALID_FROM_SYNC]), pc.struct_field(contiguous(rows[META]), "sync_id"))
    rows = with_columns(rows, {VALID_FROM_SYNC: syncs})
    places, ordered = _ordered(rows, form)
    offsets = np.asarray(contiguous(rows[OFFSET]))[places]
    late = pa.table(rows.slice(0, 0))
    if mode is Mode.BEGIN:
        taken = ordered
    else:
        choose = merged if mode is Mode.MERGE else compared
        taken, found_late = choose(rows, ordered, offsets, notice, ends, lambda one, other: ~_differ(rows, form, one, other))
        if len(found_late.at):
            late = _late_rows(rows, found_late)
    if form.fills and any(map(has_placeholder, (rows[name] for name in form.tracked))):
        rows, taken = _filled(rows, form, taken)
    return _divided(rows, form, taken, late)


def _late_rows(rows: pa.Table, late: Late) -> pa.Table:
    own = {VALID_FROM: _moment(late.time), VALID_TO: _moment(late.bound)}
    return with_columns(rows.take(pa.array(late.at)), {**own, IS_DELETED: pa.array(late.deleted), DELETED: pa.array(late.gone)})


def _ordered(rows: pa.Table, form: HistoryForm) -> tuple[Indices, RankedRows]:
    offsets = np.asarray(contiguous(rows[OFFSET]))
    opened = offsets == OPENED_OFFSET
    keys = contiguous(rows[KEY])
    order = np.asarray(key_order(keys), np.int64)
    group = np.empty(len(rows), np.int64)
    group[order] = np.cumsum(Ranking.of_ranked(rows.select([KEY]).take(pa.array(order))).first) - 1
    others = np.flatnonzero(~opened)
    rank = np.full(len(rows), -len(rows) - 1)
    if len(others):
        rank[ranking_at(rows, others, form.spec).order] = -np.arange(len(others))
    places = np.lexsort((rank, (offsets >= WAITED_BELOW) & ~opened, group))
    gone = ~form.is_live(rows) & ~opened
    time = form.times(rows).copy()
    time[opened] = np.asarray(contiguous(rows[VALID_FROM]).cast(pa.int64()).fill_null(0))[opened]
    ordered = RankedRows(places, group[places], time[places], gone[places], opened[places])
    _bound_tombstones(ordered, offsets[places] == BURIED_OFFSET)
    return places, ordered


def _bound_tombstones(ordered: RankedRows, buried: Flags) -> None:
    """Let tombstones be no later than the row above, which may be from before their time: that at which the deletion was extracted."""
    at = np.flatnonzero(buried[:-1] & (ordered.group[1:] == ordered.group[:-1]))
    ordered.time[at] = np.minimum(ordered.time[at], ordered.time[at + 1])


def _divided(rows: pa.Table, form: HistoryForm, taken: RankedRows, late: pa.Table) -> Versions:
    same_key = np.append(False, taken.group[1:] == taken.group[:-1]) if len(taken.group) else taken.gone
    follows = same_key & ~np.append(True, taken.gone[:-1])[: len(same_key)]
    equal = follows & ~taken.gone
    pairs = np.flatnonzero(equal)
    other = taken.at[pairs] != taken.at[pairs - 1]
    equal[pairs[other]] = ~_differ(rows, form, taken.at[pairs[other]], taken.at[pairs[other] - 1])
    begins = ~taken.gone & ~equal
    edges = np.flatnonzero(begins | (taken.gone & follows))
    start = _ascending(taken.time, taken.group)
    versions = np.flatnonzero(begins[edges])  # as places among the edges
    following = np.minimum(versions + 1, max(len(edges) - 1, 0))
    ended = (versions + 1 < len(edges)) & (taken.group[edges[following]] == taken.group[edges[versions]])
    first, until = edges[versions], edges[following]
    current = version_rows(rows, taken.at[first[~ended]], start[first[~ended]], None, None)
    closed = version_rows(rows, taken.at[first[ended]], start[first[ended]], start[until[ended]], taken.gone[until[ended]])
    changed = bool(ended.any() or (~taken.opened[first[~ended]]).any())
    return Versions(current, closed, late, changed)


def version_rows(rows: pa.Table, at: Indices, start: Indices, end: Indices | None, deleted: Flags | None) -> pa.Table:
    """Return the rows at these indices as versions: valid ones without an end, else ended ones."""
    none = np.zeros(len(at), np.bool_)
    own = {
        VALID_FROM: _moment(start),
        VALID_TO: pa.nulls(len(at), MICROS) if end is None else _moment(end),
        IS_CURRENT: pa.array(~none if end is None else none),
        IS_DELETED: pa.array(none if deleted is None else deleted),
        DELETED: pa.array(none),
        OFFSET: pa.array(np.full(len(at), OPENED_OFFSET if end is None else ENDED_OFFSET)),
    }
    return with_columns(rows.take(pa.array(at)), own)


def _ascending(time: Indices, group: Indices) -> Indices:
    """Return the greatest time up to each row of its group."""
    values, rank = np.unique(time, return_inverse=True)
    base = group * len(values)
    found: Indices = values[np.maximum.accumulate(base + rank) - base] if len(time) else time
    return found


def _differ(rows: pa.Table, form: HistoryForm, one: Indices, other: Indices) -> Flags:
    """Flag the pairs of rows that differ in a tracked column. A value that the first row left out, and that is filled, never differs."""
    found = np.zeros(len(one), np.bool_)
    if len(one):
        for name in form.tracked:
            column = contiguous(rows[name])
            values = column.take(pa.array(one))
            differs = differ(values, column.take(pa.array(other)))
            if form.fills and has_placeholder(values):
                differs &= ~np.asarray(pc.equal(values, PLACEHOLDER).fill_null(False))
            found |= differs
    return found


def _filled(rows: pa.Table, form: HistoryForm, taken: RankedRows) -> tuple[pa.Table, RankedRows]:
    """Give values that a record left out those of the row before it, or null without one."""
    rows = rows.take(pa.array(taken.at))
    begins = np.append(True, (taken.group[1:] != taken.group[:-1]) | taken.gone[:-1])[: len(taken.group)]
    filled = {}
    for name in form.tracked:
        column = contiguous(rows[name])
        if has_placeholder(column):
            absent = np.asarray(pc.equal(column, PLACEHOLDER).fill_null(False))
            source = np.maximum.accumulate(np.where(begins | ~absent, np.arange(len(absent)), 0))
            filled[name] = column.take(pa.array(source, mask=absent[source]))
    return with_columns(rows, filled), replace(taken, at=np.arange(len(taken.at)))


def sorted_by_time(rows: pa.Table) -> pa.Table:
    names = (KEY, VALID_FROM, VALID_TO)
    by: list[tuple[str, Literal["ascending", "descending"]]] = [(name, "ascending") for name in names]
    return rows.take(pc.sort_indices(rows.select(names).combine_chunks(), sort_keys=by))


def _moment(microseconds: Indices) -> pa.Array[Any]:
    return pa.array(microseconds, pa.int64()).cast(MICROS)

"""Comparison of a refresh with the rows that it replaces. Pure functions without I/O.

Rows come back in the order in which the table had or gets them, with a deletion for every row that the refresh lacks.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from destination_s3_spark.schema.arrow import MICROS, contiguous, with_columns
from destination_s3_spark.tables.runs.keys import DELETED, KEY, OFFSET
from destination_s3_spark.tables.runs.soft_deletions import Resolution, SoftDeletions, with_tombstones
from destination_s3_spark.tables.runs.sorted_file import MergeForm
from destination_s3_spark.tables.runs.winners import (
    BURIED_OFFSET,
    EARLIER,
    EXTRACTED_AT,
    WAITED,
    WAITED_BELOW,
    Flags,
    Indices,
    Ranking,
    key_order,
    ranking_at,
)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def micros(time: datetime) -> int:
    """Return a time in microseconds since 1970."""
    return (time - _EPOCH) // timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Notice:
    """When changes count as made that have no time of their own, such as rows that a refresh lacks: in microseconds since 1970.

    `own_until`: the chain offset up to which rows are those of the refresh; later ones came after it. None if all are its own.
    """

    at: int
    own_until: int | None = None

    def own(self, offsets: Indices) -> Flags:
        """Flag which of the rows that take the place of the table are those of the refresh."""
        flags: Flags = (offsets < (EARLIER if self.own_until is None else self.own_until)) | (offsets >= EARLIER)
        return flags


@dataclass(frozen=True, slots=True)
class Refresh:
    """The refresh that a task merges. Picklable.

    `keeps`: whether rows that it lacks stay in the table, marked as deleted. `position`: the arrival that the task's first deletion of such
    a row counts as; each further one takes the next.
    """

    notice: Notice
    sync_id: int
    generation_id: int
    keeps: bool
    position: int


class RefreshComparison:
    """The comparison of a task, which takes the keys of its range in their order."""

    def __init__(self, refresh: Refresh, form: MergeForm) -> None:
        self._refresh = refresh
        self._spec = form.spec
        self._soft = form.soft
        self._position = refresh.position
        self.kept = 0
        """The number of rows so far that stay although the refresh lacks them."""

    def of(self, rows: pa.Table) -> ComparedRows:
        """Compare the rows of some keys, which must be all of them."""
        offsets = np.asarray(contiguous(rows[OFFSET]))
        own = (offsets >= 0) & (offsets < BURIED_OFFSET)
        rows = with_columns(rows, {OFFSET: pa.array(np.where(offsets < WAITED_BELOW, offsets - WAITED, offsets))})
        new, old = (ranking_at(rows, np.flatnonzero(flags), self._spec) for flags in (own, ~own))
        missing = self._missing(rows, old, own & self._refresh.notice.own(offsets))
        both = pa.concat_tables([rows, self._deletions(rows.take(pa.array(missing)))])
        added = np.arange(len(rows), len(both))
        found = np.concatenate([new.order, added, old.order])
        keys = contiguous(both[KEY]).take(pa.array(found))
        by_key = key_order(keys)
        order = found[np.asarray(by_key, np.int64)]
        ranked = Ranking(order, Ranking.of_ranked(pa.table({KEY: keys.take(by_key)})).first)
        flags = np.zeros((2, len(both)), np.bool_)
        flags[0, : len(rows)], flags[1, len(rows) :] = own, True
        compared = ComparedRows(both, ranked, flags[0], flags[1], self._refresh.keeps, self._soft)
        self.kept += int(np.count_nonzero(compared.stays & ~compared.own[compared.resolution.winners]))
        return compared

    def _missing(self, rows: pa.Table, old: Ranking, refreshed: Flags) -> Indices:
        """Return the rows that are not deleted, and whose keys have none of the refreshed rows."""
        newest = old.winners
        gone = np.asarray(contiguous(rows[DELETED]))[newest]
        if self._soft is not None:
            gone = gone | self._soft.deletes(rows, newest)
        live = newest[~gone]
        keys = contiguous(rows[KEY])
        found = pc.is_in(keys.take(pa.array(live)), keys.filter(pa.array(refreshed)))
        missing: Indices = live[~np.asarray(found, np.bool_)]
        return missing

    def _deletions(self, rows: pa.Table) -> pa.Table:
        refresh, count = self._refresh, len(rows)
        if refresh.keeps and self._soft is not None:
            rows = self._soft.marked(rows, refresh.notice.at, refresh.sync_id, refresh.generation_id)
        else:
            rows = with_columns(rows, {DELETED: pa.array(np.ones(count, np.bool_))})
        extracted = contiguous(rows[EXTRACTED_AT])
        noticed = pa.array([refresh.notice.at], MICROS).cast(extracted.type, safe=False)
        times = pc.if_else(pc.less(extracted, noticed[0]), noticed[0], extracted)
        first, self._position = self._position, self._position + count
        return with_columns(rows, {EXTRACTED_AT: times, OFFSET: pa.array(np.arange(first, first + count))})


@dataclass(frozen=True)
class ComparedRows:
    """The rows of some keys, with a deletion for each row that the refresh lacks.

    `ranked`: for each key the rows of the refresh, then the deletion, then the rows that it replaces, each from the winner down.
    `own`: whether each row is of the refresh. `inferred`: whether it is a deletion that the refresh implies.
    """

    rows: pa.Table
    ranked: Ranking
    own: Flags
    inferred: Flags
    keeps: bool
    soft: SoftDeletions | None

    @cached_property
    def resolution(self) -> Resolution:
        """The rows that make the row of each key: never replaced rows where the refresh has any."""
        order, own = self.ranked.order, self.own[self.ranked.order]
        group = np.cumsum(self.ranked.first) - 1
        has_own = np.zeros(np.count_nonzero(self.ranked.first), np.bool_)
        has_own[group[own]] = True
        counts = own | ~has_own[group]
        shown = Ranking(order[counts], self.ranked.first[counts])
        if self.soft is None:
            return Resolution.of_winners(shown.winners)
        found = self.soft.resolution(self.rows, shown)
        return self._with_earlier_origins(found, shown) if self.keeps else found

    @cached_property
    def stays(self) -> Flags:
        """Whether the row of each key is in the table, or its tombstone."""
        winners = self.resolution.winners
        flags: Flags = self.own[winners]
        return flags | ~np.asarray(contiguous(self.rows[DELETED]))[winners] if self.keeps else flags

    @property
    def table_rows(self) -> pa.Table:
        """The rows and tombstones of the table."""
        made_of = self.resolution
        best = self.rows.take(pa.array(made_of.winners)) if self.soft is None else self.soft.completed(self.rows, made_of)
        return with_tombstones(best.filter(pa.array(self.stays)), self.rows, made_of)

    def _with_earlier_origins(self, found: Resolution, shown: Ranking) -> Resolution:
        """Keep the tombstones that tell how old the values of rows are that were deleted before."""
        order = shown.order
        place = np.zeros(len(self.rows), np.int64)
        place[order] = np.arange(len(order))
        group = np.cumsum(shown.first) - 1
        buried = np.flatnonzero(np.asarray(contiguous(self.rows[OFFSET]))[order] == BURIED_OFFSET)
        keys, newest = np.unique(group[buried], return_index=True)
        is_kept = ~np.asarray(contiguous(self.rows[DELETED]))[found.winners[keys]] & ~np.isin(keys, group[place[found.origins]])
        places = np.sort(np.concatenate([place[found.origins], buried[newest[is_kept]]]))
        return replace(found, origins=order[places])

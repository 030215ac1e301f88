"""Choice of the rows that make versions, and of those that come late. Pure functions without I/O.

A late record is older than the version that is valid, or than the end of its key's last one: it has a place among the versions that have
ended. A row that the table has now is never late. If its own time does not say when it came, because versions of the key are newer, it
counts from the time at which the merge noticed it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from destination_s3_spark.errors import Bug
from destination_s3_spark.schema.arrow import contiguous
from destination_s3_spark.tables.history.ends import NEVER, Ends
from destination_s3_spark.tables.runs.keys import KEY
from destination_s3_spark.tables.runs.refreshed import Notice
from destination_s3_spark.tables.runs.winners import BURIED_OFFSET, WAITED_BELOW, Flags, Indices

Same: TypeAlias = Callable[[Indices, Indices], Flags]
"""Flags the pairs of rows that have the same values in the columns whose changes make versions."""


@dataclass(slots=True)
class RankedRows:
    """Rows in the order of their keys, and within a key from the lowest to the highest."""

    at: Indices
    """The index of the row that has the values."""
    group: Indices
    time: Indices
    gone: Flags
    opened: Flags
    """Whether the row is the version that was valid before."""

    def take(self, places: Indices | Flags) -> RankedRows:
        return RankedRows(*(getattr(self, field.name)[places] for field in fields(self)))

    @property
    def last(self) -> Flags:
        """Flag the highest row of each key."""
        return np.append(self.group[1:] != self.group[:-1], True)


@dataclass(frozen=True, slots=True)
class Late:
    """Records that come late: their indices, their times, and when the key's newer versions begin.

    `deleted`: whether the key has no valid version, so that a record without any later version ends at the bound with a deletion.
    """

    at: Indices
    time: Indices
    bound: Indices
    gone: Flags
    deleted: Flags


@dataclass(frozen=True, slots=True)
class _Valid:
    """The valid version of each key: whether there is one, its beginning, or when the last version ended, and its row."""

    found: Flags
    since: Indices
    at: Indices

    @classmethod
    def of(cls, rows: pa.Table, ordered: RankedRows, records: Flags, ends: Ends) -> _Valid:
        groups = int(ordered.group[-1]) + 1
        found, at = np.zeros(groups, np.bool_), np.zeros(groups, np.int64)
        since, earliest = np.full(groups, NEVER), np.full(groups, np.iinfo(np.int64).max)
        np.minimum.at(earliest, ordered.group[records], ordered.time[records])
        versions = ordered.group[ordered.opened]
        found[versions], at[versions], since[versions] = True, ordered.at[ordered.opened], ordered.time[ordered.opened]
        unknown = np.flatnonzero(~found)
        if len(unknown):
            example = np.zeros(groups, np.int64)
            example[ordered.group] = ordered.at
            since[unknown] = ends.of(contiguous(rows[KEY]).take(pa.array(example[unknown])), earliest[unknown])
        return cls(found, since, at)


def merged(rows: pa.Table, ordered: RankedRows, offsets: Indices, notice: Notice, ends: Ends, same: Same) -> tuple[RankedRows, Late]:
    """Choose the rows that go on from the table's row of each key. `same(a, b)` flags the pairs of rows with the same values."""
    group, groups, time = ordered.group, int(ordered.group[-1]) + 1, ordered.time
    stored = offsets >= BURIED_OFFSET
    records = ~stored & ~ordered.opened
    valid = _Valid.of(rows, ordered, records, ends)
    newest = stored & (_seen(stored, group, groups) == np.bincount(group, stored, groups)[group])
    older = records & _before(newest, group, groups)
    table_time, is_live, has_row = np.zeros(groups, np.int64), np.zeros(groups, np.bool_), np.zeros(groups, np.bool_)
    table_time[group[newest]], is_live[group[newest]], has_row[group[newest]] = time[newest], ~ordered.gone[newest], True
    if (is_live & ~valid.found).any():
        raise Bug("A row of the table has no version in its history that is valid; nothing was changed.")
    of_live = (valid.found & is_live)[group]
    within = older & of_live & (time > valid.since[group]) & (time < table_time[group])
    # A tombstone does not have the time of the change, so all records below it may have come before it.
    past = older & ~within & ((time <= valid.since[group]) | ~valid.found[group])
    at = ordered.at.copy()
    at[newest & of_live] = valid.at[group[newest & of_live]]  # the table's row has the values of its version
    ended = records & ~older & ~valid.found[group] & (time < valid.since[group])
    stays = ended & ordered.last & ~ordered.gone
    past |= ended & ~stays
    bound = np.where(valid.found | ~has_row, valid.since, np.maximum(table_time, valid.since))
    late = _late(past, ordered, valid, bound[group], ~valid.found[group], same)
    since = valid.since[group]
    begun = np.where(stays, np.where(has_row[group], since, np.maximum(notice.at, since)), time)
    chosen = RankedRows(at, group, begun, ordered.gone, ordered.opened)
    return chosen.take(ordered.opened | newest | within | (records & ~older & ~past)), late


def compared(rows: pa.Table, ordered: RankedRows, offsets: Indices, notice: Notice, ends: Ends, same: Same) -> tuple[RankedRows, Late]:
    """Choose the rows that follow the version of each key, if the rows take the place of the table.

    A key is gone whose highest row only waited to be in the table before.
    """
    group, groups, time = ordered.group, int(ordered.group[-1]) + 1, ordered.time
    buried, waited = offsets == BURIED_OFFSET, offsets < WAITED_BELOW
    records = ~buried & ~ordered.opened
    valid = _Valid.of(rows, ordered, records, ends)
    stays = records & ordered.last & ~waited
    is_past = np.where(valid.found[group], time <= valid.since[group], time < valid.since[group])
    waited_since, waited_until = np.full(groups, np.iinfo(np.int64).max), np.full(groups, NEVER)
    np.minimum.at(waited_since, group[waited & records], time[waited & records])
    np.maximum.at(waited_until, group[waited & records], time[waited & records])
    behind = ~is_past & ~waited & (time < waited_until[group])
    came = records & ~_never_valid(ordered, records & ~waited, stays, valid, same)
    past = came & ~stays & (is_past | behind | _before(buried, group, groups))
    first = behind & ~valid.found[group]  # no version that has ended before is after these
    bound = np.where(first, waited_since[group], valid.since[group])
    late = _late(past, ordered, valid, bound, ~valid.found[group] & ~first, same)
    peak = valid.since.copy()
    between = came & ~past & ~stays
    np.maximum.at(peak, group[between], time[between])
    follows = valid.found.copy()
    follows[group[between]] = True
    is_past = np.where(follows[group], time <= peak[group], time < peak[group])
    ordered.time = np.where(stays & is_past, np.maximum(notice.at, peak[group]), time)
    kept = ordered.opened | (came & ~past)
    own = records & ~waited
    own &= notice.own(offsets)
    refreshed = np.zeros(groups, np.bool_)
    refreshed[group[own]] = True
    return _with_missing(ordered.take(kept), (ordered.opened | waited)[kept], refreshed, notice.at), late


def _never_valid(ordered: RankedRows, records: Flags, stays: Flags, valid: _Valid, same: Same) -> Flags:
    """Flag the records that were valid at no time: they rank below the version that stays valid, and are from after its beginning."""
    group, time = ordered.group, ordered.time
    found = np.flatnonzero(stays & ~ordered.gone & valid.found[group] & (time <= valid.since[group]))
    goes_on = np.zeros_like(valid.found)
    goes_on[group[found[same(ordered.at[found], valid.at[group[found]])]]] = True
    never: Flags = records & ~stays & goes_on[group] & (time > valid.since[group])
    return never


def _with_missing(chosen: RankedRows, before: Flags, refreshed: Flags, at: int) -> RankedRows:
    """Add the end of the keys that the refresh lacks: behind their rows from before, and before those that came later."""
    last_before = before & np.append((chosen.group[1:] != chosen.group[:-1]) | ~before[1:], True)[: len(before)]
    missing = last_before & ~refreshed[chosen.group]
    if not missing.any():
        return chosen
    gone = chosen.take(missing)
    count = len(gone.at)
    gone.time, gone.gone, gone.opened = np.full(count, at), np.ones(count, np.bool_), np.zeros(count, np.bool_)
    both = RankedRows(*(np.concatenate([getattr(chosen, field.name), getattr(gone, field.name)]) for field in fields(RankedRows)))
    phase = np.concatenate([np.where(before, 0, 2), np.ones(count, np.int64)])
    return both.take(np.lexsort((phase, both.group)))


def _seen(flags: Flags, group: Indices, groups: int) -> Indices:
    """Return for each row how many rows of its key are flagged up to it."""
    count = np.bincount(group, flags, groups).astype(np.int64)
    seen: Indices = np.cumsum(flags, dtype=np.int64) - (np.cumsum(count) - count)[group]
    return seen


def _before(flags: Flags, group: Indices, groups: int) -> Flags:
    """Flag the rows below the highest flagged row of their key."""
    found: Flags = _seen(flags, group, groups) < np.bincount(group, flags, groups)[group]
    return found


def _late(past: Flags, ordered: RankedRows, valid: _Valid, bound: Indices, deleted: Flags, same: Same) -> Late:
    """Return the past records without those that are the valid version itself."""
    group, late = ordered.group, past.copy()
    found = np.flatnonzero(past & valid.found[group] & (ordered.time == valid.since[group]) & ~ordered.gone)
    late[found[same(ordered.at[found], valid.at[group[found]])]] = False
    return Late(ordered.at[late], ordered.time[late], bound[late], ordered.gone[late], deleted[late])

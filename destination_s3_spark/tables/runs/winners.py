"""Choice of the row that a deduplicated table keeps for each key.

Input: rows in merge form (payload columns and the control columns of `tables.runs.keys`) in any order. Output: one row per key. The winner
is the first row by cursor descending with nulls last, then `_airbyte_extracted_at` descending, then arrival descending. Before that, rows
that were extracted since a snapshot without cursors began win against all older ones. A tombstone never outranks a row that the table has
beside it. The module knows neither files nor ranges of keys.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from destination_s3_spark.schema.arrow import contiguous
from destination_s3_spark.tables.runs.keys import CURSOR, KEY, OFFSET, KeySpec

EXTRACTED_AT = "_airbyte_extracted_at"
STORED_OFFSET = 2**63 - 1
"""The `_airbyte_offset` of rows in the table. They count as the latest arrivals, so a tie changes nothing."""
BURIED_OFFSET = STORED_OFFSET - 1
"""The `_airbyte_offset` of tombstones in the table. In a tie the row beside them stays, and later arrivals change nothing."""
OPENED_OFFSET = -1
"""The `_airbyte_offset` of versions that a history has as valid. They are no rows of the table."""
CLOSED_OFFSET = -2
"""The `_airbyte_offset` of versions that a history has as ended."""
ENDED_OFFSET = -3
"""The `_airbyte_offset` of versions that end with the merge."""
WAITED = -(2**62)
"""Added to the `_airbyte_offset` of records that a refresh replaces before they were in the table. Only histories have them."""
WAITED_BELOW = WAITED // 2
"""The number below which an `_airbyte_offset` is one of these."""
EARLIER = 2**62
"""Added to the `_airbyte_offset` of the table's rows that are merged as runs. They win ties with landed rows, like rows of table files."""
DEDUPLICATED = EARLIER + 2**61
"""Added instead if those rows were deduplicated. Like rows of table files, no tombstone outranks them."""

_GROUP, _SNAPSHOT = "group", "snapshot"
Indices: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]
Flags: TypeAlias = np.ndarray[Any, np.dtype[np.bool_]]


@dataclass(frozen=True, slots=True)
class Ranking:
    """Rows ordered by key, and within a key from the winner down.

    `order` holds the indices of the rows. `first` flags the positions in `order` where a key starts.
    """

    order: Indices
    first: Flags

    @classmethod
    def of_ranked(cls, rows: pa.Table) -> Ranking:
        """Make the ranking of rows that are already in the order of a ranking."""
        return cls(np.arange(len(rows)), _starts(contiguous(rows[KEY])))

    @property
    def winners(self) -> Indices:
        """The index of the winner of each key, in the order of the keys."""
        winning: Indices = self.order[self.first]
        return winning


def winners(rows: pa.Table, spec: KeySpec) -> pa.Table:
    """Return one row per key, sorted by key. If rows of a key are equal in all criteria, the first of them wins.

    Takes memory for a copy of the winners in addition to `rows`.
    """
    return rows.take(pa.array(ranking(rows, spec).winners))


def ranking(rows: pa.Table, spec: KeySpec) -> Ranking:
    """Rank the rows of each key."""
    keys = contiguous(rows[KEY])
    order = np.array(key_order(keys), np.int64)
    first = _starts(keys.take(pa.array(order)))
    # Most keys have a single row. Only the other keys need the full sort.
    contested = ~(first & np.append(first[1:], True))
    if contested.any():
        groups = np.cumsum(first) - 1
        indices = order[contested]
        order[contested] = indices[_ranked(rows, indices, groups[contested], spec)]
    return Ranking(order, first)


def ranking_at(rows: pa.Table, at: Indices, spec: KeySpec) -> Ranking:
    """Rank the rows at these indices."""
    deciding = [name for name in (KEY, CURSOR, EXTRACTED_AT, OFFSET) if name in rows.schema.names]
    found = ranking(rows.select(deciding).take(pa.array(at)), spec)
    return Ranking(at[found.order], found.first)


def sorted_by_key(rows: pa.Table) -> pa.Table:
    """Return all rows sorted by key. Rows of the same key keep their order."""
    return rows.take(key_order(contiguous(rows[KEY])))


def key_order(keys: pa.BinaryArray) -> pa.UInt64Array:
    """Return the indices that sort the keys stably. Fast if the keys consist of sorted runs."""
    # A single contiguous array, because Arrow sorts several keys or chunks by a slower algorithm.
    return pc.sort_indices(keys)


def _ranked(rows: pa.Table, indices: Indices, groups: Indices, spec: KeySpec) -> Indices:
    """Return the order of the rows at `indices` by group, winners first."""
    names = [EXTRACTED_AT, OFFSET] if spec.cursor is None else [CURSOR, EXTRACTED_AT, OFFSET]
    narrow = rows.select(names).take(pa.array(indices)).append_column(_GROUP, pa.array(groups))
    if spec.snapshots:
        times = np.asarray(contiguous(narrow[EXTRACTED_AT]).cast(pa.int64()))
        snapshots = np.searchsorted(spec.snapshots, times, "right")
        if snapshots.min() < snapshots.max():
            narrow, names = narrow.append_column(_SNAPSHOT, pa.array(snapshots)), [_SNAPSHOT, *names]
    by: list[tuple[str, Literal["ascending", "descending"]]] = [(_GROUP, "ascending"), *((name, "descending") for name in names)]
    # Arrow sorts nulls last in either direction, and NaN before them.
    ranked: Indices = np.asarray(pc.sort_indices(narrow.combine_chunks(), sort_keys=by), np.int64)
    offsets = np.asarray(contiguous(narrow[OFFSET]))[ranked]
    if not (offsets == BURIED_OFFSET).any():
        return ranked
    return ranked[_below_rows(offsets, groups[ranked])]


def _below_rows(offsets: Indices, groups: Indices) -> Indices:
    """Return the order in which tombstones that outrank a row of the table come last in their group.

    Both were compared when the row was written. They may compare differently now, because a tombstone has no value of a new cursor.
    """
    places = np.arange(len(offsets))
    row_at, of_table = np.full(groups[-1] + 1, -1), (offsets >= DEDUPLICATED) & (offsets != BURIED_OFFSET)
    row_at[groups[of_table]] = places[of_table]
    outranks = (offsets == BURIED_OFFSET) & (row_at[groups] > places)
    order: Indices = np.lexsort((places, outranks, groups)) if outranks.any() else places
    return order


def _starts(keys: pa.BinaryArray) -> Flags:
    """Flag each key that differs from the previous one."""
    first = np.ones(len(keys), np.bool_)
    if len(keys) > 1:
        first[1:] = pc.not_equal(keys[1:], keys[:-1]).to_numpy(zero_copy_only=False)
    return first

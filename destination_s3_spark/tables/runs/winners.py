"""Choice of the row that a deduplicated table keeps for each key.

Input: rows in merge form (payload columns and the control columns of `tables.runs.keys`) in any order. Output: one row per key. The winner
is the first row by cursor descending with nulls last, then `_airbyte_extracted_at` descending, then arrival descending. The module knows
neither files nor ranges of keys.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from destination_s3_spark.schema.arrow import contiguous
from destination_s3_spark.tables.runs.keys import CURSOR, KEY, OFFSET

EXTRACTED_AT = "_airbyte_extracted_at"
STORED_OFFSET = 2**63 - 1
"""The `_airbyte_offset` of rows and tombstones already in the table. They count as the latest arrivals, so a tie changes nothing."""

_GROUP = "group"
_Indices: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]
_Flags: TypeAlias = np.ndarray[Any, np.dtype[np.bool_]]


@dataclass(frozen=True, slots=True)
class Ranking:
    """Rows ordered by key, and within a key from the winner down.

    `order` holds the indices of the rows. `first` flags the positions in `order` where a key starts.
    """

    order: _Indices
    first: _Flags

    @property
    def winners(self) -> _Indices:
        """The index of the winner of each key, in the order of the keys."""
        winning: _Indices = self.order[self.first]
        return winning


def winners(rows: pa.Table, has_cursor: bool) -> pa.Table:
    """Return one row per key, sorted by key. If rows of a key are equal in all criteria, the first of them wins.

    Takes memory for a copy of the winners in addition to `rows`.
    """
    return rows.take(pa.array(ranking(rows, has_cursor).winners))


def ranking(rows: pa.Table, has_cursor: bool) -> Ranking:
    """Rank the rows of each key."""
    keys = contiguous(rows[KEY])
    order = np.array(key_order(keys), np.int64)
    first = _starts(keys.take(pa.array(order)))
    # Most keys have a single row. Only the other keys need the full sort.
    contested = ~(first & np.append(first[1:], True))
    if contested.any():
        groups = np.cumsum(first) - 1
        indices = order[contested]
        order[contested] = indices[_ranked(rows, indices, groups[contested], has_cursor)]
    return Ranking(order, first)


def sorted_by_key(rows: pa.Table) -> pa.Table:
    """Return all rows sorted by key. Rows of the same key keep their order."""
    return rows.take(key_order(contiguous(rows[KEY])))


def key_order(keys: pa.BinaryArray) -> pa.UInt64Array:
    """Return the indices that sort the keys stably. Fast if the keys consist of sorted runs."""
    # A single contiguous array, because Arrow sorts several keys or chunks by a slower algorithm.
    return pc.sort_indices(keys)


def _ranked(rows: pa.Table, indices: _Indices, groups: _Indices, has_cursor: bool) -> _Indices:
    """Return the order of the rows at `indices` by group, winners first."""
    names = [CURSOR, EXTRACTED_AT, OFFSET] if has_cursor else [EXTRACTED_AT, OFFSET]
    narrow = rows.select(names).take(pa.array(indices)).append_column(_GROUP, pa.array(groups))
    by: list[tuple[str, Literal["ascending", "descending"]]] = [(_GROUP, "ascending"), *((name, "descending") for name in names)]
    # Arrow sorts nulls last in either direction, and NaN before them.
    ranked: _Indices = np.asarray(pc.sort_indices(narrow.combine_chunks(), sort_keys=by), np.int64)
    return ranked


def _starts(keys: pa.BinaryArray) -> _Flags:
    """Flag each key that differs from the previous one."""
    first = np.ones(len(keys), np.bool_)
    if len(keys) > 1:
        first[1:] = pc.not_equal(keys[1:], keys[:-1]).to_numpy(zero_copy_only=False)
    return first

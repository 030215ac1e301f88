"""Which row of each key a deduplicated table keeps.

Comes in: rows in merge form, that is payload columns with the control columns of `tables.runs.keys`, in any order. Goes out: one row per
key, by the one order there is: cursor descending with nulls last, `_airbyte_extracted_at` descending, arrival descending. Knows neither
files nor ranges.
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
"""The `_airbyte_offset` of rows and tombstones the table already has: they count as the latest arrivals, so a tie changes nothing."""

_GROUP = "group"
_Indices: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]
_Flags: TypeAlias = np.ndarray[Any, np.dtype[np.bool_]]


@dataclass(frozen=True, slots=True)
class Ranking:
    """Rows by key, and those of a key from the winner down. `order` are indices of the rows; `first` says where in it a key begins."""

    order: _Indices
    first: _Flags

    @property
    def winners(self) -> _Indices:
        """The index of the winner of each key, in the order of the keys."""
        winning: _Indices = self.order[self.first]
        return winning


def winners(rows: pa.Table, has_cursor: bool) -> pa.Table:
    """One row per key, sorted by key; the first of the rows where all of the order ties.

    Memory: a copy of the winners beside `rows`.
    """
    return rows.take(pa.array(ranking(rows, has_cursor).winners))


def ranking(rows: pa.Table, has_cursor: bool) -> Ranking:
    """The order that decides."""
    keys = contiguous(rows[KEY])
    order = np.array(key_order(keys), np.int64)
    first = _starts(keys.take(pa.array(order)))
    # Most keys have one row, and only the others need the whole order.
    contested = ~(first & np.append(first[1:], True))
    if contested.any():
        groups = np.cumsum(first) - 1
        indices = order[contested]
        order[contested] = indices[_ranked(rows, indices, groups[contested], has_cursor)]
    return Ranking(order, first)


def sorted_by_key(rows: pa.Table) -> pa.Table:
    """All the rows sorted by key; rows of one key stay in their order."""
    return rows.take(key_order(contiguous(rows[KEY])))


def key_order(keys: pa.BinaryArray) -> pa.UInt64Array:
    """The indices that sort the keys, stably: cheap where sorted runs follow each other."""
    # Of an array of its own: with further sort keys, or chunks, Arrow takes another and slower way.
    return pc.sort_indices(keys)


def _ranked(rows: pa.Table, indices: _Indices, groups: _Indices, has_cursor: bool) -> _Indices:
    """The order of the rows at `indices` by group, winners first."""
    names = [CURSOR, EXTRACTED_AT, OFFSET] if has_cursor else [EXTRACTED_AT, OFFSET]
    narrow = rows.select(names).take(pa.array(indices)).append_column(_GROUP, pa.array(groups))
    by: list[tuple[str, Literal["ascending", "descending"]]] = [(_GROUP, "ascending"), *((name, "descending") for name in names)]
    # Arrow puts nulls last whichever way a column is sorted, and NaN before them.
    ranked: _Indices = np.asarray(pc.sort_indices(narrow.combine_chunks(), sort_keys=by), np.int64)
    return ranked


def _starts(keys: pa.BinaryArray) -> _Flags:
    """Where a key differs from the one before it."""
    first = np.ones(len(keys), np.bool_)
    if len(keys) > 1:
        first[1:] = pc.not_equal(keys[1:], keys[:-1]).to_numpy(zero_copy_only=False)
    return first

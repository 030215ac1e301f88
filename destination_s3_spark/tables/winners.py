"""Which row of each key a deduplicated table keeps.

Comes in: rows in merge form, that is payload columns with the control columns of `tables.keys`, in any order. Goes out: one row per
key, by the one order there is: cursor descending with nulls last, `_airbyte_extracted_at` descending, arrival descending. Knows neither
files nor ranges.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from destination_s3_spark.tables.keys import CURSOR, KEY, OFFSET

EXTRACTED_AT = "_airbyte_extracted_at"
STORED_OFFSET = 2**63 - 1
"""The `_airbyte_offset` of rows and tombstones the table already has: they count as the latest arrivals, so a tie changes nothing."""

_GROUP = "group"
_Indices = np.ndarray[Any, np.dtype[np.int64]]


def winners(rows: pa.Table, has_cursor: bool) -> pa.Table:
    """One row per key, sorted by key; the first of the rows where all of the order ties.

    Memory: a copy of the winners beside `rows`.
    """
    return rows.take(pa.array(_winning(rows, has_cursor)))


def sorted_by_key(rows: pa.Table) -> pa.Table:
    """All the rows sorted by key; rows of one key stay in their order."""
    return rows.take(key_order(_contiguous(rows, KEY)))


def key_order(keys: pa.BinaryArray) -> pa.UInt64Array:
    """The indices that sort the keys, stably: cheap where sorted runs follow each other."""
    # Of an array of its own: with further sort keys, or chunks, Arrow takes another and slower way.
    return pc.sort_indices(keys)


def _winning(rows: pa.Table, has_cursor: bool) -> _Indices:
    """The index of the winner of each key, in the order of the keys."""
    keys = _contiguous(rows, KEY)
    order = np.asarray(key_order(keys), np.int64)
    first = _starts(keys.take(pa.array(order)))
    group = np.cumsum(first) - 1
    # Most keys have one row, and only the others need the whole order.
    alone = first & np.append(first[1:], True)
    contested = order[~alone]
    winning: _Indices = order[first]
    if len(contested):
        ranked = _ranked(rows, contested, group[~alone], has_cursor)
        groups = group[~alone][ranked]
        best = np.append(True, groups[1:] != groups[:-1])
        winning[groups[best]] = contested[ranked][best]
    return winning


def _ranked(rows: pa.Table, indices: _Indices, groups: _Indices, has_cursor: bool) -> _Indices:
    """The order of the rows at `indices` by group, winners first."""
    names = [CURSOR, EXTRACTED_AT, OFFSET] if has_cursor else [EXTRACTED_AT, OFFSET]
    narrow = rows.select(names).take(pa.array(indices)).append_column(_GROUP, pa.array(groups))
    by: list[tuple[str, Literal["ascending", "descending"]]] = [(_GROUP, "ascending"), *((name, "descending") for name in names)]
    # Arrow puts nulls last whichever way a column is sorted, and NaN before them.
    ranked: _Indices = np.asarray(pc.sort_indices(narrow.combine_chunks(), sort_keys=by), np.int64)
    return ranked


def _starts(keys: pa.BinaryArray) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Where a key differs from the one before it."""
    first = np.ones(len(keys), np.bool_)
    if len(keys) > 1:
        first[1:] = pc.not_equal(keys[1:], keys[:-1]).to_numpy(zero_copy_only=False)
    return first


def _contiguous(rows: pa.Table, name: str) -> pa.Array[Any]:
    return rows[name].combine_chunks()

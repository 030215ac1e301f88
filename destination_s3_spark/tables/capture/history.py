"""History of each key for which a merge has records, and the values that its records left out.

Input: rows in merge form and their ranking. Output: for each key, the records that count, newest first, followed by the table's own row.
Debezium writes a placeholder for a large value that an update did not change, because the source's log does not contain it (TOAST in
Postgres). The previous row has the value.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from destination_s3_spark.tables.runs.keys import OFFSET
from destination_s3_spark.tables.runs.soft_deletions import DATA, Resolution
from destination_s3_spark.tables.runs.winners import BURIED_OFFSET, Flags, Indices, Ranking

PLACEHOLDER = "__debezium_unavailable_value"


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

    @classmethod
    def of(cls, merged: pa.Table, ranking: Ranking, gone: Flags, *, net: bool = False) -> History:
        """Derive the history from rows and their ranking. `gone` flags deletions. With `net` only the newest record of a key counts."""
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
        return cls(rows, group[kept], record[kept], gone[rows])

    @classmethod
    def of_late(cls, made_of: Resolution) -> History:
        """Make the history of rows that arrived after their deletion: each of them, followed by the table's deleted row."""
        pairs = np.stack([made_of.values[made_of.late], made_of.table], axis=1).ravel()
        record = np.tile([True, False], len(made_of.late))
        return cls(pairs, made_of.late.repeat(2), record, np.zeros(len(pairs), np.bool_))

    @cached_property
    def on_live(self) -> Flags:
        """Whether a live row of the same key preceded each row. That row is the next one in the history."""
        if not len(self.rows):
            return self.gone
        same_key = np.append(self.group[1:] == self.group[:-1], False)
        live: Flags = same_key & ~np.append(self.gone[1:], True)
        return live


@dataclass(frozen=True, slots=True)
class Provided:
    """A column of a history with the missing values filled in."""

    values: pa.Array[Any]
    given: Flags
    """Whether each record provided a value or null."""
    lost: Flags
    """Whether each record lacked a value and had no previous row with one."""


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
    stops = np.where(~absent | ~history.on_live, np.arange(len(absent)), len(absent))
    source = np.minimum.accumulate(stops[::-1])[::-1]
    lost = absent[source]
    return Provided(values.take(pa.array(source, mask=lost)), ~absent, lost)

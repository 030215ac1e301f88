"""The rows of the keys that a merge has records for, in the order in which they came to be.

Comes in: rows in merge form and their ranking. Goes out: of each key the records that count, newest first, then the table's own row.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from destination_s3_spark.tables.runs.keys import OFFSET
from destination_s3_spark.tables.runs.winners import STORED_OFFSET, Ranking

Indices: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]
Flags: TypeAlias = np.ndarray[Any, np.dtype[np.bool_]]


@dataclass(frozen=True)
class History:
    """`rows` are the indices of rows in merge form, `group` numbers their keys as the ranking has them.

    `record` says which rows are records, and not what the table has; `gone` which leave no row behind: deletions.
    """

    rows: Indices
    group: Indices
    record: Flags
    gone: Flags

    @classmethod
    def of(cls, merged: pa.Table, ranking: Ranking, gone: Flags, *, net: bool = False) -> History:
        """The history in rows of this ranking, of which `gone` are deletions. `net`: of a key's records only the newest counts."""
        stored = (np.asarray(merged[OFFSET]) == STORED_OFFSET)[ranking.order]
        group = np.cumsum(ranking.first) - 1
        seen = np.cumsum(stored)
        seen -= (seen - stored)[ranking.first][group]
        # What the table has counts from the newest of its rows on, a live one or a deletion: records below that come too late.
        record = (seen == 0) & ranking.first if net else seen == 0
        has_records = np.zeros(len(group), np.bool_)
        has_records[group[record]] = True
        kept = np.flatnonzero((record | (stored & (seen == 1))) & has_records[group])
        rows = ranking.order[kept]
        return cls(rows, group[kept], record[kept], gone[rows])

    @cached_property
    def on_live(self) -> Flags:
        """Whether there was a row of the key before this one, which then comes next."""
        if not len(self.rows):
            return self.gone
        same_key = np.append(self.group[1:] == self.group[:-1], False)
        live: Flags = same_key & ~np.append(self.gone[1:], True)
        return live

"""Values that a CDC source did not provide, taken from the previous row.

Debezium writes a placeholder for a large value that an update did not change, because the source's log does not contain it (TOAST in
Postgres).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from destination_s3_spark.tables.capture.history import History
from destination_s3_spark.tables.runs.soft_deletions import DATA
from destination_s3_spark.tables.runs.winners import Flags

PLACEHOLDER = "__debezium_unavailable_value"


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

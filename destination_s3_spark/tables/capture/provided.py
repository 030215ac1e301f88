"""Values that a CDC source did not provide: they are those of the row before.

Debezium writes a placeholder for a large value that an update left alone, so that the source's log does not have it (TOAST in Postgres).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from destination_s3_spark.tables.capture.history import Flags, History

DATA = "_airbyte_data"
"""The column of rows that are text."""
PLACEHOLDER = "__debezium_unavailable_value"


@dataclass(frozen=True, slots=True)
class Provided:
    """A column of a history. `given`: the record had a value, or null; `lost`: it had none, and there was no row before to have it of."""

    values: pa.Array[Any]
    given: Flags
    lost: Flags


def has_placeholder(values: pa.Array[Any] | pa.ChunkedArray[Any]) -> bool:
    """Whether the column has a value that was not provided; only text has."""
    return pa.types.is_string(values.type) and bool(pc.any(pc.equal(values, PLACEHOLDER)).as_py())


def may_have_placeholder(rows: pa.Table, *, of_text: bool) -> bool:
    """Whether rows in merge form may have a value that was not provided: in a column, or in their text."""
    if of_text:
        return bool(pc.any(pc.match_substring(rows[DATA], PLACEHOLDER)).as_py())
    return any(map(has_placeholder, rows.columns))


def provided(values: pa.Array[Any], history: History) -> Provided:
    """The column with the values that were not provided taken from the row before; null where there is none."""
    absent = pc.equal(values, PLACEHOLDER).fill_null(False).to_numpy(zero_copy_only=False) & history.record
    # Newest first: a value comes from the next row that has it, unless there was no row when an earlier one of these records came.
    stops = np.where(~absent | ~history.on_live, np.arange(len(absent)), len(absent))
    source = np.minimum.accumulate(stops[::-1])[::-1]
    lost = absent[source]
    return Provided(values.take(pa.array(source, mask=lost)), ~absent, lost)

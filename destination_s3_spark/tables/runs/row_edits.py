"""Edits of some rows of a table: other values in a column, other members in the text of a record."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pyarrow as pa

from destination_s3_spark.schema.arrow import contiguous
from destination_s3_spark.tables.runs.winners import Indices


def replaced(table: pa.Table, name: str, at: Iterable[int] | Indices, values: pa.Array[Any]) -> pa.Table:
    """Return the table with these values of a column in the rows `at`."""
    places = np.asarray(at, np.int64)
    indices = np.arange(len(table))
    indices[places] = len(table) + np.arange(len(places))
    column = pa.concat_arrays([contiguous(table[name]), values]).take(pa.array(indices))
    number = table.schema.get_field_index(name)
    return table.set_column(number, table.schema.field(number), column)


def edited(table: pa.Table, name: str, at: Indices, edit: Callable[[int, Any], Any]) -> pa.Table:
    """Return the table with a column edited in the rows `at`. `edit` takes a row and its value, and returns the new value."""
    if not len(at):
        return table
    column = contiguous(table[name])
    values = [edit(row, column[row].as_py()) for row in at.tolist()]
    return replaced(table, name, at, pa.array(values, column.type))

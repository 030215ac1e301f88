"""Concatenation of encoded parts to rows, and access to the bytes of rows."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Part = Any
"""A pa.BinaryArray, or bytes that are repeated in every row."""


def joined(parts: Sequence[Part]) -> pa.BinaryArray:
    """Join the parts of each row. A null part adds no bytes."""
    rows: pa.BinaryArray = pc.binary_join_element_wise(*parts, b"", null_handling="replace", null_replacement=b"")
    return rows


def row_offsets(rows: pa.BinaryArray | pa.StringArray) -> np.ndarray[Any, Any]:
    """Return the start of each row in `row_bytes`, and the end of the last row."""
    if len(rows) == 0:
        return np.zeros(1, np.int32)
    return np.frombuffer(rows.buffers()[1], np.int32)[rows.offset : rows.offset + len(rows) + 1]


def row_bytes(rows: pa.BinaryArray | pa.StringArray) -> pa.Buffer:
    """Return the bytes of all rows. `row_offsets` says where each row starts."""
    return rows.buffers()[2] or pa.py_buffer(b"")


def decimal_bytes(decimals: pa.Array[Any]) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Return the digits of each decimal as a row of 16 bytes: a little-endian integer in two's complement. Null is zero."""
    size = decimals.type.byte_width
    if len(decimals) == 0:
        return np.empty((0, size), np.uint8)
    filled = decimals.fill_null(pa.scalar(Decimal(0), decimals.type))
    return np.frombuffer(filled.buffers()[1], np.uint8)[size * filled.offset :][: size * len(filled)].reshape(-1, size)

"""The rows of a block as one run of bytes: how Arrow puts them together, and where each begins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Piece = Any
"""A pa.BinaryArray, or bytes that stand in every row."""


def joined(pieces: Sequence[Piece]) -> pa.BinaryArray:
    """The pieces of each row put together; null is nothing."""
    rows: pa.BinaryArray = pc.binary_join_element_wise(*pieces, b"", null_handling="replace", null_replacement=b"")
    return rows


def row_offsets(rows: pa.BinaryArray | pa.StringArray) -> np.ndarray[Any, Any]:
    """Where each row begins in `row_bytes`, and the end of the last."""
    if len(rows) == 0:
        return np.zeros(1, np.int32)
    return np.frombuffer(rows.buffers()[1], np.int32)[rows.offset : rows.offset + len(rows) + 1]


def row_bytes(rows: pa.BinaryArray | pa.StringArray) -> pa.Buffer:
    """The bytes of all rows, which `row_offsets` divides."""
    return rows.buffers()[2] or pa.py_buffer(b"")

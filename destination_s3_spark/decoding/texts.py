"""The texts of `data` of a block's rows, and arrays of them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any, Protocol

import numpy as np
import pyarrow as pa


class Texts(Protocol):
    """The texts of `data` of a block's rows, for when they are asked for."""

    def array(self) -> pa.Array[Any]:
        """All of them."""

    def of_rows(self, rows: Sequence[int]) -> Sequence[bytes]:
        """Those of these rows."""


class UnitTexts(Texts):
    """The texts of units."""

    def __init__(self, units: Sequence[Sequence[bytes]]) -> None:
        self._units = units

    def array(self) -> pa.Array[Any]:
        """All of them."""
        return joined([text_array(texts) for texts in self._units], pa.string())

    def of_rows(self, rows: Sequence[int]) -> Sequence[bytes]:
        """Those of these rows."""
        texts = list(chain.from_iterable(self._units))
        return [texts[row] for row in rows]


def text_array(texts: Sequence[bytes]) -> pa.StringArray:
    """The texts, known to be UTF-8, as a string column."""
    offsets = np.zeros(len(texts) + 1, np.int32)
    np.cumsum(np.fromiter(map(len, texts), np.int32, len(texts)), out=offsets[1:])
    return pa.StringArray.from_buffers(len(texts), pa.py_buffer(offsets), pa.py_buffer(b"".join(texts)))


def is_utf8(text: bytes) -> bool:
    """Checked by Arrow, which is several times as fast at it as Python."""
    offsets = np.array([0, len(text)], np.int32)
    try:
        pa.StringArray.from_buffers(1, pa.py_buffer(offsets), pa.py_buffer(text)).validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def joined(arrays: Sequence[pa.Array[Any]], arrow_type: pa.DataType) -> pa.Array[Any]:
    """One array of these, which are of this type."""
    if len(arrays) == 1:
        return arrays[0]
    return pa.concat_arrays(arrays) if arrays else pa.array([], arrow_type)

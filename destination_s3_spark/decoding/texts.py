"""The `data` texts of a block's rows, as bytes and as Arrow arrays."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any, Protocol

import numpy as np
import pyarrow as pa


class Texts(Protocol):
    """The `data` texts of a block's rows, made on demand."""

    def array(self) -> pa.Array[Any]:
        """Return the texts of all rows as a string array."""

    def of_rows(self, rows: Sequence[int]) -> Sequence[bytes]:
        """Return the texts of the given rows."""


class UnitTexts(Texts):
    """The `data` texts of a block that was typed in units."""

    def __init__(self, units: Sequence[Sequence[bytes]]) -> None:
        self._units = units

    def array(self) -> pa.Array[Any]:
        """Return the texts of all rows as a string array."""
        return joined([text_array(texts) for texts in self._units], pa.string())

    def of_rows(self, rows: Sequence[int]) -> Sequence[bytes]:
        """Return the texts of the given rows."""
        texts = list(chain.from_iterable(self._units))
        return [texts[row] for row in rows]


def text_array(texts: Sequence[bytes]) -> pa.StringArray:
    """Return the texts as a string array. They must be valid UTF-8, which is not checked."""
    offsets = np.zeros(len(texts) + 1, np.int32)
    np.cumsum(np.fromiter(map(len, texts), np.int32, len(texts)), out=offsets[1:])
    return pa.StringArray.from_buffers(len(texts), pa.py_buffer(offsets), pa.py_buffer(b"".join(texts)))


def is_utf8(text: bytes) -> bool:
    """Return whether the text is valid UTF-8. Arrow checks it several times as fast as Python."""
    offsets = np.array([0, len(text)], np.int32)
    try:
        pa.StringArray.from_buffers(1, pa.py_buffer(offsets), pa.py_buffer(text)).validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def joined(arrays: Sequence[pa.Array[Any]], arrow_type: pa.DataType) -> pa.Array[Any]:
    """Concatenate arrays of this type."""
    if len(arrays) == 1:
        return arrays[0]
    return pa.concat_arrays(arrays) if arrays else pa.array([], arrow_type)

"""New values of `_airbyte_raw_id`."""

from __future__ import annotations

import os
import time

import numpy as np
import pyarrow as pa

ID_BYTES = 16
_ID_LENGTH = 36
_HEX = np.frombuffer("".join(f"{byte:02x}" for byte in range(256)).encode(), np.uint16)
"""The two hexadecimal digits of each byte value, packed into one 16-bit number."""
_ID_HYPHENS = (8, 13, 18, 23)
_ID_DIGITS = [at for at in range(_ID_LENGTH) if at not in _ID_HYPHENS]


def raw_ids(count: int) -> pa.StringArray:
    """Return `count` new UUIDs of version 7 (RFC 9562): 48 bits of wall-clock time in milliseconds, then random bits."""
    ids = np.frombuffer(os.urandom(count * ID_BYTES), np.uint8).reshape(count, ID_BYTES).copy()
    ids[:, :6] = np.frombuffer((time.time_ns() // 1_000_000).to_bytes(6, "big"), np.uint8)
    ids[:, 6] = ids[:, 6] & 0x0F | 0x70
    ids[:, 8] = ids[:, 8] & 0x3F | 0x80
    texts = np.full((count, _ID_LENGTH), ord("-"), np.uint8)
    texts[:, _ID_DIGITS] = _HEX[ids].view(np.uint8)
    offsets = np.arange(0, (count + 1) * _ID_LENGTH, _ID_LENGTH, dtype=np.int32)
    return pa.StringArray.from_buffers(count, pa.py_buffer(offsets), pa.py_buffer(texts))

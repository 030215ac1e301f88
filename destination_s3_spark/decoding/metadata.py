"""Construction of a block's `_airbyte_raw_id` and `_airbyte_meta` columns."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from destination_s3_spark.decoding.changes import Change

META_COLUMNS = 4
"""Number of `_airbyte_*` columns at the start of every table: raw id, extracted at, meta, generation id."""

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


def meta_array(sync_ids: pa.Array[Any], changes: Sequence[Change], meta_type: pa.StructType) -> pa.StructArray:
    """Build `_airbyte_meta` for rows with these sync ids (int64). `changes` must be in row order."""
    rows = len(sync_ids)
    of_row = np.zeros(rows + 1, np.int32)
    if changes:
        counts = np.bincount(np.fromiter((change.row for change in changes), np.int64, len(changes)), minlength=rows)
        np.cumsum(counts, out=of_row[1:])
    list_type = meta_type.field("changes").type
    parts = dict(zip(Change._fields, zip(*changes, strict=True), strict=True)) if changes else {}
    columns: list[Any] = [pa.array(parts.get(field.name, ()), field.type) for field in list_type.value_type]
    entries = pa.StructArray.from_arrays(columns, fields=list(list_type.value_type))
    lists = pa.ListArray.from_arrays(pa.array(of_row), entries, type=list_type)
    return pa.StructArray.from_arrays([sync_ids, lists], fields=[meta_type.field("sync_id"), meta_type.field("changes")])

"""New values of `_airbyte_raw_id`, and those that carry the key of a record whose key does not fit its type."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from destination_s3_spark.exact_json.values import NULL, compact, split_object

ID_BYTES = 16
_ID_LENGTH = 36
_HEX = np.frombuffer("".join(f"{byte:02x}" for byte in range(256)).encode(), np.uint16)
"""The two hexadecimal digits of each byte value, packed into one 16-bit number."""
_ID_HYPHENS = (8, 13, 18, 23)
_ID_DIGITS = [at for at in range(_ID_LENGTH) if at not in _ID_HYPHENS]
_DIGEST_BYTES = 10
_VERSION_AT = 14


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


def key_text(data: bytes, sources: Iterable[str]) -> bytes:
    """Return the compact JSON texts of the key's values in a record's `data`, one per line; `null` for an absent one."""
    values = split_object(data)
    return b"\n".join(compact(bytes(values.get(source, NULL))) for source in sources)


def keyed_id(raw_id: str, key: bytes) -> str:
    """Return the keyed id of a record that would otherwise have `raw_id`. Different keys have different digests, barring a collision."""
    digest = hashlib.blake2b(key, digest_size=_DIGEST_BYTES).hexdigest()
    own = raw_id[15], raw_id[19:21], raw_id[28:]
    return f"{digest[:8]}-{digest[8:12]}-8{own[0]}{digest[12:14]}-{own[1]}{digest[14:16]}-{digest[16:]}{own[2]}"


def carried_digest(raw_id: str) -> str | None:
    """Return the digest in a keyed id, or None if the id is not a keyed one."""
    if raw_id[_VERSION_AT : _VERSION_AT + 1] != "8":
        return None
    return raw_id[:8] + raw_id[9:13] + raw_id[16:18] + raw_id[21:23] + raw_id[24:28]

"""Keyed ids: raw ids that carry a digest of the primary key, for records with a key value that does not fit its type.

Such a value is null in its column or truncated, so the columns alone cannot tell the record from others. The digest is that of the key as
the source sent it. A keyed id is a UUID of version 8 (RFC 9562); all other raw ids are of version 7. 80 bits hold the digest. 42 bits come
from the raw id that the record would otherwise have, so that every record has an id of its own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from destination_s3_spark.exact_json.values import NULL, compact, split_object

_DIGEST_BYTES = 10
_VERSION_AT = 14


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

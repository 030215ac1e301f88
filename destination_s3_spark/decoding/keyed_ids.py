"""Raw ids of records whose primary key does not fit its type: they carry a digest of the key as the source sent it.

Such a key is null in its columns, and so no column tells the record from others like it. The ids are UUIDs of version 8 (RFC 9562), all
others are of version 7: 80 bits are the digest, 42 are those of the id the record would have, so that every record has its own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from destination_s3_spark.exact_json.values import NULL, compact, split_object

_DIGEST_BYTES = 10
_VERSION_AT = 14


def key_text(data: bytes, sources: Iterable[str]) -> bytes:
    """The values of a record's key as they stand in its `data`."""
    values = split_object(data)
    return b"\n".join(compact(bytes(values.get(source, NULL))) for source in sources)


def keyed_id(raw_id: str, key: bytes) -> str:
    """The id that carries this key, for a record with this raw id. Keys that differ have different digests."""
    digest = hashlib.blake2b(key, digest_size=_DIGEST_BYTES).hexdigest()
    own = raw_id[15], raw_id[19:21], raw_id[28:]
    return f"{digest[:8]}-{digest[8:12]}-8{own[0]}{digest[12:14]}-{own[1]}{digest[14:16]}-{digest[16:]}{own[2]}"


def carried_digest(raw_id: str) -> str | None:
    """The digest in the id, None for an id that carries none."""
    if raw_id[_VERSION_AT : _VERSION_AT + 1] != "8":
        return None
    return raw_id[:8] + raw_id[9:13] + raw_id[16:18] + raw_id[21:23] + raw_id[24:28]

"""Names of tables in catalogs: those that every engine reads without quotes, and the streams whose names would be the same."""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping

from destination_s3_spark.stream_id import StreamId

_LONGEST = 255
_OTHER = re.compile(r"[^a-z0-9_]")


def catalog_name(name: str) -> str:
    """Return the name in lower case with an underscore for every character that is neither a letter of ASCII nor a digit."""
    return _OTHER.sub("_", name.lower())[:_LONGEST]


def colliding(names: Mapping[StreamId, Hashable]) -> dict[StreamId, StreamId]:
    """Map each stream whose name in the catalog, or place in the bucket, is also another stream's to that other stream."""
    owners: dict[Hashable, list[StreamId]] = {}
    for stream, name in names.items():
        owners.setdefault(name, []).append(stream)
    return {
        stream: next(other for other in sharing if other != stream) for sharing in owners.values() if len(sharing) > 1 for stream in sharing
    }

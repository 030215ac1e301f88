"""Stream names as parts of S3 keys: safe characters, safe segments, and a short stable hash to keep names apart."""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata

from destination_s3_spark.stream_id import StreamId

_UNSAFE = re.compile(r"[^A-Za-z0-9/!_.*')(&$@=;:+,?-]")
_WHEN_EMPTY = "unnamed"


def safe_characters(text: str) -> str:
    """Return destination-s3's form of a name: NFKD without combining marks, and `_` for each character that is unsafe in S3 keys."""
    decomposed = unicodedata.normalize("NFKD", text)
    return _UNSAFE.sub("_", "".join(c for c in decomposed if not unicodedata.category(c).startswith("M")))


def safe_segments(path: str) -> str:
    """Return the path without empty segments. `.` and `..` become underscores because readers and browsers would resolve them."""
    segments = (segment for segment in path.split("/") if segment)
    return "/".join("_" * len(segment) if segment in {".", ".."} else segment for segment in segments)


def namespace_folder(namespace: str | None) -> str:
    """Return the folder of a namespace, which may contain slashes; empty without a namespace."""
    return safe_segments(safe_characters(namespace or ""))


def stream_folder(name: str) -> str:
    """Return the folder of a stream's name, which may contain slashes; never empty."""
    return safe_segments(safe_characters(name)) or _WHEN_EMPTY


def stream_hash(stream: StreamId) -> str:
    """Return 8 hex digits of the stream's identity, the same in every sync."""
    return hashlib.sha256(json.dumps([stream.namespace or "", stream.name]).encode()).hexdigest()[:8]

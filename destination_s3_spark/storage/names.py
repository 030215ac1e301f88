"""Names of streams as parts of S3 keys: safe characters, safe segments, and a stable short hash where two names must stay apart."""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata

from destination_s3_spark.stream_id import StreamId

_UNSAFE = re.compile(r"[^A-Za-z0-9/!_.*')(&$@=;:+,?-]")
_WHEN_EMPTY = "unnamed"


def safe_characters(text: str) -> str:
    """destination-s3's form of a name: compatibility decomposition, no combining marks, `_` for what S3 keys had better not hold."""
    decomposed = unicodedata.normalize("NFKD", text)
    return _UNSAFE.sub("_", "".join(c for c in decomposed if not unicodedata.category(c).startswith("M")))


def safe_segments(path: str) -> str:
    """The path without empty segments, `.` and `..` written with underscores: readers and browsers would resolve them."""
    segments = (segment for segment in path.split("/") if segment)
    return "/".join("_" * len(segment) if segment in {".", ".."} else segment for segment in segments)


def namespace_folder(namespace: str | None) -> str:
    """The folder (or folders, it may hold slashes) of a namespace; empty when there is none."""
    return safe_segments(safe_characters(namespace or ""))


def stream_folder(name: str) -> str:
    """The folder or folders of a stream's name; never empty."""
    return safe_segments(safe_characters(name)) or _WHEN_EMPTY


def stream_hash(stream: StreamId) -> str:
    """8 hex digits of the stream's identity, the same in every sync."""
    return hashlib.sha256(json.dumps([stream.namespace or "", stream.name]).encode()).hexdigest()[:8]

"""Routing of record lines to streams by the first bytes of the line.

The envelope before `"data":` is the same text for all records of a stream, except for an `emitted_at` in it. Once such a prefix has been
parsed, an equal prefix means the same stream and the rest of the line needs no parsing. Routing thus costs one hash lookup per line for any
number of streams. The record decoder checks the stream again, so a line that contradicts its prefix is an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import msgspec

from destination_s3_spark.protocol.line_router import DATA_KEY, LineRouter
from destination_s3_spark.stream_id import StreamId

PREFIXES_PER_STREAM = 64
"""Maximum number of prefixes per stream. More variants mean that the envelope contains record data, and learning them wastes memory."""

_EMITTED_AT = re.compile(rb'"emitted_at": ?([0-9]++)')
_MARKER = "data follows"


class Routes:
    """Prefixes learnt so far, per stream. The router holds those that are equal in every line of a stream."""

    def __init__(self, streams: Iterable[StreamId], router: LineRouter) -> None:
        ids = tuple(streams)
        self._router = router
        self._by_template: dict[bytes, int] = {}
        self._names_with_namespace = {stream.name for stream in ids if stream.namespace is not None}
        self._learnt = dict.fromkeys(range(len(ids)), 0)

    def find(self, line: bytes) -> int | None:
        """Return the stream if the line's prefix is known except for `emitted_at`, else None."""
        if not self._by_template:
            return None
        template = _template(_prefix(line))
        return None if template is None else self._by_template.get(template)

    def learn(self, line: bytes, stream: StreamId, *, names_namespace: bool, index: int) -> None:
        """Remember the prefix of a parsed record line if the prefix alone determines the stream."""
        prefix = _prefix(line)
        if self._learnt[index] >= PREFIXES_PER_STREAM or not self._decides(prefix, stream, names_namespace):
            return
        self._learnt[index] += 1
        template = _template(prefix)
        if template is None:
            self._router.learn(prefix, index)
        else:
            self._by_template[template] = index

    def forget(self, stream: int) -> None:
        """Drop the prefixes of a stream and learn no more of them, so that each of its further lines is parsed."""
        self._router.forget(stream)
        self._by_template = {template: known for template, known in self._by_template.items() if known != stream}
        self._learnt[stream] = PREFIXES_PER_STREAM

    def _decides(self, prefix: bytes, stream: StreamId, names_namespace: bool) -> bool:
        """Return whether the prefix up to `"data":` belongs to a RECORD of this stream with `data` at the record's top level.

        The marker proves that this `"data":` is the record's own key, not part of a string or a nested object. A prefix without a namespace
        is ambiguous in two cases: a namespace follows the data (`names_namespace`), or the catalog has the name under a namespace.
        """
        try:
            message: Any = msgspec.json.decode(b'%b"%b"}}' % (prefix, _MARKER.encode()))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return False
        record = message.get("record")
        if message.get("type") != "RECORD" or not isinstance(record, dict) or record.get("data") != _MARKER:
            return False
        if record.get("stream") != stream.name or (record.get("namespace") or None) != stream.namespace:
            return False
        return "namespace" in record or not (names_namespace or stream.name in self._names_with_namespace)


def _prefix(line: bytes) -> bytes:
    return line[: line.find(DATA_KEY) + len(DATA_KEY)]


def _template(prefix: bytes) -> bytes | None:
    """Return the prefix without the digits of its `emitted_at`, or None if it has none."""
    emitted_at = _EMITTED_AT.search(prefix)
    return None if emitted_at is None else prefix[: emitted_at.start(1)] + prefix[emitted_at.end(1) :]

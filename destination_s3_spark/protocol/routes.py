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

from destination_s3_spark.stream_id import StreamId

DATA_KEY = b'"data":'
"""End of a prefix. A line that spells it differently is parsed."""
PREFIXES_PER_STREAM = 64
"""Maximum number of prefixes per stream. More variants mean that the envelope contains record data, and learning them wastes memory."""

_EMITTED_AT = re.compile(rb'"emitted_at": ?([0-9]++)')
_MARKER = "data follows"


class Pending:
    """Lines of one stream that were read but not yet handed on: the lines of each run, and the runs (see `messages.Records`)."""

    __slots__ = ("lines", "runs", "stream")

    def __init__(self, stream: int) -> None:
        self.stream = stream
        self.lines: list[memoryview] = []
        self.runs: list[tuple[int, int]] = []


class Routes:
    """Prefixes learnt so far, per stream. `by_prefix` serves the reader's inner loop and is updated in place."""

    def __init__(self, streams: Iterable[StreamId]) -> None:
        ids = tuple(streams)
        self.by_prefix: dict[bytes, Pending] = {}
        self._by_template: dict[bytes, Pending] = {}
        self._names_with_namespace = {stream.name for stream in ids if stream.namespace is not None}
        self._learnt = dict.fromkeys(range(len(ids)), 0)

    def find(self, line: bytes) -> Pending | None:
        """Return the pending lines of the stream if the line's prefix is known except for `emitted_at`, else None."""
        if not self._by_template:
            return None
        template = _template(_prefix(line))
        return None if template is None else self._by_template.get(template)

    def learn(self, line: bytes, stream: StreamId, *, names_namespace: bool, pending: Pending) -> None:
        """Remember the prefix of a parsed record line if the prefix alone determines the stream."""
        prefix = _prefix(line)
        if self._learnt[pending.stream] >= PREFIXES_PER_STREAM or not self._decides(prefix, stream, names_namespace):
            return
        self._learnt[pending.stream] += 1
        template = _template(prefix)
        if template is None:
            self.by_prefix[prefix] = pending
        else:
            self._by_template[template] = pending

    def forget(self, pending: Pending) -> None:
        """Drop the prefixes of a stream and learn no more of them, so that each of its further lines is parsed."""
        for known in (self.by_prefix, self._by_template):
            for prefix in [prefix for prefix, owner in known.items() if owner is pending]:
                del known[prefix]
        self._learnt[pending.stream] = PREFIXES_PER_STREAM

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

"""Which stream a record line belongs to, told from its first bytes.

The envelope before `"data":` is the same text for all records of a stream (but for `emitted_at`, if it stands there). Once one such
prefix has been parsed, an equal prefix means the same stream, and the rest of the line need not be looked at: one hash lookup a line,
whatever the number of streams. Whoever types the line checks its stream again, so a line that contradicts its prefix is an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import msgspec

from destination_s3_spark.stream_id import StreamId

DATA_KEY = b'"data":'
"""What ends a prefix; a line that spells it otherwise is parsed."""
PREFIXES_PER_STREAM = 64
"""A source whose envelopes vary more than this has something of the record in them; learning more would only cost memory."""

_EMITTED_AT = re.compile(rb'"emitted_at": ?([0-9]++)')
_MARKER = "data follows"


class Pending:
    """Lines of one stream that were read and not handed on yet: those of each run, and the runs (see `messages.Records`)."""

    __slots__ = ("lines", "runs", "stream")

    def __init__(self, stream: int) -> None:
        self.stream = stream
        self.lines: list[memoryview] = []
        self.runs: list[tuple[int, int]] = []


class Routes:
    """Prefixes learnt so far, per stream. `by_prefix` is the lookup for the reader's inner loop; it is updated in place."""

    def __init__(self, streams: Iterable[StreamId]) -> None:
        ids = tuple(streams)
        self.by_prefix: dict[bytes, Pending] = {}
        self._by_template: dict[bytes, Pending] = {}
        self._names_with_namespace = {stream.name for stream in ids if stream.namespace is not None}
        self._learnt = dict.fromkeys(range(len(ids)), 0)

    def find(self, line: bytes) -> Pending | None:
        """The stream of a line whose prefix is only known up to `emitted_at`."""
        if not self._by_template:
            return None
        template = _template(_prefix(line))
        return None if template is None else self._by_template.get(template)

    def learn(self, line: bytes, stream: StreamId, *, names_namespace: bool, pending: Pending) -> None:
        """Remember the prefix of a parsed record line, if it alone decides the stream."""
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
        """Drop the prefixes of a stream, and learn no more of it: each further line of it is to be parsed."""
        for known in (self.by_prefix, self._by_template):
            for prefix in [prefix for prefix, owner in known.items() if owner is pending]:
                del known[prefix]
        self._learnt[pending.stream] = PREFIXES_PER_STREAM

    def _decides(self, prefix: bytes, stream: StreamId, names_namespace: bool) -> bool:
        """Whether the prefix, closed right after `"data":`, is a RECORD of this stream with `data` at its top level.

        The marker proves that this `"data":` is the record's own key and not one in a string or deeper down. A prefix without a
        namespace decides nothing where one follows the data (`names_namespace`), or where the catalog has the name under a namespace.
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
    """The prefix without the digits of its `emitted_at`; None when it has none."""
    emitted_at = _EMITTED_AT.search(prefix)
    return None if emitted_at is None else prefix[: emitted_at.start(1)] + prefix[emitted_at.end(1) :]

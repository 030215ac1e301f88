"""Routing of record lines to streams by the first bytes of the line, in the hot loop of the protocol reader.

The envelope before `"data":` is the same text for all records of a stream, except for an `emitted_at` in it. Once such a prefix has been
parsed, an equal prefix means the same stream and the rest of the line needs no parsing. Routing thus costs one hash lookup per line for any
number of streams. The record decoder checks the stream again, so a line that contradicts its prefix is an error.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from destination_s3_spark.errors import Bug
from destination_s3_spark.kernel import KERNEL
from destination_s3_spark.protocol.messages import Records
from destination_s3_spark.stream_id import StreamId

DATA_KEY = b'"data":'
"""End of every prefix. A line that spells this key differently is parsed."""
PREFIXES_PER_STREAM = 64
"""Maximum number of prefixes per stream. More variants mean that the envelope contains record data, and learning them wastes memory."""

_EMITTED_AT = re.compile(rb'"emitted_at": ?([0-9]++)')
_MARKER = "data follows"


class _Pending:
    """Lines of one stream that have not been taken, and their runs.

    `next` is the input offset at which another line would extend the last run.
    """

    __slots__ = ("lines", "next", "records", "runs")

    def __init__(self) -> None:
        self.lines: list[memoryview] = []
        self.records = 0
        self.runs = array("Q")
        self.next = -1

    def add(self, lines: memoryview, records: int, offset: int) -> None:
        self.lines.append(lines)
        self.records += records
        if offset == self.next:
            self.runs[-1] += records
        else:
            self.runs.extend((offset, records))
        self.next = offset + len(lines)


class PythonLineRouter:
    """Router that sorts record lines by stream and holds them until `taken`. A stream is its catalog index.

    Each line costs at most one lookup and is copied once.
    """

    def __init__(self, streams: int) -> None:
        self.by_prefix: dict[bytes, int] = {}
        self._pending = [_Pending() for _ in range(streams)]
        self._dirty: list[int] = []

    def learn(self, prefix: bytes, stream: int) -> None:
        """Route lines that begin with `prefix` to the stream from now on. The prefix ends in `DATA_KEY`."""
        self.by_prefix[prefix] = stream

    def forget(self, stream: int) -> None:
        self.by_prefix = {prefix: known for prefix, known in self.by_prefix.items() if known != stream}

    def route(self, text: bytes, start: int, end: int, offset: int) -> int:
        """Route the whole lines of `text[start:end]` until a prefix is unknown. `offset` is the input offset of the first line.

        Return the position in `text` of the first line with an unknown prefix, or `end`.
        """
        find, find_stream, starts_with, key_bytes = text.find, self.by_prefix.get, text.startswith, len(DATA_KEY)
        view = memoryview(text)
        run_start = line_start = start
        while line_start < end:
            # Within the line: a search beyond it would make blocks of other lines quadratic.
            prefix = text[line_start : find(DATA_KEY, line_start, find(b"\n", line_start)) + key_bytes]
            stream = find_stream(prefix)
            if stream is None:
                break
            records = 0
            while line_start < end and starts_with(prefix, line_start):
                line_start = find(b"\n", line_start) + 1
                records += 1
            self._take(stream, view[run_start:line_start], records, offset + run_start - start)
            run_start = line_start
        return line_start

    def add(self, text: bytes, start: int, end: int, offset: int, stream: int) -> None:
        """Add the line `text[start:end]` of a stream. `offset` is its offset in the input."""
        self._take(stream, memoryview(text)[start:end], 1, offset)

    def taken(self) -> Iterator[Records]:
        """Yield the lines that each stream has received since the last call, and drop them from the router."""
        dirty, self._dirty = self._dirty, []
        for stream in dirty:
            pending, self._pending[stream] = self._pending[stream], _Pending()
            yield Records(stream, b"".join(pending.lines), pending.records, pending.runs)

    def _take(self, stream: int, lines: memoryview, records: int, offset: int) -> None:
        pending = self._pending[stream]
        if not pending.lines:
            self._dirty.append(stream)
        pending.add(lines, records, offset)


class NativeLineRouter:
    """The same router in the kernel."""

    def __init__(self, streams: int) -> None:
        assert KERNEL is not None  # noqa: S101 (`line_router` has checked)
        self._router = KERNEL.Router(streams)
        self.learn = self._router.learn
        self.forget = self._router.forget
        self.add = self._router.add

    def route(self, text: bytes, start: int, end: int, offset: int) -> int:
        """Route lines as `PythonLineRouter`. Raises Bug when the kernel fails."""
        try:
            return int(self._router.route(text, start, end, offset))
        except RuntimeError as error:
            raise Bug("The native kernel failed while it read the input. Nothing after the last acknowledged STATE was kept.") from error

    def taken(self) -> Iterator[Records]:
        for stream, lines, records, runs in self._router.taken():
            yield Records(stream, lines, records, array("Q", runs))


LineRouter = PythonLineRouter | NativeLineRouter


def line_router(streams: int) -> LineRouter:
    return PythonLineRouter(streams) if KERNEL is None else NativeLineRouter(streams)


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

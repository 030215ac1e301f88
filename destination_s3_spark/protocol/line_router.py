"""Routing of record lines to their streams by known prefixes, in the hot loop of the protocol reader.

The native kernel routes when it is loaded, Python otherwise. Both routers yield the same lines, runs and counts.
`routes` decides which prefixes identify a stream.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import Protocol

from destination_s3_spark.errors import Bug
from destination_s3_spark.kernel import KERNEL
from destination_s3_spark.protocol.messages import Records

DATA_KEY = b'"data":'
"""End of every prefix. A line that spells this key differently is parsed."""


class LineRouter(Protocol):
    """Router that sorts record lines by stream and holds them until `taken`. A stream is its catalog index."""

    def learn(self, prefix: bytes, stream: int) -> None:
        """Route lines that begin with `prefix` to the stream from now on. The prefix ends in `DATA_KEY`."""

    def forget(self, stream: int) -> None:
        """Drop all prefixes of a stream."""

    def route(self, text: bytes, start: int, end: int, offset: int) -> int:
        """Route the whole lines of `text[start:end]` until a prefix is unknown. `offset` is the input offset of the first line.

        Return the position in `text` of the first line with an unknown prefix, or `end`.
        """

    def add(self, text: bytes, start: int, end: int, offset: int, stream: int) -> None:
        """Add the line `text[start:end]` of a stream. `offset` is its offset in the input."""

    def taken(self) -> Iterator[Records]:
        """Yield the lines that each stream has received since the last call, and drop them from the router."""


def line_router(streams: int) -> LineRouter:
    """Return a router for this number of streams."""
    return PythonLineRouter(streams) if KERNEL is None else NativeLineRouter(streams)


class NativeLineRouter:
    """Router of the native kernel."""

    def __init__(self, streams: int) -> None:
        assert KERNEL is not None  # noqa: S101 (`line_router` has checked)
        self._router = KERNEL.Router(streams)
        self.learn = self._router.learn
        self.forget = self._router.forget
        self.add = self._router.add

    def route(self, text: bytes, start: int, end: int, offset: int) -> int:
        """See `LineRouter`. Raises Bug when the kernel fails."""
        try:
            return int(self._router.route(text, start, end, offset))
        except RuntimeError as error:
            raise Bug("The native kernel failed while it read the input. Nothing after the last acknowledged STATE was kept.") from error

    def taken(self) -> Iterator[Records]:
        """See `LineRouter`."""
        for stream, lines, records, runs in self._router.taken():
            yield Records(stream, lines, records, array("Q", runs))


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
    """Router in Python. Each line costs at most one lookup and is copied once."""

    def __init__(self, streams: int) -> None:
        self.by_prefix: dict[bytes, int] = {}
        self._pending = [_Pending() for _ in range(streams)]
        self._dirty: list[int] = []

    def learn(self, prefix: bytes, stream: int) -> None:
        """See `LineRouter`."""
        self.by_prefix[prefix] = stream

    def forget(self, stream: int) -> None:
        """See `LineRouter`."""
        self.by_prefix = {prefix: known for prefix, known in self.by_prefix.items() if known != stream}

    def route(self, text: bytes, start: int, end: int, offset: int) -> int:
        """See `LineRouter`."""
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
        """See `LineRouter`."""
        self._take(stream, memoryview(text)[start:end], 1, offset)

    def taken(self) -> Iterator[Records]:
        """See `LineRouter`."""
        dirty, self._dirty = self._dirty, []
        for stream in dirty:
            pending, self._pending[stream] = self._pending[stream], _Pending()
            yield Records(stream, b"".join(pending.lines), pending.records, pending.runs)

    def _take(self, stream: int, lines: memoryview, records: int, offset: int) -> None:
        pending = self._pending[stream]
        if not pending.lines:
            self._dirty.append(stream)
        pending.add(lines, records, offset)

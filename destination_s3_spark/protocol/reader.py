"""Input bytes to events: records stay bytes, checkpoints keep their exact places.

Whole lines are routed by their prefix (`protocol.routes`); a line with an unknown prefix is parsed as far as its envelope. What cannot
be read stops the sync with the byte offset, never with content. Knows nothing of where records go or when a STATE is sent back.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from operator import sub
from typing import Any

from destination_s3_spark.errors import DataError
from destination_s3_spark.protocol.catalog import Catalog, StreamId
from destination_s3_spark.protocol.envelope import Envelope, read_envelope
from destination_s3_spark.protocol.messages import Event, Idle, InputCounts, Records, State, Status, StreamStatus
from destination_s3_spark.protocol.routes import DATA_KEY, Pending, Routes
from destination_s3_spark.protocol.state import parse_state

_KNOWN_TYPES = frozenset({"LOG", "SPEC", "CONNECTION_STATUS", "CATALOG", "CONTROL", "DESTINATION_CATALOG"})

logger = logging.getLogger(__name__)

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_BLANKS = b" \t\r"
_STREAM_NAME = re.compile(rb'"stream": ?"([^"\\]*)"')


class ProtocolReader:
    """Reads the messages of one sync. `counts` is current whenever an event has been taken."""

    def __init__(self, catalog: Catalog) -> None:
        self.counts = InputCounts()
        self._ids = tuple(stream.id for stream in catalog.streams)
        self._indexes = {stream: index for index, stream in enumerate(self._ids)}
        self._pending = tuple(Pending(index) for index in range(len(self._ids)))
        self._dirty: list[Pending] = []
        self._routes = Routes(self._ids)
        self._complete: set[int] = set()

    def events(self, blocks: Iterable[bytes]) -> Iterator[Event]:
        """The events of the input, cut into blocks anywhere; an empty block, or one without an event, gives `Idle`.

        Raises DataError for a message that cannot be read.
        """
        unfinished: list[bytes] = []
        for block in blocks:
            lines = block.split(b"\n")
            if len(lines) == 1:
                unfinished.append(block)
                yield Idle()
                continue
            unfinished.append(lines[0])
            lines[0] = b"".join(unfinished)
            unfinished = [lines.pop()]
            yield from _or_idle(self._read(lines))
        last = b"".join(unfinished)
        if last:
            yield from self._read([last])
            self.counts.bytes -= 1  # there was no newline

    def _read(self, lines: list[bytes]) -> Iterator[Event]:
        """The events of whole lines (without their newlines). The loop is the hot path: one lookup a line."""
        if not self.counts.bytes and lines[0].startswith(BYTE_ORDER_MARK):
            lines[0] = lines[0].removeprefix(BYTE_ORDER_MARK)
            self.counts.bytes = len(BYTE_ORDER_MARK)
        offset = self.counts.bytes
        find_pending = self._routes.by_prefix.get
        key_bytes = len(DATA_KEY)
        run: Pending | None = None
        for line in lines:
            pending = find_pending(line[: line.find(DATA_KEY) + key_bytes])
            if pending is None:
                outcome = self._read_line(line, offset)
                if isinstance(outcome, Pending):
                    pending = outcome
                else:
                    run = None
                    offset += len(line) + 1
                    if outcome is not None:
                        self.counts.bytes = offset
                        yield from self._hand_on()
                        yield outcome
                    continue
            if pending is not run:
                run = pending
                if not run.lines:
                    self._dirty.append(run)
                run.run_offsets.append(offset)
                run.run_lines.append(len(run.lines))
            pending.lines.append(line)
            offset += len(line) + 1
        self.counts.bytes = offset
        yield from self._hand_on()

    def _hand_on(self) -> Iterator[Records]:
        for pending in self._dirty:
            records = len(pending.lines)
            self.counts.records += records
            lengths = map(sub, [*pending.run_lines[1:], records], pending.run_lines)
            runs = list(zip(pending.run_offsets, lengths, strict=True))
            pending.lines.append(b"")
            chunk = b"\n".join(pending.lines)
            pending.lines, pending.run_offsets, pending.run_lines = [], [], []
            yield Records(pending.stream, [chunk], records, runs)
        self._dirty.clear()

    def _read_line(self, line: bytes, offset: int) -> Pending | State | StreamStatus | None:
        """What a line is that no learnt prefix routes; None when it says nothing to a destination."""
        text = line.lstrip(_BLANKS)
        if not text.startswith(b"{"):
            self.counts.noise += bool(text)
            return None
        known = self._routes.find(line)
        if known is not None:
            return known
        try:
            return self._message(line, read_envelope(line), offset)
        except ValueError as error:
            raise self._unreadable(line, offset, str(error)) from None

    def _message(self, line: bytes, envelope: Envelope, offset: int) -> Pending | State | StreamStatus | None:
        if envelope.stream is not None:
            return self._record(line, envelope.stream, envelope.names_namespace, offset)
        if envelope.type == "STATE":
            self.counts.states += 1
            return State(parse_state(line.strip(_BLANKS), envelope.body, self._indexes))
        if envelope.type == "TRACE":
            return self._status(envelope.body)
        self._ignore(envelope.type if envelope.type in _KNOWN_TYPES else "unknown type")
        return None

    def _record(self, line: bytes, stream: StreamId, names_namespace: bool, offset: int) -> Pending | None:
        index = self._indexes.get(stream)
        if index is None:
            if stream not in self.counts.unknown_streams:
                logger.warning("Records of stream '%s' are ignored: it is not in the catalog of this sync.", stream)
            self.counts.unknown_streams[stream] += 1
            return None
        if index in self._complete:
            raise DataError(
                f"A record of stream '{stream}' came at input byte {offset}, after the stream's COMPLETE status. "
                "Nothing after the last acknowledged STATE was kept; report it to the maker of the source and run the sync again.",
                stream=stream,
            )
        self._routes.learn(line, stream, names_namespace=names_namespace, pending=self._pending[index])
        return self._pending[index]

    def _status(self, trace: bytes) -> StreamStatus | None:
        """A terminal stream status; any other TRACE, a repeated COMPLETE and unknown streams are only counted."""
        status, index = _terminal_status(trace, self._indexes)
        if status is None or index is None or index in self._complete:
            self._ignore("TRACE")
            return None
        self.counts.statuses += 1
        if status is Status.COMPLETE:
            self._complete.add(index)
            self._routes.forget(self._pending[index])
        return StreamStatus(index, status)

    def _ignore(self, kind: str) -> None:
        self.counts.ignored[kind] += 1

    def _unreadable(self, line: bytes, offset: int, problem: str) -> DataError:
        head = line[: line.find(DATA_KEY)] if DATA_KEY in line else line[:4096]
        named = _STREAM_NAME.search(head)
        stream = next((known for known in self._ids if named and known.name.encode() == named.group(1)), None)
        whose = f" of stream '{stream}'" if stream else ""
        return DataError(
            f"The input line{whose} at byte {offset} cannot be read: {problem}. Everything up to the last acknowledged STATE is safe; "
            "report the broken message to the maker of the source and run the sync again.",
            stream=stream,
        )


def _or_idle(events: Iterator[Event]) -> Iterator[Event]:
    yield next(events, Idle())
    yield from events


def _terminal_status(trace: bytes, indexes: Mapping[StreamId, int]) -> tuple[Status | None, int | None]:
    """The status and the stream of a STREAM_STATUS trace, None where it has no terminal one or no stream of the catalog."""
    try:
        message: Any = json.loads(trace)
        reported = message["stream_status"]
        descriptor = reported["stream_descriptor"]
        if message["type"] != "STREAM_STATUS":
            return None, None
        return Status(reported["status"]), indexes.get(StreamId.of(descriptor.get("namespace"), descriptor["name"]))
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None, None

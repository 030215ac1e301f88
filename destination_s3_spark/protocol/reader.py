"""Reading of the input in blocks, and conversion of its bytes to events. Records stay bytes, and checkpoints keep their exact positions.

Whole lines are routed by their prefix (`protocol.routing`). For a line with an unknown prefix, only the envelope is parsed. An unreadable
message stops the sync with an error that gives the byte offset and never content. The reader does not know where records go or when a STATE
is sent back.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import re
import select
import termios
from array import array
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import chain
from typing import Any, NamedTuple

import msgspec

from destination_s3_spark.errors import DataError
from destination_s3_spark.exact_json.values import NULL, split_object, string_value
from destination_s3_spark.protocol.catalog import Catalog
from destination_s3_spark.protocol.messages import Event, Idle, InputCounts, Status, StreamStatus
from destination_s3_spark.protocol.routing import DATA_KEY, Routes, line_router
from destination_s3_spark.protocol.state import StateMessage, parse_state
from destination_s3_spark.stream_id import StreamId

PIPE_BYTES = 2**20
"""Largest pipe that an unprivileged process may request (/proc/sys/fs/pipe-max-size), and the size of blocks.

Smaller blocks cost more calls, and larger ones would not fit in the second-level cache.
"""
IDLE_S = 0.2
"""Interval between checks of the clock while the input is silent."""


def read_blocks(fd: int, idle_s: float = IDLE_S) -> Iterator[bytes]:
    """Yield the bytes of a file, pipe or socket as they arrive, until its end, and an empty block per `idle_s` seconds of silence."""
    with suppress(OSError):  # only pipes have a size, and only a larger one helps
        if fcntl.fcntl(fd, fcntl.F_GETPIPE_SZ) < PIPE_BYTES:
            fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    while True:
        if not poll.poll(idle_s * 1000):
            yield b""
            continue
        block = os.read(fd, PIPE_BYTES)
        if not block:
            return
        yield block


def bytes_waiting(fd: int) -> int:
    """Return how many bytes can be read at once from a file, pipe or socket; 0 if unknown."""
    answer = array("i", [0])
    with suppress(OSError):
        fcntl.ioctl(fd, termios.FIONREAD, answer)
    return answer[0]


_KNOWN_TYPES = frozenset({"LOG", "SPEC", "CONNECTION_STATUS", "CATALOG", "CONTROL", "DESTINATION_CATALOG"})

logger = logging.getLogger(__name__)

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_BLANKS = b" \t\r"
_COMPRESSED = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"\xfd7zXZ": "xz", b"PK\x03\x04": "zip"}
"""First bytes of compressed files."""
MOST_UNKNOWN_NAMED = 100
"""Unknown streams that are named in a warning each."""
MIB = 2**20
_MESSAGE = re.compile(rb'"type"\s*:\s*"(?:RECORD|STATE)"')
_STREAM_NAME = re.compile(rb'"stream": ?"([^"\\]*)"')


class ProtocolReader:
    """Reader of the messages of one sync. `counts` is up to date after each event."""

    def __init__(self, catalog: Catalog, longest_line: int = 256 * MIB) -> None:
        """`longest_line` is in bytes; lines up to a block longer are read too."""
        self._longest_line = longest_line
        self.counts = InputCounts()
        self._ids = tuple(stream.id for stream in catalog.streams)
        self._indexes = {stream: index for index, stream in enumerate(self._ids)}
        self._router = line_router(len(self._ids))
        self._routes = Routes(self._ids, self._router)
        self._complete: set[int] = set()

    def events(self, blocks: Iterable[bytes]) -> Iterator[Event]:
        """Yield the events of the input, which may be cut into blocks anywhere. A block without an event yields `Idle`.

        Raises DataError for an unreadable message.
        """
        unfinished: list[bytes] = []
        length = 0
        for block in blocks:
            first, last = block.find(b"\n") + 1, block.rfind(b"\n") + 1
            if not last:
                unfinished.append(block)
                length += len(block)
                if length > self._longest_line:
                    raise self._too_long(unfinished[0])
                yield Idle()
                continue
            line = b"".join([*unfinished, block[:first]])
            unfinished, length = [block[last:]], len(block) - last
            yield from _or_idle(chain(self._read(line, 0, len(line)), self._read(block, first, last), self._router.taken()))
        line = b"".join(unfinished)
        if line:
            yield from self._read(line + b"\n", 0, len(line) + 1)
            self.counts.bytes -= 1  # the newline was added here
            yield from self._router.taken()

    def _read(self, text: bytes, start: int, end: int) -> Iterator[Event]:
        """Read the whole lines in this range. Yield the events other than records, each after the records before it."""
        if not self.counts.bytes:
            _require_plain(text)
            if text.startswith(BYTE_ORDER_MARK, start):
                start += len(BYTE_ORDER_MARK)
                self.counts.bytes = len(BYTE_ORDER_MARK)
        before = self.counts.bytes - start
        at = start
        while (at := self._router.route(text, at, end, before + at)) < end:
            line_start, at = at, text.find(b"\n", at) + 1
            outcome = self._read_line(text[line_start : at - 1], before + line_start)
            if isinstance(outcome, int):
                self._router.add(text, line_start, at, before + line_start, outcome)
            elif outcome is not None:
                self.counts.bytes = before + at
                yield from self._router.taken()
                yield outcome
        self.counts.bytes = before + end

    def _read_line(self, line: bytes, offset: int) -> int | StateMessage | StreamStatus | None:
        """Interpret a line that the router does not know: as the index of a record's stream, or as an event. None for a line to ignore."""
        text = line.lstrip(_BLANKS)
        if not text.startswith(b"{"):
            self._pass_over(line, text, offset)
            return None
        known = self._routes.find(line)
        if known is not None:
            return known
        try:
            return self._message(line, read_envelope(line), offset)
        except ValueError as error:
            raise self._unreadable(line, offset, str(error)) from None

    def _pass_over(self, line: bytes, text: bytes, offset: int) -> None:
        """Count a line without a message. Raises DataError for a message after other text, such as output printed without a line end."""
        if _MESSAGE.search(text):
            raise self._unreadable(line, offset, "there is other text before the message")
        if self.counts.first_without_message is None:
            self.counts.first_without_message = offset
        if text:
            self.counts.noise += 1
        else:
            self.counts.blank += 1

    def _message(self, line: bytes, envelope: Envelope, offset: int) -> int | StateMessage | StreamStatus | None:
        if envelope.stream is not None:
            return self._record(line, envelope.stream, envelope.names_namespace, offset)
        if envelope.type == "STATE":
            self.counts.states += 1
            return parse_state(line.strip(_BLANKS), envelope.body, self._indexes)
        if envelope.type == "TRACE":
            return self._status(envelope.body)
        self.counts.ignored[envelope.type if envelope.type in _KNOWN_TYPES else "unknown type"] += 1
        return None

    def _record(self, line: bytes, stream: StreamId, names_namespace: bool, offset: int) -> int | None:
        index = self._indexes.get(stream)
        if index is None:
            self._ignore_record(stream)
            return None
        if index in self._complete:
            raise DataError(
                f"A record of stream '{stream}' came at input byte {offset}, after the stream's COMPLETE status. "
                "Nothing after the last acknowledged STATE was kept; report this to the source connector's maintainers "
                "and run the sync again.",
                stream=stream,
            )
        self._routes.learn(line, stream, names_namespace=names_namespace, index=index)
        return index

    def _ignore_record(self, stream: StreamId) -> None:
        """Count a record of an unknown stream, and warn of the stream once, unless there are too many of them."""
        unknown = self.counts.unknown_streams
        if stream in unknown or None in unknown:
            unknown[stream if stream in unknown else None] += 1
        elif len(unknown) < MOST_UNKNOWN_NAMED:
            logger.warning("Records of stream '%s' are ignored: it is not in the catalog of this sync.", stream)
            unknown[stream] = 1
        else:
            logger.warning("Records of more than %d streams are ignored: they are not in the catalog of this sync.", MOST_UNKNOWN_NAMED)
            unknown[None] = 1

    def _status(self, trace: bytes) -> StreamStatus | None:
        """Return a terminal stream status. Other TRACEs, a repeated COMPLETE and unknown streams are only counted."""
        status, index = _terminal_status(trace, self._indexes)
        if status is None or index is None or index in self._complete:
            self.counts.ignored["TRACE"] += 1
            return None
        if status is Status.COMPLETE:
            self._complete.add(index)
            self._routes.forget(index)
        return StreamStatus(index, status)

    def _too_long(self, beginning: bytes) -> DataError:
        return self._unreadable(
            beginning,
            self.counts.bytes,
            f"it is longer than the {self._longest_line // MIB:,} MB that batching.max_line_mb allows. Raise it if the source has such "
            "records and the container about 20 times as much memory",
        )

    def _unreadable(self, line: bytes, offset: int, problem: str) -> DataError:
        head = line[: line.find(DATA_KEY)] if DATA_KEY in line else line[:4096]
        named = _STREAM_NAME.search(head)
        stream = next((known for known in self._ids if named and known.name.encode() == named.group(1)), None)
        whose = f" of stream '{stream}'" if stream else ""
        return DataError(
            f"The input line{whose} at byte {offset} cannot be read: {problem}. Everything up to the last acknowledged STATE is safe; "
            "report the broken message to the source connector's maintainers and run the sync again.",
            stream=stream,
        )


def _require_plain(text: bytes) -> None:
    """Raise DataError for the beginning of a compressed file, in which no message would be found."""
    for beginning, name in _COMPRESSED.items():
        if text.startswith(beginning):
            raise DataError(f"The input is no messages but a file compressed by {name}. Decompress it on its way to this connector.")


def _or_idle(events: Iterator[Event]) -> Iterator[Event]:
    yield next(events, Idle())
    yield from events


def _terminal_status(trace: bytes, indexes: Mapping[StreamId, int]) -> tuple[Status | None, int | None]:
    """Return the status and stream index of a STREAM_STATUS trace: None for a status that is not terminal, and for an unknown stream."""
    try:
        message: Any = json.loads(trace)
        reported = message["stream_status"]
        descriptor = reported["stream_descriptor"]
        if message["type"] != "STREAM_STATUS":
            return None, None
        return Status(reported["status"]), indexes.get(StreamId.of(descriptor.get("namespace"), descriptor["name"]))
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None, None


class Envelope(NamedTuple):
    """Parts of a message line that routing needs.

    `stream` is set for a RECORD. `body` is the text of the member `state` or `trace`. `names_namespace` is True for a record that has the
    key `namespace`, even with null.
    """

    type: str
    stream: StreamId | None = None
    names_namespace: bool = False
    body: bytes = NULL


class _RecordEnvelope(msgspec.Struct, gc=False):
    stream: str
    data: msgspec.Raw
    namespace: str | msgspec.UnsetType | None = msgspec.UNSET


class _RecordMessage(msgspec.Struct, gc=False):
    type: str
    record: _RecordEnvelope | None = None


_RECORD_MESSAGE = msgspec.json.Decoder(_RecordMessage)


def read_envelope(line: bytes) -> Envelope:
    """Read a line that starts with `{`. An unknown `type` is no error, nor is a missing one without a record or state.

    Raises ValueError unless the line is one complete JSON object, and for a RECORD or STATE that lacks a required part.
    """
    try:
        message = _RECORD_MESSAGE.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _exact_envelope(line)
    if message.type == "RECORD" and message.record is not None:
        namespace = message.record.namespace
        if namespace is msgspec.UNSET:
            return Envelope("RECORD", StreamId.of(None, message.record.stream))
        return Envelope("RECORD", StreamId.of(namespace, message.record.stream), names_namespace=True)
    return _exact_envelope(line)


def _exact_envelope(line: bytes) -> Envelope:
    fields = split_object(line)
    kind = _type(fields)
    if kind == "RECORD":
        return _record_envelope(split_object(_required_object(fields, "record")))
    if kind == "STATE":
        return Envelope(kind, body=_required_object(fields, "state"))
    if kind == "TRACE":
        return Envelope(kind, body=fields.get("trace", NULL))
    return Envelope(kind)


def _type(fields: dict[str, bytes]) -> str:
    try:
        return string_value(fields.get("type", NULL))
    except ValueError:
        if "record" in fields or "state" in fields:
            raise ValueError("a message without a type") from None
        return "without a type"


def _record_envelope(fields: dict[str, bytes]) -> Envelope:
    if "data" not in fields:
        raise ValueError("a RECORD without data")
    if "stream" not in fields:
        raise ValueError("a RECORD without a stream")
    text = fields.get("namespace", NULL)
    namespace = None if text == NULL else string_value(text)
    return Envelope("RECORD", StreamId.of(namespace, string_value(fields["stream"])), "namespace" in fields)


def _required_object(fields: dict[str, bytes], name: str) -> bytes:
    text = fields.get(name, NULL)
    if not text.startswith(b"{"):
        raise ValueError(f"a {name.upper()} without its {name}")
    return text

"""STATE messages: taken apart only as far as routing needs, given back byte for byte.

The platform puts fields of its own into a STATE (`id`, `partition_id`) and needs them back, and the blob inside is the source's own
affair. So the received line is kept, and only `destinationStats.recordCount` is spliced in.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from destination_s3_spark.protocol.exact_json import members, split_object, string_value
from destination_s3_spark.stream_id import StreamId

_ABSENT = b"null"


class StateKind(Enum):
    """What a STATE covers: one stream, all streams, or (LEGACY) whatever came before it. The value is the protocol's word."""

    STREAM = "STREAM"
    GLOBAL = "GLOBAL"
    LEGACY = "LEGACY"


_BLOB_FIELD = {StateKind.STREAM: "stream", StateKind.GLOBAL: "global", StateKind.LEGACY: "data"}


@dataclass(frozen=True, slots=True)
class StateMessage:
    """A received STATE. `stream` is the catalog index, None for GLOBAL, LEGACY and streams that the catalog does not have.

    `state_hash` is the sha256 (hex) of the blob's bytes: the value of `stream`, `global` or `data`; ids and statistics are outside it.
    `before` and `after` are the bytes of the line around the number to be spliced in.
    """

    kind: StateKind
    stream: int | None
    state_hash: str
    before: bytes
    after: bytes

    def echo(self, record_count: int) -> bytes:
        """The line to send back, ending in a newline: as received, with `destinationStats.recordCount` (a double, as in `1000.0`)."""
        return b"%b%d.0%b\n" % (self.before, record_count, self.after)


def parse_state(line: bytes, state: bytes, streams: Mapping[StreamId, int]) -> StateMessage:
    """Read the STATE message in `line`, whose member `state` has this text. Raises ValueError when it is no usable STATE."""
    fields = split_object(state)
    kind = _kind(fields)
    blob = fields.get(_BLOB_FIELD[kind], _ABSENT)
    stream = streams.get(_stream_id(blob)) if kind is StateKind.STREAM else None
    start, end = _place(line, state)
    if "destinationStats" in fields:
        before, after = _around_known_stats(line, start, end)
    else:
        before, after = _around_new_member(line, end, b'"destinationStats":{"recordCount":', b"}", is_first=not fields)
    return StateMessage(kind, stream, hashlib.sha256(blob).hexdigest(), before, after)


def _kind(fields: Mapping[str, bytes]) -> StateKind:
    """The declared type; without a known one, what the message holds decides."""
    declared = fields.get("type", _ABSENT)
    for kind in StateKind:
        if declared == b'"%b"' % kind.value.encode():
            return kind
    for kind in (StateKind.GLOBAL, StateKind.STREAM):
        if fields.get(_BLOB_FIELD[kind], _ABSENT) != _ABSENT:
            return kind
    return StateKind.LEGACY


def _stream_id(blob: bytes) -> StreamId:
    descriptor = split_object(split_object(blob).get("stream_descriptor", _ABSENT))
    namespace = descriptor.get("namespace", _ABSENT)
    return StreamId.of(None if namespace == _ABSENT else string_value(namespace), string_value(descriptor.get("name", _ABSENT)))


def _place(line: bytes, state: bytes) -> tuple[int, int]:
    """Where the value of the top-level member `state` stands in the line."""
    start = line.find(state)
    if start == line.rfind(state):
        return start, start + len(state)
    return next((member.start, member.end) for member in reversed(members(line)) if member.key == "state")


def _around_known_stats(line: bytes, start: int, end: int) -> tuple[bytes, bytes]:
    """Around the number in the `destinationStats` that is already in the state at line[start:end]; other statistics are kept."""
    stats = next(member for member in reversed(members(line, start, end)) if member.key == "destinationStats")
    if line[stats.start : stats.start + 1] != b"{":
        return line[: stats.start] + b'{"recordCount":', b"}" + line[stats.end :]
    known = members(line, stats.start, stats.end)
    for member in reversed(known):
        if member.key == "recordCount":
            return line[: member.start], line[member.end :]
    return _around_new_member(line, stats.end, b'"recordCount":', b"", is_first=not known)


def _around_new_member(line: bytes, end: int, opening: bytes, closing: bytes, *, is_first: bool) -> tuple[bytes, bytes]:
    """Around the number in a new last member of the object that ends at `end`."""
    comma = b"" if is_first else b","
    return line[: end - 1] + comma + opening, closing + line[end - 1 :]

"""What the protocol reader makes of the input, in the order of the input.

Record lines stay bytes. Streams are named by their index in the catalog.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import Enum

from destination_s3_spark.protocol.state import StateMessage
from destination_s3_spark.stream_id import StreamId


@dataclass(frozen=True, slots=True)
class Records:
    """Record lines of one stream that follow each other in that stream.

    `chunks` are whole lines, each ending in a newline, as received. `runs` are (byte offset in the input of its first line, number of
    lines): lines of a run also follow each other in the input, so its offset and the lengths of its lines place each of them.
    """

    stream: int
    chunks: list[bytes]
    records: int
    runs: list[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class State:
    """A checkpoint: exactly the records before its line came in `Records` events before this event."""

    message: StateMessage


class Status(Enum):
    """The terminal statuses of a stream; the value is the protocol's word."""

    COMPLETE = "COMPLETE"
    INCOMPLETE = "INCOMPLETE"


@dataclass(frozen=True, slots=True)
class StreamStatus:
    """A terminal status of a stream; COMPLETE comes at most once per stream."""

    stream: int
    status: Status


@dataclass(frozen=True, slots=True)
class Idle:
    """Nothing of the above came for a while: time to look at the clock."""


Event = Records | State | StreamStatus | Idle


@dataclass(slots=True)
class InputCounts:
    """What came in, for the log at the end: lines by what became of them.

    `ignored` counts messages by type that say nothing to a destination (LOG, CONTROL, unknown types, most TRACEs); `blank` and `noise`
    lines without a message, the first of which begins at byte `first_without_message`; `unknown_streams` records of streams that the
    catalog does not have.
    """

    bytes: int = 0
    records: int = 0
    states: int = 0
    statuses: int = 0
    blank: int = 0
    noise: int = 0
    first_without_message: int | None = None
    ignored: Counter[str] = field(default_factory=Counter)
    unknown_streams: Counter[StreamId] = field(default_factory=Counter)

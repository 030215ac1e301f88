"""Events of the protocol reader, in the order of the input.

Record lines stay bytes. Streams are identified by their index in the catalog.
"""

from __future__ import annotations

from array import array
from collections import Counter
from dataclasses import dataclass, field
from enum import Enum

from destination_s3_spark.protocol.state import StateMessage
from destination_s3_spark.stream_id import StreamId


@dataclass(frozen=True, slots=True)
class Records:
    """Consecutive record lines of one stream.

    `lines` are whole lines as received, each ending in a newline. `runs` is a flat sequence of pairs: the byte offset of a run's first line
    in the input, and the number of its lines. The lines of a run are consecutive in the input too, so their lengths locate each of them.
    """

    stream: int
    lines: bytes
    records: int
    runs: array[int]


class Status(Enum):
    """Terminal statuses of a stream. The value is the protocol's name."""

    COMPLETE = "COMPLETE"
    INCOMPLETE = "INCOMPLETE"


@dataclass(frozen=True, slots=True)
class StreamStatus:
    """A terminal status of a stream. COMPLETE occurs at most once per stream."""

    stream: int
    status: Status


@dataclass(frozen=True, slots=True)
class Idle:
    """A period without any other event: the consumer can check its clock."""


Event = Records | StateMessage | StreamStatus | Idle
"""A STATE is a checkpoint: the `Records` events before it contain exactly the records before its line."""


@dataclass(slots=True)
class InputCounts:
    """Counts of input lines other than records of the catalog's streams, by their handling, for the log at the end.

    `ignored` counts, by type, messages without meaning for a destination (LOG, CONTROL, unknown types, most TRACEs). `blank` and `noise`
    count lines without a message; `first_without_message` is the byte offset of the first one. `unknown_streams` counts records of streams
    that are not in the catalog, by stream for the first ones, and under None for all others.
    """

    bytes: int = 0
    states: int = 0
    blank: int = 0
    noise: int = 0
    first_without_message: int | None = None
    ignored: Counter[str] = field(default_factory=Counter)
    unknown_streams: Counter[StreamId | None] = field(default_factory=Counter)

"""Bookkeeping of the records that each STATE covers, of when it may be emitted, and of what the last one proves. No I/O.

A STATE ends a checkpoint in every stream it covers. It may be emitted once each of these streams is committed up to that point. STATEs that
share a stream keep their order; GLOBAL and LEGACY STATEs share all streams.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Container, Iterable, Mapping
from enum import Enum
from threading import Lock
from typing import NamedTuple

from destination_s3_spark.exact_json.values import split_object
from destination_s3_spark.protocol.catalog import DestinationSyncMode, Stream
from destination_s3_spark.protocol.state import StateKind, StateMessage, Totals
from destination_s3_spark.tables.commit.batch import TableCheckpoint

END_MARKS = ("__ab_full_refresh_sync_complete", "__ab_no_cursor_state_message")
"""Members of a stream's state with which sources of Airbyte's Python CDK say that they have read all of it."""


class WaitingState(NamedTuple):
    """A STATE that is not emitted yet.

    `ends` and `totals`, since the start of the sync, are of the streams that moved on since the previous STATE. The bytes of totals exclude
    the newline of each spooled line. `records`: number of records since the previous STATE. `since`: its time of arrival.
    """

    message: StateMessage
    ends: Mapping[int, int]
    totals: Mapping[int, Totals]
    records: int
    since: float


class Checkpoints:
    """The checkpoints of one sync. Streams are catalog indexes, ends are spool offsets, times are monotonic seconds.

    Thread-safe between the thread that reads and registers, and the one that commits.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._waiting: list[WaitingState] = []
        self._boundaries: defaultdict[int, deque[TableCheckpoint]] = defaultdict(deque)
        self._last_boundary: defaultdict[int, int] = defaultdict(int)
        self._covered: defaultdict[int, int] = defaultdict(int)
        self._counted: defaultdict[int, int] = defaultdict(int)
        self._committed: defaultdict[int, int] = defaultdict(int)
        self._last_states: dict[int, StateMessage] = {}

    def state(self, message: StateMessage, ends: Mapping[int, int], records: Mapping[int, int], now: float) -> None:
        """Register a STATE. `ends` and `records` give the spool offset and the number of records of each stream that it covers."""
        with self._lock:
            moved = {stream: end for stream, end in ends.items() if end > self._covered[stream]}
            counted = sum(records[stream] - self._counted[stream] for stream in moved)
            for stream, end in moved.items():
                self._add_boundary(stream, TableCheckpoint(end, message.state_hash))
            self._last_states.update(dict.fromkeys(ends, message))
            self._covered.update(moved)
            self._counted.update(records)
            totals = {stream: Totals(records[stream], end - records[stream]) for stream, end in moved.items()}
            self._waiting.append(WaitingState(message, moved, totals, counted, now))

    def complete(self, stream: int, end: int) -> None:
        """Register the end of a COMPLETE stream. The records after its last STATE become a separate checkpoint."""
        with self._lock:
            self._add_boundary(stream, TableCheckpoint(end, None))

    def state_at(self, stream: int, end: int) -> StateMessage | None:
        """Return the stream's last STATE, or None if there is none or records up to `end` came after it."""
        with self._lock:
            return self._last_states.get(stream) if self._covered[stream] == end else None

    def boundaries(self, stream: int) -> tuple[int, ...]:
        """Return the ends of the stream's uncommitted checkpoints, ascending."""
        with self._lock:
            return tuple(checkpoint.end for checkpoint in self._boundaries[stream])

    def last_boundary(self, stream: int) -> int:
        """Return the end of the stream's last checkpoint, committed or not, or 0 without one."""
        with self._lock:
            return self._last_boundary[stream]

    def ready(self, stream: int, cut_ends: Container[int]) -> tuple[TableCheckpoint, ...]:
        """Return the stream's uncommitted checkpoints up to the last one that ends in `cut_ends`, where staged slices end."""
        with self._lock:
            count = 0
            for position, checkpoint in enumerate(self._boundaries[stream], start=1):
                if checkpoint.end in cut_ends:
                    count = position
            return tuple(self._boundaries[stream][position] for position in range(count))

    def committed(self, stream: int, end: int) -> None:
        """Record that the stream is durable up to `end`."""
        with self._lock:
            self._committed[stream] = end
            boundaries = self._boundaries[stream]
            while boundaries and boundaries[0].end <= end:
                boundaries.popleft()

    def take_covered(self) -> list[WaitingState]:
        """Remove and return the STATEs that may be emitted now, in order of arrival."""
        with self._lock:
            covered: list[WaitingState] = []
            kept: list[WaitingState] = []
            blocked: set[int | None] = set()
            all_blocked = False
            for state in self._waiting:
                shares_all = state.message.kind is not StateKind.STREAM
                free = not all_blocked and (not blocked if shares_all else state.message.stream not in blocked)
                if free and all(self._committed[stream] >= end for stream, end in state.ends.items()):
                    covered.append(state)
                    continue
                kept.append(state)
                all_blocked = all_blocked or shares_all
                blocked.add(state.message.stream)
            self._waiting = kept
            return covered

    @property
    def oldest_waiting_since(self) -> float | None:
        """Arrival time of the oldest STATE that is not emitted yet, or None."""
        with self._lock:
            return self._waiting[0].since if self._waiting else None

    def _add_boundary(self, stream: int, checkpoint: TableCheckpoint) -> None:
        if checkpoint.end > self._last_boundary[stream]:
            self._last_boundary[stream] = checkpoint.end
            self._boundaries[stream].append(checkpoint)


class Completion(Enum):
    """The knowledge about a stream's end.

    With generations in the catalog, Airbyte's platform sends a COMPLETE status for each stream of a source that ended well. Without them no
    status comes, and the input of a source that died ends like that of one that finished. Then only STATEs tell them apart.
    """

    UNFINISHED = "unfinished"
    """Records are missing, or may be: what no STATE covers is sent again."""
    UNPROVEN = "unproven"
    """All records that came are covered, but the source may have died between two checkpoints."""
    PROVED = "proved"


def proved_by(state: StateMessage | None, index: int, stream: Stream, records: int) -> Completion:
    """Return the completion that a stream's last STATE proves. `state` is None if records came after it, or none came at all."""
    if state is None:
        return Completion.UNFINISHED
    blob = state.blob_of(index)
    if blob is None:
        return Completion.UNPROVEN
    members = split_object(blob) if blob.startswith(b"{") else {}
    if any(members.get(mark) == b"true" for mark in END_MARKS):
        return Completion.PROVED
    cleared = blob == b"null" and not records  # how the platform clears a stream
    # A source begins with an empty state, too: in the entry of a GLOBAL state it says nothing about records.
    is_empty = (blob == b"null" or (blob.startswith(b"{") and not members)) and state.kind is not StateKind.GLOBAL
    return Completion.PROVED if cleared or (is_empty and not stream.is_resumable) else Completion.UNPROVEN


def is_clear(state: StateMessage, streams: Iterable[Stream], records: int) -> bool:
    """Tell whether a sync with this last STATE and so many records in all is a Clear whose GLOBAL state names none of its streams."""
    if records:
        return False
    overwritten = all(one.sync_mode == "full_refresh" and one.destination_sync_mode is DestinationSyncMode.OVERWRITE for one in streams)
    return overwritten and state.clears_all()

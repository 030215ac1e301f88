"""Which records each STATE covers, and when it may go out. Pure bookkeeping, no I/O.

A STATE ends a checkpoint in every stream it covers; it may go out once each of these streams is committed up to there. STATEs that
share a stream keep their order; GLOBAL and LEGACY ones share all.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Container, Mapping
from dataclasses import dataclass
from threading import Lock
from typing import NamedTuple

from destination_s3_spark.protocol.state import StateKind, StateMessage, Totals
from destination_s3_spark.tables.commit.batch import TableCheckpoint


class Reached(NamedTuple):
    """A spool offset in a stream, and the records before it."""

    stream: int
    end: int
    records: int


@dataclass(frozen=True, slots=True)
class WaitingState:
    """A STATE that is not out yet. `reached`: where it moved on; `records` since the STATE before."""

    message: StateMessage
    reached: tuple[Reached, ...]
    records: int
    since: float

    @property
    def totals(self) -> dict[int, Totals]:
        """All that the sync has sent of the streams that moved on. Each line in the spool ends in a newline, which is not counted."""
        return {moved.stream: Totals(moved.records, moved.end - moved.records) for moved in self.reached}


class Checkpoints:
    """The checkpoints of one sync. Streams are catalog indexes, ends are spool offsets, times are of one monotonic clock in seconds.

    Safe between the thread that reads, which registers, and the one that commits.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._waiting: list[WaitingState] = []
        self._boundaries: defaultdict[int, deque[TableCheckpoint]] = defaultdict(deque)
        self._last_boundary: defaultdict[int, int] = defaultdict(int)
        self._covered: defaultdict[int, int] = defaultdict(int)
        self._counted: defaultdict[int, int] = defaultdict(int)
        self._committed: defaultdict[int, int] = defaultdict(int)

    def state(self, message: StateMessage, ends: Mapping[int, int], records: Mapping[int, int], now: float) -> None:
        """Register a STATE. `ends` and `records` say how far each stream that it covers has come: spool offset, records so far."""
        with self._lock:
            moved = []
            counted = 0
            for stream in ends:
                counted += records[stream] - self._counted[stream]
                self._counted[stream] = records[stream]
                if ends[stream] > self._covered[stream]:
                    self._covered[stream] = ends[stream]
                    moved.append(Reached(stream, ends[stream], records[stream]))
                    self._add_boundary(stream, TableCheckpoint(ends[stream], message.state_hash))
            self._waiting.append(WaitingState(message, tuple(moved), counted, now))

    def complete(self, stream: int, end: int) -> None:
        """Register the end of a COMPLETE stream: records behind its last STATE become a checkpoint of their own."""
        with self._lock:
            self._add_boundary(stream, TableCheckpoint(end, None))

    def boundaries(self, stream: int) -> tuple[int, ...]:
        """Ends of the stream's checkpoints that are not committed, ascending."""
        with self._lock:
            return tuple(checkpoint.end for checkpoint in self._boundaries[stream])

    def last_boundary(self, stream: int) -> int:
        """End of the stream's last checkpoint, committed or not; 0 without one."""
        with self._lock:
            return self._last_boundary[stream]

    def ready(self, stream: int, cut_ends: Container[int]) -> tuple[TableCheckpoint, ...]:
        """The stream's checkpoints a commit can cover that may end at `cut_ends` only, where staged slices end."""
        with self._lock:
            count = 0
            for position, checkpoint in enumerate(self._boundaries[stream], start=1):
                if checkpoint.end in cut_ends:
                    count = position
            return tuple(self._boundaries[stream][position] for position in range(count))

    def committed(self, stream: int, end: int) -> None:
        """The stream is durable up to `end`."""
        with self._lock:
            self._committed[stream] = end
            boundaries = self._boundaries[stream]
            while boundaries and boundaries[0].end <= end:
                boundaries.popleft()

    def take_covered(self) -> list[WaitingState]:
        """The STATEs that may go out now, in the order they came; they no longer wait."""
        with self._lock:
            covered: list[WaitingState] = []
            kept: list[WaitingState] = []
            blocked: set[int | None] = set()
            all_blocked = False
            for state in self._waiting:
                shares_all = state.message.kind is not StateKind.STREAM
                free = not all_blocked and (not blocked if shares_all else state.message.stream not in blocked)
                if free and all(self._committed[moved.stream] >= moved.end for moved in state.reached):
                    covered.append(state)
                    continue
                kept.append(state)
                all_blocked = all_blocked or shares_all
                blocked.add(state.message.stream)
            self._waiting = kept
            return covered

    @property
    def oldest_waiting_since(self) -> float | None:
        """When the oldest STATE came that is not out yet."""
        with self._lock:
            return self._waiting[0].since if self._waiting else None

    def _add_boundary(self, stream: int, checkpoint: TableCheckpoint) -> None:
        if checkpoint.end > self._last_boundary[stream]:
            self._last_boundary[stream] = checkpoint.end
            self._boundaries[stream].append(checkpoint)

"""Decisions when and where to cut a batch, from sizes in bytes and ages in seconds, without I/O.

Landing may happen at any time, but a commit only covers whole checkpoints. A cut therefore prefers the end of a stream's last checkpoint.
Later lines stay in the spool, and no staged file has to wait for a STATE that may be an hour away.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

from destination_s3_spark.config.config import GIB, MIB, Config

Item = TypeVar("Item")

SLICE_MIN_BYTES = 32 * 2**20
"""Smallest target size of a slice. Smaller slices make small files, and their S3 calls cost more than they save."""
OPEN_CHECKPOINT_MIN_BYTES = 16 * 2**20
"""Bytes from which a stream is landed inside an unfinished checkpoint, so that 300 slow streams do not make 300 tiny files."""
IDLE_SHARE = 0.05
"""Tolerated excess of the busiest core's share of a batch over the average. Within it, fewer and larger files are worth more."""
TASKS_PER_CORE = 8
"""Most task groups per core. More groups only add scheduling; fewer leave cores idle at the end of a batch."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of batching: spooled bytes that make a batch, longest wait of a STATE in seconds, disk space of the spool."""

    batch_bytes: int
    age_s: float
    spool_bytes: int


@dataclass(frozen=True, slots=True)
class Backlog:
    """A stream's lines that are not landed yet, as spool offsets: the last cut, the end of the last checkpoint, and the end."""

    cut: int
    boundary: int
    end: int

    @property
    def bytes(self) -> int:
        return self.end - self.cut


class Due(Enum):
    """The reason to cut a batch now."""

    NOTHING = "nothing"
    SIZE = "size"
    AGE = "age"
    PRESSURE = "pressure"


def due(backlog: Mapping[int, Backlog], oldest_state_age_s: float, spool_bytes: int, limits: Limits) -> Due:
    """Return the reason to cut a batch now, or NOTHING. If there are several, return the strongest."""
    if spool_bytes >= limits.spool_bytes // 2:
        return Due.PRESSURE
    if oldest_state_age_s >= limits.age_s:
        return Due.AGE
    if sum(stream.bytes for stream in backlog.values()) >= limits.batch_bytes:
        return Due.SIZE
    return Due.NOTHING


def cut_ends(backlog: Mapping[int, Backlog], reason: Due) -> dict[int, int]:
    """Return where to cut each stream: at the end of its last checkpoint, or at its last line if an unfinished checkpoint is large.

    AGE takes only whole checkpoints, because its commit must not wait for more input. If nothing qualifies under SIZE or PRESSURE, take
    everything.
    """
    whole = {stream: b.boundary for stream, b in backlog.items() if b.boundary > b.cut}
    if reason is Due.AGE:
        return whole
    inside = {stream: b.end for stream, b in backlog.items() if stream not in whole and b.bytes >= OPEN_CHECKPOINT_MIN_BYTES}
    return {**whole, **inside} or {stream: b.end for stream, b in backlog.items() if b.bytes}


def slice_bytes(streams: Sequence[int], cores: int) -> int:
    """Return the target size of slices for streams of these sizes: the largest that keeps all cores busy to the end of the batch."""
    share = sum(streams) / cores
    target = SLICE_MIN_BYTES
    for slices_a_core in range(2, TASKS_PER_CORE + 1):
        target = max(SLICE_MIN_BYTES, int(share) // slices_a_core)
        if target == SLICE_MIN_BYTES or _busiest(streams, target, cores) <= share * (1 + IDLE_SHARE):
            break
    return target


def _busiest(streams: Sequence[int], target: int, cores: int) -> float:
    slices = [size / count for size in streams for count in [slice_count(size, target)] for _ in range(count)]
    loads = [0.0] * cores
    for size in sorted(slices, reverse=True):
        heapq.heapreplace(loads, loads[0] + size)
    return max(loads)


def slice_count(stream_bytes: int, target: int, most_bytes: int | None = None) -> int:
    """Return the number of slices of about `target` bytes for a stream's part of a batch.

    `most_bytes`: upper limit for a slice.
    """
    return max(1, -(-stream_bytes // min(target, most_bytes or target)))


def grouped(items: Sequence[Item], size: Callable[[Item], int], cores: int) -> list[list[Item]]:
    """Distribute the items over at most TASKS_PER_CORE groups per core of about equal total size, largest items first."""
    count = min(len(items), TASKS_PER_CORE * cores)
    heap = [(0, 0, index) for index in range(count)]
    groups: list[list[Item]] = [[] for _ in range(count)]
    for item in sorted(items, key=size, reverse=True):
        total, members, index = heapq.heappop(heap)
        groups[index].append(item)
        heapq.heappush(heap, (total + size(item), members + 1, index))
    return groups


def limits(config: Config) -> Limits:
    batching = config.batching
    return Limits(batching.max_batch_mb * MIB, batching.max_batch_age_s, int(batching.max_spool_gb * GIB))

"""When to cut a batch, and where. Pure decisions over sizes in bytes and ages in seconds; no I/O.

Landing may happen at any time; a commit only covers whole checkpoints. So a cut prefers a stream's last checkpoint end: what lies
behind it stays in the spool, and no staged file has to wait for a STATE that may be an hour away.
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
"""A smaller slice would make small files and cost more calls than it saves time."""
OPEN_CHECKPOINT_MIN_BYTES = 16 * 2**20
"""Inside an unfinished checkpoint a stream is only landed from this size on, so that 300 slow streams do not make 300 tiny files."""
IDLE_SHARE = 0.05
"""How much longer than the others one core may work on a batch; then fewer and larger files are worth more."""
TASKS_PER_CORE = 8
"""More groups than this only add scheduling; fewer leave a core idle at the end of a batch."""


@dataclass(frozen=True, slots=True)
class Limits:
    """`batch_bytes` of spooled lines make a batch, a STATE waits at most `age_s`, the spool holds `spool_bytes` of disk."""

    batch_bytes: int
    age_s: float
    spool_bytes: int


@dataclass(frozen=True, slots=True)
class Backlog:
    """What a stream has in the spool and not landed: spool offsets of the last cut, the last checkpoint's end, and the end."""

    cut: int
    boundary: int
    end: int

    @property
    def bytes(self) -> int:
        """Everything not landed yet."""
        return self.end - self.cut


class Due(Enum):
    """Why a batch is cut now."""

    NOTHING = "nothing"
    SIZE = "size"
    AGE = "age"
    PRESSURE = "pressure"


def due(backlog: Mapping[int, Backlog], oldest_state_age_s: float, spool_bytes: int, limits: Limits) -> Due:
    """Whether a batch should be cut, and why; the strongest reason wins."""
    if spool_bytes >= limits.spool_bytes // 2:
        return Due.PRESSURE
    if oldest_state_age_s >= limits.age_s:
        return Due.AGE
    if sum(stream.bytes for stream in backlog.values()) >= limits.batch_bytes:
        return Due.SIZE
    return Due.NOTHING


def cut_ends(backlog: Mapping[int, Backlog], reason: Due) -> dict[int, int]:
    """Where to cut each stream: at its last checkpoint's end; a long open checkpoint is cut where it is.

    Under AGE only whole checkpoints are taken: that commit must not wait for more input. If nothing qualifies under SIZE or PRESSURE,
    everything is taken.
    """
    whole = {stream: b.boundary for stream, b in backlog.items() if b.boundary > b.cut}
    if reason is Due.AGE:
        return whole
    inside = {stream: b.end for stream, b in backlog.items() if stream not in whole and b.bytes >= OPEN_CHECKPOINT_MIN_BYTES}
    return {**whole, **inside} or {stream: b.end for stream, b in backlog.items() if b.bytes}


def slice_bytes(streams: Sequence[int], cores: int) -> int:
    """How large the slices of a batch of streams with so many bytes should be: as large as keeps all cores at work to its end."""
    share = sum(streams) / cores
    target = SLICE_MIN_BYTES
    for slices_a_core in range(2, TASKS_PER_CORE + 1):
        target = max(SLICE_MIN_BYTES, int(share) // slices_a_core)
        if target == SLICE_MIN_BYTES or _busiest(streams, target, cores) <= share * (1 + IDLE_SHARE):
            break
    return target


def _busiest(streams: Sequence[int], target: int, cores: int) -> float:
    """The bytes that fall to the core with the most of them."""
    slices = [size / count for size in streams for count in [pieces(size, target)] for _ in range(count)]
    loads = [0.0] * cores
    for size in sorted(slices, reverse=True):
        heapq.heapreplace(loads, loads[0] + size)
    return max(loads)


def pieces(stream_bytes: int, target: int, most_bytes: int | None = None) -> int:
    """Into how many slices of about `target` bytes a stream's part of a batch is cut.

    `most_bytes`: no slice may be larger, since it is sorted in memory.
    """
    return max(1, -(-stream_bytes // min(target, most_bytes or target)))


def grouped(items: Sequence[Item], size: Callable[[Item], int], cores: int) -> list[list[Item]]:
    """The items in at most TASKS_PER_CORE groups a core, the largest first, of about the same total size."""
    count = min(len(items), TASKS_PER_CORE * cores)
    heap = [(0, 0, index) for index in range(count)]
    groups: list[list[Item]] = [[] for _ in range(count)]
    for item in sorted(items, key=size, reverse=True):
        total, members, index = heapq.heappop(heap)
        groups[index].append(item)
        heapq.heappush(heap, (total + size(item), members + 1, index))
    return groups


def limits(config: Config) -> Limits:
    """When batches are cut."""
    batching = config.batching
    return Limits(batching.max_batch_mb * MIB, batching.max_batch_age_s, int(batching.max_spool_gb * GIB))

"""Choice of the files of a deduplicated table that a merge rewrites. Pure functions without I/O.

A merge rewrites the files that may have keys of its runs, and small files beside them. If the table has too many small files, it also joins
some that it would not touch otherwise. Keys are encoded (`tables.runs.keys`), so they compare as bytes.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from destination_s3_spark.tables.runs.keys import after

SMALL_SHARE = 4
"""Divisor of the target size. Smaller files than that are joined with adjacent files that are rewritten."""
MOST_SMALL_FILES = 32
"""Number of files that a merge leaves as they are although two of their size would make one file."""
REWRITTEN_PER_NEW = 3
"""Bytes that a merge may rewrite for each new byte before it stops joining small files.

1 % of new versions then rewrites at most 3 % of a table, unless these versions touch more than that.
"""
FILES_PER_JOIN = 3
"""Number of files that a merge has to rewrite for each file of the target size that it may join in any case."""
LARGEST_SHARE = 5 / 4
"""Share of the target size up to which rows are written as one file. More rows become two files of more than half of the target."""

Key: TypeAlias = bytes
"""An encoded key."""
Interval: TypeAlias = tuple[Key, Key]
"""The first and the last key of a stretch."""


@dataclass(frozen=True, slots=True)
class SortedTableFile:
    """A file of the table. `key` and `size` are those of the object with its rows for merges, `bytes` is the size of the final file.

    `low` and `high` bound the keys of the file's partition, the second one exclusive. Rows with other keys go to other files.
    `of_history`: whether it is a file of valid versions instead, which counts as empty.
    """

    key: str
    size: int
    first: bytes
    last: bytes
    rows: int
    bytes: int
    low: Key = b""
    high: Key | None = None
    of_history: bool = False


@dataclass(frozen=True, slots=True)
class FileCluster:
    """Files with overlapping bounds. Truncated bounds do not tell where a file ends, so the files are rewritten together."""

    first: bytes
    last: bytes
    files: tuple[SortedTableFile, ...]

    @property
    def bytes(self) -> int:
        """Size of the final files."""
        return sum(file.bytes for file in self.files)

    @property
    def low(self) -> Key:
        """The lower bound of the keys that may share a file with its first rows."""
        return self.files[0].low

    @property
    def high(self) -> Key | None:
        """The exclusive upper bound of the keys that may share a file with its last rows."""
        return self.files[-1].high


def clusters_of(files: Iterable[SortedTableFile]) -> list[FileCluster]:
    """Put files with overlapping bounds together. The clusters ascend."""
    clusters: list[FileCluster] = []
    for file in sorted(files, key=lambda file: (file.first, file.last, file.key)):
        if clusters and file.first <= clusters[-1].last:
            before = clusters.pop()
            clusters.append(FileCluster(before.first, max(before.last, file.last), (*before.files, file)))
        else:
            clusters.append(FileCluster(file.first, file.last, (file,)))
    return clusters


def overlapping(intervals: Sequence[Interval], low: Key, high: Key | None) -> range:
    """Return the indices of the intervals, which must ascend, that overlap the range `low <= key < high`."""
    start = bisect_left(intervals, low, key=lambda interval: interval[1])
    stop = len(intervals) if high is None else bisect_left(intervals, high, key=lambda interval: interval[0])
    return range(start, stop)


def replaced(clusters: Sequence[FileCluster], intervals: Sequence[Interval], target_bytes: int, new_bytes: float) -> list[bool]:
    """Tell for each cluster whether a merge rewrites it. `intervals` are the keys of its runs, `new_bytes` is the size of their rows."""
    needed = _needed(clusters, intervals, target_bytes)
    bytes_needed = sum(cluster.bytes for cluster, is_needed in zip(clusters, needed, strict=True) if is_needed)
    room = max(
        REWRITTEN_PER_NEW * new_bytes - bytes_needed,
        2 * target_bytes - bytes_needed,
        bytes_needed // (FILES_PER_JOIN * target_bytes) * target_bytes,
    )
    joined = _joins(clusters, needed, target_bytes, room)
    return [is_needed or index in joined for index, is_needed in enumerate(needed)]


def _needed(clusters: Sequence[FileCluster], intervals: Sequence[Interval], target_bytes: int) -> list[bool]:
    """Tell for each cluster whether a run may have keys of it, or whether it is small and adjacent to rewritten keys."""
    touched = [bool(overlapping(intervals, cluster.first, after(cluster.last))) for cluster in clusters]
    edges = [b"", *(after(cluster.last) for cluster in clusters)]
    firsts = [*(cluster.first for cluster in clusters), None]
    # New keys of another partition do not come into a file of this one.
    before = [bool(overlapping(intervals, max(low, one.low), one.first)) for low, one in zip(edges, clusters, strict=False)]
    behind = [bool(overlapping(intervals, after(one.last), _least(one.high, high))) for one, high in zip(clusters, firsts[1:], strict=True)]
    rising = _adjacent(clusters, touched, before, target_bytes)
    falling = _adjacent(clusters[::-1], touched[::-1], behind[::-1], target_bytes)[::-1]
    return [one or other for one, other in zip(rising, falling, strict=True)]


def _adjacent(clusters: Sequence[FileCluster], touched: Sequence[bool], fed_before: Sequence[bool], target_bytes: int) -> list[bool]:
    """Tell for each cluster whether it is touched, or small and follows a touched cluster or a gap with keys of runs.

    The small clusters that follow are at most one file in total, because only their size is a reason to rewrite them.
    """
    joined = []
    room = 0
    partition: tuple[bytes, bytes | None] | None = None
    for cluster, is_touched, is_fed in zip(clusters, touched, fed_before, strict=True):
        if partition != (cluster.low, cluster.high):
            partition, room = (cluster.low, cluster.high), 0
        if is_touched or is_fed:
            room = target_bytes
        joins = is_touched or (cluster.bytes < target_bytes / SMALL_SHARE and cluster.bytes <= room)
        if not is_touched:
            room = room - cluster.bytes if joins else 0
        joined.append(joins)
    return joined


def _least(one: bytes | None, other: bytes | None) -> bytes | None:
    """Return the lower of two upper bounds. None is no bound."""
    return other if one is None else one if other is None else min(one, other)


def _joins(clusters: Sequence[FileCluster], needed: Sequence[bool], target_bytes: int, room: float) -> set[int]:
    """Choose small clusters to join, by index, until only MOST_SMALL_FILES are left.

    The joins have `room` bytes together. Those with the fewest bytes for each file that goes come first.
    """
    small = [not is_needed and 2 * one.bytes < LARGEST_SHARE * target_bytes for one, is_needed in zip(clusters, needed, strict=True)]
    surplus = sum(small) - MOST_SMALL_FILES
    chosen: set[int] = set()
    if surplus <= 0:
        return chosen

    def size(group: range) -> int:
        return sum(clusters[index].bytes for index in group)

    groups = _groups(clusters, small, needed, target_bytes)
    for group in sorted(groups, key=lambda group: size(group) / (len(group) - 1)):
        if surplus > 0 and size(group) <= room:
            chosen.update(group)
            surplus -= len(group) - 1
            room -= size(group)
    return chosen


def _groups(clusters: Sequence[FileCluster], small: Sequence[bool], needed: Sequence[bool], target_bytes: int) -> Iterator[range]:
    """Yield groups of adjacent clusters of one partition that make one file. A small one between large ones is joined with one of them."""

    def fits(group: range) -> bool:
        one, *others = [(clusters[index].low, clusters[index].high) for index in group]
        return all(other == one for other in others) and sum(clusters[index].bytes for index in group) <= LARGEST_SHARE * target_bytes

    start = 0
    while start < len(clusters):
        stop = start + 1
        while small[start] and stop < len(clusters) and small[stop] and fits(range(start, stop + 1)):
            stop += 1
        if stop - start > 1:
            yield range(start, stop)
        elif small[start]:
            around = (range(max(0, start - 1), start + 1), range(start, min(start + 2, len(clusters))))
            yield from [group for group in around if len(group) > 1 and not any(needed[index] for index in group) and fits(group)][:1]
        start = stop

"""Plan of a merge: the files of a table to rewrite, and the division of the work into ranges of keys. Pure functions without I/O.

Keys are encoded (`tables.runs.keys`), so they compare as bytes. Bounds of files and row groups are inclusive. They may be wider than the
actual keys, but never narrower. Ranges are half open: `low <= key < high`. b"" is below every key, and None is above every key.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from math import ceil
from typing import Any, TypeAlias

from destination_s3_spark.tables.runs.keys import after
from destination_s3_spark.tables.runs.sorted_file import RowGroup

SMALL_SHARE = 4
"""Divisor of the target size. Smaller files than that are joined with adjacent files that are rewritten."""
LEAST_TASK_BYTES = 32 * 2**20
"""Minimum output of a task. Below it, starting a task and writing small files costs more than parallel work saves."""


Key: TypeAlias = bytes
"""An encoded key."""


@dataclass(frozen=True, slots=True)
class Group:
    """A row group of a sorted run, or a part of one: bounds of its keys, number of rows, and size in Arrow memory."""

    first: bytes
    last: bytes
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Run:
    """A sorted run of rows to merge, or of tombstones. `size` is the object's size, `offset` the arrival of its first row."""

    key: str
    size: int
    offset: int
    groups: tuple[Group, ...]

    @classmethod
    def of(cls, key: str, size: int, offset: int, index: Sequence[RowGroup], last: bytes) -> Run:
        """Make a run from the index in its footer and an upper bound of its keys."""
        ends = [*(group.first_key for group in index[1:]), last]
        groups = (Group(group.first_key, end, group.rows, group.bytes) for group, end in zip(index, ends, strict=True))
        return cls(key, size, offset, tuple(groups))

    def divided(self, files: Sequence[TableFile], keys_of: Callable[[int], Sequence[Any]]) -> Run:
        """Return the run with a separate group for each stretch of its keys within one file of the table, or between two files.

        The bounds of row groups leave no gaps, so a few scattered keys would otherwise seem to touch all files between them. `keys_of`
        returns the ascending keys of a row group as Arrow scalars.
        """
        bounds = sorted({*(file.first for file in files), *(after(file.last) for file in files)})
        groups: list[Group] = []
        for number, group in enumerate(self.groups):
            inside = bounds[bisect_right(bounds, group.first) : bisect_right(bounds, group.last)]
            groups += _stretches(group, keys_of(number), inside) if inside else [group]
        return replace(self, groups=tuple(groups))


@dataclass(frozen=True, slots=True)
class TableFile:
    """A file of the table. `key` and `size` are those of the object with its rows for merges, `bytes` is the size of the final file.

    `low` and `high` bound the keys of the file's partition, the second one exclusive. Rows with other keys go to other files.
    """

    key: str
    size: int
    first: bytes
    last: bytes
    rows: int
    bytes: int
    low: Key = b""
    high: Key | None = None


@dataclass(frozen=True, slots=True)
class Part:
    """The row groups of a run that may have keys of a range."""

    run: Run
    groups: range

    @property
    def first(self) -> bytes:
        """A lower bound of the keys."""
        return self.run.groups[self.groups.start].first


@dataclass(frozen=True, slots=True)
class Piece:
    """The work of one task: all files and row groups that may have keys of its range.

    `bytes` is the approximate maximum size of its final files, if no row replaces another one and nothing is compressed.
    """

    low: bytes
    high: bytes | None
    table: tuple[TableFile, ...]
    runs: tuple[Part, ...]
    tombstones: tuple[Part, ...]
    bytes: int


@dataclass(frozen=True, slots=True)
class MergePlan:
    """The pieces of a merge in key order, the files of the table that they replace, and the size of a row in a final file."""

    pieces: tuple[Piece, ...]
    replaced: tuple[TableFile, ...]
    row_bytes: float


@dataclass(frozen=True, slots=True)
class Sizes:
    """Limits of a merge: the size of a final file, the Arrow memory of a task in bytes, and the number of parallel tasks."""

    target_file_bytes: int
    budget_bytes: int
    cores: int


@dataclass(frozen=True, slots=True)
class _Cluster:
    """Files with overlapping bounds. Truncated bounds do not tell where a file ends, so the files are rewritten together."""

    first: bytes
    last: bytes
    files: tuple[TableFile, ...]

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)

    @property
    def low(self) -> Key:
        """The lower bound of the keys that may share a file with its first rows."""
        return self.files[0].low

    @property
    def high(self) -> Key | None:
        """The exclusive upper bound of the keys that may share a file with its last rows."""
        return self.files[-1].high


@dataclass(frozen=True, slots=True)
class _Span:
    """A stretch of keys between two clusters that stay. All files in it are replaced."""

    low: bytes
    high: bytes | None
    files: tuple[TableFile, ...]


_Interval = tuple[bytes, bytes]


def plan_merge(files: Sequence[TableFile], runs: Sequence[Run], tombstones: Sequence[Run], sizes: Sizes) -> MergePlan:
    """Plan the merge of runs into a table's files.

    Every key of a run is in the range of exactly one piece. No range overlaps a file that stays, and the ranges of the pieces that read a
    replaced file cover it completely. Tombstones are read in the ranges where runs are merged. They cause no work by themselves.
    """
    intervals = _united((group.first, group.last) for run in runs for group in run.groups)
    spans = [span for span in _spans(_clusters(files), intervals, sizes.target_file_bytes) if _overlapping(intervals, span.low, span.high)]
    row_bytes = _bytes_per_row(files, runs)
    total = sum(_rows(span, runs) for span in spans) * row_bytes
    task_rows = max(min(sizes.target_file_bytes, total / sizes.cores), LEAST_TASK_BYTES) / row_bytes
    pieces: list[Piece] = []
    for span in spans:
        cuts = _cuts(span, runs, task_rows, sizes.budget_bytes)
        for low, high in zip([span.low, *cuts], [*cuts, span.high], strict=True):
            table = tuple(file for file in span.files if file.last >= low and (high is None or file.first < high))
            parts = tuple(_parts(runs, low, high))
            size = sum(file.bytes for file in table) + sum(part.run.groups[index].bytes for part in parts for index in part.groups)
            pieces.append(Piece(low, high, table, parts, tuple(_parts(tombstones, low, high)), size))
    return MergePlan(tuple(pieces), tuple(file for span in spans for file in span.files), row_bytes)


def _stretches(group: Group, keys: Sequence[Any], bounds: Sequence[bytes]) -> Iterator[Group]:
    """Cut the group at the bounds and yield the parts that have keys."""
    cuts = [0, *(bisect_left(keys, bound, key=lambda key: key.as_py()) for bound in bounds), len(keys)]
    for start, end in pairwise(cuts):
        if start < end:
            rows = end - start
            yield Group(keys[start].as_py(), keys[end - 1].as_py(), rows, group.bytes * rows // group.rows)


def _united(intervals: Iterable[_Interval]) -> list[_Interval]:
    """Unite overlapping intervals. The result is disjoint and ascending."""
    united: list[_Interval] = []
    for first, last in sorted(intervals):
        if united and first <= united[-1][1]:
            united[-1] = (united[-1][0], max(last, united[-1][1]))
        else:
            united.append((first, last))
    return united


def _overlapping(intervals: Sequence[_Interval], low: bytes, high: bytes | None) -> range:
    """Return the indices of the intervals, which must ascend, that overlap the range."""
    start = bisect_left(intervals, low, key=lambda interval: interval[1])
    stop = len(intervals) if high is None else bisect_left(intervals, high, key=lambda interval: interval[0])
    return range(start, stop)


def _clusters(files: Iterable[TableFile]) -> list[_Cluster]:
    clusters: list[_Cluster] = []
    for file in sorted(files, key=lambda file: (file.first, file.last, file.key)):
        if clusters and file.first <= clusters[-1].last:
            before = clusters.pop()
            clusters.append(_Cluster(before.first, max(before.last, file.last), (*before.files, file)))
        else:
            clusters.append(_Cluster(file.first, file.last, (file,)))
    return clusters


def _spans(clusters: Sequence[_Cluster], intervals: Sequence[_Interval], target_bytes: int) -> Iterator[_Span]:
    """Yield the stretches between the clusters that stay."""
    replaced = _replaced(clusters, intervals, target_bytes)
    low = b""
    inside: list[TableFile] = []
    for cluster, is_replaced in zip(clusters, replaced, strict=True):
        if is_replaced:
            inside += cluster.files
            continue
        yield _Span(low, cluster.first, tuple(inside))
        low, inside = after(cluster.last), []
    yield _Span(low, None, tuple(inside))


def _replaced(clusters: Sequence[_Cluster], intervals: Sequence[_Interval], target_bytes: int) -> list[bool]:
    """Tell for each cluster whether it is rewritten: a run may have keys of it, or it is small and adjacent to rewritten keys."""
    touched = [bool(_overlapping(intervals, cluster.first, after(cluster.last))) for cluster in clusters]
    edges = [b"", *(after(cluster.last) for cluster in clusters)]
    firsts = [*(cluster.first for cluster in clusters), None]
    # New keys of another partition do not come into a file of this one.
    before = [bool(_overlapping(intervals, max(low, one.low), one.first)) for low, one in zip(edges, clusters, strict=False)]
    behind = [
        bool(_overlapping(intervals, after(one.last), _least(one.high, high))) for one, high in zip(clusters, firsts[1:], strict=True)
    ]
    rising = _joined(clusters, touched, before, target_bytes)
    falling = _joined(clusters[::-1], touched[::-1], behind[::-1], target_bytes)[::-1]
    return [one or other for one, other in zip(rising, falling, strict=True)]


def _joined(clusters: Sequence[_Cluster], touched: Sequence[bool], fed_before: Sequence[bool], target_bytes: int) -> list[bool]:
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


def _bytes_per_row(files: Sequence[TableFile], runs: Sequence[Run]) -> float:
    """Estimate the size of a row in a final file from the existing files, or from the runs if there are none."""
    stored, rows = sum(file.bytes for file in files), sum(file.rows for file in files)
    if rows == 0:
        stored, rows = sum(run.size for run in runs), sum(group.rows for run in runs for group in run.groups)
    return max(1.0, stored / rows) if rows else 1.0


def _rows(span: _Span, runs: Sequence[Run]) -> int:
    return sum(file.rows for file in span.files) + sum(group.rows for group in _groups(runs, span.low, span.high))


def _cuts(span: _Span, runs: Sequence[Run], task_rows: float, budget_bytes: int) -> list[bytes]:
    """Choose the keys that divide the span into parts with about equal numbers of rows, few enough for a task."""
    groups = list(_groups(runs, span.low, span.high))
    points = sorted({*(group.first for group in groups), *(file.first for file in span.files)})
    before = _rows_before(points, [*groups, *span.files])
    parts = max(1, round(before[-1] / task_rows), _parts_in_memory(span, runs, budget_bytes))
    return [points[index] for index in _even(before, before[-1] / parts)]


def _even(before: Sequence[float], share: float) -> Iterator[int]:
    """Yield the indices of points that divide the rows into parts as close to `share` as possible, and never below half of it.

    `before` holds the rows before each point. The first point is never chosen.
    """
    last = 0.0
    for point in range(1, len(before) - 1):
        size, next_size = before[point] - last, before[point + 1] - last
        if size >= share / 2 and next_size - share > share - size and before[-1] - before[point] >= share / 2:
            yield point
            last = before[point]


def _rows_before(points: Sequence[bytes], stretches: Iterable[Group | TableFile]) -> list[float]:
    """Estimate the number of rows before each point, and in total. The rows of a stretch count as evenly distributed over its points."""
    density = [0.0] * (len(points) + 1)
    for stretch in stretches:
        start = bisect_left(points, stretch.first)
        end = max(start + 1, bisect_left(points, stretch.last))
        density[start] += stretch.rows / (end - start)
        density[end] -= stretch.rows / (end - start)
    return [0.0, *accumulate(accumulate(density[:-1]))]


def _parts_in_memory(span: _Span, runs: Sequence[Run], budget_bytes: int) -> int:
    """Return the minimum number of parts for the memory budget.

    A task holds a row group of each run that it has reached. If these row groups alone exceed the budget, a task must be able to hold all
    of its rows.
    """
    inside = [list(_groups([run], span.low, span.high)) for run in runs]
    if deepest((groups[0].first, groups[-1].last, max(group.bytes for group in groups)) for groups in inside if groups) <= budget_bytes:
        return 1
    size = sum(group.bytes for groups in inside for group in groups)
    rows = sum(group.rows for groups in inside for group in groups)
    return ceil(size * (1 + sum(file.rows for file in span.files) / rows) / budget_bytes)


def deepest(stretches: Iterable[tuple[bytes, bytes, float]]) -> float:
    """Return the greatest sum of sizes of overlapping stretches of keys, each given as (first, last, size)."""
    edges: list[tuple[bytes, float]] = []
    for first, last, size in stretches:
        edges += (first, size), (after(last), -size)
    return max(accumulate(size for _, size in sorted(edges)), default=0.0)


def _parts(runs: Sequence[Run], low: bytes, high: bytes | None) -> Iterator[Part]:
    for run in runs:
        start = bisect_left(run.groups, low, key=lambda group: group.last)
        stop = len(run.groups) if high is None else bisect_left(run.groups, high, key=lambda group: group.first)
        if start < stop:
            yield Part(run, range(start, stop))


def _groups(runs: Sequence[Run], low: bytes, high: bytes | None) -> Iterator[Group]:
    return (part.run.groups[index] for part in _parts(runs, low, high) for index in part.groups)

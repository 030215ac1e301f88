"""Plan of a merge: the division of its work into ranges of keys. Pure functions without I/O.

Keys are encoded (`tables.runs.keys`), so they compare as bytes. Bounds of files and row groups are inclusive. They may be wider than the
actual keys, but never narrower. Ranges are half open: `low <= key < high`. b"" is below every key, and None is above every key.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from math import ceil
from typing import Any

from destination_s3_spark.tables.merge.replaced_files import (
    LARGEST_SHARE,
    FileCluster,
    Interval,
    SortedTableFile,
    clusters_of,
    overlapping,
    replaced,
)
from destination_s3_spark.tables.runs.keys import after
from destination_s3_spark.tables.runs.sorted_file import RowGroup

LEAST_TASK_BYTES = 32 * 2**20
"""Minimum output of a task. Below it, starting a task and writing small files costs more than parallel work saves."""
FULL_SHARE = 3 / 2
"""Share of the target size at which a file alone in its range ends, if its rows are larger than expected."""
ROOM_SHARE = 17 / 16
"""Size at which one of several files of a range ends, as a share of their mean. So the estimate may be a little too low."""


@dataclass(frozen=True, slots=True)
class Run:
    """A sorted run of rows to merge, or of tombstones, or the row groups of one that may have keys of a range.

    `size` is the object's size, `offset` the arrival of its first row.
    """

    key: str
    size: int
    offset: int
    groups: tuple[RowGroup, ...]

    def divided(self, files: Sequence[SortedTableFile], keys_of: Callable[[int], Sequence[Any]]) -> Run:
        """Return the run with a separate group for each stretch of its keys within one file of the table, or between two files.

        The bounds of row groups leave no gaps, so a few scattered keys would otherwise seem to touch all files between them. `keys_of`
        returns the ascending keys of a row group as Arrow scalars.
        """
        bounds = sorted({*(file.first for file in files), *(after(file.last) for file in files)})
        groups: list[RowGroup] = []
        for number, group in enumerate(self.groups):
            inside = bounds[bisect_right(bounds, group.first) : bisect_right(bounds, group.last)]
            groups += _stretches(group, keys_of(number), inside) if inside else [group]
        return replace(self, groups=tuple(groups))


@dataclass(frozen=True, slots=True)
class PlannedRange:
    """The work of one task: all files and row groups that may have keys of its range.

    `rows` is the approximate number of rows if no row replaces another one, and `bytes` their size in final files if nothing is compressed.
    """

    low: bytes
    high: bytes | None
    table: tuple[SortedTableFile, ...]
    runs: tuple[Run, ...]
    tombstones: tuple[Run, ...]
    rows: float
    bytes: int


@dataclass(frozen=True, slots=True)
class MergePlan:
    """The ranges of a merge in key order, the files of the table that they replace, and the size of a row in a final file."""

    ranges: tuple[PlannedRange, ...]
    replaced: tuple[SortedTableFile, ...]
    row_bytes: float


@dataclass(frozen=True, slots=True)
class Sizes:
    """Limits of a merge: the size of a final file, and the Arrow memory of a task in bytes.

    `plain`: whether rows take about as much in a final file as in Arrow memory. Otherwise they take about as much as in a run.
    """

    target_file_bytes: int
    budget_bytes: int
    plain: bool = False


@dataclass(frozen=True, slots=True)
class _Span:
    """A stretch of keys between two clusters that stay. All files in it are replaced."""

    low: bytes
    high: bytes | None
    files: tuple[SortedTableFile, ...]


def plan_merge(files: Sequence[SortedTableFile], runs: Sequence[Run], tombstones: Sequence[Run], sizes: Sizes) -> MergePlan:
    """Plan the merge of runs into a table's files.

    Every key of a run is in exactly one range. No range overlaps a file that stays, and the ranges that read a
    replaced file cover it completely. Tombstones are read in the ranges where runs are merged. They cause no work by themselves.
    """
    target = sizes.target_file_bytes
    row_bytes = _bytes_per_row(files, runs, plain=sizes.plain)
    new_bytes = row_bytes * sum(group.rows for run in runs for group in run.groups)
    clusters = clusters_of(files)
    intervals = _united((group.first, group.last) for run in runs for group in run.groups)
    found = _spans(clusters, replaced(clusters, intervals, target, new_bytes))
    spans = [span for span in found if span.files or overlapping(intervals, span.low, span.high)]
    ranges = [one for span in spans for one in _planned_ranges(span, runs, tombstones, row_bytes, sizes)]
    return MergePlan(tuple(ranges), tuple(file for span in spans for file in span.files), row_bytes)


def file_count(expected_bytes: float, target_bytes: float) -> int:
    """Return the number of files for rows of a size: files of about the target size, and of more than half of it if there are several."""
    return max(1, round(expected_bytes / target_bytes), ceil(expected_bytes / (LARGEST_SHARE * target_bytes)))


def full_bytes(expected_bytes: float, target_bytes: float) -> float:
    """Return the size at which a final file of a range ends."""
    files = file_count(expected_bytes, target_bytes)
    return FULL_SHARE * target_bytes if files == 1 else ROOM_SHARE * expected_bytes / files


def _planned_ranges(span: _Span, runs: Sequence[Run], tombstones: Sequence[Run], row_bytes: float, sizes: Sizes) -> Iterator[PlannedRange]:
    task_rows = max(sizes.target_file_bytes, LEAST_TASK_BYTES) / row_bytes
    for low, high, rows in _ranges(span, runs, task_rows, sizes.budget_bytes):
        table = tuple(file for file in span.files if file.last >= low and (high is None or file.first < high))
        parts = tuple(_parts(runs, low, high))
        dead = tuple(_parts(tombstones, low, high)) if parts else ()
        size = sum(file.bytes for file in table) + sum(group.bytes for part in parts for group in part.groups)
        yield PlannedRange(low, high, table, parts, dead, rows, size)


def _stretches(group: RowGroup, keys: Sequence[Any], bounds: Sequence[bytes]) -> Iterator[RowGroup]:
    """Cut the group at the bounds and yield the parts that have keys."""
    cuts = [0, *(bisect_left(keys, bound, key=lambda key: key.as_py()) for bound in bounds), len(keys)]
    for start, end in pairwise(cuts):
        if start < end:
            rows = end - start
            yield RowGroup(keys[start].as_py(), keys[end - 1].as_py(), rows, group.bytes * rows // group.rows)


def _united(intervals: Iterable[Interval]) -> list[Interval]:
    """Unite overlapping intervals. The result is disjoint and ascending."""
    united: list[Interval] = []
    for first, last in sorted(intervals):
        if united and first <= united[-1][1]:
            united[-1] = (united[-1][0], max(last, united[-1][1]))
        else:
            united.append((first, last))
    return united


def _spans(clusters: Sequence[FileCluster], replaced: Sequence[bool]) -> Iterator[_Span]:
    """Yield the stretches between the clusters that stay."""
    low = b""
    inside: list[SortedTableFile] = []
    for cluster, is_replaced in zip(clusters, replaced, strict=True):
        if is_replaced:
            inside += cluster.files
            continue
        yield _Span(low, cluster.first, tuple(inside))
        low, inside = after(cluster.last), []
    yield _Span(low, None, tuple(inside))


def _bytes_per_row(files: Sequence[SortedTableFile], runs: Sequence[Run], *, plain: bool) -> float:
    """Estimate the size of a row in a final file from the existing files, or from the runs if there are none."""
    stored, rows = sum(file.bytes for file in files), sum(file.rows for file in files)
    if rows == 0:
        groups = [group for run in runs for group in run.groups]
        stored = sum(group.bytes for group in groups) if plain else sum(run.size for run in runs)
        rows = sum(group.rows for group in groups)
    return max(1.0, stored / rows) if rows else 1.0


def _ranges(span: _Span, runs: Sequence[Run], task_rows: float, budget_bytes: int) -> Iterator[tuple[bytes, bytes | None, float]]:
    """Divide the span into ranges with about equal numbers of rows, few enough for a task. Yield the bounds and the rows of each."""
    groups = list(_groups(runs, span.low, span.high))
    points = sorted({*(file.first for file in span.files), *_starts(runs, span)})
    before = _rows_before(points, [*groups, *span.files])
    parts = max(file_count(before[-1], task_rows), _parts_in_memory(span, runs, budget_bytes))
    cuts = list(_even(before, before[-1] / parts))
    keys = [points[index] for index in cuts]
    rows = [end - start for start, end in pairwise([0.0, *(before[index] for index in cuts), before[-1]])]
    yield from zip([span.low, *keys], [*keys, span.high], rows, strict=True)


def _starts(runs: Sequence[Run], span: _Span) -> Iterator[bytes]:
    """Yield the keys at which groups begin and rows may be divided.

    The first group of a run within a file tells nothing: most rows of the file may be on one side of it.
    """
    firsts = sorted(file.first for file in span.files)
    lasts = sorted(file.last for file in span.files)
    for run in runs:
        before: int | None = None
        for group in _groups([run], span.low, span.high):
            file = bisect_right(firsts, group.first)
            is_outside = bisect_left(lasts, group.first) == file
            if is_outside or file == before:
                yield group.first
            before = file


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


def _rows_before(points: Sequence[bytes], stretches: Iterable[RowGroup | SortedTableFile]) -> list[float]:
    """Estimate the number of rows before each point, and in total. The rows of a stretch count as evenly distributed over its points."""
    density = [0.0] * (len(points) + 1)
    for stretch in stretches:
        start = bisect_right(points, stretch.first) - 1
        end = max(start + 1, bisect_left(points, stretch.last))
        density[start] += stretch.rows / (end - start)
        density[end] -= stretch.rows / (end - start)
    return [0.0, *accumulate(accumulate(density[:-1]))]


def _parts_in_memory(span: _Span, runs: Sequence[Run], budget_bytes: int) -> int:
    """Return the minimum number of parts for the memory budget.

    A task holds a row group of each run that it has reached. If these row groups alone exceed the budget, a task must be able to hold all
    of its rows.
    """
    inside = [part.groups for part in _parts(runs, span.low, span.high)]
    if deepest((groups[0].first, groups[-1].last, max(group.bytes for group in groups)) for groups in inside) <= budget_bytes:
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


def _parts(runs: Sequence[Run], low: bytes, high: bytes | None) -> Iterator[Run]:
    for run in runs:
        start = bisect_left(run.groups, low, key=lambda group: group.last)
        stop = len(run.groups) if high is None else bisect_left(run.groups, high, key=lambda group: group.first)
        if start < stop:
            yield replace(run, groups=run.groups[start:stop])


def _groups(runs: Sequence[Run], low: bytes, high: bytes | None) -> Iterator[RowGroup]:
    return (group for part in _parts(runs, low, high) for group in part.groups)

"""Choice of the files to join. Pure functions without I/O.

Only neighbours are joined: files of one schema, generation and folder with consecutive rows. So their rows keep their order, and the
rows of a raw file are still those of one final file. Files of a partition are neighbours whatever landed in other partitions between them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import groupby

from destination_s3_spark.chain.files import FileEntry

LEAST_FILES = 16
"""Files of about one size that are joined although they do not fill a file yet. A row is then rewritten about log16 times of the target."""
SMALLEST_TIER_BYTES = 64 * 2**10
"""Files up to this size count as of one size."""
GROWTH = 8
"""Least growth of the largest file that is joined before the target is reached. It bounds how often a row is rewritten."""

Group = tuple[FileEntry, ...]
Twin = Callable[[FileEntry], bool]


def groups(files: Sequence[FileEntry], target_bytes: int, has_twin: Twin = lambda _: False) -> list[Group]:
    """Choose groups of files to join, each of two or more.

    The files are of one kind and format. `has_twin` tells whether a file has a raw file with the same rows.

    Files below half of the target are joined as soon as they fill at least that. Fewer bytes are joined if there are LEAST_FILES files of
    about one size. No group is larger than one and a half times the target.
    """
    found: list[Group] = []
    for run in _neighbours([file for file in files if file.offset is not None], target_bytes / 2, has_twin):
        full, rest = _full(run, target_bytes)
        found += [group for group in full if len(group) > 1]
        found += _of_one_size(rest)
    return found


def _neighbours(files: Sequence[FileEntry], below_bytes: float, has_twin: Twin) -> Iterator[list[FileEntry]]:
    """Yield the longest runs of small files with consecutive rows that may be joined."""
    run: list[FileEntry] = []
    for file in sorted(files, key=lambda file: (file.partition or "", file.offset or 0)):
        if run and not (file.bytes < below_bytes and _follows(file, run[-1]) and has_twin(file) == has_twin(run[-1])):
            yield run
            run = []
        if file.bytes < below_bytes:
            run.append(file)
    if run:
        yield run


def _follows(file: FileEntry, before: FileEntry) -> bool:
    consecutive = file.partition is not None or file.offset == (before.offset or 0) + before.rows
    return consecutive and _likeness(file) == _likeness(before)


def _likeness(file: FileEntry) -> tuple[object, ...]:
    return file.kind, file.schema_id, file.generation_id, file.partition, file.key.rpartition("/")[0]


def _full(run: Sequence[FileEntry], target_bytes: int) -> tuple[list[Group], list[FileEntry]]:
    """Cut the run into groups that reach the target. Return them and the files that are left.

    What is left goes into the last group if there is room, or is a group of its own if it fills half of the target.
    """
    found: list[Group] = []
    group: list[FileEntry] = []
    for file in run:
        group.append(file)
        if _bytes(group) >= target_bytes:
            found.append(tuple(group))
            group = []
    if found and _bytes(found[-1]) + _bytes(group) <= target_bytes * 3 / 2:
        return [*found[:-1], (*found[-1], *group)], []
    if _bytes(group) >= target_bytes / 2:
        return [*found, tuple(group)], []
    return found, group


def _of_one_size(files: Sequence[FileEntry]) -> list[Group]:
    """Choose runs of enough files up to the smallest size for which there are any."""
    limit = SMALLEST_TIER_BYTES
    while files:
        runs = [tuple(run) for small, run in groupby(files, partial(_is_small, limit)) if small]
        found = [run for run in runs if len(run) >= LEAST_FILES and _bytes(run) >= GROWTH * max(file.bytes for file in run)]
        if found or all(_is_small(limit, file) for file in files):
            return found
        limit *= LEAST_FILES
    return []


def _is_small(limit: int, file: FileEntry) -> bool:
    return file.bytes <= limit


def _bytes(files: Sequence[FileEntry]) -> int:
    return sum(file.bytes for file in files)

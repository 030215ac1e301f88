"""Many runs -> few larger ones, before a merge: a merge holds some rows of each run that has keys of its range, and memory is bounded.

Comes in: the runs of a sync, however many. Goes out: runs with the same winners, so few that a task can hold a portion of each of those
whose keys overlap. Where keys come in order, runs do not overlap and stay as they are.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from destination_s3_spark.chain.files import FileEntry, FileKind
from destination_s3_spark.errors import Bug
from destination_s3_spark.storage.settings import S3Settings
from destination_s3_spark.tables.keys import after, lower, upper
from destination_s3_spark.tables.merge import CombinedRun, CombineTask, Source, combine_runs
from destination_s3_spark.tables.published import keys_of
from destination_s3_spark.tables.run_file import RUN_OPTIONS, MergeForm
from destination_s3_spark.tables.update import Work

PORTIONS = 5
"""Row groups of each run a merge has in memory, all in all: those it takes rows of, the next one, and copies."""
ARROW_BYTES = 4
"""About what a byte of a run takes in Arrow's memory."""


@dataclass(frozen=True, slots=True)
class Combined:
    """The runs there are now, and the keys of all scratch objects made on the way: the caller's to delete, also after a failure."""

    runs: tuple[FileEntry, ...]
    scratch: tuple[str, ...]


def combined(
    runs: Sequence[FileEntry], form: MergeForm, next_key: Callable[[], str], budget_bytes: int, s3: S3Settings
) -> Generator[Work, list[Any] | None, Combined]:
    """The steps of an update after which the runs, which have rows, are few enough for tasks of this budget. `next_key`: for an object."""
    scratch: list[str] = []
    while _deepest(runs) * PORTIONS > budget_bytes:
        groups = list(_groups(runs, budget_bytes))
        tasks = [CombineTask(tuple(map(_source, group)), form, next_key(), budget_bytes, s3) for group in groups if len(group) > 1]
        if not tasks:
            break
        done: list[CombinedRun] = (yield Work(combine_runs, tasks, lambda task: sum(source.size for source in task.sources))) or []
        _check_complete([file for group in groups if len(group) > 1 for file in group], done)
        scratch += (run.file.key for run in done)
        runs = [*(run.file for run in done), *(group[0] for group in groups if len(group) == 1)]
    return Combined(tuple(runs), tuple(scratch))


def _deepest(runs: Sequence[FileEntry]) -> float:
    """Bytes of the row groups that a merge is in at the same time, where most runs overlap."""
    begins = [(lower(keys_of(run)), _group_bytes(run)) for run in runs]
    ends = [(after(upper(keys_of(run))), -_group_bytes(run)) for run in runs]
    return max(accumulate(size for _, size in sorted([*begins, *ends])), default=0.0)


def _group_bytes(run: FileEntry) -> float:
    """A row group of the run in Arrow's memory."""
    size = ARROW_BYTES * run.bytes
    return min(size, max(RUN_OPTIONS.row_group_bytes, size / run.rows))


def _groups(runs: Sequence[FileEntry], budget_bytes: int) -> Iterator[list[FileEntry]]:
    """The runs in the order of their first keys, so many at a time that a task can read them and at least two; alone, once that will do."""
    room = budget_bytes / PORTIONS
    over = sum(map(_group_bytes, runs)) - room
    waiting = deque(sorted(runs, key=lambda run: lower(keys_of(run))))
    while waiting:
        group = [waiting.popleft()]
        sizes = [_group_bytes(group[0])]
        while waiting and over > _freed(sizes) and (len(group) == 1 or sum(sizes) + _group_bytes(waiting[0]) <= room):
            group.append(waiting.popleft())
            sizes.append(_group_bytes(group[-1]))
        over -= _freed(sizes)
        yield group


def _freed(sizes: Sequence[float]) -> float:
    """How much less one run for these has in memory; it has row groups of the usual size, or of the largest rows."""
    return sum(sizes) - max(*sizes, min(sum(sizes), RUN_OPTIONS.row_group_bytes))


def _source(run: FileEntry) -> Source:
    return Source(FileKind.DELTA, run.key, run.bytes, run.offset or 0)


def _check_complete(runs: Sequence[FileEntry], done: Sequence[CombinedRun]) -> None:
    rows, read = sum(run.rows for run in runs), sum(run.rows_read for run in done)
    if rows != read:
        raise Bug(f"Of {rows} rows that were to be merged {read} were read. Nothing was changed. Please report this.")

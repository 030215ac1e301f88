"""Many runs -> few larger ones, before a merge: a merge holds some rows of each run that has keys of its range, and memory is bounded.

Comes in: the runs of a sync, however many. Goes out: runs with the same winners, so few that a task can hold a portion of each of those
whose keys overlap. Where keys come in order, runs do not overlap and stay as they are.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import pyarrow as pa

from destination_s3_spark.chain.files import DataFile, FileEntry, FileKind
from destination_s3_spark.errors import Bug
from destination_s3_spark.storage.settings import S3Settings
from destination_s3_spark.storage.staging import StagedFileSink
from destination_s3_spark.tables.merge.plan import deepest
from destination_s3_spark.tables.runs.keys import KEY, keys_of, lower, upper
from destination_s3_spark.tables.runs.merged_rows import merged_rows
from destination_s3_spark.tables.runs.row_streams import Source, row_streams
from destination_s3_spark.tables.runs.sorted_file import ARROW_BYTES, PIECE_BYTES, RUN_OPTIONS, MergeForm, SortedFileWriter, run_schema
from destination_s3_spark.tables.runs.staged_file import StagedFile, columns, pieces, visible_run
from destination_s3_spark.tables.update import Steps, Work

COMBINED_BYTES = 64 * 2**20
"""An object of a combined run ends when its rows take so much of Arrow's memory: a reader also has the footer, which grows with it."""
PORTIONS = 5
"""Row groups of each run a merge has in memory, all in all: those it takes rows of, the next one, and copies."""


@dataclass(frozen=True, slots=True)
class CombineTask:
    """Runs that become one, with the winner of each key among them, as scratch objects `<scratch><number>.parquet`."""

    sources: tuple[Source, ...]
    form: MergeForm
    scratch: str
    budget_bytes: int
    s3: S3Settings
    object_bytes: int = COMBINED_BYTES
    piece_bytes: int = PIECE_BYTES


@dataclass(frozen=True, slots=True)
class CombinedRun:
    """The objects that runs became, each a run whose keys follow those of the one before, and how many rows were read."""

    files: tuple[FileEntry, ...]
    rows_read: int


@dataclass(frozen=True, slots=True)
class Combined:
    """The runs there are now, and the keys of all scratch objects made on the way: the caller's to delete, also after a failure."""

    runs: tuple[FileEntry, ...]
    scratch: tuple[str, ...]


def combined(
    runs: Sequence[FileEntry], form: MergeForm, next_scratch: Callable[[], str], budget_bytes: int, s3: S3Settings
) -> Steps[Combined]:
    """The steps of an update after which the runs, which have rows, are few enough for tasks of this budget. `next_scratch`: for a task."""
    scratch: list[str] = []
    while _deepest(runs) * PORTIONS > budget_bytes:
        groups = list(_groups(runs, budget_bytes))
        tasks = [CombineTask(tuple(map(_source, group)), form, next_scratch(), budget_bytes, s3) for group in groups if len(group) > 1]
        if not tasks:
            break
        done = yield from Work(combine_runs, tasks, lambda task: sum(source.size for source in task.sources)).results()
        _check_complete([file for group in groups if len(group) > 1 for file in group], done)
        scratch += (file.key for run in done for file in run.files)
        runs = [*(file for run in done for file in run.files), *(group[0] for group in groups if len(group) == 1)]
    return Combined(tuple(runs), tuple(scratch))


def combine_runs(task: CombineTask) -> CombinedRun:
    """Merge runs, which have rows, into one; arrivals stay what they were. Raises ConfigError, TransientError or DataError."""
    files: list[FileEntry] = []
    with row_streams(task.sources, task.form, (b"", None), task.budget_bytes, task.s3) as streams:
        tables = merged_rows(streams, task.form.spec.cursor is not None)
        batches = chain.from_iterable(pieces(rows, task.piece_bytes) for rows in tables)
        while (first := next(batches, None)) is not None:
            staged = _staged(task, f"{task.scratch}{len(files)}.parquet", chain([first], batches))
            files.append(visible_run(staged, task.s3))
    return CombinedRun(tuple(files), sum(stream.taken for stream in streams))


def _staged(task: CombineTask, key: str, batches: Iterable[pa.RecordBatch]) -> DataFile:
    """An object of the next rows in merge form; takes no more than go into it."""
    schema = run_schema(task.form.payload, task.form.spec)
    sink = StagedFileSink(task.s3, key)
    with StagedFile(FileKind.DELTA, sink, SortedFileWriter(sink, schema, task.form.spec)) as file:
        size = 0
        for batch in batches:
            file.write(columns(batch, schema), batch[KEY])
            size += batch.nbytes
            if size >= task.object_bytes:
                break
        return file.stage()


def _deepest(runs: Sequence[FileEntry]) -> float:
    """Bytes of the row groups that a merge is in at the same time, where most runs overlap."""
    return deepest((lower(keys_of(run)), upper(keys_of(run)), _group_bytes(run)) for run in runs)


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
    return Source(FileKind.DELTA, run.key, run.bytes, run.offset or 0, lower(keys_of(run)))


def _check_complete(runs: Sequence[FileEntry], done: Sequence[CombinedRun]) -> None:
    rows, read = sum(run.rows for run in runs), sum(run.rows_read for run in done)
    if rows != read:
        raise Bug(f"Of {rows} rows that were to be merged {read} were read. Nothing was changed.")

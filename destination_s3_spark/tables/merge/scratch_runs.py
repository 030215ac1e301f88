"""Runs made of other files: stored rows sorted by the key, and many runs combined into fewer and larger ones.

Rows are sorted whose files are not in the order of the table's key: the table was not deduplicated before, or had another key. Runs are
combined because a merge task holds some rows of each run with keys of its range, and its memory is bounded. For a change log, combined
runs have all rows, because the log has every version of a key.

Scratch runs are visible objects that no block names. The caller has to delete them, even after a failure.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from math import ceil

import pyarrow as pa

from destination_s3_spark.chain.files import FileEntry, FileKind
from destination_s3_spark.decoding.raw_ids import carried_digest, keyed_id
from destination_s3_spark.errors import Bug
from destination_s3_spark.schema.arrow import RAW_SCHEMA, with_columns
from destination_s3_spark.storage.ranged import present
from destination_s3_spark.storage.staging import StagedFileSink
from destination_s3_spark.tables.merge.plan import deepest
from destination_s3_spark.tables.runs.keys import RAW_ID, KeySpec, keys_of, lower, unfit_rows, upper
from destination_s3_spark.tables.runs.merged_rows import RowSource, all_rows, bytes_read, merged_rows, row_streams
from destination_s3_spark.tables.runs.sorted_file import ARROW_BYTES, RUN_OPTIONS, RUN_PIECE_BYTES, MergeForm, RunFile, run_rows
from destination_s3_spark.tables.runs.table_format import run_file
from destination_s3_spark.tables.staged.staged_file import FileSeries, StagedFile
from destination_s3_spark.tables.stored.rewrite import Stored
from destination_s3_spark.tables.updates.resources import TaskResources
from destination_s3_spark.tables.updates.steps import Steps, Work

COMBINED_BYTES = 64 * 2**20
"""Size in Arrow memory at which an object of a combined run ends. It limits the footer, which a reader also holds in memory."""
PORTIONS = 5
"""Row groups per run that a merge holds in memory, including the current ones, the next one and copies."""
COPIES = 3
"""Number of copies of a run's rows in memory while the run is sorted and written."""

_Rows = tuple[pa.RecordBatch, pa.RecordBatch]
"""Rows in the payload columns of a run, and the same rows with the key, cursor and deletion columns."""


@dataclass(frozen=True, slots=True)
class SortTask:
    """A stored file to sort into runs of `payload` columns, under the keys `<scratch><number>.parquet`.

    The plan of `stored` types the columns of `spec`. If `payload` is the schema of raw rows, the file must hold raw rows.
    """

    stored: Stored
    payload: pa.Schema
    spec: KeySpec
    scratch: str
    resources: TaskResources


def sort_rows(task: SortTask) -> tuple[FileEntry, ...]:
    """Write the runs and return them in the order of their rows in the source. Arrivals are the positions of rows in the source.

    Raises ConfigError, DataError or TransientError.
    """
    runs: list[FileEntry] = []
    first = 0
    for batches in _portions(_rows(task), task.resources.budget_bytes // COPIES):
        run = _sorted_run(task, f"{task.scratch}{len(runs)}.parquet", batches, first)
        runs.append(run)
        first += run.rows
    return tuple(runs)


def _rows(task: SortTask) -> Iterator[_Rows]:
    with present(task.stored.file.key, task.resources.s3):
        is_raw = task.stored.schema is None
        for stored, typed in task.stored.rows(task.resources.s3):
            found = typed if is_raw else _made_distinct(typed, task)
            yield (stored if is_raw and task.payload == RAW_SCHEMA else found), found


def _made_distinct(rows: pa.RecordBatch, task: SortTask) -> pa.RecordBatch:
    """Make rows with an unfit key distinct, if the text of their records is not available.

    A row keeps the digest that its id carries if it was stored under the same key. Otherwise it gets a digest of its own.
    """
    same_key = task.stored.file.sorted_by == task.spec.fingerprint
    new = {row: raw_id for row, raw_id in unfit_rows(rows, task.spec) if not (same_key and carried_digest(raw_id))}
    if not new:
        return rows
    ids = rows[RAW_ID].to_pylist()
    for row, raw_id in new.items():
        ids[row] = keyed_id(raw_id, raw_id.encode())
    return with_columns(rows, {RAW_ID: pa.array(ids, pa.string())})


def _portions(rows: Iterable[_Rows], size: int) -> Iterator[list[_Rows]]:
    """Yield the batches in lists of about `size` bytes."""
    portion: list[_Rows] = []
    taken = 0
    for batch in rows:
        portion.append(batch)
        taken += batch[0].nbytes
        if taken >= size:
            yield portion
            portion, taken = [], 0
    if portion:
        yield portion


def _sorted_run(task: SortTask, key: str, rows: Iterable[_Rows], first: int) -> FileEntry:
    sink = StagedFileSink(task.resources.s3, key)
    with StagedFile(FileKind.DELTA, sink, RunFile(sink, task.payload, task.spec, first)) as run:
        for batch, typed in rows:
            run.write(run_rows(batch, typed, task.spec))
        return run.publish()


@dataclass(frozen=True, slots=True)
class CombineTask:
    """Runs to combine into one run, written as objects with these keys. When they run out, the last object grows.

    The run has all their rows if `every_version`, else the winner of each key. If `staged`, its objects stay invisible until a block names
    them; else it is a scratch run.
    """

    sources: tuple[RowSource, ...]
    form: MergeForm
    keys: tuple[str, ...]
    resources: TaskResources
    every_version: bool = False
    staged: bool = False
    object_bytes: int = COMBINED_BYTES
    piece_bytes: int = RUN_PIECE_BYTES


@dataclass(frozen=True, slots=True)
class CombinedRun:
    """The objects of a combined run, and the number of rows read. Each object is a run with keys that follow those of the previous one."""

    files: tuple[FileEntry, ...]
    rows_read: int


def combined(
    runs: Sequence[FileEntry],
    form: MergeForm,
    next_scratch: Callable[[], str],
    resources: TaskResources,
    *,
    every_version: bool = False,
) -> Steps[tuple[Sequence[FileEntry], list[str]]]:
    """Combine runs, as steps of an update, until they are few enough for tasks with these resources.

    Return the runs to merge, and the keys of all scratch objects written, which the caller has to delete. Every run must have rows.
    `next_scratch` makes the scratch prefix of a task.
    """
    scratch: list[str] = []
    while _deepest(runs) * PORTIONS > resources.budget_bytes:
        groups = list(_groups(runs, resources.budget_bytes))
        tasks = [_scratch_task(group, form, next_scratch(), resources, every_version) for group in groups if len(group) > 1]
        if not tasks:
            break
        done = yield from Work(combine_runs, tasks, bytes_read).results()
        check_complete([file for group in groups if len(group) > 1 for file in group], done)
        scratch += (file.key for run in done for file in run.files)
        runs = [*(file for run in done for file in run.files), *(group[0] for group in groups if len(group) == 1)]
    return runs, scratch


def object_count(runs: Sequence[FileEntry]) -> int:
    """Return a number of objects that is enough for the rows of these runs, even if they take twice the memory that is expected."""
    return 1 + 2 * ceil(ARROW_BYTES * sum(run.bytes for run in runs) / COMBINED_BYTES)


def _scratch_task(runs: Sequence[FileEntry], form: MergeForm, scratch: str, resources: TaskResources, every_version: bool) -> CombineTask:
    keys = tuple(f"{scratch}{number}.parquet" for number in range(object_count(runs)))
    return CombineTask(tuple(map(RowSource.of, runs)), form, keys, resources, every_version)


def combine_runs(task: CombineTask) -> CombinedRun:
    """Merge runs, which must have rows, into one run. Arrivals do not change.

    Raises ConfigError, TransientError or DataError. Nothing stays staged after an error.
    """
    with ExitStack() as stack:
        streams = stack.enter_context(row_streams(task.sources, task.form, (b"", None), task.resources))

        def started(key: str) -> StagedFile[pa.RecordBatch]:
            return stack.enter_context(run_file(task.form, key, task.resources.s3, scratch=not task.staged))

        files = FileSeries(task.keys, task.object_bytes, started, row_bytes=None)
        for rows in all_rows(streams) if task.every_version else merged_rows(streams, task.form):
            files.write(rows, task.piece_bytes)
        return CombinedRun(files.stage(), sum(stream.taken for stream in streams))


def _deepest(runs: Sequence[FileEntry]) -> float:
    """Return the size of a row group of each run, summed where most runs overlap: the row groups that a merge reads at once."""
    return deepest((lower(keys_of(run)), upper(keys_of(run)), _group_bytes(run)) for run in runs)


def _group_bytes(run: FileEntry) -> float:
    """Estimate the size of a row group of the run in Arrow memory."""
    size = ARROW_BYTES * run.bytes
    return min(size, max(RUN_OPTIONS.row_group_bytes, size / run.rows))


def _groups(runs: Sequence[FileEntry], budget_bytes: int) -> Iterator[list[FileEntry]]:
    """Group the runs in the order of their first keys.

    A group has at least two runs and at most as many as a task can read. Once enough memory is saved, each further run is a separate group.
    """
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
    """Return the memory saved by combining runs with row groups of these sizes.

    The combined run has row groups of the usual size, or larger ones for large rows.
    """
    return sum(sizes) - max(*sizes, min(sum(sizes), RUN_OPTIONS.row_group_bytes))


def check_complete(runs: Sequence[FileEntry], done: Sequence[CombinedRun]) -> None:
    """Raise Bug unless the tasks read all rows of the runs."""
    rows, read = sum(run.rows for run in runs), sum(run.rows_read for run in done)
    if rows != read:
        raise Bug(f"Of {rows} rows that were to be merged {read} were read. Nothing was changed.")

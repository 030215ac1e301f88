"""The change log's part of a merge task: finished files for snapshots and upserts, and temporary runs for events, which need sorting."""

from __future__ import annotations

from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from destination_s3_spark.chain.files import FileEntry, FileKind
from destination_s3_spark.change_log.manifest import LogKind
from destination_s3_spark.change_log.options import open_snapshot
from destination_s3_spark.storage.staging import StagedFileSink
from destination_s3_spark.tables.capture.completion import RowCompletion
from destination_s3_spark.tables.capture.event_runs import RUNS_SHARE, EventRun, piece_bytes, write_run
from destination_s3_spark.tables.capture.events import OPERATIONS, POSITION, Events, EventValues, Images
from destination_s3_spark.tables.runs.keys import DELETED
from destination_s3_spark.tables.runs.refreshed import RefreshComparison
from destination_s3_spark.tables.runs.sorted_file import MergeForm
from destination_s3_spark.tables.staged.staged_file import FileSeries, StagedFile
from destination_s3_spark.tables.stored.conversion import typed_rows
from destination_s3_spark.tables.updates.resources import TaskResources

SPANS = 1024
"""Number of spans of the log for which each task counts its events. Files are cut between spans."""
WRITE_BYTES = 8 * 2**20
Counts: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]
"""Numbers of events by span of the log and operation."""


@dataclass(frozen=True, slots=True)
class Span:
    """The range of arrivals, `first` to `last` inclusive, of a merge's records. It is divided into SPANS parts."""

    first: int
    last: int

    @property
    def width(self) -> int:
        """The number of arrivals in each part."""
        return (self.last - self.first) // SPANS + 1

    def position(self, part: int) -> int:
        return self.first + part * self.width

    def count(self, events: pa.RecordBatch) -> Counts:
        part = (np.asarray(events[POSITION]) - self.first) // self.width
        operation = np.asarray(pc.index_in(events["op"], pa.array(OPERATIONS)))
        counted = np.bincount(part * len(OPERATIONS) + operation, minlength=SPANS * len(OPERATIONS))
        return counted.reshape(SPANS, len(OPERATIONS))


@dataclass(frozen=True, slots=True)
class LogTask:
    """The change log's part of a merge task. Picklable."""

    kind: LogKind
    images: Images
    completion: RowCompletion
    keys: tuple[str, ...]
    """The keys of the log's files of rows."""
    scratch: str
    """The prefix for runs of events if there is no local folder or it has no room."""
    folder: Path | None
    """The local folder for runs of events."""
    file_bytes: int
    span: Span
    """The arrivals of the merge's records."""
    event_bytes: int
    """Approximate size of the events of all tasks in Arrow memory."""


@dataclass(frozen=True, slots=True)
class LoggedRange:
    """The output of a task for the log: staged files of rows, or runs of events and their counts."""

    files: tuple[FileEntry, ...]
    runs: tuple[EventRun, ...]
    counts: Counts


class ChangeOutput:
    """Output of a merge task to the change log. `stack` drops staged files when it is left with an error."""

    def __init__(
        self, task: LogTask, form: MergeForm, resources: TaskResources, stack: ExitStack, comparison: RefreshComparison | None = None
    ) -> None:
        self._task = task
        self._stack = stack
        self._comparison = comparison
        self._form = form
        self._s3 = resources.s3
        self._rows = FileSeries(task.keys, task.file_bytes, self._row_file)
        pool = stack.enter_context(ThreadPoolExecutor(1, "event-runs"))
        self._events = _EventRuns(task, resources, pool)

    def take(self, rows: pa.Table) -> pa.Table:
        """Log the changes that the rows make, and return the winners and tombstones. `rows` must hold all rows of their keys."""
        task = self._task
        found = task.completion.of(rows, self._form, self._comparison, with_values=task.kind is not LogKind.SNAPSHOT)
        if task.kind is LogKind.SNAPSHOT:
            live = found.best.filter(pc.invert(found.best[DELETED]))
            if len(live):
                self._rows.write(self._showable(live), WRITE_BYTES)
        elif found.values is not None:
            self._log(found.rows, found.values)
        return found.table_rows

    def finish(self) -> LoggedRange:
        """Stage the open files and runs, and return all output of the task."""
        return LoggedRange(self._rows.stage(), self._events.finish(), self._events.counts)

    def _log(self, rows: pa.Table, values: EventValues) -> None:
        task = self._task
        events = Events.of(values, task.images.columns)
        if not len(events.rows):
            return
        if task.kind is LogKind.CHANGES:
            self._events.write(events.batch(values, rows, task.images))
        else:
            shown = [values.take(field.name, events.rows[::-1]) for field in task.images.columns.fields]
            self._rows.write(pa.table(shown, schema=task.images.columns.row_schema), WRITE_BYTES)

    def _showable(self, live: pa.Table) -> pa.Table:
        """Return the log's columns of the rows in merge form that count as live."""
        task, marks = self._task, self._form.marks
        if task.completion.plan is not None:
            live = typed_rows(live, task.completion.plan)
        if marks is not None:
            live = live.filter(live[marks.deleted_at.name].is_null())
        return live.select(task.images.columns.row_schema.names).cast(task.images.columns.row_schema)

    def _row_file(self, key: str) -> StagedFile[pa.RecordBatch]:
        sink, images = StagedFileSink(self._s3, key), self._task.images
        return self._stack.enter_context(StagedFile(FileKind.CHANGES, sink, open_snapshot(sink, images.columns, images.options)))


class _EventRuns:
    """The runs of events of a task. Events collect in memory until a run is full. It is written while the next run's events collect."""

    def __init__(self, task: LogTask, resources: TaskResources, pool: Executor) -> None:
        self._task = task
        self._run_bytes = resources.budget_bytes // RUNS_SHARE
        self._piece_bytes = piece_bytes(task.event_bytes, len(task.images.columns.fields), resources.budget_bytes)
        self._resources = resources
        self._pool = pool
        self._waiting: list[pa.RecordBatch] = []
        self._bytes = 0
        self._runs: list[Future[EventRun]] = []
        self.counts: Counts = np.zeros((SPANS, len(OPERATIONS)), np.int64)

    def write(self, events: pa.RecordBatch) -> None:
        self.counts += self._task.span.count(events)
        self._waiting.append(events)
        self._bytes += events.nbytes
        if self._bytes >= self._run_bytes:
            self._flush()

    def finish(self) -> tuple[EventRun, ...]:
        if self._waiting:
            self._flush()
        return tuple(run.result() for run in self._runs)

    def _flush(self) -> None:
        if self._runs:
            self._runs[-1].result()
        name, folder = f"{len(self._runs)}.arrows", self._task.folder
        file = None if folder is None else folder / name
        self._runs.append(
            self._pool.submit(write_run, self._waiting, f"{self._task.scratch}{name}", file, self._piece_bytes, self._resources.s3)
        )
        self._waiting, self._bytes = [], 0

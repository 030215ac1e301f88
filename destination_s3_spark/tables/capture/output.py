"""The change log's part of a merge task: finished files for snapshots and upserts, and temporary runs for events, which need sorting.

Input: all rows of some keys in merge form. Output: the winners as the table stores them, completed by the values that their records left
out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from destination_s3_spark.chain.files import FileEntry, FileKind
from destination_s3_spark.change_log.manifest import LogKind
from destination_s3_spark.change_log.options import ChangeLogOptions, open_snapshot
from destination_s3_spark.decoding.plan import RowPlan
from destination_s3_spark.exact_json.values import object_text, split_object
from destination_s3_spark.schema.arrow import RAW_SCHEMA
from destination_s3_spark.storage.staging import StagedFileSink
from destination_s3_spark.tables.capture.event_runs import RUNS_SHARE, EventRun, piece_bytes, write_run
from destination_s3_spark.tables.capture.events import (
    OPERATIONS,
    POSITION,
    Events,
    EventValues,
    History,
    Images,
    has_placeholder,
    may_have_placeholder,
    provided,
)
from destination_s3_spark.tables.runs.keys import DELETED, META
from destination_s3_spark.tables.runs.refreshed import ComparedRows, RefreshComparison
from destination_s3_spark.tables.runs.soft_deletions import DATA, Resolution, edited, replaced, with_tombstones
from destination_s3_spark.tables.runs.sorted_file import MergeForm
from destination_s3_spark.tables.runs.winners import Indices, Ranking, ranking
from destination_s3_spark.tables.staged.staged_file import FileSeries, StagedFile
from destination_s3_spark.tables.stored.conversion import retyped_rows
from destination_s3_spark.tables.updates.resources import TaskResources

SPANS = 1024
"""Number of spans of the log for which each task counts its events. Files are cut between spans."""
WRITE_BYTES = 8 * 2**20
NOT_PROVIDED = {"change": "NULLED", "reason": "SOURCE_RETRIEVAL_ERROR"}
"""The entry in `_airbyte_meta.changes` for a value that no row of the key had."""

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
        """Count the events of each part by operation."""
        part = (np.asarray(events[POSITION]) - self.first) // self.width
        operation = np.asarray(pc.index_in(events["op"], pa.array(OPERATIONS)))
        counted = np.bincount(part * len(OPERATIONS) + operation, minlength=SPANS * len(OPERATIONS))
        return counted.reshape(SPANS, len(OPERATIONS))


@dataclass(frozen=True, slots=True)
class LogTask:
    """The change log's part of a merge task. Picklable."""

    kind: LogKind
    images: Images
    options: ChangeLogOptions
    plan: RowPlan | None
    """The plan that types text rows. None if rows are typed already."""
    sources: tuple[tuple[str, str], ...]
    """The name of each column and its JSON key."""
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
    net: bool
    """Whether only the newest record of a key counts."""


@dataclass(frozen=True, slots=True)
class LoggedRange:
    """The output of a task for the log: staged files with `rows` rows in total, or runs of events and their counts."""

    files: tuple[FileEntry, ...]
    rows: int
    runs: tuple[EventRun, ...]
    counts: Counts


class ChangeOutput(ExitStack):
    """Output of a merge task to the change log. A context manager that drops staged files when it is left with an error."""

    def __init__(
        self,
        task: LogTask,
        has_cursor: bool,
        form: MergeForm,
        resources: TaskResources,
        comparison: RefreshComparison | None = None,
    ) -> None:
        """Begin the output. `comparison`: that of the rows of a refresh with those that it replaces."""
        super().__init__()
        self._task = task
        self._comparison = comparison
        self._has_cursor = has_cursor
        self._soft, self._marks = form.soft, form.marks
        shown = list(dict.fromkeys([*task.images.columns.row_schema.names, *(field.name for _, field in task.images.cursor)]))
        self._needed = RAW_SCHEMA.names if task.plan is not None else shown
        self._s3 = resources.s3
        self._rows = FileSeries(task.keys, task.file_bytes, self._row_file)
        pool = self.enter_context(ThreadPoolExecutor(1, "event-runs"))
        self._events = _EventRuns(task, resources, pool)

    def take(self, rows: pa.Table) -> pa.Table:
        """Log the changes that the rows make, and return the winners and tombstones. `rows` must hold all rows of their keys."""
        task, soft = self._task, self._soft
        compared = None if self._comparison is None else self._comparison.of(rows)
        if compared is None:
            ranked = ranking(rows, self._has_cursor)
            made_of = Resolution.of_winners(ranked.winners) if soft is None else soft.resolution(rows, ranked)
        else:
            rows, ranked, made_of = compared.rows, compared.ranked, compared.resolution
        best = rows.take(pa.array(made_of.winners)) if soft is None else soft.completed(rows, made_of)
        if task.kind is not LogKind.SNAPSHOT or may_have_placeholder(rows, of_text=task.plan is not None):
            history = self._history(rows, ranked, compared)
            if len(history.rows):
                values = self._values(rows, history)
                best = self._filled(best, values, made_of)
                self._log(rows, values)
            if len(made_of.late):
                best = self._filled(best, self._values(rows, History.of_late(made_of)), made_of)
        best = best if compared is None else best.filter(pa.array(compared.stays))
        if task.kind is LogKind.SNAPSHOT:
            live = best.filter(pc.invert(best[DELETED]))
            if len(live):
                self._rows.write(self._showable(live), WRITE_BYTES)
        return with_tombstones(best, rows, made_of)

    def finish(self) -> LoggedRange:
        """Stage the open files and runs, and return all output of the task."""
        return LoggedRange(self._rows.stage(), self._rows.rows, self._events.finish(), self._events.counts)

    def _log(self, rows: pa.Table, values: EventValues) -> None:
        task = self._task
        if task.kind is LogKind.SNAPSHOT:
            return
        events = Events.of(values, task.images.columns)
        if not len(events.rows):
            return
        if task.kind is LogKind.CHANGES:
            self._events.write(events.batch(values, rows, task.images))
        else:
            shown = [values.take(field.name, events.rows[::-1]) for field in task.images.columns.fields]
            self._rows.write(pa.table(shown, schema=task.images.columns.row_schema), WRITE_BYTES)

    def _history(self, rows: pa.Table, ranked: Ranking, compared: ComparedRows | None) -> History:
        history = History.of(rows, ranked, np.asarray(rows[DELETED].combine_chunks()), net=self._task.net, compared=compared)
        if self._marks is None:
            return history
        # With hard deletions only rows of the table may be marked.
        at = np.flatnonzero(~history.record) if self._soft is None else np.arange(len(history.rows))
        gone = history.gone.copy()
        gone[at] |= self._marks.deletes(rows, history.rows[at])
        return replace(history, gone=gone)

    def _filled(self, best: pa.Table, values: EventValues, made_of: Resolution) -> pa.Table:
        """Fill the placeholders in the winners that have their values from rows of the history."""
        if not values.provided:
            return best
        return fill_placeholders(best, values, made_of.values, dict(self._task.sources), of_text=self._task.plan is not None)

    def _values(self, rows: pa.Table, history: History) -> EventValues:
        stored = rows.select(self._needed).take(pa.array(history.rows))
        at = np.arange(len(stored))
        if self._task.plan is not None:
            has_text = np.asarray(stored[DATA].combine_chunks().is_valid())  # tombstones of the table have none
            at = np.maximum(np.cumsum(has_text) - 1, 0)
            stored = _typed(stored.filter(pa.array(has_text)), self._task.plan)
        found = {}
        for field in self._task.images.columns.fields:
            if field.name not in self._task.images.columns.key and has_placeholder(stored[field.name]):
                found[field.name] = provided(EventValues(history, stored, at, {}).column(field.name), history)
        return EventValues(history, stored, at, found)

    def _showable(self, live: pa.Table) -> pa.Table:
        """Return the log's columns of the rows in merge form that count as live."""
        task = self._task
        if task.plan is not None:
            live = _typed(live, task.plan)
        if self._marks is not None:
            live = live.filter(live[self._marks.deleted_at.name].is_null())
        return live.select(task.images.columns.row_schema.names).cast(task.images.columns.row_schema)

    def _row_file(self, key: str) -> StagedFile[pa.RecordBatch]:
        sink = StagedFileSink(self._s3, key)
        return self.enter_context(StagedFile(FileKind.CHANGES, sink, open_snapshot(sink, self._task.images.columns, self._task.options)))


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


def _typed(rows: pa.Table, plan: RowPlan) -> pa.Table:
    batches = rows.select(RAW_SCHEMA.names).cast(RAW_SCHEMA).to_batches()
    return pa.Table.from_batches([typed for _, typed in retyped_rows(batches, plan)], plan.table_schema)


def fill_placeholders(winners: pa.Table, values: EventValues, shown: Indices, sources: Mapping[str, str], *, of_text: bool) -> pa.Table:
    """Fill the placeholders in the winners of all keys, in merge form. `sources` maps each column to its JSON key.

    `shown` holds, for each key, the index of the row from which the winner has its values. A value that no row had becomes null and is
    recorded in the row's `_airbyte_meta.changes`.
    """
    history = values.history
    is_shown = (history.rows == shown[history.group]) & history.record
    lost: dict[int, list[str]] = {}
    texts: dict[int, dict[str, str | None]] = {}
    for name, found in values.provided.items():
        rows = np.flatnonzero(is_shown & ~found.given)
        at = history.group[rows]
        for place in at[found.lost[rows]].tolist():
            lost.setdefault(place, []).append(sources[name])
        taken = found.values.take(pa.array(rows))
        if of_text:
            for place, text in zip(at.tolist(), taken.to_pylist(), strict=True):
                texts.setdefault(place, {})[sources[name]] = text
        else:
            winners = replaced(winners, name, at, taken)
    winners = edited(winners, DATA, np.array(list(texts), np.int64), lambda place, record: _with_members(record, texts[place]))
    return edited(winners, META, np.array(list(lost), np.int64), lambda place, meta: _with_changes(meta, lost[place]))


def _with_members(record: str, members: Mapping[str, str | None]) -> str:
    """Return the record's JSON with new values for some members. The values of all other members keep their bytes."""
    new = {key: json.dumps(text, ensure_ascii=False).encode() for key, text in members.items()}
    return object_text(split_object(record.encode()) | new).decode()


def _with_changes(meta: dict[str, Any], fields: list[str]) -> dict[str, Any]:
    return {**meta, "changes": [*meta["changes"], *({"field": field, **NOT_PROVIDED} for field in fields)]}

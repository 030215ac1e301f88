"""Spark tasks of a merge: the merge of runs into a range of a deduplicated table, its output files, and the compaction of tombstones.

Nothing becomes visible. Memory is bounded by the task's budget and the buffers of writing, regardless of the number of rows or versions.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from dataclasses import replace as with_members
from functools import partial
from math import inf

import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace

from destination_s3_spark.chain.files import FileEntry, FileKind
from destination_s3_spark.errors import Bug
from destination_s3_spark.storage.settings import S3Settings
from destination_s3_spark.tables.capture.output import ChangeOutput, LoggedRange, LogTask
from destination_s3_spark.tables.history.output import VersionedRows, VersionOutput, VersionTask
from destination_s3_spark.tables.history.twin_file import SoftlyDeleted, TwinFile
from destination_s3_spark.tables.merge.plan import PlannedRange
from destination_s3_spark.tables.runs.keys import DELETED, OFFSET, KeySpec
from destination_s3_spark.tables.runs.merged_rows import (
    ROUNDS_SHARE,
    RowSource,
    RowStream,
    complete_rows,
    merged_rows,
    row_streams,
    rows_taken,
)
from destination_s3_spark.tables.runs.refreshed import Refresh, RefreshComparison
from destination_s3_spark.tables.runs.sorted_file import MergeForm, tombstone_schema
from destination_s3_spark.tables.runs.table_format import MERGED_PIECE_BYTES, FileKeys, TableFormat
from destination_s3_spark.tables.runs.winners import BURIED_OFFSET, EXTRACTED_AT, ranking, sorted_by_key
from destination_s3_spark.tables.staged.staged_file import FileSeries, batches_of
from destination_s3_spark.tables.updates.resources import TaskResources


class MergeOutput:
    """The output files of one range of keys. `stack` drops staged files when it is left with an error."""

    def __init__(self, task: MergeTask, stack: ExitStack) -> None:
        self._task = task
        self._stack = stack
        self._partition: str | None = None
        self._live = self._series(None)
        table, s3 = task.table, task.resources.s3
        self._dead = FileSeries([task.tombstone_key], inf, lambda key: stack.enter_context(table.tombstone_file(key, s3)))
        self._staged: list[FileEntry] = []

    def write(self, winners: pa.Table) -> None:
        """Write the next winners: live rows, and deletions that the table does not have yet."""
        deleted = winners[DELETED]
        live = winners
        if pc.any(deleted).as_py():
            # Hard deletions that waited come among the winners, and what soft ones have to remember behind all of them.
            dead = winners.filter(pc.and_(deleted, pc.less(winners[OFFSET], BURIED_OFFSET)))
            self._dead.write(sorted_by_key(dead), MERGED_PIECE_BYTES)
            live = winners.filter(pc.invert(deleted))
        for batch in batches_of(live, min(MERGED_PIECE_BYTES, int(self._task.file_bytes) // 4 + 1)):
            partitioning = self._task.table.spec.partitioning
            for partition, part in ((None, batch),) if partitioning is None else partitioning.split(batch):
                if partition != self._partition:
                    self._staged += self._live.stage()
                    self._partition, self._live = partition, self._series(partition)
                self._live.write_piece(part)

    def stage(self) -> tuple[FileEntry, ...]:
        return (*self._staged, *self._live.stage(), *self._dead.stage())

    def _series(self, partition: str | None) -> FileSeries[FileKeys]:
        """Begin the files of a partition. In its folder all keys are free again."""
        task = self._task
        return FileSeries(task.keys, task.file_bytes, partial(self._begun, partition), task.row_bytes)

    def _begun(self, partition: str | None, keys: FileKeys) -> LiveFile | TwinFile:
        table, history, s3 = self._task.table, self._task.history, self._task.resources.s3
        keys = keys.of_partition(table.spec, partition)
        if history is not None and history.alike:
            return TwinFile(history, keys, partition, s3, self._stack)
        return LiveFile(table, keys, partition, s3, self._stack, history)


class LiveFile:
    """A final file, and beside it its merge state if the format needs one, or a file of the valid versions of its rows for a history."""

    def __init__(
        self,
        table: TableFormat,
        keys: FileKeys,
        partition: str | None,
        s3: S3Settings,
        stack: ExitStack,
        history: VersionTask | None = None,
    ) -> None:
        if table.has_state and keys.state is None:
            raise Bug("There is no key for the state beside a final file; nothing was committed.")
        self._table = table
        self._final = stack.enter_context(table.final_file(keys.final, partition, s3))
        self._state = None if keys.state is None else stack.enter_context(table.state_file(keys.state, s3))
        self._history = history
        self._versions: FileSeries[str] | None = None
        if history is not None:
            if keys.versions is None:
                raise Bug("There is no key for the versions beside a final file; nothing was committed.")
            form = history.form
            self._versions = FileSeries([keys.versions], inf, lambda key: stack.enter_context(form.file(FileKind.CURRENT, key, s3)))

    @property
    def bytes(self) -> int:
        return self._final.bytes

    def write(self, batch: pa.RecordBatch) -> None:
        if self._state is not None:
            self._state.write(batch)
        for rows in self._table.final_rows(batch):
            self._final.write(rows)
        if self._history is not None and self._versions is not None:
            # Softly deleted rows have no valid version.
            self._versions.write_piece(batch.filter(pa.array(self._history.form.is_live(batch))))

    def stage_all(self) -> tuple[FileEntry, ...]:
        final = self._final.stage()
        if self._history is not None and self._versions is not None:
            return final, *(replace(file, history=self._history.number) for file in self._versions.stage())
        if self._state is None:
            return (final,)
        state = self._state.stage()
        if state.rows != final.rows:
            raise Bug(f"{state.rows} merged rows became {final.rows} rows of a file; nothing was committed.")
        return final, replace(state, copy_of=final.key)


@dataclass(frozen=True, slots=True)
class MergeTask:
    """The merge of one range of keys: `low` <= key < `high`."""

    low: bytes
    high: bytes | None
    """None is no upper bound."""
    sources: tuple[RowSource, ...]
    """All objects that may have keys of the range."""
    table: TableFormat
    keys: tuple[FileKeys, ...]
    """Keys for more files than expected. When they run out, the last file grows."""
    tombstone_key: str
    file_bytes: float
    """Size at which a final file ends."""
    row_bytes: float
    """Estimated size of a row that is not encoded yet."""
    resources: TaskResources
    log: LogTask | None = None
    """The change log's part of the task. None without a change log."""
    refresh: Refresh | None = None
    """The refresh whose rows are compared with those that it replaces, if they are."""
    history: VersionTask | None = None
    """The history's part of the task. None without a history, and if other tasks write it."""


@dataclass(frozen=True, slots=True)
class MergedRange:
    """The staged output of a merge task. `run_rows` and `table_rows`: the numbers of rows read from runs and from the table."""

    files: tuple[FileEntry, ...]
    run_rows: int
    table_rows: int
    seconds: float
    kept: int
    """The number of rows written that a refresh lacks."""
    logged: LoggedRange | None = None
    versions: VersionedRows | None = None


@dataclass(frozen=True, slots=True)
class CompactTask:
    """The compaction of tombstone files into one file with the newest deletion of each key."""

    sources: tuple[RowSource, ...]
    table: TableFormat
    key: str
    resources: TaskResources


def sources_of(planned: PlannedRange, table: TableFormat) -> tuple[RowSource, ...]:
    kind = FileKind.STATE if table.has_state else FileKind.FINAL
    return (
        *(RowSource(kind, file.key, file.size, first=file.first) for file in planned.table if not file.of_history),
        *(RowSource(FileKind.TOMBSTONE, run.key, run.size, first=run.groups[0].first) for run in planned.tombstones),
        *(RowSource(FileKind.DELTA, run.key, run.size, run.offset, run.groups[0].first) for run in planned.runs),
    )


def merge_range(task: MergeTask) -> MergedRange:
    """Merge one range.

    Raises ConfigError, TransientError, or DataError for a missing file. Nothing stays staged after an error.
    """
    try:
        return _merged_range(task)
    except SoftlyDeleted:
        if task.history is None:
            raise
    # Deletions were soft when these rows came, and are not any more.
    return _merged_range(with_members(task, history=with_members(task.history, alike=False)))


def _merged_range(task: MergeTask) -> MergedRange:
    began = time.monotonic()
    form, bounds, resources = task.table.form, (task.low, task.high), task.resources
    comparison = None if task.refresh is None else RefreshComparison(task.refresh, form)
    with ExitStack() as stack:
        output = MergeOutput(task, stack)
        log = None if task.log is None else ChangeOutput(task.log, form, resources, stack, comparison)
        history = None if task.history is None else VersionOutput(task.history, bounds, resources, stack)
        read = form if task.history is None else task.history.form.rows
        streams = stack.enter_context(row_streams(task.sources, read, bounds, resources))
        for rows in _table_rows(streams, task, comparison, log, history):
            output.write(rows)
        logged, versions = None if log is None else log.finish(), None if history is None else history.finish()
        files = output.stage()
    taken = rows_taken(task.sources, streams)
    table_rows, kept = taken[FileKind.FINAL] + taken[FileKind.STATE], 0 if comparison is None else comparison.kept
    return MergedRange(files, taken[FileKind.DELTA], table_rows, time.monotonic() - began, kept, logged, versions)


def _table_rows(
    streams: list[RowStream], task: MergeTask, comparison: RefreshComparison | None, log: ChangeOutput | None, history: VersionOutput | None
) -> Iterator[pa.Table]:
    """Yield the rows and tombstones of the table, of which the log and the history have taken their parts."""
    form = task.table.form
    soft = form.soft
    if log is None and comparison is None and history is None:
        for rows in merged_rows(streams, form):
            yield rows if soft is None else soft.applied(rows)
        return
    for found in complete_rows(streams, task.resources.budget_bytes // ROUNDS_SHARE):
        rows, ranked = (found, None) if history is None else history.ranked(found)
        if log is not None:
            best = log.take(rows)
        elif comparison is not None:
            best = comparison.of(rows).table_rows
        else:
            by_key = ranked or ranking(rows, form.spec)
            best = rows.take(pa.array(by_key.winners)) if soft is None else soft.table_rows(rows, by_key)
        yield best if history is None or ranked is None else history.take(rows, ranked, best)


def compact_tombstones(task: CompactTask) -> FileEntry:
    """Merge tombstone files, which must have rows, into one. Raises the errors of `merge_range`."""
    form = form_of_deletions(task.table.spec)
    with (
        task.table.tombstone_file(task.key, task.resources.s3) as file,
        row_streams(task.sources, form, (b"", None), task.resources) as streams,
    ):
        for rows in merged_rows(streams, form):
            for batch in batches_of(rows, MERGED_PIECE_BYTES):
                file.write(batch)
        return file.stage()


def form_of_deletions(spec: KeySpec) -> MergeForm:
    """Return the merge form of tombstones without other rows."""
    return MergeForm(pa.schema([tombstone_schema(spec).field(EXTRACTED_AT)]), spec)

"""The group of files that one merge adds to the change log of its table. It is committed together with the change of the table.

Merge tasks find the events of their keys and write them to runs, from which render tasks make the files of the log.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import PurePath

import numpy as np

from destination_s3_spark.chain.files import FileEntry, FileKind, OperationCount
from destination_s3_spark.change_log.events import LogColumns
from destination_s3_spark.change_log.manifest import GroupName, LogFile, LogKind, LogName, ManifestFile, manifest_of
from destination_s3_spark.change_log.options import ChangeLogOptions, open_changes, open_snapshot
from destination_s3_spark.errors import Bug
from destination_s3_spark.schema.arrow import arrow_field
from destination_s3_spark.storage.staging import StagedFileSink
from destination_s3_spark.tables.capture.completion import completion_of
from destination_s3_spark.tables.capture.event_runs import EventRun, read_events
from destination_s3_spark.tables.capture.events import Images, cursor_members
from destination_s3_spark.tables.capture.output import SPANS, WRITE_BYTES, ChangeOutput, Counts, LoggedRange, LogTask, Span
from destination_s3_spark.tables.open_table import OpenTable
from destination_s3_spark.tables.runs.keys import CDC_FIELDS, KeySpec
from destination_s3_spark.tables.runs.merged_rows import ROUNDS_SHARE, RowSource, complete_rows, row_streams
from destination_s3_spark.tables.runs.sorted_file import ARROW_BYTES
from destination_s3_spark.tables.runs.table_format import TableFormat
from destination_s3_spark.tables.staged.staged_file import StagedFile, batches_of
from destination_s3_spark.tables.updates.resources import Resources, TaskResources
from destination_s3_spark.tables.updates.steps import Steps, Work

EVENT_ROWS = 4
"""Factor from the bytes of records to those of their events. An event has a new and an old row, and text takes about twice the memory."""
COMPRESSION = 2
"""Approximate ratio of the size of events in Arrow memory to their size in a file of the log."""


@dataclass(frozen=True, slots=True)
class LogGroup:
    """The staged files that a merge adds to the change log."""

    files: tuple[FileEntry, ...] = ()
    count: OperationCount | None = None
    """The count of events up to the end of the group. None without a change log."""
    scratch: tuple[str, ...] = ()
    """The keys of scratch objects to delete after the commit."""


@dataclass(frozen=True, slots=True)
class RenderTask:
    """A file of the events at positions from `low` (inclusive) to `high` (exclusive). `start` is the count of all earlier events."""

    runs: tuple[EventRun, ...]
    low: int
    high: int
    images: Images
    start: OperationCount
    key: str
    resources: TaskResources


@dataclass(frozen=True, slots=True)
class SnapshotTask:
    """A file of the table that a merge leaves unchanged, to be added to a snapshot of the log."""

    source: RowSource
    table: TableFormat
    log: LogTask
    resources: TaskResources


class MergeLog:
    """The change log's part of one merge.

    `records` are the deltas that the merge consumes, `compared` further files of a refresh and of what it replaces, if these are compared.
    `begins`: whether the log begins again with a snapshot, because table rows of another key, format or types are rewritten, or replaced
    without a comparison.
    """

    def __init__(
        self,
        table: OpenTable,
        form: TableFormat,
        options: ChangeLogOptions,
        records: Sequence[FileEntry],
        compared: Sequence[FileEntry] | None,
        resources: Resources,
        *,
        begins: bool,
    ) -> None:
        self._table = table
        self._form = form
        self._resources = resources
        contents = table.writer.open().contents
        first = min((file.offset or 0 for file in records), default=contents.next_offset)
        last = max(((file.offset or 0) + file.rows - 1 for file in records), default=first)
        more = [file for file in compared or () if file.offset is not None]
        self._span = Span(min([first, *(file.offset or 0 for file in more)]), last)
        self._event_bytes = EVENT_ROWS * ARROW_BYTES * sum(file.bytes for file in (*records, *(compared or ())))
        self._images = _images(table, form.spec, options, infers=compared is not None)
        self.kind = LogKind.CHANGES if self._images.cursor or self._images.infers else LogKind.UPSERTS
        self._before = contents.operation_count or OperationCount()
        if begins or contents.operation_count is None:
            self.kind, self._before = LogKind.SNAPSHOT, OperationCount()
        self._completion = completion_of(table, form.spec, logged=self.kind is not LogKind.SNAPSHOT)
        self._group = GroupName(first, table.writer.next_token())
        self._parts = 0
        disk = resources.disk if self.kind is LogKind.CHANGES else None
        self._folder = None if disk is None else disk.reserved(self._event_bytes)

    def make_room(self, deletions: int) -> int:
        """Make room for so many inferred deletions, before all records. Return the position of the first one."""
        first = self._span.first - deletions
        self._span = replace(self._span, first=first)
        return first

    def task(self, files: int, file_bytes: int) -> LogTask:
        """Make the log's part of a merge task that writes up to `files` files of `file_bytes` each."""
        table = self._table
        keys = () if self.kind is LogKind.CHANGES else tuple(self._next_key() for _ in range(files))
        scratch = table.scratch_prefix()
        return LogTask(
            kind=self.kind,
            images=self._images,
            completion=self._completion,
            keys=keys,
            scratch=scratch,
            folder=None if self._folder is None else self._folder / PurePath(scratch).name,
            file_bytes=file_bytes,
            span=self._span,
            event_bytes=self._event_bytes,
        )

    def group(self, ranges: Sequence[LoggedRange], kept: Sequence[FileEntry]) -> Steps[LogGroup]:
        """Stage the files of the log, as steps of an update. `kept` are the files of the table that the merge leaves unchanged."""
        found = yield from (self._changes(ranges) if self.kind is LogKind.CHANGES else self._rows(ranges, kept))
        if not found.files or found.count is None:
            return found
        return replace(found, files=(*found.files, self._manifest(found.files, found.count)))

    def _rows(self, ranges: Sequence[LoggedRange], kept: Sequence[FileEntry]) -> Steps[LogGroup]:
        """Collect the files of rows that merge tasks staged. For a snapshot, also stage the rows of unchanged files."""
        form, resources = self._form, self._resources.task
        sources = [RowSource(file.kind, file.key, file.bytes) for file in kept] if self.kind is LogKind.SNAPSHOT else []
        tasks = [SnapshotTask(source, form, self.task(2, 2 * form.target_file_bytes), resources) for source in sources]
        more = yield from Work(snapshot_file, tasks, lambda task: task.source.size).results()
        files = sorted((file for logged in (*ranges, *more) for file in logged.files), key=lambda file: file.key)
        if self.kind is LogKind.SNAPSHOT and not files:
            files = [self._empty_snapshot()]
        return LogGroup(tuple(files), self._before + OperationCount(insert_count=sum(file.rows for file in files)))

    def _changes(self, ranges: Sequence[LoggedRange]) -> Steps[LogGroup]:
        """Sort the events by position and render them to files."""
        runs = [run for logged in ranges for run in logged.runs]
        counts = sum((logged.counts for logged in ranges), np.zeros((SPANS, 3), np.int64))
        if not runs:
            return LogGroup(count=self._before)
        size = sum(int(run.bytes.sum()) for run in runs) // COMPRESSION
        parts = file_count(size, self._table.rules.target_file_bytes, self._resources.cores, self._resources.least_log_bytes)
        tasks, expected = [], []
        start = self._before
        for low, high, inside in _cut(counts, parts):
            key = self._next_key()
            bounds = self._span.position(low), self._span.position(high)
            tasks.append(RenderTask(tuple(runs), *bounds, self._images, start, key, self._resources.task))
            start += inside
            expected.append(inside.total)
        files = yield from Work(render_changes, tasks, lambda _: size).results()
        if [file.rows for file in files] != expected:
            self._table.writer.drop(files)
            raise Bug(
                f"Stream '{self._table.stream.id}': {sum(expected)} changes were found and {sum(file.rows for file in files)} were "
                "written to the change log. Nothing was changed.",
                stream=self._table.stream.id,
            )
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
        return LogGroup(tuple(files), start, tuple(run.place for run in runs if isinstance(run.place, str)))

    def _manifest(self, files: Sequence[FileEntry], after: OperationCount) -> FileEntry:
        table = self._table
        named = [LogFile(file.key.rsplit("/", 1)[-1], file.rows) for file in files]
        ids = table.session.generation_id, table.schema.schema_id
        manifest = manifest_of(self._images.columns, self._images.options, self.kind, ids, named, self._before, after)
        sink = StagedFileSink(self._resources.task.s3, f"{table.layout.changes}{self._group.manifest}")
        with StagedFile(FileKind.CHANGES, sink, ManifestFile(sink)) as file:
            file.write(manifest)
            return file.stage()

    def _empty_snapshot(self) -> FileEntry:
        """Stage a snapshot without rows, which tells readers that the table is empty."""
        sink = StagedFileSink(self._resources.task.s3, self._next_key())
        with StagedFile(FileKind.CHANGES, sink, open_snapshot(sink, self._images.columns, self._images.options)) as file:
            return file.stage()

    def _next_key(self) -> str:
        name = LogName(*self._group, self._parts, self.kind)
        self._parts += 1
        return f"{self._table.layout.changes}{name.file_name(self._images.options.extension)}"


def file_count(size: int, target_file_bytes: int, cores: int, least_bytes: int) -> int:
    """Return the number of files for events of this size: a multiple of the cores, unless files would fall below `least_bytes`."""
    rounds = -(-size // (target_file_bytes * cores))
    return max(1, -(-size // target_file_bytes), min(rounds * cores, size // least_bytes))


def render_changes(task: RenderTask) -> FileEntry:
    """Stage a file of the log.

    Raises TransientError, or DataError for a missing scratch run. Nothing stays staged after an error.
    """
    columns, options = task.images.columns, task.images.options
    sink = StagedFileSink(task.resources.s3, task.key)
    with StagedFile(FileKind.CHANGES, sink, open_changes(sink, columns, options, task.start)) as file:
        for events in read_events(task.runs, task.low, task.high, columns.event_schema, task.resources):
            for batch in batches_of(events, WRITE_BYTES):
                file.write(batch)
        return file.stage()


def snapshot_file(task: SnapshotTask) -> LoggedRange:
    """Stage the rows of a file of the table as part of a snapshot. Raises the errors of `merge_range`."""
    with ExitStack() as stack:
        log = ChangeOutput(task.log, task.table.form, task.resources, stack)
        streams = stack.enter_context(row_streams([task.source], task.table.form, (b"", None), task.resources))
        for rows in complete_rows(streams, task.resources.budget_bytes // ROUNDS_SHARE):
            log.take(rows)
        return log.finish()


def _images(table: OpenTable, spec: KeySpec, options: ChangeLogOptions, *, infers: bool) -> Images:
    columns = [column.field for column in table.schema.fields]
    key = {field.source for field in spec.key}
    data = tuple(arrow_field(column) for column in columns if column.source in key or not column.source.startswith(CDC_FIELDS))
    cursor = tuple((column.source, arrow_field(column)) for column in columns if column.source.startswith(CDC_FIELDS))
    log_columns = LogColumns(table.stream.id, data, tuple(field.name for field in spec.key), tuple(cursor_members(cursor, infers=infers)))
    return Images(log_columns, options, cursor, infers)


def _cut(counts: Counts, parts: int) -> Iterator[tuple[int, int, OperationCount]]:
    """Divide the log into consecutive spans (from, to exclusive) with about equal numbers of events, each with its count of events."""
    ends = np.cumsum(counts.sum(axis=1))
    low = 0
    for part in range(1, parts + 1):
        high = SPANS if part == parts else int(np.searchsorted(ends, ends[-1] * part // parts)) + 1
        inside = counts[low:high].sum(axis=0).tolist()
        if sum(inside):
            yield low, high, OperationCount(*inside)
            low = high

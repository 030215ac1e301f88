"""Updates of deduplicated tables: the merge of landed runs into the table's sorted files.

Runs and the table's files are sorted by the encoded key. The table's files do not overlap, so a merge rewrites only files with keys of a
run. If the table was an append table, or had another key, format or types, its rows are first sorted into scratch runs.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta

import msgspec

from destination_s3_spark.chain.files import HISTORY_KINDS, FileEntry, FileKind
from destination_s3_spark.chain.live_files import LiveFiles
from destination_s3_spark.errors import Bug, DataError
from destination_s3_spark.tables.capture.group import LogGroup, MergeLog
from destination_s3_spark.tables.columns.row_plan import file_columns
from destination_s3_spark.tables.commit.batch import CommitResult
from destination_s3_spark.tables.commit.generation import NOTHING
from destination_s3_spark.tables.history.group import HistoryGroup, HistoryMerge
from destination_s3_spark.tables.history.versions import Mode
from destination_s3_spark.tables.merge.plan import MergePlan, PlannedRange, Sizes, file_count, full_bytes
from destination_s3_spark.tables.merge.planning import plan_of
from destination_s3_spark.tables.merge.refresh import (
    ComparedFiles,
    arrived_before,
    compared_files,
    refresh_of,
    sources_within,
    waiting_files,
)
from destination_s3_spark.tables.merge.scratch_runs import SortTask, combined, sort_rows
from destination_s3_spark.tables.merge.task import CompactTask, MergedRange, MergeTask, compact_tombstones, merge_range, sources_of
from destination_s3_spark.tables.open_table import OpenTable
from destination_s3_spark.tables.runs.keys import KeySpec
from destination_s3_spark.tables.runs.merged_rows import RowSource, bytes_read
from destination_s3_spark.tables.runs.table_format import FileKeys, TableFormat
from destination_s3_spark.tables.runs.winners import DEDUPLICATED, EARLIER
from destination_s3_spark.tables.updates.inputs import MergeInputs, merge_inputs, raw_inputs, replaced_by_pending
from destination_s3_spark.tables.updates.resources import Resources
from destination_s3_spark.tables.updates.steps import Steps, Update, Work
from destination_s3_spark.tables.updates.waiting import combine_waiting
from destination_s3_spark.wording import duration_text, size_text

logger = logging.getLogger("airbyte")

FILES_OF_A_TABLE = 96
"""Number of files up to which a table's files are kept smaller than the user's target size, but never below the least size.

An update of 1 % of the keys, all neighbours, then touches two files as a rule, which are together 3 % of the table at most. With the
default target size, files of a table of 10 GB have more than half of that size.
"""
USUAL_RATE = 20 * 2**20
"""Bytes per second and core of a merge while none of the table has been measured: about half of what a merge reaches on a usual machine."""
LEAST_MEASURED = 16 * 2**20
"""Least size of a merge that tells how fast merges of the table are. The time of a smaller one is that of its S3 calls."""


def merge_runs(table: OpenTable, spec: KeySpec, resources: Resources, *, from_raw: bool = False) -> Update:
    """Merge the runs of a deduplicated table into its final files, or publish a pending generation from its own runs and the kept rows.

    If a merge would take more time than there is, its runs wait on, with a warning. A pending generation that keeps rows of the table is
    published in any case, because these rows may not mix with others meanwhile. `from_raw`: rebuild the table from its raw rows instead.
    """
    live = table.writer.live_files()
    form = table_format(table, spec, live, resources.least_file_bytes)
    inputs = (raw_inputs if from_raw else merge_inputs)(table, live, form, resources.task.s3)
    return (yield from Merge(table, live, form, inputs, resources).steps())


def combine_runs(table: OpenTable, spec: KeySpec, resources: Resources) -> Update:
    """Combine the runs of a deduplicated table that wait for its next merge, if there are many. No row changes."""
    live = table.writer.live_files()
    form = table_format(table, spec, live, resources.least_file_bytes)
    return (yield from combine_waiting(table, live, form, resources))


@dataclass(slots=True)
class Merge:
    """One merge of a table's input files into final files of a format."""

    table: OpenTable
    live: LiveFiles
    form: TableFormat
    inputs: MergeInputs
    resources: Resources
    _scratch: list[str] = field(default_factory=list)
    """The keys of temporary objects to delete at the end."""
    _compared: ComparedFiles | None = None
    _log: MergeLog | None = None
    _history: HistoryMerge | None = None

    def steps(self) -> Update:
        """Yield the work of the merge, and commit its result."""
        try:
            return (yield from self._steps())
        except DataError:
            self.table.writer.check_not_fenced()
            raise

    def _steps(self) -> Update:
        self._compared = compared = compared_files(self.table, self.live, self.form, [file for file, _ in self.inputs.unsorted])
        self._history = history = self._history_part()
        between = compared is not None or (history is not None and history.mode is Mode.COMPARE)
        waiting = waiting_files(self.table, self.live, self.form) if between else []
        self._log = self._log_part(waiting)
        runs = yield from self._runs(every_version=self._log is not None or history is not None)
        waited = arrived_before((yield from self._combined(self.table.with_keys(waiting), every_version=True)))
        sizes = Sizes(self.form.target_file_bytes, self.resources.task.budget_bytes, self.form.is_plain)
        plan = plan_of(self.inputs, runs, self.form.spec, sizes, self.resources.task.s3, self.table.writer.map_files)
        tasks = list(self._tasks(plan, waited))
        if not self._has_time(int(sum(map(bytes_read, tasks)) * (1 if history is None else history.time_factor))):
            self.table.writer.store.delete(self._scratch)
            return (yield from combine_waiting(self.table, self.live, self.form, self.resources))
        # Those of versions among the replaced files count as empty.
        run_files, table_files = (runs, plan.replaced) if compared is None else ((*runs, *waited), compared.rows)
        ranges = yield from self._merged_ranges(tasks, sum(file.rows for file in run_files), sum(file.rows for file in table_files))
        tombstones = yield from self._compacted_tombstones()
        self.table.record_schema()
        logged = yield from self._logged(plan, ranges)
        versions = HistoryGroup()
        if history is not None:
            versions = yield from history.group((*runs, *waited) if history.mode is Mode.COMPARE else runs, plan, ranges)
        self._scratch += versions.scratch
        staged = [*(file for done in ranges for file in done.files), *tombstones]
        result = self._commit(plan, staged, logged, versions, compacted=bool(tombstones), lacked=sum(done.kept for done in ranges))
        self.table.writer.store.delete(self._scratch)
        return result

    def _log_part(self, waiting: Sequence[FileEntry]) -> MergeLog | None:
        """Make the merge's part of the change log, or return None if the table has no change log."""
        options = self.table.rules.change_log
        if options is None:
            return None
        records = [file for file in self.inputs.consumed if file.kind is FileKind.DELTA]
        sorted_first = [file for file, _ in self.inputs.unsorted]
        compared = None
        if self._compared is not None and self._compared.logs:
            compared = (*sorted_first, *waiting, *self._compared.rows)
        begins = self.live.pending is not None or any(file.kind is not FileKind.DELTA for file in sorted_first)
        return MergeLog(self.table, self.form, options, records, compared, self.resources, begins=begins and compared is None)

    def _history_part(self) -> HistoryMerge | None:
        """Make the history's part of the merge, or return None if the table has no history. Say so if it had one."""
        table = self.table
        if table.rules.history_of(table.stream.id) is not None:
            history = HistoryMerge(table, self.live, self.form, self.inputs, self.resources)
            self.inputs = history.inputs
            return history
        ended = table.writer.open().contents.history
        if ended is not None and self.live.of(*HISTORY_KINDS):
            logger.warning(
                "stream %s: tables.history names it no longer, so its history %d ends here. Its files stay as they are; another history "
                "would begin beside them.",
                table.stream.id, ended.number,
            )  # fmt: skip
        return None

    def _runs(self, *, every_version: bool) -> Steps[Sequence[FileEntry]]:
        """Return the runs to merge: sorted by the table's key, and few enough for the memory of a task."""
        inputs = self.inputs
        found = list(inputs.runs)
        if inputs.unsorted:
            payload, spec, task = self.form.form.payload, self.form.spec, self.resources.task
            tasks = [SortTask(source, payload, spec, self.table.scratch_prefix(), task) for _, source in inputs.unsorted]
            done = yield from Work(sort_rows, tasks, lambda task: task.stored.file.bytes).results()
            for (file, _), runs in zip(inputs.unsorted, done, strict=True):
                # Rows of final files get arrivals that win ties with landed rows.
                of_table = EARLIER if file.sorted_by is None else DEDUPLICATED
                earlier = of_table if file.kind in (FileKind.FINAL, FileKind.STATE) else 0
                found += (msgspec.structs.replace(run, offset=earlier + (file.offset or 0)) for run in runs)
                self._scratch += (run.key for run in runs)
        return (yield from self._combined(found, every_version=every_version))

    def _combined(self, runs: Sequence[FileEntry], *, every_version: bool) -> Steps[Sequence[FileEntry]]:
        few, made = yield from combined(runs, self.form.form, self.table.scratch_prefix, self.resources.task, every_version=every_version)
        self._scratch += made
        return few

    def _has_time(self, size: int) -> bool:
        """Reserve the time to merge so many bytes. Return False, with a warning, if a sync does not have it."""
        time, rate = self.resources.time, self.table.writer.chain.merge_rate or USUAL_RATE
        needed = timedelta(seconds=size / rate / self.resources.cores)
        if time is None or self.table.kept != NOTHING or time.reserve(needed):
            return True
        beside = "the table" if self.live.pending is None else "the table, which shows those from before the refresh"
        logger.warning(
            "stream %s: its new rows wait beside %s, because the merge would take about %s (%s at %s/s) and the merges of a sync "
            "may take %s together. Run the command merge, which has no limit, with more CPUs or on a cluster, or raise "
            "tables.merge_limit_minutes.",
            self.table.stream.id, beside, duration_text(needed.total_seconds()), size_text(size),
            size_text(round(rate * self.resources.cores)), duration_text(time.limit.total_seconds()),
        )  # fmt: skip
        return False

    def _merged_ranges(self, tasks: Sequence[MergeTask], run_rows: int, table_rows: int) -> Steps[list[MergedRange]]:
        if not tasks:
            return []
        ranges = yield from Work(merge_range, tasks, bytes_read).results()
        self._check_complete(ranges, run_rows, table_rows)
        size, seconds = sum(map(bytes_read, tasks)), sum(done.seconds for done in ranges)
        if size >= LEAST_MEASURED and seconds > 0:
            self.table.writer.measured(size / seconds)
        return ranges

    def _tasks(self, plan: MergePlan, waited: Sequence[FileEntry]) -> Iterator[MergeTask]:
        compared, log = self._compared, self._log
        if compared is None:
            yield from (self._task(planned, plan.row_bytes) for planned in plan.ranges)
            return
        files = (*compared.rows, *compared.tombstones, *waited)
        rows = {file.key: file.rows for file in files}
        beside = [tuple(sources_within(files, planned.low, planned.high)) for planned in plan.ranges]
        most = [sum(rows[source.key] for source in sources) for sources in beside]
        position = 0 if log is None else log.make_room(sum(most))
        for planned, sources, deletions in zip(plan.ranges, beside, most, strict=True):
            more = sum(source.size for source in sources) if compared.keeps else 0
            task = self._task(replace(planned, bytes=planned.bytes + more), plan.row_bytes)
            yield replace(task, sources=(*task.sources, *sources), refresh=refresh_of(self.table, compared, position))
            position += deletions

    def _task(self, planned: PlannedRange, row_bytes: float) -> MergeTask:
        form, log, history = self.form, self._log, self._history
        expected = planned.rows * row_bytes
        # Rows may be larger than estimated and then need further files.
        files = file_count(max(expected, planned.bytes), form.target_file_bytes)
        keys = tuple(self._keys() for _ in range(2 * files + 1))
        return MergeTask(
            low=planned.low,
            high=planned.high,
            sources=sources_of(planned, form),
            table=form,
            keys=keys,
            tombstone_key=self.table.tombstone_key(),
            file_bytes=full_bytes(expected, form.target_file_bytes),
            row_bytes=row_bytes,
            resources=self.resources.task,
            log=None if log is None else log.task(len(keys), form.target_file_bytes),
            history=None if history is None else history.task(planned),
        )

    def _keys(self) -> FileKeys:
        final, state = self.table.final_key(), self.table.state_key() if self.form.has_state else None
        return FileKeys(final, state, None if self._history is None else self._history.version_key())

    def _check_complete(self, ranges: Sequence[MergedRange], run_rows: int, table_rows: int) -> None:
        """Raise Bug, and drop all staged files, unless the tasks together read every row to merge exactly once."""
        stream = self.table.stream.id
        read = sum(done.run_rows for done in ranges), sum(done.table_rows for done in ranges)
        if read != (run_rows, table_rows):
            self.table.writer.drop([file for done in ranges for file in (*done.files, *(done.logged.files if done.logged else ()))])
            raise Bug(
                f"Stream '{stream}': a merge read {read[0]} new and {read[1]} stored rows, there are {run_rows} and {table_rows}. "
                "Nothing was changed.",
                stream=stream,
            )

    def _compacted_tombstones(self) -> Steps[list[FileEntry]]:
        """Make one file of the table's tombstone files if there are too many of them."""
        found = self.inputs.tombstones
        if len(found) <= self.resources.most_tombstone_files:
            return []
        sources = tuple(RowSource(FileKind.TOMBSTONE, file.key, file.bytes) for file in found)
        key = self.table.tombstone_key()
        return (yield from Work(compact_tombstones, [CompactTask(sources, self.form, key, self.resources.task)], bytes_read).results())

    def _logged(self, plan: MergePlan, ranges: Sequence[MergedRange]) -> Steps[LogGroup]:
        if self._log is None:
            return LogGroup()
        replaced = {file.key for file in plan.replaced}
        kept = [rows if self.form.has_state else final for rows, final in self.inputs.table if rows.key not in replaced]
        logged = yield from self._log.group([done.logged for done in ranges if done.logged is not None], kept)
        self._scratch += logged.scratch
        return logged

    def _commit(
        self, plan: MergePlan, staged: Sequence[FileEntry], logged: LogGroup, versions: HistoryGroup, *, compacted: bool, lacked: int
    ) -> CommitResult | None:
        writer, live, inputs = self.table.writer, self.live, self.inputs
        files = [*staged, *logged.files, *versions.files]
        if live.pending is not None:
            replaced = [*replaced_by_pending(live, self.table.kept), *versions.removed]
            return writer.replace(files, replaced, logged.count, self.table.kept.rows, versions.mark, lacked)
        consumed = [*inputs.consumed, *(inputs.tombstones if compacted else ())]
        removed = [*consumed, *self._replaced(plan), *versions.removed, *live.dropped]
        if not (files or removed):
            return None  # a rebuild of an empty table
        offsets = [file.offset + file.rows - 1 for file in inputs.consumed if file.kind is FileKind.DELTA and file.offset is not None]
        return writer.merge(files, removed, max(offsets, default=None), logged.count, versions.mark)

    def _replaced(self, plan: MergePlan) -> Iterator[FileEntry]:
        replaced = {file.key for file in plan.replaced}
        for rows, final in self.inputs.table:
            if rows.key in replaced:
                yield from (rows,) if rows == final else (rows, final)


def table_format(table: OpenTable, spec: KeySpec, live: LiveFiles, least_bytes: int) -> TableFormat:
    """Return the format of the table's files after its next merge."""
    layout = table.layout
    plan = table.plan_of_all if layout.of_text else table.plan
    columns = file_columns(table.schema, plan)
    rendered = plan if layout.of_text else None
    generation = table.session.generation_id
    # A file is a small part of the table, so that a change of adjacent keys rewrites only that part.
    size = sum(file.bytes for file in live.landing(FileKind.FINAL, FileKind.DELTA))
    file_bytes = min(table.rules.target_file_bytes, max(least_bytes, size // FILES_OF_A_TABLE))
    return TableFormat(columns, layout.final, rendered, spec, generation, file_bytes)

"""The history's part of a merge: the files of versions that are committed together with the change of the table.

A merge of records writes the files of valid versions together with the final files of the same keys. If all rows may change, versions are
found from the same runs as the table's rows, but in ranges of keys of their own, so that files stay in which no version changes. That is
how a refresh is compared with what it replaces.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import ceil

import msgspec

from destination_s3_spark.chain.files import HISTORY_KINDS, FileEntry, FileKind, HistoryMark
from destination_s3_spark.chain.live_files import LiveFiles
from destination_s3_spark.errors import Bug
from destination_s3_spark.tables.history.form import history_form
from destination_s3_spark.tables.history.output import VersionTask
from destination_s3_spark.tables.history.task import ClosedRange, ClosingTask, EndedVersions, HistoryTask, close_versions, version_range
from destination_s3_spark.tables.history.versions import Mode
from destination_s3_spark.tables.merge.plan import MergePlan, PlannedRange, Sizes, file_count, full_bytes
from destination_s3_spark.tables.merge.planning import plan_of, table_file
from destination_s3_spark.tables.merge.refresh import noticed, sources_within
from destination_s3_spark.tables.merge.replaced_files import clusters_of
from destination_s3_spark.tables.merge.task import MergedRange
from destination_s3_spark.tables.open_table import OpenTable
from destination_s3_spark.tables.runs.keys import keys_of, lower, upper
from destination_s3_spark.tables.runs.merged_rows import RowSource, bytes_read
from destination_s3_spark.tables.runs.table_format import TableFormat
from destination_s3_spark.tables.updates.inputs import MergeInputs
from destination_s3_spark.tables.updates.resources import Resources
from destination_s3_spark.tables.updates.steps import Steps, Work

MOST_CLOSED_FILES = 16
"""Number of small files of ended versions above which they are joined."""
CLOSING_BYTES = 128 * 2**20
"""Bytes of ended versions that one task writes."""

TIME_APART = 2.3
"""Factor of the time of a merge beside which tasks of their own write a history."""

logger = logging.getLogger("airbyte")


@dataclass(frozen=True, slots=True)
class HistoryGroup:
    """The files that a merge adds to a history and removes from it, what the block says of it, and scratch objects to delete."""

    files: tuple[FileEntry, ...] = ()
    removed: tuple[FileEntry, ...] = ()
    mark: HistoryMark | None = None
    scratch: tuple[str, ...] = ()


class HistoryMerge:
    """The history's part of one merge.

    With Mode.MERGE the tasks that merge the table also write the files of valid versions; otherwise tasks of their own do.
    """

    def __init__(self, table: OpenTable, live: LiveFiles, form: TableFormat, inputs: MergeInputs, resources: Resources) -> None:
        self._table = table
        self._form = history_form(table, form)
        self._inputs = inputs
        self._resources = resources
        self._sizes = Sizes(form.target_file_bytes, resources.task.budget_bytes, form.is_plain)
        self._live = [file for file in live.files if file.kind in HISTORY_KINDS]
        self._mark, self.mode = self._begun(pending=live.pending is not None)
        self._notice = noticed(table)

    @cached_property
    def _alike(self) -> bool:
        """Whether files of valid versions have the same rows as those of the table, among which then none is softly deleted."""
        versions = sum(file.rows for file in self._live if file.kind is FileKind.CURRENT and file.history == self._mark.number)
        return self._form.merge.soft is None and versions == sum(rows.rows for rows, _ in self._inputs.table)

    @property
    def time_factor(self) -> float:
        """The time of a merge with the history, as a multiple of that of the tasks that merge the table."""
        return 1 if self.mode is Mode.MERGE else TIME_APART

    @cached_property
    def inputs(self) -> MergeInputs:
        """The input files of the merge. Files of valid versions take the place of the final files with the same rows; others are beside."""
        if self.mode is not Mode.MERGE:
            return self._inputs
        current = self._of(FileKind.CURRENT)
        copies = {(file.copy_of, file.rows): file for file in current if file.copy_of is not None}
        table = tuple((copies.get((final.key, final.rows), rows), final) for rows, final in self._inputs.table)
        read = {rows.key for rows, _ in table}
        return replace(self._inputs, table=table, versions=tuple(file for file in current if file.key not in read))

    def task(self, planned: PlannedRange) -> VersionTask | None:
        """Return the history's part of the merge of a range. None if tasks of its own find the versions."""
        if self.mode is not Mode.MERGE:
            return None
        return VersionTask(
            form=self._form,
            number=self._mark.number,
            current=tuple(RowSource(FileKind.CURRENT, file.key, file.size, first=file.first) for file in planned.table if file.of_history),
            ended=tuple(sources_within(self._closed_files, planned.low, planned.high)),
            notice=self._notice,
            scratch=self._table.scratch_key(),
            alike=self._alike,
        )

    def version_key(self) -> str | None:
        return self._key(FileKind.CURRENT) if self.mode is Mode.MERGE else None

    def group(self, runs: Sequence[FileEntry], plan: MergePlan, ranges: Sequence[MergedRange]) -> Steps[HistoryGroup]:
        """Stage the files of the history, as steps of an update. `runs` have every version that the merge takes."""
        if self.mode is not Mode.MERGE:
            return (yield from self._apart(runs))
        replaced = {file.key for file in plan.replaced}
        gone = [file for file in self.inputs.versions if file.key in replaced]
        done = [one.versions for one in ranges if one.versions is not None]
        rows = sum(one.run_rows for one in ranges)  # the merge of the table has checked them
        read, expected = sum(one.read for one in done), sum(file.rows for file in gone)
        self._require_all((rows, read), (rows, expected), [file for one in ranges for file in one.files])
        ended = [one.ended for one in done if one.ended is not None]
        return (yield from self._group((), gone, ended))

    def _apart(self, runs: Sequence[FileEntry]) -> Steps[HistoryGroup]:
        """Stage the files of valid versions by tasks of their own."""
        current = self._of(FileKind.CURRENT)
        rows = (*runs, *(rows for rows, _ in self._inputs.table))
        ranges, row_bytes = self._compared(current, rows) if current else self._planned(rows)
        sources = (*rows, *self._inputs.tombstones, *current)
        tasks = [self._task(planned, row_bytes, sources) for planned in ranges]
        done = yield from Work(version_range, tasks, bytes_read).results()
        files = [file for result in done for file in result.files]
        read = sum(result.run_rows for result in done), sum(result.version_rows for result in done)
        self._require_all(read, (sum(file.rows for file in runs), sum(file.rows for file in current)), files)
        replaced = {source.key for task, result in zip(tasks, done, strict=True) if not result.stays for source in task.sources}
        gone = [file for file in current if file.key in replaced]
        return (yield from self._group(files, gone, [result.ended for result in done if result.ended is not None]))

    def _group(self, files: Sequence[FileEntry], gone: Sequence[FileEntry], ended: Sequence[EndedVersions]) -> Steps[HistoryGroup]:
        """Stage files of the versions that have ended, and return all files that come and go."""
        closed, rewritten = yield from self._closed(ended)
        numbered = tuple(msgspec.structs.replace(file, history=self._mark.number) for file in (*files, *closed))
        return HistoryGroup(numbered, (*gone, *rewritten), self._mark, tuple(one.run.key for one in ended))

    def _begun(self, *, pending: bool) -> tuple[HistoryMark, Mode]:
        """Return the history that goes on or begins, and how rows make its versions."""
        table, spec = self._table, self._form.spec
        mark = table.writer.open().contents.history
        number = max((file.history or 0 for file in self._live), default=0)
        own = [file for file in self._live if mark is not None and file.history == mark.number]
        goes_on = mark is not None and mark.sorted_by == spec.fingerprint
        if mark is None or not goes_on or any(map(table.is_outdated, own)):
            if own:
                logger.warning(
                    "stream %s: the key or the type of a column has changed, so history %d stays as it is and history %d begins beside it",
                    table.stream.id, number, number + 1,
                )  # fmt: skip
            inputs = self._inputs
            has_rows = pending or bool(inputs.table or inputs.unsorted or inputs.tombstones)
            return HistoryMark(number + 1, spec.fingerprint), Mode.BEGIN if has_rows else Mode.MERGE
        rewrites = any(file.kind is not FileKind.DELTA for file, _ in self._inputs.unsorted)
        return mark, Mode.COMPARE if pending or rewrites else Mode.MERGE

    def _of(self, kind: FileKind) -> list[FileEntry]:
        return self._table.with_keys(file for file in self._live if file.kind is kind and file.history == self._mark.number)

    def _planned(self, rows: Sequence[FileEntry]) -> tuple[Sequence[PlannedRange], float]:
        inputs = replace(self._inputs, table=(), tombstones=())
        plan = plan_of(inputs, rows, self._form.spec, self._sizes, self._resources.task.s3, self._table.writer.map_files)
        return plan.ranges, plan.row_bytes

    def _compared(self, current: Sequence[FileEntry], rows: Sequence[FileEntry]) -> tuple[Sequence[PlannedRange], float]:
        """Return a range for each file of valid versions, so that it can stay. Files with overlapping bounds share one."""
        clusters = clusters_of(table_file(file, file, self._form.spec) for file in current)
        lows = [b"", *(cluster.first for cluster in clusters[1:])]
        highs = [*lows[1:], None]
        size, count = sum(file.bytes for file in current), sum(file.rows for file in current)
        more = max(1.0, sum(file.rows for file in rows) / count)
        return [
            PlannedRange(low, high, cluster.files, (), (), more * sum(file.rows for file in cluster.files), cluster.bytes)
            for low, high, cluster in zip(lows, highs, clusters, strict=True)
        ], size / count

    def _task(self, planned: PlannedRange, row_bytes: float, files: Sequence[FileEntry]) -> HistoryTask:
        expected = planned.rows * row_bytes
        count = file_count(max(expected, planned.bytes), self._sizes.target_file_bytes)
        return HistoryTask(
            low=planned.low,
            high=planned.high,
            sources=tuple(sources_within(files, planned.low, planned.high)),
            form=self._form,
            mode=self.mode,
            ended=tuple(sources_within(self._closed_files, planned.low, planned.high)),
            notice=self._notice,
            keys=tuple(self._key(FileKind.CURRENT) for _ in range(2 * count + 1)),
            scratch=self._table.scratch_key(),
            file_bytes=full_bytes(expected, self._sizes.target_file_bytes),
            resources=self._resources.task,
        )

    def _key(self, kind: FileKind) -> str:
        return self._table.version_key(self._mark.number, kind)

    def _require_all(self, read: tuple[int, int], expected: tuple[int, int], staged: Sequence[FileEntry]) -> None:
        """Raise Bug, and drop all staged files, unless the tasks together read every record and every version of their files once."""
        if read != expected:
            self._table.writer.drop(staged)
            raise Bug(
                f"Stream '{self._table.stream.id}': its history read {read[0]} new rows and {read[1]} versions, there are {expected[0]} "
                f"and {expected[1]}. Nothing was changed.",
                stream=self._table.stream.id,
            )

    @cached_property
    def _closed_files(self) -> list[FileEntry]:
        return self._of(FileKind.CLOSED)

    def _closed(self, ended: Sequence[EndedVersions]) -> Steps[tuple[tuple[FileEntry, ...], tuple[FileEntry, ...]]]:
        """Stage files of the versions that have ended. Return them, and the files that they take the place of."""
        if not ended:
            return (), ()
        small = [file for file in self._closed_files if 2 * file.bytes < self._sizes.target_file_bytes]
        joined = small if len(small) > MOST_CLOSED_FILES else []
        rewritten = {file.key: file for file in (*joined, *_touched(self._closed_files, [one.run for one in ended if one.late]))}
        again = tuple(rewritten.values())
        made: list[ClosedRange] = yield from Work(close_versions, list(self._closing_tasks(ended, again)), bytes_read).results()
        staged = tuple(file for one in made for file in one.files)
        if not any(one.changed for one in made):
            self._table.writer.drop(staged)  # late records that the history has already
            return (), ()
        return staged, again

    def _closing_tasks(self, ended: Sequence[EndedVersions], again: Sequence[FileEntry]) -> Iterator[ClosingTask]:
        """Divide the ended versions of the ranges, and the files to rewrite, into tasks."""
        entries = [*again, *(one.run for one in ended)]
        size = sum(file.bytes for file in entries)
        parts = min(len(ended), ceil(size / CLOSING_BYTES))
        cuts = [lower(keys_of(ended[len(ended) * part // parts].run)) for part in range(1, parts)]
        for low, high in zip([b"", *cuts], [*cuts, None], strict=True):
            files = 2 * file_count(size / parts, self._sizes.target_file_bytes) + 1
            yield ClosingTask(
                low, high, tuple(sources_within(entries, low, high)), self._form, tuple(self._key(FileKind.CLOSED) for _ in range(files)),
                self._sizes.target_file_bytes, self._resources.task,
            )  # fmt: skip


def _touched(files: Sequence[FileEntry], late: Sequence[FileEntry]) -> Iterator[FileEntry]:
    """Yield the files of ended versions that may have keys of late records."""
    for file in files:
        if any(lower(keys_of(run)) <= upper(keys_of(file)) and lower(keys_of(file)) <= upper(keys_of(run)) for run in late):
            yield file

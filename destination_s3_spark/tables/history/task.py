"""Spark tasks of a history: the versions of a range of keys when all rows may change, and the files of versions that have ended.

A task leaves the files of its range alone if no version changes. Otherwise it writes the versions that are valid to new files. Versions
that have ended, and records that come late, go to a scratch run, from which further tasks make few files.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from math import inf

import pyarrow as pa

from destination_s3_spark.chain.files import FileEntry, FileKind
from destination_s3_spark.errors import Bug
from destination_s3_spark.storage.settings import S3Settings
from destination_s3_spark.tables.history.closing import placed
from destination_s3_spark.tables.history.ends import Ends
from destination_s3_spark.tables.history.form import HistoryForm
from destination_s3_spark.tables.history.versions import Mode, Versions, sorted_by_time, versions_of
from destination_s3_spark.tables.runs.merged_rows import ROUNDS_SHARE, RowSource, complete_rows, row_streams, rows_taken
from destination_s3_spark.tables.runs.refreshed import Notice
from destination_s3_spark.tables.runs.table_format import MERGED_PIECE_BYTES, run_file
from destination_s3_spark.tables.staged.staged_file import FileSeries
from destination_s3_spark.tables.updates.resources import TaskResources

HELD_SHARE = 8
"""Divisor of the memory budget for versions that are held back until one changes."""


@dataclass(frozen=True, slots=True)
class HistoryTask:
    """The versions of one range of keys: `low` <= key < `high`.

    The files of valid versions in `sources` have no keys outside of the range. `ended`: the files of ended versions with keys of the range.
    `keys` are for the new files; when they run out, the last one grows. `scratch` is for the run of ended versions.
    """

    low: bytes
    high: bytes | None
    sources: tuple[RowSource, ...]
    form: HistoryForm
    mode: Mode
    ended: tuple[RowSource, ...]
    notice: Notice
    keys: tuple[str, ...]
    scratch: str
    file_bytes: float
    resources: TaskResources


@dataclass(frozen=True, slots=True)
class EndedVersions:
    """A scratch run of versions that have ended, and of late records. `late`: whether there are any of these."""

    run: FileEntry
    late: bool


@dataclass(frozen=True, slots=True)
class VersionedRange:
    """The output of a task: staged files of valid versions, unless they stay, and those that have ended."""

    files: tuple[FileEntry, ...]
    stays: bool
    ended: EndedVersions | None
    run_rows: int
    version_rows: int


def version_range(task: HistoryTask) -> VersionedRange:
    """Find and write the versions of a range. Raises as `merge_range`. Nothing stays staged after an error."""
    found = (_versioned(task, may_stay=True) if task.mode is Mode.COMPARE else None) or _versioned(task, may_stay=False)
    if found is None:
        raise Bug("The versions of a range were neither written nor left as they are; nothing was committed.")
    return found


def _versioned(task: HistoryTask, *, may_stay: bool) -> VersionedRange | None:
    """Write the versions of a range, unless none changes and they may stay.

    Versions are held back up to the first change. Return None if there were too many before it.
    """
    changed = not may_stay
    held: list[pa.Table] = []
    size, room = 0, task.resources.budget_bytes // HELD_SHARE
    s3 = task.resources.s3
    with ExitStack() as stack:
        files = FileSeries(task.keys, task.file_bytes, lambda key: stack.enter_context(task.form.file(FileKind.CURRENT, key, s3)))
        ended = EndedOutput(task.form, task.scratch, s3, stack)
        streams = stack.enter_context(row_streams(task.sources, task.form.merge, (task.low, task.high), task.resources))
        ends = Ends(task.ended, task.form.merge, s3)
        for rows in complete_rows(streams, task.resources.budget_bytes // ROUNDS_SHARE):
            versions = versions_of(rows, task.form, task.mode, task.notice, ends)
            changed |= versions.changed
            size += 0 if changed else versions.current.nbytes
            if changed and size > room:
                return None
            held = [*held, versions.current] if size <= room else []
            if changed:
                for one in held:
                    files.write(one, MERGED_PIECE_BYTES)
                held, size = [], 0
            ended.write(versions)
        taken = rows_taken(task.sources, streams)
        return VersionedRange(files.stage(), not changed, ended.finish(), taken[FileKind.DELTA], taken[FileKind.CURRENT])


class EndedOutput:
    """The scratch run of a task's ended versions. `stack` drops what is not finished."""

    def __init__(self, form: HistoryForm, key: str, s3: S3Settings, stack: ExitStack) -> None:
        self._run = FileSeries([key], inf, lambda key: stack.enter_context(run_file(form.merge, key, s3, scratch=True)))
        self._late = False

    def write(self, versions: Versions) -> None:
        self._late |= len(versions.late) > 0
        self._run.write(sorted_by_time(pa.concat_tables([versions.closed, versions.late])), MERGED_PIECE_BYTES)

    def finish(self) -> EndedVersions | None:
        """Publish the run, if there are any rows. Raises TransientError."""
        return next((EndedVersions(run, self._late) for run in self._run.stage()), None)


@dataclass(frozen=True, slots=True)
class ClosingTask:
    """The versions of one range of keys that have ended: those of scratch runs, and those of the files that are written anew."""

    low: bytes
    high: bytes | None
    sources: tuple[RowSource, ...]
    form: HistoryForm
    keys: tuple[str, ...]
    file_bytes: float
    resources: TaskResources


@dataclass(frozen=True, slots=True)
class ClosedRange:
    """The staged files of a closing task. `changed`: whether they have other versions than the files before."""

    files: tuple[FileEntry, ...]
    changed: bool


def close_versions(task: ClosingTask) -> ClosedRange:
    """Write the versions of a range that have ended. Raises as `merge_range`. Nothing stays staged after an error."""
    changed = False
    with ExitStack() as stack:
        s3 = task.resources.s3
        files = FileSeries(task.keys, task.file_bytes, lambda key: stack.enter_context(task.form.file(FileKind.CLOSED, key, s3)))
        streams = stack.enter_context(row_streams(task.sources, task.form.merge, (task.low, task.high), task.resources))
        for rows in complete_rows(streams, task.resources.budget_bytes // ROUNDS_SHARE):
            versions, has_changed = placed(rows, task.form)
            files.write(versions, MERGED_PIECE_BYTES)
            changed |= has_changed
        return ClosedRange(files.stage(), changed)

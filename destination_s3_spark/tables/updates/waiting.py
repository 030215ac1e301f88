"""Runs that wait for a merge over several syncs: how many there may be, and their combination into fewer ones.

Without a bound, a later merge would have to read thousands of small files. Runs are combined as in a log-structured merge tree: a run that
is larger than all later ones together stays, so each row is written again only as often as the waiting rows double.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from msgspec.structs import replace

from destination_s3_spark.chain.files import FileEntry, FileKind
from destination_s3_spark.chain.live_files import LiveFiles
from destination_s3_spark.tables.merge.scratch_runs import CombinedRun, CombineTask, check_complete, combine_runs, combined, object_count
from destination_s3_spark.tables.open_table import OpenTable
from destination_s3_spark.tables.runs.merged_rows import RowSource, bytes_read
from destination_s3_spark.tables.runs.table_format import TableFormat
from destination_s3_spark.tables.updates.inputs import fits
from destination_s3_spark.tables.updates.resources import Resources
from destination_s3_spark.tables.updates.steps import Steps, Update, Work

MOST_RUNS = 64
"""Most runs of a table that wait for a merge."""


def combine_waiting(table: OpenTable, live: LiveFiles, form: TableFormat, resources: Resources) -> Update:
    """Combine runs of a table if more than MOST_RUNS wait. Rows keep their arrivals, and every version of a key stays."""
    if live.pending is not None and not live.pending.complete:
        return None
    groups = list(runs_to_combine([file for file in live.landing(FileKind.DELTA) if fits(table, form, file)]))
    if not groups:
        return None
    entries = {file.key: file for file in table.with_keys(file for group in groups for file in group)}
    made: list[FileEntry] = []
    scratch: list[str] = []
    for group in groups:
        runs = [entries[file.key] for file in group]
        few, written = yield from combined(runs, form.form, table.scratch_prefix, resources.task, every_version=True)
        scratch += written
        made += yield from _combined(table, group, few, form, resources)
    result = table.writer.compact(made, [file for group in groups for file in group])
    table.writer.store.delete(scratch)
    return result


def _combined(
    table: OpenTable, group: Sequence[FileEntry], runs: Sequence[FileEntry], form: TableFormat, resources: Resources
) -> Steps[list[FileEntry]]:
    """Stage the files of the run that takes the place of a group. `runs` are those of the group, or fewer with the same rows."""
    first = group[0].offset or 0
    keys = tuple(table.delta_key() for _ in range(object_count(group)))
    task = CombineTask(tuple(RowSource.of(run, first) for run in runs), form.form, keys, resources.task, every_version=True, staged=True)
    done: list[CombinedRun] = yield from Work(combine_runs, [task], bytes_read).results()
    check_complete(group, done)
    return [replace(file, offset=first, generation_id=group[0].generation_id, combined=True) for file in done[0].files]


def runs_to_combine(files: Sequence[FileEntry]) -> Iterator[list[FileEntry]]:
    """Yield the groups of files to combine, each into one run: none as long as there are at most MOST_RUNS runs.

    The files of a run have the same offset. Only rows of one generation are combined, because a refresh may keep those of its own.
    """
    runs = [list(found) for _, found in groupby(sorted(files, key=_offset), key=_offset)]
    if len(runs) <= MOST_RUNS:
        return
    later = sum(file.bytes for run in runs for file in run)
    while len(runs) > MOST_RUNS // 2:
        size = sum(file.bytes for file in runs[0])
        later -= size
        if size <= later:
            break
        runs = runs[1:]
    for _, same in groupby(runs, key=lambda run: run[0].generation_id):
        group = list(same)
        if len(group) > 1:
            yield [file for run in group for file in run]


def _offset(file: FileEntry) -> int:
    return file.offset or 0

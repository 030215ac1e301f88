"""Updates of deduplicated tables: the merge of landed runs into the table's sorted files.

Runs and the table's files are sorted by the encoded key. The table's files do not overlap, so a merge rewrites only files with keys of a
run. If the table was an append table, or had another key, format or types, its rows are first sorted into scratch runs.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial

import msgspec

from destination_s3_spark.chain.files import FileEntry, FileKind
from destination_s3_spark.chain.live_files import LiveFiles
from destination_s3_spark.errors import Bug, ConfigError, DataError
from destination_s3_spark.formats.file_statistics import KeyRange
from destination_s3_spark.storage.ranged import RangedFile
from destination_s3_spark.storage.settings import S3Settings
from destination_s3_spark.tables.capture.group import NO_LOG, LogGroup, MergeLog
from destination_s3_spark.tables.capture.local_disk import LocalDisk
from destination_s3_spark.tables.merge.combining import combined
from destination_s3_spark.tables.merge.plan import MergePlan, Piece, Run, Sizes, file_count, full_bytes, plan_merge
from destination_s3_spark.tables.merge.replaced_files import TableFile
from destination_s3_spark.tables.merge.sorting import SortTask, sort_rows
from destination_s3_spark.tables.merge.task import CompactTask, MergedRange, MergeTask, compact_tombstones, merge_range, sources_of
from destination_s3_spark.tables.open_table import OpenTable
from destination_s3_spark.tables.row_plan import control_plan, file_columns
from destination_s3_spark.tables.row_sources import extension, raw_covers, replaced_by_pending, stored
from destination_s3_spark.tables.runs.keys import KeySpec, keys_of, lower, partition_bounds, upper
from destination_s3_spark.tables.runs.row_streams import Source
from destination_s3_spark.tables.runs.sorted_file import row_group_keys, sorted_index
from destination_s3_spark.tables.runs.table_format import FileKeys, TableFormat
from destination_s3_spark.tables.runs.winners import EARLIER
from destination_s3_spark.tables.stored.presence import present
from destination_s3_spark.tables.stored.rewrite import Stored
from destination_s3_spark.tables.stored.rows import Misfits
from destination_s3_spark.tables.update import Steps, Update, Work

LOOK_CLOSELY_BELOW = 4
"""Divisor of the table's rows. Fewer rows in runs than that are examined key by key, to find the files that they really touch."""
FILES_OF_A_TABLE = 96
"""Number of files up to which a table's files are kept smaller than the user's target size, but never below the least size.

An update of 1 % of the keys, all neighbours, then touches two files as a rule, which are together 3 % of the table at most. With the
default target size, files of a table of 10 GB have more than half of that size.
"""

logger = logging.getLogger("airbyte")


@dataclass(frozen=True, slots=True)
class Resources:
    """The resources and limits of a merge."""

    s3: S3Settings
    budget_bytes: int
    """Arrow memory per task."""
    cores: int
    """The number of parallel tasks."""
    disk: LocalDisk | None
    """The local disk that all tasks share, or None if they run on several machines."""
    least_file_bytes: int = 8 * 2**20
    """Minimum size of a final file, if there are rows for more than one."""
    least_log_bytes: int = 4 * 2**20
    """Minimum size of a change log file, if there are rows for more than one."""
    most_tombstone_files: int = 16
    """Number of tombstone files above which they are compacted into one, because every merge of their keys reads each of them."""


@dataclass(frozen=True, slots=True)
class _Inputs:
    """The input files of a merge."""

    table: tuple[tuple[FileEntry, FileEntry], ...]
    """Pairs of the file with the rows for merges and the final file."""
    runs: tuple[FileEntry, ...]
    tombstones: tuple[FileEntry, ...]
    unsorted: tuple[tuple[FileEntry, Stored], ...]
    """Files to sort into runs first."""
    consumed: tuple[FileEntry, ...]
    """Files that the merge removes in any case."""


def merge_runs(table: OpenTable, spec: KeySpec, resources: Resources) -> Update:
    """Merge the runs of a deduplicated table into its final files, or publish a pending generation from its own runs and the kept rows."""
    live = table.writer.live_files()
    form = _table_format(table, spec, live, resources.least_file_bytes)
    return (yield from _merged(table, live, form, _inputs(table, live, form, resources.s3), resources))


def rebuild_deduplicated(table: OpenTable, spec: KeySpec, resources: Resources) -> Update:
    """Rebuild a deduplicated table from its raw rows."""
    live = table.writer.live_files()
    form = _table_format(table, spec, live, resources.least_file_bytes)
    return (yield from _merged(table, live, form, _raw_inputs(table, live, form, resources.s3), resources))


def _merged(table: OpenTable, live: LiveFiles, form: TableFormat, inputs: _Inputs, resources: Resources) -> Update:
    try:
        return (yield from _steps(table, live, form, inputs, resources))
    except DataError:
        table.writer.check_not_fenced()
        raise


def _steps(table: OpenTable, live: LiveFiles, form: TableFormat, inputs: _Inputs, resources: Resources) -> Update:
    writer = table.writer
    sorted_runs: list[FileEntry] = []
    if inputs.unsorted:
        done = yield from Work(sort_rows, _sort_tasks(table, inputs, form, resources), lambda task: task.stored.file.bytes).results()
        sorted_runs = list(_with_arrivals(inputs, done))
    found = [*inputs.runs, *sorted_runs]
    log = _log(table, inputs, resources)
    scratch = partial(_next_scratch, table)
    waiting = yield from combined(found, form.form, scratch, resources.budget_bytes, resources.s3, every_version=log is not None)
    plan = _plan(table, inputs, waiting.runs, form, resources)
    ranges: list[MergedRange] = []
    if plan.pieces:
        tasks = [_task(table, piece, plan.row_bytes, form, resources, log) for piece in plan.pieces]
        ranges = yield from Work(merge_range, tasks, _weight).results()
        _check_complete(table, waiting.runs, plan, ranges)
    compacted: list[FileEntry] = []
    if len(inputs.tombstones) > resources.most_tombstone_files:
        compacted = yield from Work(compact_tombstones, [_compaction(table, inputs, form, resources)], _weight).results()
    table.record_schema()
    logged = yield from _logged(log, inputs, plan, ranges, form, resources)
    files = [*(file for done in ranges for file in done.files), *compacted, *logged.files]
    if live.pending is not None:
        result = writer.replace(files, replaced_by_pending(live, table.kept), logged.count, table.kept.rows)
    else:
        gone = inputs.tombstones if compacted else ()
        removed = [*inputs.consumed, *_replaced(inputs, plan), *gone, *live.dropped]
        offsets = [file.offset + file.rows - 1 for file in inputs.consumed if file.kind is FileKind.DELTA and file.offset is not None]
        result = writer.merge(files, removed, max(offsets, default=None), logged.count)
    writer.store.delete([*(run.key for run in sorted_runs), *waiting.scratch, *logged.scratch])
    return result


def _log(table: OpenTable, inputs: _Inputs, resources: Resources) -> MergeLog | None:
    """Make the merge's part of the change log, or return None if the table has no change log."""
    options = table.rules.change_log
    if options is None:
        return None
    records = [file for file in inputs.consumed if file.kind is FileKind.DELTA]
    anew = any(file.kind is not FileKind.DELTA for file, _ in inputs.unsorted)
    return MergeLog(table, options, records, resources.disk, resources.least_log_bytes, anew=anew)


def _logged(
    log: MergeLog | None, inputs: _Inputs, plan: MergePlan, ranges: Sequence[MergedRange], form: TableFormat, resources: Resources
) -> Steps[LogGroup]:
    """Stage the files that the merge adds to the change log, as steps of an update."""
    if log is None:
        return NO_LOG
    replaced = {file.key for file in plan.replaced}
    kept = [rows for rows, _ in inputs.table if rows.key not in replaced]
    tasks = log.snapshot_tasks(kept, form, resources.budget_bytes, resources.s3)
    found = [done.logged for done in ranges if done.logged is not None]
    return (yield from log.group(found, tasks, resources.budget_bytes, resources.cores, resources.s3))


def _table_format(table: OpenTable, spec: KeySpec, live: LiveFiles, least_bytes: int) -> TableFormat:
    layout = table.layout
    plan = table.plan_of_all if layout.of_text else table.plan
    columns = file_columns(table.schema, plan)
    rendered = plan if layout.of_text else None
    generation = table.session.generation_id
    return TableFormat(columns, layout.final, rendered, spec, generation, _file_bytes(table, live, least_bytes))


def _file_bytes(table: OpenTable, live: LiveFiles, least_bytes: int) -> int:
    """Choose the size of final files: a small part of the table, so that a change of adjacent keys rewrites only that part."""
    size = sum(file.bytes for file in live.of(FileKind.FINAL, FileKind.DELTA) if live.is_pending(file) == (live.pending is not None))
    return min(table.rules.target_file_bytes, max(least_bytes, size // FILES_OF_A_TABLE))


def _inputs(table: OpenTable, live: LiveFiles, form: TableFormat, s3: S3Settings) -> _Inputs:
    """Divide the files to merge into those in the table's current order, format and types, and those to sort first."""
    pending = live.pending is not None

    def fits(file: FileEntry) -> bool:
        return file.keys is not None and file.keys.of == form.spec.fingerprint and not table.is_outdated(file)

    deltas = [*table.kept.deltas, *(file for file in live.of(FileKind.DELTA) if live.is_pending(file) == pending)]
    pairs = [] if pending else list(_pairs(live))
    kept = [pair for pair in pairs if fits(pair[0]) and _shows(form, *pair)]
    others = [pair for pair in pairs if pair not in kept]
    buried = [] if pending else list(live.of(FileKind.TOMBSTONE))
    landed = [file for file in table.kept.files if file.kind is not FileKind.DELTA]
    anew = [*(rows for rows, _ in others), *landed, *(file for file in deltas if not fits(file))]
    if not pending and any(map(table.is_outdated, anew)) and raw_covers(table, live):
        return _raw_inputs(table, live, form, s3)  # retyping makes a value null that does not fit; a cast would end the sync
    try:
        sources = _stored(table, live, anew, Misfits.NULL if pending else Misfits.REFUSE, form, s3)
    except ConfigError:
        if pending or not raw_covers(table, live):
            raise
        return _raw_inputs(table, live, form, s3)
    tombstones = tuple(file for file in buried if keys_of(file).of == form.spec.of_deletions.fingerprint)
    old_tombstones = [file for file in buried if file not in tombstones]
    if old_tombstones:
        logger.warning(
            "stream %s: tombstones of %d keys under an earlier primary key are dropped, because they do not apply to the current key",
            table.stream.id, sum(file.rows for file in old_tombstones),
        )  # fmt: skip
    return _Inputs(
        table=tuple(kept),
        runs=tuple(file for file in deltas if fits(file)),
        tombstones=tombstones,
        unsorted=tuple(zip(anew, sources, strict=True)),
        consumed=(*deltas, *{file.key: file for pair in others for file in pair}.values(), *old_tombstones),
    )


def _raw_inputs(table: OpenTable, live: LiveFiles, form: TableFormat, s3: S3Settings) -> _Inputs:
    """Use all raw rows of the table as input, in place of all files made from them."""
    raw = [file for file in live.of(FileKind.RAW) if not live.is_pending(file)]
    sources = _stored(table, live, raw, Misfits.REFUSE, form, s3)
    made = live.of(FileKind.FINAL, FileKind.STATE, FileKind.DELTA, FileKind.TOMBSTONE)
    consumed = tuple(file for file in made if not live.is_pending(file))
    return _Inputs((), (), (), tuple(zip(raw, sources, strict=True)), consumed)


def _pairs(live: LiveFiles) -> Iterator[tuple[FileEntry, FileEntry]]:
    """Yield for each final file the file with its rows for merges: its merge state, or the final file itself."""
    # Bounds of long keys are cut, so several files may have equal bounds. Such files are always merged together, so any pairing is valid.
    states: dict[KeyRange | None, list[FileEntry]] = {}
    for file in live.of(FileKind.STATE):
        states.setdefault(file.keys, []).append(file)
    for final in live.of(FileKind.FINAL):
        found = states.get(final.keys)
        yield found.pop() if found and final.keys is not None else final, final


def _shows(form: TableFormat, rows: FileEntry, final: FileEntry) -> bool:
    """Tell whether the files have the table's current format."""
    same_format = extension(final).removesuffix(".gz") == form.options.extension.removesuffix(".gz")
    return same_format and (rows.kind is FileKind.STATE) == form.has_state


def _stored(
    table: OpenTable, live: LiveFiles, files: Sequence[FileEntry], misfits: Misfits, form: TableFormat, s3: S3Settings
) -> list[Stored]:
    sources = stored(table, live, files, misfits, s3)
    if form.plan is None:
        return sources
    plan = control_plan(table.stream, form.spec)
    return [replace(source, plan=plan) for source in sources]


def _sort_tasks(table: OpenTable, inputs: _Inputs, form: TableFormat, resources: Resources) -> list[SortTask]:
    layout, payload = table.layout, form.form.payload
    return [
        SortTask(source, payload, form.spec, layout.scratch_prefix(table.writer.next_token()), resources.budget_bytes, resources.s3)
        for _, source in inputs.unsorted
    ]


def _with_arrivals(inputs: _Inputs, done: Iterable[Sequence[FileEntry]]) -> Iterator[FileEntry]:
    """Yield the sorted runs with the arrivals of their rows. Rows of final files get arrivals that win ties with landed rows."""
    for (file, _), runs in zip(inputs.unsorted, done, strict=True):
        earlier = EARLIER if file.kind in (FileKind.FINAL, FileKind.STATE) else 0
        for run in runs:
            yield msgspec.structs.replace(run, offset=earlier + (file.offset or 0))


def _next_scratch(table: OpenTable) -> str:
    return table.layout.scratch_prefix(table.writer.next_token())


def _plan(table: OpenTable, inputs: _Inputs, waiting: Sequence[FileEntry], form: TableFormat, resources: Resources) -> MergePlan:
    files = [_table_file(rows, final, form.spec) for rows, final in inputs.table]
    # If much of the table changes, nearly every file is touched, and examining keys would save nothing.
    closely = sum(file.rows for file in waiting) * LOOK_CLOSELY_BELOW < sum(file.rows for file in files)

    def run(file: FileEntry) -> Run:
        with present(file.key, resources.s3), closing(RangedFile(resources.s3, file.key, file.bytes)) as source:
            found = Run.of(file.key, file.bytes, file.offset or 0, sorted_index(source), upper(keys_of(file)))
            return found.divided(files, lambda number: row_group_keys(source, number)) if closely else found

    runs = list(table.writer.map_files(run, waiting))
    tombstones = list(table.writer.map_files(run, inputs.tombstones))
    return plan_merge(files, runs, tombstones, Sizes(form.target_file_bytes, resources.budget_bytes))


def _table_file(rows: FileEntry, final: FileEntry, spec: KeySpec) -> TableFile:
    first, last = lower(keys_of(rows)), upper(keys_of(rows))
    return TableFile(rows.key, rows.bytes, first, last, rows.rows, final.bytes, *partition_bounds(first, spec))


def _task(table: OpenTable, piece: Piece, row_bytes: float, form: TableFormat, resources: Resources, log: MergeLog | None) -> MergeTask:
    writer, layout = table.writer, table.layout
    expected = piece.rows * row_bytes
    # Rows may be larger than estimated and then need further files.
    files = file_count(max(expected, piece.bytes), form.target_file_bytes)
    keys = tuple(
        FileKeys(table.final_key(writer.next_token()), layout.state_key(writer.next_token()) if form.has_state else None)
        for _ in range(2 * files + 1)
    )
    tombstone = layout.tombstone_key(writer.next_token())
    sources = sources_of(piece, form)
    logged = None if log is None else log.task(len(keys), form.target_file_bytes)
    full = full_bytes(expected, form.target_file_bytes)
    return MergeTask(piece.low, piece.high, sources, form, keys, tombstone, full, row_bytes, resources.budget_bytes, resources.s3, logged)


def _compaction(table: OpenTable, inputs: _Inputs, form: TableFormat, resources: Resources) -> CompactTask:
    sources = tuple(Source(FileKind.TOMBSTONE, file.key, file.bytes) for file in inputs.tombstones)
    key = table.layout.tombstone_key(table.writer.next_token())
    return CompactTask(sources, form, key, resources.budget_bytes, resources.s3)


def _check_complete(table: OpenTable, waiting: Sequence[FileEntry], plan: MergePlan, ranges: Sequence[MergedRange]) -> None:
    """Raise Bug, and drop all staged files, unless the tasks together read every row to merge exactly once."""
    run_rows = sum(file.rows for file in waiting)
    table_rows = sum(file.rows for file in plan.replaced)
    read = sum(done.run_rows for done in ranges), sum(done.table_rows for done in ranges)
    if read != (run_rows, table_rows):
        table.writer.drop([file for done in ranges for file in (*done.files, *(done.logged.files if done.logged else ()))])
        raise Bug(
            f"Stream '{table.stream.id}': a merge read {read[0]} new and {read[1]} stored rows, there are {run_rows} and {table_rows}. "
            "Nothing was changed.",
            stream=table.stream.id,
        )


def _replaced(inputs: _Inputs, plan: MergePlan) -> Iterator[FileEntry]:
    """Yield the files of the table that the plan rewrites."""
    replaced = {file.key for file in plan.replaced}
    for rows, final in inputs.table:
        if rows.key in replaced:
            yield from (rows,) if rows == final else (rows, final)


def _weight(task: MergeTask | CompactTask) -> int:
    return sum(source.size for source in task.sources)

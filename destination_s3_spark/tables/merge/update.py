"""Updates of deduplicated tables: the runs that landed are merged into the sorted files of the table.

Runs are sorted by the encoded key, and so are the table's files, which do not overlap: only those with keys of a run are rewritten. Rows
that are not sorted so (a table that was appended to, had another key, format or types until now) are sorted into scratch runs first.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial

import msgspec

from destination_s3_spark.chain.files import DataFile, FileEntry, FileKind, KeyRange
from destination_s3_spark.chain.live_files import LiveFiles
from destination_s3_spark.errors import Bug, ConfigError, DataError
from destination_s3_spark.storage.ranged import RangedFile
from destination_s3_spark.storage.settings import S3Settings
from destination_s3_spark.tables.capture.group import NO_LOG, LogGroup, MergeLog
from destination_s3_spark.tables.capture.local_disk import LocalDisk
from destination_s3_spark.tables.merge.combining import combined
from destination_s3_spark.tables.merge.plan import MergePlan, Piece, Run, Sizes, TableFile, plan_merge
from destination_s3_spark.tables.merge.sorting import SortTask, sort_rows
from destination_s3_spark.tables.merge.task import CompactTask, MergedRange, MergeTask, compact_tombstones, merge_range, sources_of
from destination_s3_spark.tables.open_table import OpenTable
from destination_s3_spark.tables.row_plan import control_plan, file_columns
from destination_s3_spark.tables.row_sources import extension, raw_covers, replaced_by_pending, stored
from destination_s3_spark.tables.runs.keys import KeySpec, keys_of, lower, upper
from destination_s3_spark.tables.runs.row_streams import Source
from destination_s3_spark.tables.runs.sorted_file import row_group_keys, sorted_index
from destination_s3_spark.tables.runs.table_format import FileKeys, TableFormat
from destination_s3_spark.tables.stored.presence import present
from destination_s3_spark.tables.stored.rewrite import Stored
from destination_s3_spark.tables.stored.rows import Misfits
from destination_s3_spark.tables.update import Steps, Update, Work

LOOK_CLOSELY_BELOW = 4
"""Runs of less than one part in so many of the table's rows are looked at key by key, to find which files they really touch."""
FILES_OF_A_TABLE = 128
"""Files are cut smaller than the user's target as long as the table would have fewer of them, but not smaller than the least size."""
FULL_SHARE = 3 / 2
"""A file alone in its range ends when it has this much of the target size: a full file is not halved for a few new rows."""
EARLIER = 2**62
"""Added to the arrivals of rows the table already had when they come as runs: as in the table itself, they win a tie with later rows."""


logger = logging.getLogger("airbyte")


@dataclass(frozen=True, slots=True)
class Resources:
    """What a merge may use: the bucket, Arrow memory per task in bytes, how many tasks run at once, and the disk they share, if they do.

    Final files have `least_file_bytes` at least, files of the change log `least_log_bytes`, where there are rows for more than one. More
    than `most_tombstone_files` files of deletions become one, as each is read by every merge of its keys.
    """

    s3: S3Settings
    budget_bytes: int
    cores: int
    disk: LocalDisk | None
    least_file_bytes: int = 2 * 2**20
    least_log_bytes: int = 4 * 2**20
    most_tombstone_files: int = 16


@dataclass(frozen=True, slots=True)
class _Inputs:
    """What a merge starts from. `table` are (file with the rows, final file) pairs; `unsorted` become runs; `consumed` end with it."""

    table: tuple[tuple[FileEntry, FileEntry], ...]
    runs: tuple[FileEntry, ...]
    tombstones: tuple[FileEntry, ...]
    unsorted: tuple[tuple[FileEntry, Stored], ...]
    consumed: tuple[FileEntry, ...]


def merge_runs(table: OpenTable, spec: KeySpec, resources: Resources) -> Update:
    """Merge the runs of a deduplicated table into it, or publish a pending generation, which is made of its runs alone."""
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
    waiting = yield from combined(found, form.form, partial(_next_scratch, table), resources.budget_bytes, resources.s3)
    plan = _plan(table, inputs, waiting.runs, form, resources)
    log = _log(table, inputs, resources)
    ranges: list[MergedRange] = []
    if plan.pieces:
        tasks = [_task(table, piece, plan.row_bytes, form, resources, log) for piece in plan.pieces]
        ranges = yield from Work(merge_range, tasks, _weight).results()
        _check_complete(table, waiting.runs, plan, ranges)
    compacted: list[DataFile] = []
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
    writer.delete_scratch([*(run.key for run in sorted_runs), *waiting.scratch, *logged.scratch])
    return result


def _log(table: OpenTable, inputs: _Inputs, resources: Resources) -> MergeLog | None:
    """The merge's part of the change log, where the table has one."""
    options = table.rules.change_log
    if options is None:
        return None
    records = [file for file in inputs.consumed if file.kind is FileKind.DELTA]
    anew = any(file.kind is not FileKind.DELTA for file, _ in inputs.unsorted)
    return MergeLog(table, options, records, resources.disk, resources.least_log_bytes, anew=anew)


def _logged(
    log: MergeLog | None, inputs: _Inputs, plan: MergePlan, ranges: Sequence[MergedRange], form: TableFormat, resources: Resources
) -> Steps[LogGroup]:
    """The steps to what the merge adds to the change log."""
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
    """The size of final files: a small part of the table, so that a change of neighbouring keys costs no more than that."""
    size = sum(file.bytes for file in live.of(FileKind.FINAL, FileKind.DELTA) if live.is_pending(file) == (live.pending is not None))
    return min(table.rules.target_file_bytes, max(least_bytes, size // FILES_OF_A_TABLE))


def _inputs(table: OpenTable, live: LiveFiles, form: TableFormat, s3: S3Settings) -> _Inputs:
    """What there is to merge, by whether it is sorted as the table is today."""
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
        return _raw_inputs(table, live, form, s3)  # a value that does not fit its new type becomes null there, and ends the sync in a cast
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
            "stream %s: deletions of %d keys under an earlier primary key are forgotten, since they say nothing about the key of today",
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
    """All raw rows of the table, in place of everything made of them."""
    raw = [file for file in live.of(FileKind.RAW) if not live.is_pending(file)]
    sources = _stored(table, live, raw, Misfits.REFUSE, form, s3)
    made = live.of(FileKind.FINAL, FileKind.STATE, FileKind.DELTA, FileKind.TOMBSTONE)
    consumed = tuple(file for file in made if not live.is_pending(file))
    return _Inputs((), (), (), tuple(zip(raw, sources, strict=True)), consumed)


def _pairs(live: LiveFiles) -> Iterator[tuple[FileEntry, FileEntry]]:
    """Each final file with the file that has its rows for merges: its state, or itself."""
    # Bounds of long keys are cut, so files can have equal ones. These overlap and are always merged together: any pairing of them will do.
    states: dict[KeyRange | None, list[FileEntry]] = {}
    for file in live.of(FileKind.STATE):
        states.setdefault(file.keys, []).append(file)
    for final in live.of(FileKind.FINAL):
        found = states.get(final.keys)
        yield found.pop() if found and final.keys is not None else final, final


def _shows(form: TableFormat, rows: FileEntry, final: FileEntry) -> bool:
    """Whether the files are of today's format."""
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
    """The sorted runs with the arrival of their rows: those of final files come before all that landed later."""
    for (file, _), runs in zip(inputs.unsorted, done, strict=True):
        earlier = EARLIER if file.kind in (FileKind.FINAL, FileKind.STATE) else 0
        for run in runs:
            yield msgspec.structs.replace(run, offset=earlier + (file.offset or 0))


def _next_scratch(table: OpenTable) -> str:
    return table.layout.scratch_prefix(table.writer.next_token())


def _plan(table: OpenTable, inputs: _Inputs, waiting: Sequence[FileEntry], form: TableFormat, resources: Resources) -> MergePlan:
    files = [
        TableFile(rows.key, rows.bytes, lower(keys_of(rows)), upper(keys_of(rows)), rows.rows, final.bytes) for rows, final in inputs.table
    ]
    # Where much of the table changes, nearly every file is touched, and to look closer would only cost.
    closely = sum(file.rows for file in waiting) * LOOK_CLOSELY_BELOW < sum(file.rows for file in files)

    def run(file: FileEntry) -> Run:
        with present(file.key, resources.s3), closing(RangedFile(resources.s3, file.key, file.bytes)) as source:
            found = Run.of(file.key, file.bytes, file.offset or 0, sorted_index(source), upper(keys_of(file)))
            return found.divided(files, lambda number: row_group_keys(source, number)) if closely else found

    runs = list(table.writer.map_files(run, waiting))
    tombstones = list(table.writer.map_files(run, inputs.tombstones))
    return plan_merge(files, runs, tombstones, Sizes(form.target_file_bytes, resources.budget_bytes, resources.cores))


def _task(table: OpenTable, piece: Piece, row_bytes: float, form: TableFormat, resources: Resources, log: MergeLog | None) -> MergeTask:
    writer, layout = table.writer, table.layout
    files = max(1, round(piece.bytes / form.target_file_bytes))
    full = piece.bytes / files if files > 1 else FULL_SHARE * form.target_file_bytes
    # Rows may turn out larger than reckoned, and what is left over then makes further files.
    keys = tuple(
        FileKeys(table.final_key(writer.next_token()), layout.state_key(writer.next_token()) if form.has_state else None)
        for _ in range(2 * files + 1)
    )
    tombstone = layout.tombstone_key(writer.next_token())
    sources = sources_of(piece, form)
    logged = None if log is None else log.task(len(keys), form.target_file_bytes)
    return MergeTask(piece.low, piece.high, sources, form, keys, tombstone, full, row_bytes, resources.budget_bytes, resources.s3, logged)


def _compaction(table: OpenTable, inputs: _Inputs, form: TableFormat, resources: Resources) -> CompactTask:
    sources = tuple(Source(FileKind.TOMBSTONE, file.key, file.bytes) for file in inputs.tombstones)
    key = table.layout.tombstone_key(table.writer.next_token())
    return CompactTask(sources, form, key, resources.budget_bytes, resources.s3)


def _check_complete(table: OpenTable, waiting: Sequence[FileEntry], plan: MergePlan, ranges: Sequence[MergedRange]) -> None:
    """Every row that was to be merged was read by exactly one task; if not, nothing is committed."""
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
    """The files of the table that the plan writes anew."""
    replaced = {file.key for file in plan.replaced}
    for rows, final in inputs.table:
        if rows.key in replaced:
            yield from (rows,) if rows == final else (rows, final)


def _weight(task: MergeTask | CompactTask) -> int:
    return sum(source.size for source in task.sources)

"""Updates of append tables: pending deltas become final files, and old files take new types.

A file that already has the table's columns and format is copied inside the store (UploadPartCopy). All others are rewritten.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from destination_s3_spark.chain.files import HISTORY_KINDS, FileEntry, FileKind, generation_metadata
from destination_s3_spark.chain.live_files import LiveFiles
from destination_s3_spark.formats.registry import extension_of
from destination_s3_spark.tables.columns.row_plan import file_columns
from destination_s3_spark.tables.open_table import OpenTable
from destination_s3_spark.tables.staged.staged_file import key_in
from destination_s3_spark.tables.stored.conversion import UnfitValues
from destination_s3_spark.tables.stored.rewrite import WAITING_BYTES, RewriteTask, Stored, rewrite_file
from destination_s3_spark.tables.updates.inputs import only_in_raw, pairs_of, replaced_by_pending, stored, total_rows
from destination_s3_spark.tables.updates.resources import Resources
from destination_s3_spark.tables.updates.steps import Steps, Update, Work

ARROW_BYTES_PER_FILE_BYTE = 20
"""Most bytes of Arrow memory that a byte of a stored file becomes, as a rule. If it is more, the last files of a rewrite are larger."""


def publish_deltas(table: OpenTable, resources: Resources) -> Update:
    """Turn an append table's deltas into final files.

    If a generation is pending, its deltas and the kept rows replace the table. Otherwise all deltas are added to the table.
    """
    live = table.writer.live_files()
    kept = table.kept
    deltas = live.landing(FileKind.DELTA)
    old = _Parts.of(table, live, kept.files, kept.raw)
    new = _Parts.of(table, live, deltas, [file for file in live.of(FileKind.RAW) if live.is_pending(file)])
    written = yield from _rewritten(table, live, [*old.rewritten, *new.rewritten], resources, UnfitValues.NULL)
    files = sorted([*_copied(table, [*old.copied, *new.copied]), *written], key=lambda file: file.offset or 0)
    table.record_schema()
    if live.pending is not None:
        return table.writer.replace(files, replaced_by_pending(live, kept, old.lasting), rows_kept=kept.rows)
    offset = max(((file.offset or 0) + file.rows - 1 for file in deltas), default=None)
    return table.writer.merge(files, [*deltas, *live.dropped], offset)


@dataclass(frozen=True, slots=True)
class _Parts:
    """What becomes of the files of some rows: those that stay as they are, those to copy and those to rewrite."""

    lasting: Sequence[FileEntry]
    copied: Sequence[FileEntry]
    rewritten: Sequence[FileEntry]

    @classmethod
    def of(cls, table: OpenTable, live: LiveFiles, files: Sequence[FileEntry], raw: Sequence[FileEntry]) -> _Parts:
        """Divide the files. If some can only be rewritten from raw rows, the raw files with the same rows take the place of all of them.

        Raw files are not divided by partition, so they cannot stand for single files.
        """
        is_divided = table.partitioning is not None
        todays = [file for file in files if not table.is_outdated(file)]
        lasting = [file for file in todays if file.kind is FileKind.FINAL]
        alike = (file for file in todays if file.kind is FileKind.DELTA and (file.partition is not None) == is_divided)
        copied = [file for file in alike if file.sorted_by is None]  # a run for a merge has other columns than a final file
        rewritten = [file for file in files if file not in lasting and file not in copied]
        if only_in_raw(table, live, rewritten) and total_rows(raw) == total_rows(files):
            return cls((), (), raw)
        return cls(lasting, copied, rewritten)


def retype_final_files(table: OpenTable, resources: Resources) -> Update:
    """Rewrite the final files of an append table whose columns have other types than the table has now."""
    live = table.writer.live_files()
    if table.partitioning is not None and table.raw_replays(live):
        # Raw files are not divided, so they cannot stand for single files, only for all of them.
        return (yield from rebuild_from_raw(table, resources))
    outdated = [file for file in live.of(FileKind.FINAL, FileKind.STATE) if table.is_outdated(file)]
    rows = [rows for rows, final in pairs_of(live) if table.is_outdated(final)]
    written = yield from _rewritten(table, live, rows, resources, UnfitValues.REFUSE)
    table.record_schema()
    return table.writer.merge(written, outdated, None)


def rebuild_from_raw(table: OpenTable, resources: Resources) -> Update:
    """Rebuild an append table from its raw rows."""
    live = table.writer.live_files()
    raw = live.settled(FileKind.RAW)
    written = yield from _rewritten(table, live, raw, resources, UnfitValues.REFUSE)
    lasting = {FileKind.RAW, *HISTORY_KINDS}
    removed = [*(file for file in live.files if file.kind not in lasting and not live.is_pending(file)), *live.dropped]
    table.record_schema()
    return table.writer.merge(written, removed, None) if written or removed else None


def _rewritten(
    table: OpenTable, live: LiveFiles, files: Sequence[FileEntry], resources: Resources, unfit: UnfitValues
) -> Steps[list[FileEntry]]:
    if not files:
        return []
    s3, plan, layout = resources.task.s3, table.plan, table.layout
    columns = file_columns(table.schema, plan)
    sources = stored(table, live, files, unfit, s3)
    tasks = [RewriteTask(source, _keys(table, source), columns, layout.final, s3, table.partitioning) for source in sources]
    done = yield from Work(rewrite_file, tasks, lambda task: task.stored.file.bytes).results()
    return [file for made, source in zip(done, files, strict=True) for file in _in_order(made, source)]


def _keys(table: OpenTable, source: Stored) -> tuple[str, ...]:
    rounds = 1 if table.partitioning is None else 1 + source.file.bytes * ARROW_BYTES_PER_FILE_BYTE // WAITING_BYTES
    return tuple(table.final_key() for _ in range(rounds))


def _in_order(made: Sequence[FileEntry], source: FileEntry) -> Iterator[FileEntry]:
    """Yield the files made of a file with the generation of its rows, and with offsets that follow each other."""
    offset = source.offset
    for file in made:
        yield replace(file, offset=offset, generation_id=source.generation_id)
        offset = None if offset is None else offset + file.rows


def _copied(table: OpenTable, deltas: Sequence[FileEntry]) -> list[FileEntry]:

    def copy(file: FileEntry) -> FileEntry:
        upload = table.writer.copy(file, keys[file.key], generation_metadata(file.generation_id))
        return file.copied(upload, FileKind.FINAL)

    def final_key(file: FileEntry) -> str:
        key = table.final_key(extension_of(file.key))
        return key if table.partitioning is None or file.partition is None else key_in(key, table.partitioning.folder(file.partition))

    keys = {file.key: final_key(file) for file in deltas}
    return list(table.writer.map_files(copy, deltas))

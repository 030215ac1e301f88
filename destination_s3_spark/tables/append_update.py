"""Updates of tables that are not deduplicated: rows that waited beside the table become final files, and old files take new types.

Files are copied inside the store (UploadPartCopy) wherever they are what the table needs; the others are written anew.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

import pyarrow.parquet as pq

from destination_s3_spark.chain.files import DataFile, FileEntry, FileKind, KeyRange
from destination_s3_spark.chain.live_files import LiveFiles
from destination_s3_spark.errors import Bug
from destination_s3_spark.formats.parquet import ParquetOptions
from destination_s3_spark.schema.arrow import RAW_SCHEMA
from destination_s3_spark.storage.ranged import RangedFile
from destination_s3_spark.storage.settings import S3Settings
from destination_s3_spark.tables.commit.adoption import GENERATION
from destination_s3_spark.tables.commit.writer import CommitResult
from destination_s3_spark.tables.row_plan import file_columns
from destination_s3_spark.tables.stored.presence import present
from destination_s3_spark.tables.stored.rewrite import RewriteTask, Stored, rewrite_file
from destination_s3_spark.tables.stored.rows import Misfits
from destination_s3_spark.tables.stream_table import StreamTable
from destination_s3_spark.tables.update import Update, Work


def published(table: StreamTable, s3: S3Settings) -> Update:
    """The deltas of an append table become its final files: all of a pending generation, which replaces the table, or all there are."""
    live = table.writer.live_files()
    replaces = live.pending is not None
    deltas = [file for file in live.of(FileKind.DELTA) if live.is_pending(file) == replaces]
    anew = [file for file in deltas if table.is_outdated(file) or _is_run(file)]
    written = yield from _rewritten(table, live, anew, s3, Misfits.NULL)
    copied = _copied(table, [file for file in deltas if file not in anew])
    files = sorted([*copied, *written], key=lambda file: file.offset or 0)
    return commit_final_files(table, live, files, deltas)


def retyped(table: StreamTable, s3: S3Settings) -> Update:
    """Final files of an append table whose columns have other types than the table now has are written anew."""
    live = table.writer.live_files()
    outdated = [file for file in live.of(FileKind.FINAL, FileKind.STATE) if table.is_outdated(file)]
    final = [file for file in outdated if file.kind is FileKind.FINAL]
    written = yield from _rewritten(table, live, final, s3, Misfits.REFUSE)
    table.record_schema()
    return table.writer.merge(written, outdated, None)


def rebuilt(table: StreamTable, s3: S3Settings) -> Update:
    """Make an append table anew from its raw rows."""
    live = table.writer.live_files()
    raw = [file for file in live.of(FileKind.RAW) if not live.is_pending(file)]
    written = yield from _rewritten(table, live, raw, s3, Misfits.REFUSE)
    made = [file for file in live.files if file.kind is not FileKind.RAW and not live.is_pending(file)]
    return table.writer.merge(written, [*made, *live.dropped], None)


def commit_final_files(table: StreamTable, live: LiveFiles, files: Sequence[DataFile], consumed: Sequence[FileEntry]) -> CommitResult:
    """Commit final files made of the consumed deltas. A pending generation replaces everything else; files of one given up go."""
    table.record_schema()
    if live.pending is None:
        offset = max(((file.offset or 0) + file.rows - 1 for file in consumed), default=None)
        return table.writer.merge(files, [*consumed, *live.dropped], offset)
    return table.writer.replace(files, replaced_by_pending(live))


def replaced_by_pending(live: LiveFiles) -> list[FileEntry]:
    """All that goes when the pending generation is published: everything but its raw rows."""
    adopted = [FileEntry(FileKind.ADOPTED, key, 0, 0) for key in live.adopted]
    old = [file for file in live.files if not (file.kind is FileKind.RAW and live.is_pending(file))]
    return [*adopted, *old, *live.dropped]


def raw_twin(live: LiveFiles, file: FileEntry) -> FileEntry | None:
    """The raw file that holds exactly the rows of this file, in their order."""
    if file.offset is None:
        return None
    raw = live.of(FileKind.RAW)
    return next((twin for twin in raw if twin.offset == file.offset and twin.rows == file.rows), None)


def raw_covers(table: StreamTable, live: LiveFiles) -> bool:
    """Whether the raw table has every row that ever landed in the table since it was last replaced."""
    state = table.writer.state
    raw = [file for file in live.of(FileKind.RAW) if not live.is_pending(file)]
    return state is not None and not live.adopted and sum(file.rows for file in raw) == state.contents.landed


def keys_of(file: FileEntry) -> KeyRange:
    """The bounds of a sorted file."""
    if file.keys is None:
        raise Bug(f"'{file.key}' is not sorted by key. Please report this.")
    return file.keys


def stored(table: StreamTable, live: LiveFiles, files: Sequence[FileEntry], misfits: Misfits, s3: S3Settings) -> list[Stored]:
    """How to read each file as rows of today's columns: from its raw rows where they are kept, else by cast.

    Raises ConfigError for a file that can only be had from raw rows which are not kept.
    """
    twins = {file.key: raw_twin(live, file) for file in files}
    own = list(table.writer.map_files(lambda file: twins[file.key] is None and _has_raw_rows(file, s3), files))
    raw = {file.key: twins[file.key] or file for file, has_raw_rows in zip(files, own, strict=True) if has_raw_rows or twins[file.key]}
    cast = [file for file in files if file.key not in raw]
    unreadable = next((file for file in cast if table.layout.of_text or not file.key.endswith(ParquetOptions.extension)), None)
    if unreadable is not None:
        raise table.refuse(
            f"its file '{unreadable.key}' would have to be written anew with other columns, which only the raw table allows for files of "
            "this format, and its raw rows were not kept. Run a refresh that removes the records."
        )
    schemas = table.writer.schemas({file.schema_id for file in files if file.schema_id is not None})
    return [
        Stored(raw[file.key], table.plan_of(schemas[file.schema_id or 0]), None, table.schema, misfits)
        if file.key in raw
        else Stored(file, table.plan, schemas[file.schema_id or 0], table.schema, misfits)
        for file in files
    ]


def _has_raw_rows(file: FileEntry, s3: S3Settings) -> bool:
    """Whether the rows are raw ones, as in runs and states of a table that has, or had, files of text."""
    if file.kind is FileKind.FINAL or not file.key.endswith(ParquetOptions.extension):
        return False
    with present(file.key, s3), closing(RangedFile(s3, file.key, file.bytes)) as source:
        return set(RAW_SCHEMA.names) <= set(pq.read_schema(source).names)


def _is_run(file: FileEntry) -> bool:
    """Whether it was landed for a merge, and so in other columns than a final file has."""
    return file.keys is not None


def _rewritten(
    table: StreamTable, live: LiveFiles, files: Sequence[FileEntry], s3: S3Settings, misfits: Misfits
) -> Generator[Work, list[Any] | None, list[DataFile]]:
    """The files written anew by Spark, as staged final files."""
    if not files:
        return []
    plan, layout = table.plan, table.layout
    columns = file_columns(table.schema, plan)
    sources = stored(table, live, files, misfits, s3)
    tasks = [RewriteTask(source, table.final_key(table.writer.next_token()), columns, layout.final, s3) for source in sources]
    done = yield Work(rewrite_file, tasks, lambda task: int(task.stored.file.bytes))
    return [replace(file, offset=source.offset, generation_id=source.generation_id) for file, source in zip(done or [], files, strict=True)]


def _copied(table: StreamTable, deltas: Sequence[FileEntry]) -> list[DataFile]:
    """Copies of the deltas under final keys, staged."""

    def copy(file: FileEntry) -> DataFile:
        key = keys[file.key]
        upload = table.writer.copy(file, key, {GENERATION: str(file.generation_id)})
        return DataFile(FileKind.FINAL, upload, file.rows, None, file.offset, file.schema_id, file.generation_id)

    keys = {file.key: table.final_key(table.writer.next_token(), extension(file)) for file in deltas}
    return list(table.writer.map_files(copy, deltas))


def extension(file: FileEntry) -> str:
    """The extension of the file's name, from its first dot on."""
    name = file.key.rsplit("/", 1)[-1]
    return name[name.index(".") :]

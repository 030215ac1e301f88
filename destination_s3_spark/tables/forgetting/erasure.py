"""Files without the rows to forget, in the form of the files that they replace. Spark tasks run the two functions."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace

from destination_s3_spark.chain.files import FileEntry, FileKind, generation_metadata
from destination_s3_spark.errors import Bug
from destination_s3_spark.formats.parquet import ParquetOptions
from destination_s3_spark.storage.ranged import opened, present
from destination_s3_spark.storage.settings import S3Settings
from destination_s3_spark.storage.staging import StagedFileSink
from destination_s3_spark.tables.forgetting.wanted import Wanted, is_one_of
from destination_s3_spark.tables.history.form import version_columns, version_form
from destination_s3_spark.tables.merge.task import LiveFile, form_of_deletions
from destination_s3_spark.tables.runs.keys import KEY
from destination_s3_spark.tables.runs.sorted_file import MergeForm, SortedFile, SortedFileWriter
from destination_s3_spark.tables.runs.table_format import MERGED_PIECE_BYTES, FileKeys, TableFormat, run_file
from destination_s3_spark.tables.staged.staged_file import FileOfSeries, StagedFile, batches_of
from destination_s3_spark.tables.stored.foreign import Source, StoredForeign, StoredLines
from destination_s3_spark.tables.stored.rewrite import Stored


@dataclass(frozen=True, slots=True)
class SortedEraseTask:
    """A sorted file of a deduplicated table, behind its final file if it is a merge state, and the keys of those that replace them.

    Each of these has `rows` rows.
    """

    replaced: tuple[FileEntry, ...]
    keys: frozenset[bytes]
    rows: int
    new: tuple[str, ...]
    table: TableFormat
    s3: S3Settings


def erase_sorted(task: SortedEraseTask) -> tuple[FileEntry, ...]:
    """Stage the files. Raises DataError for a file that is gone, ConfigError or TransientError. Nothing stays staged then."""
    file = task.replaced[-1]
    with opened(file.key, file.bytes, task.s3) as source, ExitStack() as stack:
        left = _opened(task, stack)
        for rows in SortedFile(source, file.kind, _form_of(task.table, file.kind)).read():
            for batch in batches_of(rows.filter(pc.invert(is_one_of(rows[KEY], task.keys))), MERGED_PIECE_BYTES):
                left.write(batch)
        return tuple(_in_place_of(old, new, task.rows) for old, new in zip(task.replaced, left.stage_all(), strict=True))


@dataclass(frozen=True, slots=True)
class EraseTask:
    """A file that no merge of today reads, such as a raw one, and the key of the file that replaces it, which has `rows` rows.

    `options`: those of a Parquet file.
    """

    stored: Source
    wanted: Wanted
    rows: int
    key: str
    options: ParquetOptions
    s3: S3Settings


def erase(task: EraseTask) -> FileEntry:
    """Stage the file. Raises as `erase_sorted`."""
    with present(task.stored.file.key, task.s3):
        return _lines(task, task.stored) if isinstance(task.stored, StoredLines) else _columns(task, task.stored)


def _columns(task: EraseTask, stored: Stored | StoredForeign) -> FileEntry:
    """Stage a Parquet file with the columns and types that it has."""
    file = stored.file
    sink = StagedFileSink(task.s3, task.key, _metadata(file))
    with ExitStack() as stack:
        left: StagedFile[pa.RecordBatch] | None = None
        for rows, typed in stored.rows(task.s3):
            left = left or stack.enter_context(StagedFile(file.kind, sink, task.options.as_stored(sink, rows.schema), file.partition))
            left.write(rows.filter(pc.invert(task.wanted.mask(typed))))
        if left is None:
            raise Bug(f"'{file.key}' has no rows; nothing was changed.")
        return _in_place_of(file, left.stage(), task.rows, file.schema_id)  # its rows are typed as they were under their schema


def _lines(task: EraseTask, stored: StoredLines) -> FileEntry:
    """Stage a file of text or Avro. All other rows keep their bytes."""
    file = stored.file
    sink = StagedFileSink(task.s3, task.key, _metadata(file))
    kept = stored.text.open_kept(sink)
    with StagedFile(file.kind, sink, kept, file.partition) as left:
        for lines in stored.lines(task.s3):
            kept.write_header(lines.header)
            stays = pc.invert(task.wanted.mask(lines.typed)).to_pylist()
            left.write(row for row, stay in zip(lines.rows, stays, strict=True) if stay)
        return _in_place_of(file, left.stage(), task.rows, file.schema_id)


def _form_of(table: TableFormat, kind: FileKind) -> MergeForm:
    match kind:
        case FileKind.TOMBSTONE:
            return form_of_deletions(table.spec)
        case FileKind.CURRENT | FileKind.CLOSED:
            return version_form(table)
    return table.form


def _opened(task: SortedEraseTask, stack: ExitStack) -> FileOfSeries:
    file, table, (key, *state) = task.replaced[0], task.table, task.new
    match file.kind:
        case FileKind.FINAL:
            return LiveFile(table, FileKeys(key, next(iter(state), None)), file.partition, task.s3, stack)
        case FileKind.TOMBSTONE:
            return stack.enter_context(table.tombstone_file(key, task.s3))
        case FileKind.DELTA:
            return stack.enter_context(run_file(table.form, key, task.s3, scratch=False))
        case FileKind.CURRENT | FileKind.CLOSED if isinstance(table.options, ParquetOptions):
            sink = StagedFileSink(task.s3, key, _metadata(file))
            writer = SortedFileWriter(sink, version_columns(table), table.spec, table.options)
            return stack.enter_context(StagedFile(file.kind, sink, writer))
        case _:
            raise Bug(f"'{file.key}' is not sorted; nothing was changed.")


def _metadata(file: FileEntry) -> dict[str, str]:
    return {} if file.generation_id is None else generation_metadata(file.generation_id)


def _in_place_of(file: FileEntry, left: FileEntry, rows: int, schema_id: int | None = None) -> FileEntry:
    """Return the staged file with the place of the one that it replaces. `schema_id`: of its columns, None for today's."""
    if left.rows != rows:
        raise Bug(f"'{file.key}' should have {rows} rows without those to forget, it has {left.rows}; nothing was changed.")
    return replace(
        left,
        schema_id=schema_id,
        generation_id=file.generation_id,
        offset=file.offset,
        landed_on=file.landed_on,
        combined=file.combined,
        in_partition=file.in_partition,
        history=file.history,
    )

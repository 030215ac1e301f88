"""Files without the rows to forget, in the form of the files that they replace. Spark tasks run the three functions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace

from destination_s3_spark.chain.files import FileEntry, FileKind, generation_metadata
from destination_s3_spark.errors import Bug
from destination_s3_spark.formats.parquet import ParquetOptions
from destination_s3_spark.storage.ranged import opened, present
from destination_s3_spark.storage.settings import S3Settings
from destination_s3_spark.storage.staging import StagedFileSink
from destination_s3_spark.tables.forgetting.wanted import Either, Wanted, is_one_of
from destination_s3_spark.tables.history.form import version_columns, version_form
from destination_s3_spark.tables.merge.task import form_of_deletions
from destination_s3_spark.tables.runs.keys import KEY
from destination_s3_spark.tables.runs.sorted_file import MergeForm, SortedFile, SortedFileWriter
from destination_s3_spark.tables.runs.table_format import MERGED_PIECE_BYTES, FileKeys, TableFormat, run_file
from destination_s3_spark.tables.staged.staged_file import StagedFile, batches_of
from destination_s3_spark.tables.stored.foreign import Source, StoredForeign, StoredLines
from destination_s3_spark.tables.stored.rewrite import Stored


@dataclass(frozen=True, slots=True)
class SortedEraseTask:
    """A sorted file of a deduplicated table, and the key of the file that replaces it, which has `rows` rows."""

    file: FileEntry
    keys: frozenset[bytes]
    rows: int
    key: str
    table: TableFormat
    s3: S3Settings


def erase_sorted(task: SortedEraseTask) -> FileEntry:
    """Stage the file. Raises DataError for a file that is gone, ConfigError or TransientError. Nothing stays staged then."""
    file, table = task.file, task.table
    with opened(file.key, file.bytes, task.s3) as source, _opened(task) as left:
        for batch in _kept(SortedFile(source, file.kind, form_of(table, file.kind)), task.keys):
            for made in table.final_rows(batch) if file.kind is FileKind.FINAL else (batch,):
                left.write(made)
        return _in_place_of(file, left, task.rows)


@dataclass(frozen=True, slots=True)
class EraseTask:
    """A file that no merge of today reads, such as a raw one, and the key of the file that replaces it, which has `rows` rows.

    `options`: those of a Parquet file.
    """

    stored: Source
    wanted: Wanted | Either
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
        for rows, typed in stored.copies(task.s3):
            left = left or stack.enter_context(StagedFile(file.kind, sink, task.options.as_stored(sink, rows.schema), file.partition))
            left.write(rows.filter(pc.invert(task.wanted.mask(typed))))
        if left is None:
            raise Bug(f"'{file.key}' has no rows; nothing was changed.")
        return _in_place_of(file, left, task.rows, file.schema_id)  # its rows are typed as they were under their schema


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
        return _in_place_of(file, left, task.rows, file.schema_id)


@dataclass(frozen=True, slots=True)
class PairTask:
    """A merge state and its final file, and the keys of those that replace them, which have `rows` rows."""

    state: FileEntry
    final: FileEntry
    keys: frozenset[bytes]
    rows: int
    new: FileKeys
    table: TableFormat
    s3: S3Settings


def erase_pair(task: PairTask) -> tuple[FileEntry, FileEntry]:
    """Stage the final file and its state. Raises as `erase_sorted`."""
    table, s3 = task.table, task.s3
    with (
        opened(task.state.key, task.state.bytes, s3) as source,
        table.final_file(task.new.final, task.final.partition, s3) as final,
        table.state_file(task.new.state or "", s3) as state,
    ):
        for batch in _kept(SortedFile(source, FileKind.STATE, table.form), task.keys):
            state.write(batch)
            for made in table.final_rows(batch):
                final.write(made)
        shown = _in_place_of(task.final, final, task.rows)
        return shown, replace(_in_place_of(task.state, state, task.rows), copy_of=shown.key)


def _kept(file: SortedFile, keys: frozenset[bytes]) -> Iterator[pa.RecordBatch]:
    """Yield the rows without those of the keys."""
    for rows in file.read():
        yield from batches_of(rows.filter(pc.invert(is_one_of(rows[KEY], keys))), MERGED_PIECE_BYTES)


def form_of(table: TableFormat, kind: FileKind) -> MergeForm:
    """Return the form in which sorted files of a kind are read."""
    match kind:
        case FileKind.TOMBSTONE:
            return form_of_deletions(table.spec)
        case FileKind.CURRENT | FileKind.CLOSED:
            return version_form(table)
    return table.form


def _opened(task: SortedEraseTask) -> StagedFile[pa.RecordBatch]:
    table = task.table
    match task.file.kind:
        case FileKind.FINAL:
            return table.final_file(task.key, task.file.partition, task.s3)
        case FileKind.TOMBSTONE:
            return table.tombstone_file(task.key, task.s3)
        case FileKind.DELTA:
            return run_file(table.form, task.key, task.s3)
        case FileKind.CURRENT | FileKind.CLOSED if isinstance(table.options, ParquetOptions):
            sink = StagedFileSink(task.s3, task.key, _metadata(task.file))
            return StagedFile(task.file.kind, sink, SortedFileWriter(sink, version_columns(table), table.spec, table.options))
        case _:
            raise Bug(f"'{task.file.key}' is not sorted; nothing was changed.")


def _metadata(file: FileEntry) -> dict[str, str]:
    return {} if file.generation_id is None else generation_metadata(file.generation_id)


def _in_place_of(file: FileEntry, left: StagedFile[Any], rows: int, schema_id: int | None = None) -> FileEntry:
    """Stage the file with the place of the one that it replaces. `schema_id`: of its columns, None for today's."""
    written = left.close()
    if written.rows != rows:
        raise Bug(f"'{file.key}' should have {rows} rows without those to forget, it has {written.rows}; nothing was changed.")
    return replace(
        left.stage(),
        schema_id=schema_id,
        generation_id=file.generation_id,
        offset=file.offset,
        landed_on=file.landed_on,
        combined=file.combined,
        in_partition=file.in_partition,
        history=file.history,
    )

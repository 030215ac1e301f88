"""Files without the rows to forget, in the form of the files that they replace. Spark tasks run `erase` and `erase_sorted`."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace

from destination_s3_spark.chain.files import FileEntry, FileKind, generation_metadata
from destination_s3_spark.errors import Bug
from destination_s3_spark.formats.file_format import FileColumns, FileOptions
from destination_s3_spark.storage.ranged import RangedFile, present
from destination_s3_spark.storage.settings import S3Settings
from destination_s3_spark.storage.staging import StagedFileSink
from destination_s3_spark.tables.forgetting.wanted import Wanted, is_one_of
from destination_s3_spark.tables.merge.task import form_of_deletions
from destination_s3_spark.tables.runs.keys import KEY
from destination_s3_spark.tables.runs.sorted_file import SortedFile, SortedFileWriter, run_schema
from destination_s3_spark.tables.runs.table_format import MERGED_PIECE_BYTES, TableFormat
from destination_s3_spark.tables.staged.staged_file import StagedFile, batches_of
from destination_s3_spark.tables.stored.rewrite import Stored


@dataclass(frozen=True, slots=True)
class EraseTask:
    """A raw file, or a final file of an append table, and the key of the file that replaces it, which has `rows` rows."""

    stored: Stored
    wanted: Wanted
    rows: int
    key: str
    columns: FileColumns
    options: FileOptions
    s3: S3Settings

    @property
    def bytes(self) -> int:
        """Size of the file."""
        return self.stored.file.bytes


@dataclass(frozen=True, slots=True)
class SortedEraseTask:
    """A final file, a run or a tombstone file of a deduplicated table, and the key of the file that replaces it, which has `rows` rows."""

    file: FileEntry
    keys: frozenset[bytes]
    rows: int
    key: str
    table: TableFormat
    s3: S3Settings

    @property
    def bytes(self) -> int:
        """Size of the file."""
        return self.file.bytes


def erase(task: EraseTask) -> FileEntry:
    """Stage the file. Raises DataError for a file that is gone, ConfigError or TransientError. Nothing stays staged then."""
    file = task.stored.file
    sink = StagedFileSink(task.s3, task.key, generation_metadata(file.generation_id))
    with (
        present(file.key, task.s3),
        StagedFile(file.kind, sink, task.options.open(sink, task.columns), file.partition) as left,
    ):
        for raw, typed in task.stored.rows(task.s3):
            rows = raw if file.kind is FileKind.RAW and raw is not None else typed
            left.write(rows.filter(pc.invert(task.wanted.mask(typed))))
        return _in_place_of(file, left, task.rows)


def erase_sorted(task: SortedEraseTask) -> FileEntry:
    """Stage the file. Raises as `erase`."""
    file, table = task.file, task.table
    form = form_of_deletions(table.spec) if file.kind is FileKind.TOMBSTONE else table.form
    with (
        present(file.key, task.s3),
        closing(RangedFile(task.s3, file.key, file.bytes)) as source,
        _opened(task) as left,
    ):
        for rows in SortedFile(source, file.kind, form).read():
            for batch in batches_of(rows.filter(pc.invert(is_one_of(rows[KEY], task.keys))), MERGED_PIECE_BYTES):
                for made in table.final_rows(batch) if file.kind is FileKind.FINAL else (batch,):
                    left.write(made)
        return _in_place_of(file, left, task.rows)


def _opened(task: SortedEraseTask) -> StagedFile[pa.RecordBatch]:
    table = task.table
    match task.file.kind:
        case FileKind.FINAL:
            return table.final_file(task.key, task.file.partition, task.s3)
        case FileKind.TOMBSTONE:
            return table.tombstone_file(task.key, task.s3)
        case FileKind.DELTA:
            sink = StagedFileSink(task.s3, task.key)
            return StagedFile(FileKind.DELTA, sink, SortedFileWriter(sink, run_schema(table.form.payload, table.spec), table.spec))
        case _:
            raise Bug(f"'{task.file.key}' is not sorted; nothing was changed.")


def _in_place_of(file: FileEntry, left: StagedFile[pa.RecordBatch], rows: int) -> FileEntry:
    """Stage the file with the place of the one that it replaces."""
    written = left.close()
    if written.rows != rows:
        raise Bug(f"'{file.key}' should have {rows} rows without those to forget, it has {written.rows}; nothing was changed.")
    return replace(
        left.stage(),
        schema_id=file.schema_id if file.kind is FileKind.RAW else None,  # raw rows are typed as they were under their schema
        generation_id=file.generation_id,
        offset=file.offset,
        landed_on=file.landed_on,
        combined=file.combined,
        in_partition=file.in_partition,
    )

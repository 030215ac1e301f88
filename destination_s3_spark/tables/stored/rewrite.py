"""The rewrite of a stored file to the table's current columns, from its raw rows or by cast. A Spark task runs `rewrite_file`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from destination_s3_spark.chain.files import FileEntry, FileKind, generation_metadata
from destination_s3_spark.decoding.plan import RowPlan
from destination_s3_spark.errors import DataError
from destination_s3_spark.formats.bounded import reading
from destination_s3_spark.formats.file_format import FileColumns, FileOptions
from destination_s3_spark.schema.partitioning import Partitioning
from destination_s3_spark.schema.table_schema import TableSchema
from destination_s3_spark.storage.ranged import RangedFile, present
from destination_s3_spark.storage.settings import S3Settings
from destination_s3_spark.storage.staging import StagedFileSink
from destination_s3_spark.tables.staged.staged_file import MOST_PARTITIONS, PartitionedFiles, StagedFile
from destination_s3_spark.tables.stored.conversion import DoesNotFit, UnfitValues, cast_rows, retyped_rows, with_declared

ROWS_AT_ONCE = 4_096
WAITING_BYTES = 128 * 2**20
"""Arrow memory of the rows that wait for the files of their partitions."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A stored file of rows, and how to read it."""

    file: FileEntry
    plans: tuple[RowPlan, ...]
    """The plans by which raw rows are typed again, as `ColumnsTyper` does."""
    schema: TableSchema | None
    """The schema under which the file was written, or None for a file of raw rows."""
    wanted: TableSchema
    """The schema to which rows are cast if they are not raw rows."""
    unfit: UnfitValues
    declared: frozenset[str] | None = None
    """The fields that the texts of raw rows keep as stored, because merges render all columns from them. None keeps all."""

    def rows(self, s3: S3Settings) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch]]:
        """Yield batches of rows as they are stored, each with the same rows in the current columns.

        Raises ConfigError for a value that does not fit its column, unless unfit values become null.
        """
        with RangedFile(s3, self.file.key, self.file.bytes) as source:
            batches = self._batches(source)
            if self.schema is None:
                for raw, typed in retyped_rows(batches, *self.plans):
                    yield raw if self.declared is None else with_declared(raw, self.declared), typed
                return
            for batch in batches:
                try:
                    table = cast_rows(pa.Table.from_batches([batch]), self.schema, self.wanted, self.unfit)
                except DoesNotFit as misfit:
                    raise misfit.config_error(self.plans[0].stream) from None
                for cast in table.to_batches():
                    yield batch, cast

    def _batches(self, source: RangedFile) -> Iterator[pa.RecordBatch]:
        with reading(lambda fault: damaged_file(self.file.key, fault)):
            file = pq.ParquetFile(source, pre_buffer=True)
            # Row groups are requested one by one, because everything that Arrow reads ahead of a request stays in memory.
            for group in range(file.num_row_groups):
                yield from file.iter_batches(ROWS_AT_ONCE, row_groups=[group])


def damaged_file(key: str, fault: str) -> DataError:
    """Make the error for a file of a table that cannot be read, given a word for the fault."""
    return DataError(
        f"The file '{key}' is damaged ({fault}). Nothing was changed. Restore it from a backup or an older version, or run a refresh that "
        "removes the records."
    )


@dataclass(frozen=True, slots=True)
class RewriteTask:
    """A stored file and the final file to write from it. In a partitioned table, each partition of its rows gets a file.

    `keys`: the key of the file. For partitions there are more keys than expected: whenever enough rows are in memory, their files are
    written under the next key. The last key takes the rest, whatever its size.
    """

    stored: Stored
    keys: tuple[str, ...]
    columns: FileColumns
    options: FileOptions
    s3: S3Settings
    partitioning: Partitioning | None = None


def rewrite_file(task: RewriteTask) -> tuple[FileEntry, ...]:
    """Stage the final files, in the order of their rows as far as they are of one partition.

    Raises ConfigError for a value that does not fit, DataError or TransientError. Nothing stays staged after an error.
    """
    metadata = generation_metadata(task.stored.file.generation_id)
    with present(task.stored.file.key, task.s3):
        return _whole(task, metadata) if task.partitioning is None else _partitions(task, task.partitioning, metadata)


def _whole(task: RewriteTask, metadata: Mapping[str, str]) -> tuple[FileEntry, ...]:
    sink = StagedFileSink(task.s3, task.keys[0], metadata)
    with StagedFile(FileKind.FINAL, sink, task.options.open(sink, task.columns)) as file:
        for _, rows in task.stored.rows(task.s3):
            file.write(rows)
        return file.stage_all()


def _partitions(task: RewriteTask, partitioning: Partitioning, metadata: Mapping[str, str]) -> tuple[FileEntry, ...]:
    staged: list[FileEntry] = []
    rows = (typed for _, typed in task.stored.rows(task.s3))
    with ExitStack() as stack:
        for key in task.keys:
            files = PartitionedFiles(FileKind.FINAL, key, task.columns, task.options, partitioning, metadata, task.s3, stack)
            for batch in rows:
                files.write(batch)
                if key != task.keys[-1] and (files.bytes >= WAITING_BYTES or files.partitions >= MOST_PARTITIONS):
                    break
            staged += files.stage_all()
    return tuple(staged)

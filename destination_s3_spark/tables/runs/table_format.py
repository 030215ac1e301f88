"""The format of a deduplicated table's files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256

import pyarrow as pa

from destination_s3_spark.chain.files import FileKind, generation_metadata
from destination_s3_spark.decoding.plan import RowPlan
from destination_s3_spark.formats.file_format import FileColumns, FileOptions, FileWriter
from destination_s3_spark.formats.parquet import ParquetOptions
from destination_s3_spark.schema.arrow import RAW_SCHEMA
from destination_s3_spark.storage.settings import S3Settings
from destination_s3_spark.storage.staging import StagedFileSink
from destination_s3_spark.tables.runs.keys import CURSOR, KEY, KeySpec
from destination_s3_spark.tables.runs.soft_deletions import SoftDeletions
from destination_s3_spark.tables.runs.sorted_file import MergeForm, SortedFileWriter, run_schema, tombstone_schema
from destination_s3_spark.tables.staged.staged_file import StagedFile, key_in
from destination_s3_spark.tables.stored.conversion import retyped_rows

MERGED_PIECE_BYTES = 2**20
"""Arrow memory of the rows written at a time, and so the precision of the sizes of files and row groups."""


@dataclass(frozen=True, slots=True)
class FileKeys:
    """The object keys of a final file, of its merge state, and of the valid versions of its rows. A Parquet file has no merge state.

    Files of versions are not in folders of partitions.
    """

    final: str
    state: str | None
    versions: str | None = None

    def of_partition(self, spec: KeySpec, partition: str | None) -> FileKeys:
        """Return the keys of the files in the folder of a partition, if there is one."""
        if spec.partitioning is None or partition is None:
            return self
        folder = spec.partitioning.folder(partition)
        state = None if self.state is None else key_in(self.state, folder)
        if self.versions is None:
            return FileKeys(key_in(self.final, folder), state)
        kind, dash, token = self.versions.rpartition("-")  # files of versions of other partitions may be beside it
        versions = f"{kind}-{sha256(partition.encode()).hexdigest()[:16]}{dash}{token}"
        return FileKeys(key_in(self.final, folder), state, versions)


def run_file(form: MergeForm, key: str, s3: S3Settings, *, scratch: bool) -> StagedFile[pa.RecordBatch]:
    """Start a run, which may be a scratch file. It takes rows in merge form, in key order."""
    sink = StagedFileSink(s3, key)
    return StagedFile(FileKind.DELTA, sink, SortedFileWriter(sink, run_schema(form.payload, form.spec), form.spec), scratch=scratch)


@dataclass(frozen=True, slots=True)
class TableFormat:
    """The columns and options of a table's files. Picklable."""

    columns: FileColumns
    """The columns of final files."""
    options: FileOptions
    """The options of final files."""
    plan: RowPlan | None
    """The plan that renders final files from the records' text, with all fields of the table. None for formats with typed values."""
    spec: KeySpec
    generation_id: int
    target_file_bytes: int

    @property
    def form(self) -> MergeForm:
        """The form in which the table's rows are merged: typed, or as the text from the source."""
        payload = self.columns.arrow if self.plan is None else RAW_SCHEMA
        marks = SoftDeletions.of(self.spec, self.columns, of_text=self.plan is not None)
        return MergeForm(payload, self.spec, marks)

    @property
    def has_state(self) -> bool:
        """Whether each final file has a merge state."""
        return not isinstance(self.options, ParquetOptions)

    @property
    def is_plain(self) -> bool:
        """Whether final files hold values as Arrow memory does."""
        return isinstance(self.options, ParquetOptions) and not self.options.compressed

    @property
    def state(self) -> pa.Schema:
        """The columns of merge states."""
        schema = self.form.schema
        return pa.schema([*self.form.payload, *(schema.field(name) for name in (KEY, CURSOR) if name in schema.names)])

    def final_file(self, key: str, partition: str | None, s3: S3Settings) -> StagedFile[pa.RecordBatch]:
        """Start a final file. It takes `final_rows`, in key order."""
        sink = StagedFileSink(s3, key, self.metadata)
        if isinstance(self.options, ParquetOptions):
            writer: FileWriter[pa.RecordBatch] = SortedFileWriter(sink, self.columns.arrow, self.spec, self.options)
        else:
            writer = self.options.open(sink, self.columns)
        return StagedFile(FileKind.FINAL, sink, writer, partition)

    def final_rows(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yield rows in merge form as final files take them."""
        if not self.has_state:
            yield rows
            return
        payload = self.columns.arrow if self.plan is None else RAW_SCHEMA
        shown = pa.RecordBatch.from_arrays(rows.select(payload.names).columns, schema=payload)
        if self.plan is None:
            yield shown
        else:
            yield from (rendered for _, rendered in retyped_rows([shown], self.plan))

    def state_file(self, key: str, s3: S3Settings) -> StagedFile[pa.RecordBatch]:
        """Start a merge state. It takes rows in merge form, in key order."""
        sink = StagedFileSink(s3, key, self.metadata)
        return StagedFile(FileKind.STATE, sink, SortedFileWriter(sink, self.state, self.spec))

    def tombstone_file(self, key: str, s3: S3Settings) -> StagedFile[pa.RecordBatch]:
        """Start a tombstone file. It takes deletions in merge form, in key order."""
        sink = StagedFileSink(s3, key, self.metadata)
        return StagedFile(FileKind.TOMBSTONE, sink, SortedFileWriter(sink, tombstone_schema(self.spec), self.spec.of_deletions))

    @property
    def metadata(self) -> dict[str, str]:
        return generation_metadata(self.generation_id)

"""The format of a deduplicated table's files."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from destination_s3_spark.chain.files import generation_metadata
from destination_s3_spark.decoding.plan import RowPlan
from destination_s3_spark.formats.file_format import FileOptions
from destination_s3_spark.formats.file_writer import FileColumns
from destination_s3_spark.formats.parquet import ParquetOptions
from destination_s3_spark.schema.arrow import RAW_SCHEMA
from destination_s3_spark.tables.partitioned_files import key_in
from destination_s3_spark.tables.runs.keys import CURSOR, KEY, KeySpec
from destination_s3_spark.tables.runs.soft_deletions import SoftDeletions
from destination_s3_spark.tables.runs.sorted_file import MergeForm
from destination_s3_spark.tables.stored.rows import project

MERGED_PIECE_BYTES = 2**20
"""Arrow memory of the rows written at a time, and so the precision of the sizes of files and row groups."""


@dataclass(frozen=True, slots=True)
class FileKeys:
    """The object keys of a final file and of its merge state. A Parquet file has no merge state."""

    final: str
    state: str | None

    def within(self, folder: str) -> FileKeys:
        """Return the keys of the files in a partition's folder."""
        return FileKeys(key_in(self.final, folder), None if self.state is None else key_in(self.state, folder))


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
        soft = SoftDeletions.of(self.spec, self.columns, of_text=self.plan is not None)
        return MergeForm(payload, self.spec, partial(project, schema=payload), soft)

    @property
    def has_state(self) -> bool:
        """Whether each final file has a merge state."""
        return not isinstance(self.options, ParquetOptions)

    @property
    def state(self) -> pa.Schema:
        """The columns of merge states."""
        schema = self.form.schema
        return pa.schema([*self.form.payload, *(schema.field(name) for name in (KEY, CURSOR) if name in schema.names)])

    @property
    def metadata(self) -> dict[str, str]:
        """The metadata of the objects."""
        return generation_metadata(self.generation_id)


@dataclass(frozen=True, slots=True)
class FileSize:
    """The size of a full file and of a row, in bytes. Written bytes do not tell that a file is full: rows wait for their row group."""

    full: float
    row: float
    """Approximate."""

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
from destination_s3_spark.tables.runs.keys import CURSOR, KEY, KeySpec
from destination_s3_spark.tables.runs.sorted_file import MergeForm
from destination_s3_spark.tables.stored.rows import project

PIECE_BYTES = 2**20
"""Arrow memory of the rows written at a time: the precision of the sizes of files and row groups."""


@dataclass(frozen=True, slots=True)
class FileKeys:
    """The keys of a final file and of the state file beside it, which Parquet has none of."""

    final: str
    state: str | None


@dataclass(frozen=True, slots=True)
class TableFormat:
    """How a table's files are written. Picklable.

    `columns` and `options` are those of final files. `plan` renders them from the records' text, for the formats that keep values as the
    source wrote them; its fields are all those of the table.
    """

    columns: FileColumns
    options: FileOptions
    plan: RowPlan | None
    spec: KeySpec
    generation_id: int
    target_file_bytes: int

    @property
    def form(self) -> MergeForm:
        """How the table's rows are merged: typed, or as the text they came in."""
        payload = self.columns.arrow if self.plan is None else RAW_SCHEMA
        return MergeForm(payload, self.spec, partial(project, schema=payload))

    @property
    def has_state(self) -> bool:
        """Whether there is a state file beside each final file."""
        return not isinstance(self.options, ParquetOptions)

    @property
    def state(self) -> pa.Schema:
        """The columns of state files."""
        schema = self.form.schema
        return pa.schema([*self.form.payload, *(schema.field(name) for name in (KEY, CURSOR) if name in schema.names)])

    @property
    def metadata(self) -> dict[str, str]:
        """The objects' metadata."""
        return generation_metadata(self.generation_id)


@dataclass(frozen=True, slots=True)
class FileSize:
    """When a file is full: `full` bytes, where a row takes about `row` bytes. Rows wait for their row group, so bytes alone do not tell."""

    full: float
    row: float

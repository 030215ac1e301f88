"""The form of a history: its columns, the columns whose changes make versions, and the time at which a version begins.

A row of a history has all columns of the table, with the values of the version's records, and five columns more. Versions that are valid
now are in files of their own, so that the end of one rewrites no version that has ended before.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from destination_s3_spark.chain.files import FileKind, generation_metadata
from destination_s3_spark.errors import Bug
from destination_s3_spark.formats.parquet import ParquetOptions
from destination_s3_spark.schema.arrow import MICROS, contiguous
from destination_s3_spark.storage.settings import S3Settings
from destination_s3_spark.storage.staging import StagedFileSink
from destination_s3_spark.tables.capture.events import moments
from destination_s3_spark.tables.columns.validity import IS_CURRENT, IS_DELETED, VALID_FROM, VALID_FROM_SYNC, VALID_TO, VALIDITY
from destination_s3_spark.tables.open_table import OpenTable
from destination_s3_spark.tables.runs.keys import CDC_FIELDS, DELETED, META, RAW_ID, KeySpec
from destination_s3_spark.tables.runs.refreshed import micros
from destination_s3_spark.tables.runs.sorted_file import MergeForm, SortedFileWriter
from destination_s3_spark.tables.runs.table_format import TableFormat
from destination_s3_spark.tables.runs.winners import EXTRACTED_AT, Flags, Indices
from destination_s3_spark.tables.staged.staged_file import StagedFile


@dataclass(frozen=True, slots=True)
class HistoryForm:
    """The columns of a history and of its table. Picklable.

    `tracked`: the columns whose changes make versions. `time`: the column that says when a change was made, or None for the time of
    extraction. `fills`: whether values that a record left out are those of the version before, as in a table with a change log.
    `kept_since`: the time before which versions that have ended are not kept, in microseconds since 1970. None keeps all.
    """

    merge: MergeForm
    columns: pa.Schema
    tracked: tuple[str, ...]
    time: str | None
    options: ParquetOptions
    generation_id: int
    fills: bool
    kept_since: int | None

    @property
    def spec(self) -> KeySpec:
        return self.merge.spec

    @property
    def rows(self) -> MergeForm:
        """The form of the table's rows with what tells when their versions began, where a file has that."""
        return self.merge.narrowed({*self.merge.payload.names} - {VALID_TO, IS_CURRENT, IS_DELETED})

    @property
    def metadata(self) -> dict[str, str]:
        return generation_metadata(self.generation_id)

    @property
    def beginnings(self) -> MergeForm:
        """The form in which only the keys of versions, and what tells when they began, are read."""
        narrow = self.merge.narrowed({RAW_ID, META, *(field.name for field in self.spec.key), VALID_FROM, VALID_FROM_SYNC})
        return MergeForm(narrow.payload, replace(self.spec, cursor=None), only_keys=True)

    def file(self, kind: FileKind, key: str, s3: S3Settings) -> StagedFile[pa.RecordBatch]:
        """Start a file of versions. It takes rows in merge form, in the order of keys and times."""
        sink = StagedFileSink(s3, key, self.metadata)
        return StagedFile(kind, sink, SortedFileWriter(sink, self.columns, self.spec, self.options))

    def is_live(self, rows: pa.Table | pa.RecordBatch) -> Flags:
        """Flag the rows that are not deleted, and so have valid versions. Some of the table may be softly deleted from before."""
        live: Flags = ~np.asarray(contiguous(rows[DELETED]))
        deleted_at = self.spec.deleted_at
        return live if deleted_at is None else live & np.asarray(contiguous(rows[deleted_at.name]).is_null())

    def times(self, rows: pa.Table) -> Indices:
        """Return the time of the change that each row reports, in microseconds since 1970."""
        found = contiguous(rows[EXTRACTED_AT]).cast(MICROS)
        if self.time is not None:
            given = contiguous(rows[self.time])
            found = pc.coalesce(moments(given) if pa.types.is_string(given.type) else given.cast(MICROS), found)
        return np.asarray(found.cast(pa.int64()))


def history_form(table: OpenTable, form: TableFormat) -> HistoryForm:
    """Return the form of a table's history. The user must want one."""
    rule = table.rules.history_of(table.stream.id)
    if rule is None or not isinstance(form.options, ParquetOptions):
        raise Bug(f"Stream '{table.stream.id}' has no history.", stream=table.stream.id)
    spec = form.spec
    key = {field.source for field in spec.key}
    fields = [field for field in table.schema.fields if field.source not in key and not field.source.startswith(CDC_FIELDS)]
    tracked = tuple(field.name for field in fields if rule.columns is None or field.source in rule.columns)
    source = table.valid_from
    time = None if source is None else next(field.name for field in table.schema.fields if field.source == source)
    columns = version_columns(form)
    merge = version_form(form)
    fills = table.rules.change_log is not None
    days = table.rules.history_days
    kept_since = None if days is None else micros(table.writer.open().system_time - timedelta(days=days))
    return HistoryForm(merge, columns, tracked, time, form.options, form.generation_id, fills, kept_since)


def version_columns(form: TableFormat) -> pa.Schema:
    """Return the columns of the files of versions, with their field ids."""
    return pa.schema([*form.columns.arrow, *VALIDITY])


def version_form(form: TableFormat) -> MergeForm:
    """Return the form in which versions are read."""
    payload = pa.schema([pa.field(field.name, field.type) for field in version_columns(form)])
    return MergeForm(payload, form.spec, form.form.marks)

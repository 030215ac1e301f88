"""Merge on read: the rows that a deduplicated table will have once the runs that wait beside it are merged.

A read plans ranges of keys as a merge does, and yields the winners of each range as record batches. Files that no run touches are read as
they are. It takes place in this process, without Spark, and writes nothing. Memory is bounded by `BUDGET_BYTES`, whatever the number of
rows and runs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from destination_s3_spark.chain.files import FileEntry
from destination_s3_spark.chain.live_files import LiveFiles
from destination_s3_spark.errors import DataError, TransientError
from destination_s3_spark.schema.airbyte_type import Scalar
from destination_s3_spark.schema.arrow import META_FIELDS
from destination_s3_spark.schema.table_schema import TableSchema
from destination_s3_spark.storage.ranged import RangedFile
from destination_s3_spark.storage.settings import S3Settings
from destination_s3_spark.tables.capture.completion import RowCompletion, completion_of
from destination_s3_spark.tables.merge.plan import MergePlan, Sizes
from destination_s3_spark.tables.merge.planning import plan_of
from destination_s3_spark.tables.merge.refresh import arrived_before, compared_files, refresh_of, sources_within, waiting_files
from destination_s3_spark.tables.merge.scratch_runs import PORTIONS
from destination_s3_spark.tables.merge.task import sources_of
from destination_s3_spark.tables.open_table import OpenTable
from destination_s3_spark.tables.runs.keys import DELETED, KeySpec
from destination_s3_spark.tables.runs.merged_rows import ROUNDS_SHARE, RowStream, complete_rows, merged_rows, row_streams
from destination_s3_spark.tables.runs.refreshed import Refresh, RefreshComparison
from destination_s3_spark.tables.runs.sorted_file import MergeForm
from destination_s3_spark.tables.runs.table_format import TableFormat
from destination_s3_spark.tables.runs.winners import EXTRACTED_AT
from destination_s3_spark.tables.stored.conversion import project
from destination_s3_spark.tables.stream_table import StreamTable
from destination_s3_spark.tables.updates.inputs import merge_inputs
from destination_s3_spark.tables.updates.merged import table_format
from destination_s3_spark.tables.updates.resources import TaskResources

BUDGET_BYTES = 256 * 2**20
"""Arrow memory for the rows that are merged at a time: enough for as many runs as may wait."""
READ_TRIES = 5
"""Most times that a read starts on a table that is merged meanwhile."""
SIZES = Sizes(target_file_bytes=1, budget_bytes=BUDGET_BYTES // PORTIONS)
"""Sizes of a plan that merges only files with keys of runs, and no small files beside them."""
ARROW_PARQUET = ds.ParquetFileFormat()

T = TypeVar("T")
Wanted: TypeAlias = list[str] | dict[str, pc.Expression]
"""The names of columns to read, or expressions by the names of the columns that they make."""


class TableChanged(TransientError):
    """Files of the table were replaced while it was read. Read it again."""


class FreshTable:
    """The rows of a table with those that wait for its next merge. Every read streams them, in no particular order.

    It is read like a `pyarrow.dataset.Dataset`, and has the columns of one. Programs that take Arrow streams, such as DuckDB and Polars,
    read the object itself. The table is that of the call of `tables.read`, or a newer one if files of that one are gone when a read begins.

    Reads raise TableChanged if files are replaced after the first rows, DataError if files are gone otherwise, ConfigError if the waiting
    rows have to be sorted first, and TransientError.
    """

    def __init__(self, find: Callable[[], FreshRows]) -> None:
        self._find = find
        self._rows = find()

    @property
    def schema(self) -> pa.Schema:
        """The table's columns."""
        return self._rows.schema

    def to_batches(self, columns: Wanted | None = None, filter: pc.Expression | None = None) -> Iterator[pa.RecordBatch]:  # noqa: A002 (Arrow's name)
        """Yield the rows as record batches of any size."""
        return self._started(columns, filter)[1]

    def to_reader(self, columns: Wanted | None = None, filter: pc.Expression | None = None) -> pa.RecordBatchReader:  # noqa: A002
        """Return a reader of the rows."""
        return pa.RecordBatchReader.from_batches(*self._started(columns, filter))

    def to_table(self, columns: Wanted | None = None, filter: pc.Expression | None = None) -> pa.Table:  # noqa: A002
        """Read all rows into memory. Starts again if files are replaced meanwhile."""
        return self._again(lambda: self.to_reader(columns, filter).read_all())

    def count_rows(self, filter: pc.Expression | None = None) -> int:  # noqa: A002
        """Count the rows. Starts again if files are replaced meanwhile."""
        rows: int = self._again(lambda: sum(batch.num_rows for batch in self.to_batches([EXTRACTED_AT], filter)))
        return rows

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return the rows as Arrow's stream of the C data interface."""
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def _again(self, read: Callable[[], T]) -> T:
        for _ in range(READ_TRIES - 1):
            try:
                return read()
            except TableChanged:
                continue
        return read()

    def _started(self, columns: Wanted | None, where: pc.Expression | None) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        """Start a read, and start again while files of the table are gone before the first batch has been read."""
        for _ in range(READ_TRIES):
            rows = self._rows
            names = rows.schema.names if columns is None else columns
            batches = rows.batches(names, where)
            try:
                first = next(batches, None)
            except (DataError, OSError):
                self._rows = self._find()
                if self._rows.version == rows.version:
                    raise
            else:
                schema = _scanner(rows.schema, names, where).projected_schema
                return schema, iter(()) if first is None else self._rest(rows, first, batches)
        raise self._changed()

    def _rest(self, rows: FreshRows, first: pa.RecordBatch, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield first
        try:
            yield from batches
        except (DataError, OSError) as error:
            self._rows = self._find()
            if self._rows.version == rows.version:
                raise
            raise self._changed() from error

    def _changed(self) -> TableChanged:
        return TableChanged("The table was merged or replaced while it was read, which deleted some of the files to read. Read it again.")


@dataclass(frozen=True, slots=True)
class FreshRows:
    """The rows of a table at one block of its chain. `version`: the hash of the block."""

    version: str
    schema: pa.Schema
    merge: MergeOnRead | None
    """The merge of the waiting runs, or None if there are none."""
    without: Callable[[Collection[str]], ds.Dataset]
    """Returns the table's files as a dataset, without those with these keys."""

    def batches(self, columns: Wanted, where: pc.Expression | None) -> Iterator[pa.RecordBatch]:
        """Yield the columns of the rows for which `where` is true. Files that the next merge will delete are read first."""
        touched: Collection[str] = ()
        if self.merge is not None:
            names = {EXTRACTED_AT, *_referenced(self.schema, columns, where)}
            wanted = pa.schema([field for field in self.schema if field.name in names])
            plan = self.merge.plan(where)
            touched = {file.key for file in plan.replaced}
            for rows in self.merge.rows(plan, wanted):
                yield from ds.dataset(rows).to_batches(columns=columns, filter=where)
        yield from self.without(touched).to_batches(columns=columns, filter=where)


@dataclass(frozen=True, slots=True)
class MergeOnRead:
    """The merge of a table's waiting runs while it is read. `live` has no files of a pending generation."""

    table: OpenTable
    spec: KeySpec
    form: TableFormat
    live: LiveFiles
    resources: TaskResources
    replaced: tuple[FileEntry, ...] = ()
    """The files with rows that a complete generation replaces, if those that it lacks stay."""
    refresh: Refresh | None = None
    """That generation. None if no row stays that it lacks."""
    completion: RowCompletion | None = None
    """How a table with a change log gets the values that records left out."""

    @classmethod
    def of(
        cls, table: StreamTable, schema: TableSchema, types_since: int, live: LiveFiles, everything: LiveFiles, s3: S3Settings
    ) -> MergeOnRead | None:
        """Prepare the merge by a schema that the table's chain records. Return None if the table is not deduplicated by it.

        `everything`: all files, also those that a complete generation replaces.
        """
        opened = table.as_recorded(schema, types_since) if table.deduplicated else None
        if opened is None or opened.spec is None:
            return None
        spec = opened.spec
        form = table_format(opened, spec, live, 0)
        compared = compared_files(opened, everything, form) if everything.pending is not None and everything.pending.complete else None
        logged = opened.writer.chain.head.contents.operation_count is not None
        completion = None if opened.rules.change_log is None else completion_of(opened, spec, logged=logged)
        found = cls(opened, spec, form, live, TaskResources(s3, BUDGET_BYTES), completion=completion)
        if compared is None or not compared.keeps:
            return found
        waiting = arrived_before(opened.with_keys(waiting_files(opened, everything, form)))
        files = (*compared.rows, *compared.tombstones, *waiting)
        return replace(found, replaced=files, refresh=refresh_of(opened, compared))

    @property
    def of_text(self) -> bool:
        """Whether rows are merged as the text from the source."""
        return self.form.plan is not None

    def plan(self, where: pc.Expression | None) -> MergePlan:
        """Plan the merge of the runs. If `where` is about the key alone, only row groups of runs that may have such keys are merged.

        Raises ConfigError if files have to be sorted first, which takes a merge.
        """
        inputs = merge_inputs(self.table, self.live, self.form, self.resources.s3)
        if inputs.unsorted:
            raise self.table.refuse(
                "rows wait beside its table, and its key, its format or a type has changed, so that only a merge can put them in order. "
                "Run the command merge or the next sync, or read the table as of its last merge, without `fresh`."
            )
        filters = where is not None and self.refresh is None and self._is_of_keys(where)
        some = partial(_row_groups, where=where) if filters else None
        return plan_of(inputs, inputs.runs, self.spec, SIZES, self.resources.s3, self.table.writer.map_files, some)

    def rows(self, plan: MergePlan, wanted: pa.Schema) -> Iterator[pa.Table]:
        """Yield the rows of the plan's ranges, in these columns."""
        form = self._merge_form(wanted.names)
        for planned in plan.ranges:
            sources = (*sources_of(planned, self.form), *sources_within(self.replaced, planned.low, planned.high))
            with row_streams(sources, form, (planned.low, planned.high), self.resources) as streams:
                for rows in self._merged(streams, form):
                    yield _in_columns(rows.filter(pc.invert(rows[DELETED])), wanted)

    def _merged(self, streams: list[RowStream], form: MergeForm) -> Iterator[pa.Table]:
        """Yield the rows and tombstones that a merge makes of a range."""
        if self.refresh is None and self.completion is None:
            for decisive in merged_rows(streams, form):
                yield decisive if form.soft is None else form.soft.applied(decisive)
            return
        comparison = None if self.refresh is None else RefreshComparison(self.refresh, form)
        for rows in complete_rows(streams, self.resources.budget_bytes // ROUNDS_SHARE):
            if self.completion is not None:
                yield self.completion.of(rows, form, comparison).table_rows
            elif comparison is not None:
                yield comparison.of(rows).table_rows

    def _is_of_keys(self, where: pc.Expression) -> bool:
        """Tell whether all versions of a row have the same answer. Statistics of floats do not tell whether there is a NaN."""
        if self.of_text or any(field.type is Scalar.NUMBER for field in self.spec.key):
            return False
        return _binds(pa.schema([self.form.columns.arrow.field(field.name) for field in self.spec.key]), [], where)

    def _merge_form(self, names: Collection[str]) -> MergeForm:
        """Return the form in which these columns are merged, together with those that decide which row stays."""
        form = self.form.form
        if self.of_text:
            return form
        return form.narrowed({*names, *(field.name for field in (*META_FIELDS, *self.spec.fields))})


def _in_columns(rows: pa.Table, wanted: pa.Schema) -> pa.Table:
    """Return rows in merge form in the columns of the table, whose extraction times may have another unit."""
    number = rows.schema.get_field_index(EXTRACTED_AT)
    times = rows[EXTRACTED_AT].cast(wanted.field(EXTRACTED_AT).type)
    return project(rows.set_column(number, EXTRACTED_AT, times), wanted)


def _row_groups(source: RangedFile, where: pc.Expression) -> list[int]:
    """Return the numbers of the row groups of a Parquet file that may have rows for which `where` is true, by their statistics."""
    fragment = ARROW_PARQUET.make_fragment(source)
    return [group.id for group in fragment.subset(filter=where, schema=fragment.physical_schema).row_groups]


def _referenced(schema: pa.Schema, columns: Wanted, where: pc.Expression | None) -> set[str]:
    """Return the names of the columns of the schema that the expressions need."""
    names = set(columns) & set(schema.names)
    if where is None and not isinstance(columns, dict) and len(names) == len(columns):
        return names
    expressions = columns if isinstance(columns, dict) or len(names) < len(columns) else []
    needed = {field.name for number, field in enumerate(schema) if not _binds(schema.remove(number), expressions, where)}
    return needed if isinstance(columns, dict) else names | needed


def _binds(schema: pa.Schema, columns: Wanted, where: pc.Expression | None) -> bool:
    """Tell whether the schema has all columns that the expressions need."""
    try:
        _scanner(schema, columns, where)
    except pa.ArrowException:
        return False
    return True


def _scanner(schema: pa.Schema, columns: Wanted, where: pc.Expression | None) -> ds.Scanner:
    return ds.dataset(schema.empty_table()).scanner(columns=columns, filter=where)

"""A stream's open table: its columns, what slices become, and the keys of files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

from destination_s3_spark.chain.files import FileEntry, FileKind
from destination_s3_spark.chain.opening import Session
from destination_s3_spark.decoding.plan import RowPlan, Values
from destination_s3_spark.errors import ConfigError
from destination_s3_spark.formats.file_writer import FileColumns
from destination_s3_spark.formats.parquet import ParquetOptions
from destination_s3_spark.protocol.catalog import Stream
from destination_s3_spark.schema.airbyte_type import Field, Scalar
from destination_s3_spark.schema.arrow import RAW_SCHEMA
from destination_s3_spark.schema.table_schema import TableSchema, replayed_fields
from destination_s3_spark.storage.settings import S3Settings
from destination_s3_spark.tables.commit.generation import Kept
from destination_s3_spark.tables.commit.writer import TableWriter
from destination_s3_spark.tables.landing.land import LandTask, Target
from destination_s3_spark.tables.landing.slices import Slice
from destination_s3_spark.tables.layout import Layout
from destination_s3_spark.tables.row_plan import control_plan, file_columns, row_plan
from destination_s3_spark.tables.rules import Rules
from destination_s3_spark.tables.runs.keys import KeySpec


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of an open table.

    `recorded` is the SetDataSchema payload to record, None when the chain has it. Files of schemas before `types_since` have columns of
    other types than the table has now.
    """

    schema: TableSchema
    recorded: dict[str, Any] | None
    types_since: int

    def is_outdated(self, file: FileEntry) -> bool:
        """Tell whether columns of the file have other types than the table has now."""
        return file.schema_id is not None and file.schema_id < self.types_since


@dataclass(frozen=True, slots=True)
class OpenTable:
    """One stream's table that this sync writes.

    `declared` are the stream's fields as columns. `spec` tells the rows of a deduplicated table apart. `pending`: rows land beside the
    table until they replace it; `kept` stays of the table then. `outdated`: its final files have to be rewritten before anything lands.
    """

    stream: Stream
    declared: tuple[Field, ...]
    writer: TableWriter
    layout: Layout
    rules: Rules
    session: Session
    columns: Columns
    spec: KeySpec | None
    pending: bool
    kept: Kept
    outdated: bool
    _numbers: Iterator[int] = field(default_factory=count)

    @property
    def schema(self) -> TableSchema:
        """The table's columns."""
        return self.columns.schema

    @property
    def plan(self) -> RowPlan:
        """The plan by which records become rows of the final files, whatever they are landed as."""
        return row_plan(self.stream, self.schema, self.declared, self.layout.final)

    def plan_of(self, then: TableSchema) -> RowPlan:
        """Make the plan for raw rows that landed under an earlier schema: each value goes to the column it went to then."""
        plan = self.plan
        if plan.values is not Values.TYPED:
            return self.plan_of_all
        return replace(plan, fields=replayed_fields(then, self.schema))

    @property
    def plan_of_all(self) -> RowPlan:
        """The plan for rows of any age in a format of text: every field the table has ever had."""
        sources = dict.fromkeys(column.source for column in self.schema.fields)
        declared = tuple(Field(source, source, Scalar.STRING) for source in sources)
        return row_plan(self.stream, self.schema, declared, self.layout.final)

    def record_schema(self) -> None:
        """Record the columns in the chain, unless it has them."""
        if self.columns.recorded is not None:
            self.writer.ensure_schema(self.columns.recorded)

    def is_outdated(self, file: FileEntry) -> bool:
        """Tell whether columns of the file have other types than the table has now."""
        return self.columns.is_outdated(file)

    def land_tasks(self, slices: Sequence[Slice], s3: S3Settings) -> list[LandTask]:
        """Make a task for each slice, its keys assigned."""
        if self.spec is not None and self.layout.of_text:
            plan, columns = control_plan(self.stream, self.spec), FileColumns(self.stream.id, (), RAW_SCHEMA)
        else:
            plan = self.plan
            columns = file_columns(self.schema, plan)
        return [LandTask(piece, plan, self.schema.schema_id, self._targets(columns), s3) for piece in slices]

    def final_key(self, token: str, extension: str | None = None) -> str:
        """Make the key of the next final file; `extension` if not that of the table's format."""
        return self._final_key(next(self._numbers), token, extension or self.layout.final.extension)

    def refuse(self, problem: str) -> ConfigError:
        """Make an error about this stream that ends the sync."""
        return refusal(self.stream, problem)

    def _targets(self, columns: FileColumns) -> tuple[Target, ...]:
        layout, number = self.layout, next(self._numbers)
        token = self.writer.next_token()
        if self.spec is not None:
            key = layout.delta_key(number, token, ParquetOptions.extension)
            targets = [Target(FileKind.DELTA, key, columns, ParquetOptions(), self.spec)]
        elif self.pending:
            targets = [Target(FileKind.DELTA, layout.delta_key(number, token, layout.final.extension), columns, layout.final)]
        else:
            targets = [Target(FileKind.FINAL, self._final_key(number, token, layout.final.extension), columns, layout.final)]
        if layout.raw is not None:
            raw_key = layout.raw_key(number, self.writer.next_token())
            targets.append(Target(FileKind.RAW, raw_key, FileColumns(self.stream.id, (), RAW_SCHEMA), layout.raw))
        return tuple(targets)

    def _final_key(self, number: int, token: str, extension: str) -> str:
        return self.layout.template.key(self.stream.id, extension, int(token), number, self.layout.root)


def refusal(stream: Stream, problem: str) -> ConfigError:
    """Make an error about a stream that ends the sync."""
    return ConfigError(f"Stream '{stream.id}': {problem}", stream=stream.id)

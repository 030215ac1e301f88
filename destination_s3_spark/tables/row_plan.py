"""What a stream's records become in the final files of a format: the plan to type them by, and the columns of the files."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from destination_s3_spark.formats.csv import CsvOptions
from destination_s3_spark.formats.file_writer import FileColumns
from destination_s3_spark.formats.jsonl import JsonlOptions
from destination_s3_spark.formats.options import FileOptions
from destination_s3_spark.formats.text_file import Flattening, beside_meta
from destination_s3_spark.protocol.catalog import Stream
from destination_s3_spark.schema.airbyte_type import Field, Scalar
from destination_s3_spark.schema.arrow import META_FIELDS, RAW_SCHEMA, arrow_field
from destination_s3_spark.schema.table_schema import TableSchema, plan_fields
from destination_s3_spark.typing.plan import RowPlan, Values


def row_plan(stream: Stream, schema: TableSchema, declared: Sequence[Field], options: FileOptions) -> RowPlan:
    """The plan for records of a stream that declares these fields, which the table's schema has evolved to."""
    fields: tuple[Field, ...]
    match options:
        case JsonlOptions() | CsvOptions(flattening=Flattening.NONE):
            fields, arrow, values = (), RAW_SCHEMA, Values.RECORD
        case CsvOptions():
            # Columns in the table's order, by the names of their keys.
            cells = {column.source: Field(column.source, beside_meta(column.source), Scalar.STRING) for column in schema.fields}
            arrow = pa.schema([*META_FIELDS, *map(arrow_field, cells.values())])
            fields, values = tuple(cells[field.source] for field in declared), Values.CELLS
        case _:
            fields, arrow, values = plan_fields(schema, declared), schema.arrow, Values.TYPED
    return RowPlan(stream.id, stream.sync_id, stream.generation_id, fields, arrow, values)


def file_columns(schema: TableSchema, plan: RowPlan) -> FileColumns:
    """The columns of a final file with rows of the plan."""
    fields = tuple(Field(column.source, column.name, column.type) for column in schema.fields)
    return FileColumns(plan.stream, fields, plan.table_schema)

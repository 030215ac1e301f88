"""Row plans: the mapping of a stream's records to the columns of final files, and the policy for changes of these columns."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from destination_s3_spark.decoding.plan import RowPlan, Values
from destination_s3_spark.formats.file_format import FileColumns, FileOptions
from destination_s3_spark.formats.text_file import beside_meta
from destination_s3_spark.protocol.catalog import Stream
from destination_s3_spark.schema.airbyte_type import Field, Scalar
from destination_s3_spark.schema.arrow import META_FIELDS, RAW_SCHEMA, arrow_field
from destination_s3_spark.schema.placement import SchemaChange, SchemaPolicy
from destination_s3_spark.schema.table_schema import TableSchema, plan_fields
from destination_s3_spark.tables.columns.dedup import is_deduplicated
from destination_s3_spark.tables.runs.keys import KeySpec


def schema_policy(options: FileOptions, change: SchemaChange, fixed: frozenset[str], replace: bool) -> SchemaPolicy:
    """Return the schema policy of a table with files of this format. In text files types have no effect, so columns take any value."""
    if options.values is not Values.TYPED and change is not SchemaChange.FAIL:
        change = SchemaChange.KEEP
    return SchemaPolicy(change, fixed, replace)


def row_plan(stream: Stream, schema: TableSchema, declared: Sequence[Field], options: FileOptions) -> RowPlan:
    """Make the plan for records of a stream that declares these fields. The table's schema has already evolved to them."""
    fields: tuple[Field, ...]
    match options.values:
        case Values.RECORD:
            fields, arrow = (), RAW_SCHEMA
        case Values.CELLS:
            # One column per JSON key, in the table's order and under the key's name, even if the table has several typed columns for it.
            cells = {column.source: Field(column.source, beside_meta(column.source), Scalar.STRING) for column in schema.fields}
            arrow = pa.schema([*META_FIELDS, *map(arrow_field, cells.values())])
            fields = tuple(cells[field.source] for field in declared)
        case Values.TYPED:
            fields, arrow = plan_fields(schema, declared), schema.arrow
    key = _key_of(stream) if options.values is Values.TYPED else ()
    return RowPlan(stream.id, stream.sync_id, stream.generation_id, fields, arrow, options.values, key)


def control_plan(stream: Stream, spec: KeySpec) -> RowPlan:
    """Make the plan for only the key, cursor and deletion columns of a deduplicated table with untyped columns."""
    sources = {field.source: field for field in (*spec.key, spec.cursor, spec.deleted_at) if field is not None}
    fields = tuple(sources.values())
    arrow = pa.schema([*META_FIELDS, *map(arrow_field, fields)])
    return RowPlan(stream.id, stream.sync_id, stream.generation_id, fields, arrow, Values.TYPED, _key_of(stream))


def _key_of(stream: Stream) -> tuple[str, ...]:
    return tuple(path[0] for path in stream.primary_key) if is_deduplicated(stream) else ()


def file_columns(schema: TableSchema, plan: RowPlan) -> FileColumns:
    """Return the columns of a final file with rows of the plan."""
    if plan.values is not Values.TYPED:
        return FileColumns(plan.stream, (), plan.table_schema)
    fields = tuple(Field(column.source, column.name, column.type) for column in schema.fields)
    return FileColumns(plan.stream, fields, plan.table_schema)

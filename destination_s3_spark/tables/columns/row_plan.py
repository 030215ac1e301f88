"""Row plans: the mapping of a stream's records to the columns of final files, its key, cursor and deletion field among them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest

from destination_s3_spark.decoding.plan import RowPlan, Values
from destination_s3_spark.errors import ConfigError
from destination_s3_spark.formats.file_format import FileColumns, FileOptions
from destination_s3_spark.formats.text_file import beside_meta
from destination_s3_spark.protocol.catalog import DestinationSyncMode, Stream
from destination_s3_spark.schema.airbyte_type import Decimal, Field, Scalar, readable
from destination_s3_spark.schema.arrow import RAW_SCHEMA, arrow_columns
from destination_s3_spark.schema.partitioning import Partitioning
from destination_s3_spark.schema.placement import SchemaChange, SchemaPolicy
from destination_s3_spark.schema.table_schema import TableSchema, plan_fields
from destination_s3_spark.tables.runs.keys import CdcDeletion, KeySpec

UPDATED_AT = "_ab_cdc_updated_at"
"""The field in which CDC sources report the time of a change."""
_MOMENTS = (Scalar.TIMESTAMP_WITH_TIMEZONE, Scalar.TIMESTAMP_WITHOUT_TIMEZONE)
DELETED_AT = "_ab_cdc_deleted_at"
"""The field in which CDC sources report a deletion. Any value except null means a deletion."""


def refusal(stream: Stream, problem: str) -> ConfigError:
    """Make the error that ends the sync because of a stream."""
    return ConfigError(f"Stream '{stream.id}': {problem}", stream=stream.id)


def is_deduplicated(stream: Stream) -> bool:
    """Tell whether the stream's table has one row per key."""
    return stream.destination_sync_mode is DestinationSyncMode.APPEND_DEDUP


def deciding_fields(stream: Stream) -> frozenset[str]:
    """Return the JSON keys of the primary key, cursor and deletion fields of a deduplicated table. Other tables have none."""
    if not is_deduplicated(stream):
        return frozenset()
    return frozenset({*(path[0] for path in stream.primary_key), *stream.cursor_field[:1], DELETED_AT})


def key_spec(
    stream: Stream, schema: TableSchema, deletion: CdcDeletion, *, of_text: bool, partitioning: Partitioning | None = None
) -> KeySpec:
    """Return the key, cursor and deletion columns of the table's rows.

    Raises ConfigError for a key or cursor field that is not declared or does not hold a single value.
    """
    key = tuple(_scalar(stream, schema, "primary_key", path[0]) for path in stream.primary_key)
    cursor = _scalar(stream, schema, "cursor_field", stream.cursor_field[0]) if stream.cursor_field else None
    deleted_at = schema.column(DELETED_AT)
    return KeySpec(key, cursor, None if deleted_at is None else deleted_at.field, deletion, of_text, partitioning)


def valid_from(stream: Stream, schema: TableSchema) -> str | None:
    """Return the field with the source's own time of a change: that of CDC, or a cursor that is a timestamp. None without either."""
    updated_at = schema.column(UPDATED_AT)
    if updated_at is not None and updated_at.type in (*_MOMENTS, Scalar.STRING):
        return UPDATED_AT
    cursor = schema.column(stream.cursor_field[0]) if stream.cursor_field else None
    return None if cursor is None or cursor.type not in _MOMENTS else cursor.source


def unfit_warnings(spec: KeySpec, unfit: Mapping[str, int]) -> Iterator[str]:
    """Yield a warning for each key, cursor or deletion field with values that do not fit its type. `unfit` counts them by JSON key."""
    told_apart = "null or changed in their rows, which are told apart by the key as the source sent it"
    roles = [(field, "primary key", told_apart) for field in spec.key]
    if spec.cursor is not None:
        roles.append((spec.cursor, "cursor", "their records count as older than any with a cursor"))
    if spec.deleted_at is not None:
        roles.append((spec.deleted_at, "deletion", "their records are no deletions"))
    for field, role, meaning in roles:
        if field.source in unfit:
            count, kind = unfit[field.source], readable(field.type)
            yield f'the {role} field "{field.source}" has values that do not fit its type {kind} ({count:,} of them): {meaning}'


def _scalar(stream: Stream, schema: TableSchema, what: str, source: str) -> Field:
    column = schema.column(source)
    where = f"Catalog, stream '{stream.id}', {what}: '{source}'"
    if column is None:
        raise ConfigError(
            f"{where} is not among the fields of the stream's schema. Refresh the source's schema, or choose another field in the "
            "connection.",
            stream=stream.id,
        )
    if not isinstance(column.type, Scalar | Decimal):
        raise ConfigError(
            f"{where} is of type {readable(column.type)}; only fields with a single value can tell rows apart. Choose "
            "other fields, or an append mode for this stream.",
            stream=stream.id,
        )
    return column.field


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
            arrow = arrow_columns(cells.values())
            fields = tuple(cells[field.source] for field in declared)
        case Values.TYPED:
            fields, arrow = plan_fields(schema, declared), schema.arrow
    key = _key_of(stream) if options.values is Values.TYPED else ()
    return RowPlan(stream.id, stream.sync_id, stream.generation_id, fields, arrow, options.values, key)


def control_plan(stream: Stream, spec: KeySpec) -> RowPlan:
    """Make the plan for only the key, cursor and deletion columns of a deduplicated table with untyped columns."""
    sources = {field.source: field for field in spec.fields}
    fields = tuple(sources.values())
    return RowPlan(stream.id, stream.sync_id, stream.generation_id, fields, arrow_columns(fields), Values.TYPED, _key_of(stream))


def typed_plan(stream: Stream, schema: TableSchema) -> RowPlan:
    """Make the plan that types records by the columns of a table of text."""
    fields = tuple(column.field for column in schema.fields if column.recovered_from is None)
    return RowPlan(stream.id, stream.sync_id, stream.generation_id, fields, schema.columns, Values.TYPED, _key_of(stream))


def plans_of_columns(stream: Stream, schema: TableSchema) -> tuple[RowPlan, ...]:
    """Make the plans that together type records by all columns: the first by those of `typed_plan`, others by recovered ones."""
    recovered: dict[str, list[Field]] = {}
    for column in schema.fields:
        if column.recovered_from is not None:
            recovered.setdefault(column.source, []).append(column.field)
    plan = typed_plan(stream, schema)
    return (plan, *(replace(plan, fields=tuple(filter(None, fields)), key=()) for fields in zip_longest(*recovered.values())))


def _key_of(stream: Stream) -> tuple[str, ...]:
    return tuple(path[0] for path in stream.primary_key) if is_deduplicated(stream) else ()


def file_columns(schema: TableSchema, plan: RowPlan) -> FileColumns:
    """Return the columns of a final file with rows of the plan."""
    fields = tuple(column.field for column in schema.fields) if plan.values is Values.TYPED else ()
    return FileColumns(plan.stream, fields, plan.table_schema)

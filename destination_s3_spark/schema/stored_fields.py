"""Columns of a table's Parquet files as Airbyte types: the connector's own columns, then the data columns."""

from __future__ import annotations

from dataclasses import replace

from destination_s3_spark.schema.airbyte_type import (
    AirbyteType,
    Array,
    Decimal,
    Field,
    Object,
    Scalar,
    SchemalessArray,
    SchemalessObject,
    Union,
    option_name,
)
from destination_s3_spark.schema.arrow import META_FIELDS, UNION_TAG
from destination_s3_spark.schema.encodings import Encodings, TimeEncoding
from destination_s3_spark.schema.table_schema import TableSchema

_CHANGE = Object(tuple(Field(name, name, Scalar.STRING) for name in ("field", "change", "reason")))
_META = Object((Field("sync_id", "sync_id", Scalar.INTEGER), Field("changes", "changes", Array(_CHANGE))))
_OWN_TYPES: tuple[AirbyteType, ...] = (Scalar.STRING, Scalar.TIMESTAMP_WITH_TIMEZONE, _META, Scalar.INTEGER)

OWN_FIELDS = tuple(Field(column.name, column.name, of) for column, of in zip(META_FIELDS, _OWN_TYPES, strict=True))
"""The connector's own columns."""


def stored_fields(schema: TableSchema, encodings: Encodings) -> tuple[Field, ...]:
    """Return the columns of a file with this schema. Times of day that are stored as integers have the type of integers."""
    data = tuple(Field(column.source, column.name, column.type) for column in schema.fields)
    return (*OWN_FIELDS, *(_with_integers(data) if encodings.time is TimeEncoding.INT64 else data))


def _with_integers(fields: tuple[Field, ...]) -> tuple[Field, ...]:
    return tuple(replace(field, type=_without_time(field.type)) for field in fields)


def _without_time(of: AirbyteType) -> AirbyteType:
    match of:
        case Scalar.TIME_WITH_TIMEZONE | Scalar.TIME_WITHOUT_TIMEZONE:
            return Scalar.INTEGER
        case Scalar() | Decimal() | SchemalessObject() | SchemalessArray():
            return of
        case Object(fields):
            return Object(_with_integers(fields))
        case Array(items):
            return Array(_without_time(items))
        case Union():
            return Object(_with_integers(union_members(of)))


def union_members(union: Union) -> tuple[Field, ...]:
    """Return the members of the typed disjoint record that a union is stored as."""
    members = ((UNION_TAG, Scalar.STRING), *((option_name(option), option) for option in union.options))
    return tuple(Field(name, name, of) for name, of in members)

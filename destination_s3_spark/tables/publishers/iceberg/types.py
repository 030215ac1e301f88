"""Columns of a table as Iceberg's types with field ids."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from pyiceberg.schema import Schema
from pyiceberg.types import (
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    IcebergType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
    TimeType,
)

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
)
from destination_s3_spark.schema.field_ids import FieldIds
from destination_s3_spark.schema.table_schema import union_members


def iceberg_schema(fields: Sequence[Field], ids: FieldIds) -> Schema:
    """Return the columns as an Iceberg schema with these ids, in the order of `schema.field_ids`. All are optional."""
    return Schema(*_members(fields, iter(ids)))


def _members(fields: Sequence[Field], ids: Iterator[int]) -> list[NestedField]:
    numbers = list(islice(ids, len(fields)))  # those of a level come before those below it
    return [NestedField(number, field.name, _type(field.type, ids), required=False) for number, field in zip(numbers, fields, strict=True)]


def _type(of: AirbyteType, ids: Iterator[int]) -> IcebergType:  # noqa: C901 (one case for each type)
    match of:
        case Scalar.STRING | SchemalessObject() | SchemalessArray():
            return StringType()
        case Scalar.BOOLEAN:
            return BooleanType()
        case Scalar.INTEGER:
            return LongType()
        case Scalar.NUMBER:
            return DoubleType()
        case Decimal(precision, scale):
            return DecimalType(precision, scale)
        case Scalar.DATE:
            return DateType()
        case Scalar.TIME_WITH_TIMEZONE | Scalar.TIME_WITHOUT_TIMEZONE:
            return TimeType()
        case Scalar.TIMESTAMP_WITH_TIMEZONE | Scalar.TIMESTAMP_WITHOUT_TIMEZONE:
            return TimestamptzType()
        case Object(fields):
            return StructType(*_members(fields, ids))
        case Union():
            return StructType(*_members(union_members(of), ids))
        case Array(items):
            number = next(ids)
            return ListType(element_id=number, element=_type(items, ids), element_required=False)

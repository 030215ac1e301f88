"""Conversion of Arrow types to Iceberg types, for the types that final tables have."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
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
)

from destination_s3_spark.errors import Bug
from destination_s3_spark.schema.field_ids import children, first_ids, id_of, with_ids
from destination_s3_spark.tables.publishers.publication import NotPublished

_SCALARS: dict[pa.DataType, IcebergType] = {
    pa.string(): StringType(),
    pa.bool_(): BooleanType(),
    pa.int64(): LongType(),
    pa.float64(): DoubleType(),
    pa.date32(): DateType(),
    pa.timestamp("us", tz="UTC"): TimestamptzType(),
}


def iceberg_schema(columns: pa.Schema) -> Schema:
    """Return the columns as an Iceberg schema with their field ids. All are optional.

    The columns of a schema that an earlier version recorded have no ids, and the first ids hold. Raises NotPublished for a type without a
    counterpart.
    """
    if any(id_of(field) is None for field in columns):
        columns = with_ids(columns, first_ids(columns))
    return Schema(*map(_field, columns))


def _field(field: pa.Field[Any]) -> NestedField:
    return NestedField(_id(field), field.name, _type(field.type), required=False)


def _type(kind: pa.DataType) -> IcebergType:
    if pa.types.is_struct(kind):
        return StructType(*map(_field, children(kind)))
    if pa.types.is_list(kind):
        return ListType(element_id=_id(kind.value_field), element=_type(kind.value_type), element_required=False)
    if pa.types.is_decimal(kind):
        return DecimalType(kind.precision, kind.scale)
    if kind not in _SCALARS:
        raise NotPublished(f"This version of the connector has no Iceberg type for {kind}. Upgrade the connector.")
    return _SCALARS[kind]


def _id(field: pa.Field[Any]) -> int:
    found = id_of(field)
    if found is None:
        raise Bug(f"A field '{field.name}' of a table has no id, and others do.")
    return found

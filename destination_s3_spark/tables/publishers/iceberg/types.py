"""Conversion of Arrow types to Iceberg types, for the types that final tables have."""

from __future__ import annotations

from itertools import count

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
    """Return the columns as an Iceberg schema. All are optional. The ids are arbitrary, and a catalog assigns its own.

    Raises NotPublished for a type without a counterpart.
    """
    ids = count(1)
    return Schema(*(_field(next(ids), field, ids) for field in columns))


def keeps_types(old: IcebergType, new: IcebergType) -> bool:
    """Return whether the new type only adds members to the old one."""
    if isinstance(old, StructType) and isinstance(new, StructType):
        members = {field.name: field.field_type for field in old.fields}
        return all(field.name not in members or keeps_types(members[field.name], field.field_type) for field in new.fields)
    if isinstance(old, ListType) and isinstance(new, ListType):
        return keeps_types(old.element_type, new.element_type)
    return old == new


def _field(number: int, field: pa.Field, ids: count[int]) -> NestedField:
    return NestedField(number, field.name, _type(field.type, ids), required=False)


def _type(kind: pa.DataType, ids: count[int]) -> IcebergType:
    if pa.types.is_struct(kind):
        return StructType(*(_field(next(ids), kind.field(index), ids) for index in range(kind.num_fields)))
    if pa.types.is_list(kind):
        return ListType(element_id=next(ids), element=_type(kind.value_type, ids), element_required=False)
    if pa.types.is_decimal(kind):
        return DecimalType(kind.precision, kind.scale)
    if kind not in _SCALARS:
        raise NotPublished(f"This version of the connector has no Iceberg type for {kind}. Upgrade the connector.")
    return _SCALARS[kind]

"""Choice of the column implementation for an Airbyte type."""

from __future__ import annotations

import pyarrow as pa

from destination_s3_spark.decoding.column import Column, TextColumn
from destination_s3_spark.decoding.containers import ArrayColumn, ObjectColumn
from destination_s3_spark.decoding.scalars import (
    DecimalColumn,
    JsonTextColumn,
    NumberColumn,
    StringColumn,
    TemporalColumn,
    TemporalKeyColumn,
)
from destination_s3_spark.decoding.temporal import TEMPORAL
from destination_s3_spark.decoding.unions import UnionColumn
from destination_s3_spark.exact_json.values import ARRAY, OBJECT
from destination_s3_spark.schema.airbyte_type import (
    AirbyteType,
    Array,
    Decimal,
    Object,
    Scalar,
    SchemalessArray,
    SchemalessObject,
    Union,
    option_name,
)


def key_column_of(of: AirbyteType, arrow_type: pa.DataType) -> Column:
    """Return the column for a field of the primary key."""
    return TemporalKeyColumn(of, arrow_type) if isinstance(of, Scalar) and of in TEMPORAL else column_of(of, arrow_type)


def column_of(of: AirbyteType, arrow_type: pa.DataType) -> Column:
    """Return the column for an Airbyte type. `arrow_type` is its stored type, as `schema.arrow.arrow_type` gives it."""
    match of:
        case Scalar():
            return _scalar(of, arrow_type)
        case Decimal():
            return DecimalColumn(of, arrow_type)
        case SchemalessObject():
            return JsonTextColumn(OBJECT)
        case SchemalessArray():
            return JsonTextColumn(ARRAY)
        case Object(fields):
            children = [column_of(field.type, arrow_type.field(field.name).type) for field in fields]
            typed = ObjectColumn(fields, children, arrow_type)
            return TextColumn(typed) if typed.annotation is None else typed
        case Array(items):
            return ArrayColumn(column_of(items, arrow_type.value_type), arrow_type)
        case Union(options):
            children = [column_of(option, arrow_type.field(option_name(option)).type) for option in options]
            return UnionColumn(options, children, arrow_type)


def _scalar(of: Scalar, arrow_type: pa.DataType) -> Column:
    if of in TEMPORAL:
        return TemporalColumn(of, arrow_type)
    return StringColumn() if of is Scalar.STRING else NumberColumn(of, arrow_type)

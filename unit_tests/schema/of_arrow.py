"""Airbyte types of columns that a test names by their Arrow types."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from destination_s3_spark.schema.airbyte_type import AirbyteType, Array, Decimal, Field, Object, Scalar, type_to_json
from destination_s3_spark.schema.arrow import arrow_type


def airbyte_type(kind: pa.DataType) -> AirbyteType:
    """A type that columns of this Arrow type may have."""
    if pa.types.is_struct(kind):
        return Object(tuple(Field(member.name, member.name, airbyte_type(member.type)) for member in kind))
    if pa.types.is_list(kind):
        return Array(airbyte_type(kind.value_type))
    if pa.types.is_decimal(kind):
        return Decimal(kind.precision, kind.scale)
    if pa.types.is_timestamp(kind):
        return Scalar.TIMESTAMP_WITH_TIMEZONE
    return next(scalar for scalar in Scalar if arrow_type(scalar) == kind)


def fields_of(columns: Iterable[pa.Field[Any]]) -> tuple[Field, ...]:
    """Columns of these names and types."""
    return tuple(Field(column.name, column.name, airbyte_type(column.type)) for column in columns)


def recorded(columns: Iterable[tuple[str, pa.DataType]], schema_id: int = 0) -> list[dict[str, Any]]:
    """Data columns as the event of a schema records them."""
    return [
        {"id": number, "name": name, "source": name, "type": type_to_json(airbyte_type(kind)), "addedIn": schema_id}
        for number, (name, kind) in enumerate(columns, start=1)
    ]

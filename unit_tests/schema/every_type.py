"""One of each Airbyte type."""

from __future__ import annotations

from collections.abc import Mapping

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

TIMES: tuple[AirbyteType, ...] = (Scalar.TIME_WITH_TIMEZONE, Scalar.TIME_WITHOUT_TIMEZONE)
EVERY_TYPE: Mapping[str, AirbyteType] = {
    **{scalar.value: scalar for scalar in Scalar},
    "decimal": Decimal(38, 9),
    "schemaless object": SchemalessObject(),
    "schemaless array": SchemalessArray(),
    "object": Object((Field("a", "a", Scalar.INTEGER), Field("b", "b", Scalar.DATE))),
    "array": Array(Scalar.NUMBER),
    "union": Union((Scalar.INTEGER, Scalar.STRING)),
}

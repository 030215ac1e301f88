"""The columns that a history has besides those of its table: when a version of a row was valid, and how it ended."""

from __future__ import annotations

import pyarrow as pa

from destination_s3_spark.schema.airbyte_type import Field, Scalar
from destination_s3_spark.schema.field_ids import FIELD_ID
from destination_s3_spark.tables.rules import IS_CURRENT, IS_DELETED, VALID_FROM, VALID_TO

_MICROS = pa.timestamp("us", tz="UTC")
FIRST_ID = 1_000_000_001
"""The field id of the first of the columns, above those that the columns of a table ever get."""
VALIDITY = tuple(
    pa.field(name, kind, nullable, {FIELD_ID: str(FIRST_ID + number)})
    for number, (name, kind, nullable) in enumerate(
        ((VALID_FROM, _MICROS, False), (VALID_TO, _MICROS, True), (IS_CURRENT, pa.bool_(), False), (IS_DELETED, pa.bool_(), False))
    )
)
VALIDITY_FIELDS = tuple(
    Field(field.name, field.name, Scalar.BOOLEAN if field.type == pa.bool_() else Scalar.TIMESTAMP_WITH_TIMEZONE) for field in VALIDITY
)

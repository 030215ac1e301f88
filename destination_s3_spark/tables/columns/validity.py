"""The columns that a history has besides those of its table: when a version of a row was valid, how it ended, and which sync began it."""

from __future__ import annotations

import pyarrow as pa

from destination_s3_spark.schema.airbyte_type import Field, Scalar
from destination_s3_spark.schema.arrow import arrow_type
from destination_s3_spark.schema.field_ids import FIELD_ID

VALID_FROM, VALID_TO, IS_CURRENT, IS_DELETED = "_valid_from", "_valid_to", "_is_current", "_is_deleted"
VALID_FROM_SYNC = "_valid_from_sync_id"
"""A version is valid from the first time on, up to the second one, which is null for the version that is valid now. IS_DELETED: whether it
ended with the deletion of its row. VALID_FROM_SYNC: the sync that brought the record with which the version began.
"""
FIRST_ID = 1_000_000_001
"""The field id of the first of the columns, above those that the columns of a table ever get."""
_COLUMNS = (
    (VALID_FROM, Scalar.TIMESTAMP_WITH_TIMEZONE, False),
    (VALID_TO, Scalar.TIMESTAMP_WITH_TIMEZONE, True),
    (IS_CURRENT, Scalar.BOOLEAN, False),
    (IS_DELETED, Scalar.BOOLEAN, False),
    (VALID_FROM_SYNC, Scalar.INTEGER, True),
)
VALIDITY = tuple(
    pa.field(name, arrow_type(kind), nullable, {FIELD_ID: str(FIRST_ID + number)}) for number, (name, kind, nullable) in enumerate(_COLUMNS)
)
VALIDITY_FIELDS = tuple(Field(name, name, kind) for name, kind, _ in _COLUMNS)

"""What typing needs to know of a stream and its table."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from destination_s3_spark.protocol.catalog import StreamId
from destination_s3_spark.schema.airbyte_type import Field


@dataclass(frozen=True, slots=True)
class RowPlan:
    """How the records of one stream become rows of its table. Picklable, so that a Spark task can carry it.

    `fields` is what this sync's catalog declares, with the column names and types of the table. `table_schema` is the final table:
    the four `_airbyte_*` columns first, then the data columns; a column without a field of its name stays null.
    """

    stream: StreamId
    sync_id: int
    generation_id: int
    fields: tuple[Field, ...]
    table_schema: pa.Schema

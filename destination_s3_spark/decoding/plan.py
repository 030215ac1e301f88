"""The plan by which a stream's records become rows of its table."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import pyarrow as pa

from destination_s3_spark.schema.airbyte_type import Field
from destination_s3_spark.schema.column_rules import Treatment
from destination_s3_spark.stream_id import StreamId


class Values(Enum):
    """Content of the data columns of final rows.

    TYPED: one column per declared field, with values of the declared type. CELLS: one column per declared field, with each value's JSON
    text as received. RECORD: one column with the JSON text of the whole record. CELLS and RECORD accept values of any type.
    """

    TYPED = "typed"
    CELLS = "cells"
    RECORD = "record"


@dataclass(frozen=True, slots=True)
class RowPlan:
    """Conversion of one stream's records to rows of its table. It is picklable, so that Spark tasks can carry it.

    `fields` are the fields that this sync's catalog declares, with the table's column names and types. `table_schema` is the schema of
    the final table: the four `_airbyte_*` columns, then the data columns. A data column without a field of its name stays null.
    `treatment` says what of a record never lands. It is for lines, not for rows of the raw table, which have landed.
    `key` holds the JSON keys of the primary key's fields. It is empty unless the table is deduplicated and the values are TYPED.
    """

    stream: StreamId
    sync_id: int
    generation_id: int
    fields: tuple[Field, ...]
    table_schema: pa.Schema
    values: Values = Values.TYPED
    key: tuple[str, ...] = ()
    treatment: Treatment | None = None

"""What typing needs to know of a stream and its table."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import pyarrow as pa

from destination_s3_spark.schema.airbyte_type import Field
from destination_s3_spark.stream_id import StreamId


class Values(Enum):
    """What final rows hold.

    TYPED are values of the declared types. CELLS are the declared fields as the JSON text they came in, RECORD is the whole record in
    one column of JSON text; both take values of any type.
    """

    TYPED = "typed"
    CELLS = "cells"
    RECORD = "record"


@dataclass(frozen=True, slots=True)
class RowPlan:
    """How the records of one stream become rows of its table. Picklable, so that a Spark task can carry it.

    `fields` is what this sync's catalog declares, with the column names and types of the table. `table_schema` is the final table:
    the four `_airbyte_*` columns first, then the data columns; a column without a field of its name stays null. `key` are the JSON keys
    of the fields by which a deduplicated table tells its rows apart.
    """

    stream: StreamId
    sync_id: int
    generation_id: int
    fields: tuple[Field, ...]
    table_schema: pa.Schema
    values: Values = Values.TYPED
    key: tuple[str, ...] = ()

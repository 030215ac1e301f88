"""Conversion of Airbyte types to Arrow types, and the first columns of every table.

Physical types are those of destination-s3 V2. Both kinds of timestamp are in UTC, because the migration guide promises
`is_adjusted_to_utc` for both. Data columns are always nullable; the connector's own columns never are.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterable, Mapping
from typing import Any, assert_never

import pyarrow as pa

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
    option_name,
)

UNION_TAG = "type"
"""Member of a typed disjoint record that names the one member with a value."""
MICROS = pa.timestamp("us", tz="UTC")
"""The type of both kinds of timestamp."""

_CHANGE = pa.struct([("field", pa.string()), ("change", pa.string()), ("reason", pa.string())])
_META = pa.struct([("sync_id", pa.int64()), ("changes", pa.list_(_CHANGE))])

META_FIELDS: tuple[pa.Field[Any], ...] = (
    pa.field("_airbyte_raw_id", pa.string(), nullable=False),
    pa.field("_airbyte_extracted_at", pa.timestamp("ms", tz="UTC"), nullable=False),
    pa.field("_airbyte_meta", _META, nullable=False),
    pa.field("_airbyte_generation_id", pa.int64(), nullable=False),
)
"""First columns of every raw and final table."""

RAW_SCHEMA = pa.schema([*META_FIELDS, pa.field("_airbyte_data", pa.string())])
"""Schema of a raw table, with the record's `data` as JSON text."""
_FRAME = struct.Struct("<Ii")
"""Continuation marker and length of the metadata that follows."""
_HEADER_SLOT = 2
"""Index of `header` among the fields of Message: version, header_type, header, bodyLength."""


def arrow_type(airbyte_type: AirbyteType) -> pa.DataType:  # noqa: C901 (one case for each type)
    """Return the Arrow type of a column or member. Schemaless containers become JSON text, unions become typed disjoint records."""
    match airbyte_type:
        case Scalar.STRING | SchemalessObject() | SchemalessArray():
            return pa.string()
        case Scalar.BOOLEAN:
            return pa.bool_()
        case Scalar.INTEGER:
            return pa.int64()
        case Scalar.NUMBER:
            return pa.float64()
        case Decimal(precision, scale):
            return pa.decimal128(precision, scale)
        case Scalar.DATE:
            return pa.date32()
        case Scalar.TIME_WITH_TIMEZONE | Scalar.TIME_WITHOUT_TIMEZONE:
            return pa.time64("us")
        case Scalar.TIMESTAMP_WITH_TIMEZONE | Scalar.TIMESTAMP_WITHOUT_TIMEZONE:
            return MICROS
        case Object(fields):
            return pa.struct([arrow_field(field) for field in fields])
        case Array(items):
            return pa.list_(arrow_type(items))
        case Union(options):
            # The tag is nullable although it is always set, because Arrow cannot write a required member below a null record.
            members = [(option_name(option), arrow_type(option)) for option in options]
            return pa.struct([(UNION_TAG, pa.string()), *members])
        case _:  # mypy takes Arrow's types for Any, and so would not miss a return
            assert_never(airbyte_type)


def arrow_field(field: Field) -> pa.Field[Any]:
    return pa.field(field.name, arrow_type(field.type))


def arrow_columns(fields: Iterable[Field]) -> pa.Schema:
    """Return the columns of a table with these data columns."""
    return pa.schema([*META_FIELDS, *map(arrow_field, fields)])


def schema_to_text(schema: pa.Schema) -> str:
    """Return the schema as base64 of an encapsulated Arrow IPC message.

    Compare decoded schemas, never these texts, because different writers produce different bytes.
    """
    return base64.b64encode(schema.serialize().to_pybytes()).decode("ascii")


def schema_from_text(text: str) -> pa.Schema:
    """Decode the text of `schema_to_text`. Raises pa.ArrowInvalid or ValueError for any other text."""
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text, validate=True)))


def contiguous(column: pa.Array[Any] | pa.ChunkedArray[Any]) -> pa.Array[Any]:
    """Return the column as one array, copying its chunks together."""
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def with_columns(rows: pa.Table | pa.RecordBatch, columns: Mapping[str, pa.Array[Any]]) -> Any:
    """Return the rows with other values in some of their columns."""
    for name, values in columns.items():
        number = rows.schema.get_field_index(name)
        rows = rows.set_column(number, rows.schema.field(number), values)
    return rows


def bare_flatbuffer(schema: pa.Schema) -> bytes:
    """Return the schema as a bare flatbuffer. It is valid but not minimal, because it still contains pyarrow's unused Message table."""
    message = bytearray(schema.serialize().to_pybytes())
    del message[: _FRAME.size]

    def number(form: str, position: int) -> int:
        return int(struct.unpack_from(form, message, position)[0])

    table = number("<I", 0)
    vtable = table - number("<i", table)
    header = table + number("<H", vtable + 4 + 2 * _HEADER_SLOT)
    struct.pack_into("<I", message, 0, header + number("<I", header))
    return bytes(message)

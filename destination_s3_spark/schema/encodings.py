"""Encodings of values that Parquet files can store in several ways. A table records its own, and all its files share them.

In memory, the extraction time is always in milliseconds and a time of day always Arrow's time64.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

import pyarrow as pa

from destination_s3_spark.schema.arrow import MICROS


class ExtractedAtEncoding(Enum):
    """The unit of `_airbyte_extracted_at`. destination-s3 writes MILLIS. Iceberg in Spark reads only MICROS correctly."""

    MILLIS = "millis"
    MICROS = "micros"


class TimeEncoding(Enum):
    """The storage of times of day, always as microseconds since midnight."""

    TIME = "time"
    """TIME in UTC, as destination-s3 writes it."""
    INT64 = "int64"
    """Plain integers, for readers without TIME."""
    LOCAL = "local"
    """TIME without a time zone, which readers with a type for times of day read as that type."""


@dataclass(frozen=True, slots=True)
class Encodings:
    """The encodings of a table. The defaults are those of destination-s3."""

    extracted_at: ExtractedAtEncoding = ExtractedAtEncoding.MILLIS
    time: TimeEncoding = TimeEncoding.TIME

    def to_json(self) -> dict[str, str]:
        return {"extractedAt": self.extracted_at.value, "time": self.time.value}

    @classmethod
    def from_json(cls, recorded: Mapping[str, Any]) -> Encodings:
        """Read recorded encodings. Raises KeyError or ValueError for any that this version does not know."""
        return cls(ExtractedAtEncoding(recorded["extractedAt"]), TimeEncoding(recorded["time"]))


DESTINATION_S3 = Encodings()

EXTRACTED_AT = "_airbyte_extracted_at"


def stored_schema(schema: pa.Schema, encodings: Encodings) -> pa.Schema:
    """Return the schema of a file with these columns. It is the same object if the encodings change no type."""
    stored = with_unit(schema, encodings.extracted_at)
    if encodings.time is not TimeEncoding.INT64 or not any(has_time(field.type) for field in stored):
        return stored
    return pa.schema([mapped(field, lambda kind: pa.int64() if pa.types.is_time(kind) else kind) for field in stored])


def with_unit(schema: pa.Schema, encoding: ExtractedAtEncoding) -> pa.Schema:
    """Return the schema with the extraction time, if it has one, in the unit of the encoding."""
    index = schema.get_field_index(EXTRACTED_AT)
    if encoding is ExtractedAtEncoding.MILLIS or index < 0:
        return schema
    return schema.set(index, schema.field(index).with_type(MICROS))


def has_time(kind: pa.DataType) -> bool:
    return bool(pa.types.is_time(kind)) or any(has_time(kind.field(index).type) for index in range(kind.num_fields))


def mapped(field: pa.Field[Any], leaf: Callable[[pa.DataType], pa.DataType]) -> pa.Field[Any]:
    """Return the field with each type that is not nested replaced by what `leaf` returns for it."""
    kind = field.type
    if pa.types.is_list(kind):
        return field.with_type(pa.list_(mapped(kind.value_field, leaf)))
    if pa.types.is_struct(kind):
        return field.with_type(pa.struct([mapped(kind.field(index), leaf) for index in range(kind.num_fields)]))
    return field.with_type(leaf(kind))

"""The closed set of types a field of an Airbyte stream can have (Airbyte S3 V2, migration guide).

Built from the catalog's JSON schema by `schema.json_schema`, turned into Arrow by `schema.arrow`. Everything is nullable.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Scalar(Enum):
    """The scalar types; the value is the name of the type in unions and in the chain."""

    STRING = "string"
    BOOLEAN = "boolean"
    INTEGER = "integer"
    NUMBER = "number"
    DATE = "date"
    TIME_WITH_TIMEZONE = "time_with_timezone"
    TIME_WITHOUT_TIMEZONE = "time_without_timezone"
    TIMESTAMP_WITH_TIMEZONE = "timestamp_with_timezone"
    TIMESTAMP_WITHOUT_TIMEZONE = "timestamp_without_timezone"


@dataclass(frozen=True, slots=True)
class SchemalessObject:
    """An object without declared properties (also `properties: {}`), kept as JSON text."""


@dataclass(frozen=True, slots=True)
class SchemalessArray:
    """An array without declared items, kept as JSON text."""


@dataclass(frozen=True, slots=True)
class Field:
    """A declared property: `source` is its JSON key, `name` its column name (safe, unique among its siblings)."""

    source: str
    name: str
    type: AirbyteType


@dataclass(frozen=True, slots=True)
class Object:
    """An object with declared properties, in schema order."""

    fields: tuple[Field, ...]


@dataclass(frozen=True, slots=True)
class Array:
    """An array whose items all have one type; items are nullable."""

    items: AirbyteType


@dataclass(frozen=True, slots=True)
class Union:
    """Two or more different types, merged by the rules of the migration guide; order is the schema's."""

    options: tuple[AirbyteType, ...]


AirbyteType = Scalar | SchemalessObject | SchemalessArray | Object | Array | Union


def option_name(option: AirbyteType) -> str:
    """The name of a union's option: its member in the typed disjoint record and the value of `type` (migration guide, "Type Names").

    Schemaless containers are named like those with a schema. A union is never an option of a union.
    """
    match option:
        case Scalar():
            return option.value
        case Object() | SchemalessObject():
            return "object"
        case Array() | SchemalessArray():
            return "array"
        case Union():
            raise ValueError("a union is never an option of a union")

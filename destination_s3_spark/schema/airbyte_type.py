"""Types of the fields of an Airbyte stream: a closed set (Airbyte S3 V2, migration guide).

`schema.json_schema` builds them from the catalog's JSON schema, `schema.arrow` converts them to Arrow. Every type is nullable.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Scalar(Enum):
    """The scalar types. The value is the type's name in unions and in the chain."""

    STRING = "string"
    BOOLEAN = "boolean"
    INTEGER = "integer"
    NUMBER = "number"
    DATE = "date"
    TIME_WITH_TIMEZONE = "time_with_timezone"
    TIME_WITHOUT_TIMEZONE = "time_without_timezone"
    TIMESTAMP_WITH_TIMEZONE = "timestamp_with_timezone"
    TIMESTAMP_WITHOUT_TIMEZONE = "timestamp_without_timezone"


MAX_PRECISION = 38
"""Most digits of a decimal: those of a 128-bit integer, which is the limit of all readers."""


@dataclass(frozen=True, slots=True)
class Decimal:
    """A number stored exactly, with `precision` digits in total and `scale` of them after the point.

    Raises ValueError for a scale or a precision that no reader supports.
    """

    precision: int
    scale: int

    def __post_init__(self) -> None:
        if not 0 <= self.scale <= self.precision <= MAX_PRECISION or self.precision < 1:
            raise ValueError(f"decimal({self.precision},{self.scale}) needs 1 to {MAX_PRECISION} digits, at most as many after the point")


@dataclass(frozen=True, slots=True)
class SchemalessObject:
    """An object without declared properties (also `properties: {}`), kept as JSON text."""


@dataclass(frozen=True, slots=True)
class SchemalessArray:
    """An array without declared items, kept as JSON text."""


@dataclass(frozen=True, slots=True)
class Field:
    """A declared property. `source` is its JSON key, `name` its column name, which is safe and unique among its siblings."""

    source: str
    name: str
    type: AirbyteType


@dataclass(frozen=True, slots=True)
class Object:
    """An object with declared properties, in schema order."""

    fields: tuple[Field, ...]


@dataclass(frozen=True, slots=True)
class Array:
    """An array with one type for all its items, which are nullable."""

    items: AirbyteType


@dataclass(frozen=True, slots=True)
class Union:
    """Two or more different types in schema order, merged by the rules of the migration guide."""

    options: tuple[AirbyteType, ...]


AirbyteType = Scalar | Decimal | SchemalessObject | SchemalessArray | Object | Array | Union


def option_name(option: AirbyteType) -> str:
    """Return the name of a union's option (migration guide, "Type Names").

    It names the option's member in the typed disjoint record and is the value of `type`. Schemaless containers have the names of containers
    with a schema, and a decimal has that of a number. Raises ValueError for a union, which is never an option of a union.
    """
    match option:
        case Scalar():
            return option.value
        case Decimal():
            return Scalar.NUMBER.value
        case Object() | SchemalessObject():
            return "object"
        case Array() | SchemalessArray():
            return "array"
        case Union():
            raise ValueError("a union is never an option of a union")

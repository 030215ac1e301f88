"""Types of the fields of an Airbyte stream: a closed set (Airbyte S3 V2, migration guide).

`schema.json_schema` builds them from the catalog's JSON schema, `schema.arrow` converts them to Arrow. Every type is nullable.

In a table's chain a type is JSON: a scalar or schemaless container is its name, all others are objects with a `kind`. Readers skip unknown
keys.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import Any

from destination_s3_spark.errors import DataError


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

_SCHEMALESS_OBJECT, _SCHEMALESS_ARRAY = "schemaless_object", "schemaless_array"
_BY_NAME: dict[str, AirbyteType] = {
    _SCHEMALESS_OBJECT: SchemalessObject(),
    _SCHEMALESS_ARRAY: SchemalessArray(),
    **{scalar.value: scalar for scalar in Scalar},
}


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


def type_to_json(airbyte_type: AirbyteType) -> str | dict[str, Any]:
    """Return the type as a JSON value of strings, lists and objects."""
    match airbyte_type:
        case Scalar():
            return airbyte_type.value
        case Decimal(precision, scale):
            return {"kind": "decimal", "precision": precision, "scale": scale}
        case SchemalessObject():
            return _SCHEMALESS_OBJECT
        case SchemalessArray():
            return _SCHEMALESS_ARRAY
        case Object(fields):
            members = [{"source": field.source, "name": field.name, "type": type_to_json(field.type)} for field in fields]
            return {"kind": "object", "fields": members}
        case Array(items):
            return {"kind": "array", "items": type_to_json(items)}
        case Union(options):
            return {"kind": "union", "options": [type_to_json(option) for option in options]}


def type_from_json(value: object) -> AirbyteType:
    """Return the type for a JSON value of `type_to_json`. Raises DataError for an unknown type, which a newer connector may write."""
    match value:
        case str() if value in _BY_NAME:
            return _BY_NAME[value]
        case {"kind": "decimal", "precision": int(precision), "scale": int(scale)}:
            with suppress(ValueError):  # a decimal that no reader of today supports
                return Decimal(precision, scale)
        case {"kind": "object", "fields": list(members)}:
            return Object(tuple(Field(member["source"], member["name"], type_from_json(member["type"])) for member in members))
        case {"kind": "array", "items": items}:
            return Array(type_from_json(items))
        case {"kind": "union", "options": list(options)}:
            return Union(tuple(type_from_json(option) for option in options))
    raise DataError("The table's schema has a type this version of the connector does not know. Upgrade the connector.")


def type_to_text(airbyte_type: AirbyteType) -> str:
    """Return the canonical JSON text of a type: keys sorted, no whitespace. Two types have the same text only if they are equal."""
    return json.dumps(type_to_json(airbyte_type), sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def readable(airbyte_type: AirbyteType) -> str:
    return type_label(type_to_json(airbyte_type))


def type_label(recorded: str | dict[str, Any]) -> str:
    """Return a type, given as a JSON value, as people read it: `object<a: integer>`, `array<string>`, `union<integer, string>`."""
    if isinstance(recorded, str):
        return recorded
    match recorded:
        case {"kind": "object", "fields": members}:
            return "object<" + ", ".join(f"{member['name']}: {type_label(member['type'])}" for member in members) + ">"
        case {"kind": "array", "items": items}:
            return f"array<{type_label(items)}>"
        case {"kind": "union", "options": options}:
            return "union<" + ", ".join(map(type_label, options)) + ">"
        case {"kind": "decimal", "precision": precision, "scale": scale}:
            return f"decimal({precision}, {scale})"
    return str(recorded.get("kind"))

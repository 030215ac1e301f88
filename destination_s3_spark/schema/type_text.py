"""JSON form of Airbyte types, as recorded in a table's chain.

A scalar or schemaless container is its name. All other types are objects with a `kind`. Readers skip unknown keys.
"""

from __future__ import annotations

import json
from typing import Any

from destination_s3_spark.errors import DataError
from destination_s3_spark.schema.airbyte_type import (
    MAX_PRECISION,
    AirbyteType,
    Array,
    Decimal,
    Field,
    Object,
    Scalar,
    SchemalessArray,
    SchemalessObject,
    Union,
)

_SCHEMALESS_OBJECT, _SCHEMALESS_ARRAY = "schemaless_object", "schemaless_array"
_BY_NAME: dict[str, AirbyteType] = {
    _SCHEMALESS_OBJECT: SchemalessObject(),
    _SCHEMALESS_ARRAY: SchemalessArray(),
    **{scalar.value: scalar for scalar in Scalar},
}


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
        case {"kind": "decimal", "precision": int(precision), "scale": int(scale)} if _fits(precision, scale):
            return Decimal(precision, scale)
        case {"kind": "object", "fields": list(members)}:
            return Object(tuple(Field(member["source"], member["name"], type_from_json(member["type"])) for member in members))
        case {"kind": "array", "items": items}:
            return Array(type_from_json(items))
        case {"kind": "union", "options": list(options)}:
            return Union(tuple(type_from_json(option) for option in options))
    raise DataError("The table's schema has a type this version of the connector does not know. Upgrade the connector.")


def _fits(precision: int, scale: int) -> bool:
    return 0 <= scale <= precision <= MAX_PRECISION and precision > 0


def type_to_text(airbyte_type: AirbyteType) -> str:
    """Return the canonical JSON text of a type: keys sorted, no whitespace. Two types have the same text only if they are equal."""
    return json.dumps(type_to_json(airbyte_type), sort_keys=True, separators=(",", ":"), ensure_ascii=False)


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
    return str(recorded.get("kind"))

"""Columns of a Delta table: the JSON text of `schemaString`, made from the columns as the files store them.

Delta has no type for a time of day. Such columns and members are left out; readers ignore what a file has beyond the schema.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

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
)
from destination_s3_spark.schema.table_schema import union_members


@dataclass(frozen=True, slots=True)
class PartitionColumn:
    """A column whose value is the same in all rows of a file. `type` is Delta's name of its type."""

    name: str
    type: str


@dataclass(frozen=True, slots=True)
class DeltaColumns:
    """The text of `schemaString`, and the dotted paths of columns and members that it leaves out.

    `partly_bounded`: names of structs with lists among their members, for which statistics have no bounds.
    """

    schema_string: str
    left_out: tuple[str, ...]
    names: tuple[str, ...]
    partly_bounded: tuple[str, ...]


def delta_columns(fields: Sequence[Field], partition: PartitionColumn | None = None) -> DeltaColumns:
    """Convert the columns of the files. All become nullable, because adopted files may hold nulls anywhere.

    A partition column comes last. The files do not have it, and it has no statistics.
    """
    left_out: list[str] = []
    columns = _members(fields, "", left_out)
    partly = tuple(field.name for field in fields if _is_partly_bounded(field.type))
    names = tuple(column["name"] for column in columns)
    if partition is not None:
        columns.append({"name": partition.name, "type": partition.type, "nullable": True, "metadata": {}})
    return DeltaColumns(msgspec.json.encode({"type": "struct", "fields": columns}).decode(), tuple(left_out), names, partly)


def _is_partly_bounded(of: AirbyteType) -> bool:
    members = of.fields if isinstance(of, Object) else union_members(of) if isinstance(of, Union) else ()
    return any(isinstance(member.type, Array) or _is_partly_bounded(member.type) for member in members)


def _members(fields: Iterable[Field], path: str, left_out: list[str]) -> list[dict[str, Any]]:
    found = []
    for field in fields:
        kind = _type(field.type, f"{path}{field.name}", left_out)
        if kind is not None:
            found.append({"name": field.name, "type": kind, "nullable": True, "metadata": {}})
    return found


def _type(of: AirbyteType, path: str, left_out: list[str]) -> str | dict[str, Any] | None:  # noqa: C901 (one case for each type)
    """Return the Delta type, or None after adding the path to `left_out`."""
    match of:
        case Scalar.STRING | SchemalessObject() | SchemalessArray():
            return "string"
        case Scalar.BOOLEAN:
            return "boolean"
        case Scalar.INTEGER:
            return "long"
        case Scalar.NUMBER:
            return "double"
        case Decimal(precision, scale):
            return f"decimal({precision},{scale})"
        case Scalar.DATE:
            return "date"
        case Scalar.TIMESTAMP_WITH_TIMEZONE | Scalar.TIMESTAMP_WITHOUT_TIMEZONE:
            return "timestamp"
        case Scalar.TIME_WITH_TIMEZONE | Scalar.TIME_WITHOUT_TIMEZONE:
            left_out.append(path)
            return None
        case Object(fields):
            return _struct(fields, path, left_out)
        case Union():
            return _struct(union_members(of), path, left_out)
        case Array(items):
            element = _type(items, f"{path}[]", left_out)
            return None if element is None else {"type": "array", "elementType": element, "containsNull": True}


def _struct(fields: Iterable[Field], path: str, left_out: list[str]) -> dict[str, Any] | None:
    """Return a struct. One whose members are all left out has no columns in Delta, so it is left out itself."""
    members = _members(fields, f"{path}.", left_out)
    return {"type": "struct", "fields": members} if members else None

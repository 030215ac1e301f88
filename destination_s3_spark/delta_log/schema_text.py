"""Columns of a Delta table: the JSON text of `schemaString`, made from an Arrow schema.

Delta has no type for a time of day. Such columns and members are left out; readers ignore what a file has beyond the schema.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
import pyarrow as pa


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


def delta_columns(schema: pa.Schema, partition: PartitionColumn | None = None) -> DeltaColumns:
    """Convert the schema of the files. All columns become nullable, because adopted files may hold nulls anywhere.

    A partition column comes last. The files do not have it, and it has no statistics.
    """
    left_out: list[str] = []
    fields = _fields(schema, "", left_out)
    partly = tuple(field.name for field in schema if pa.types.is_struct(field.type) and _has_list(field.type))
    names = tuple(field["name"] for field in fields)
    if partition is not None:
        fields.append({"name": partition.name, "type": partition.type, "nullable": True, "metadata": {}})
    return DeltaColumns(msgspec.json.encode({"type": "struct", "fields": fields}).decode(), tuple(left_out), names, partly)


def _has_list(kind: pa.DataType) -> bool:
    if not pa.types.is_struct(kind):
        return bool(pa.types.is_list(kind))
    return any(_has_list(member.type) for member in kind)


def _fields(fields: pa.Schema | pa.StructType, path: str, left_out: list[str]) -> list[dict[str, Any]]:
    found = []
    for field in fields:
        kind = _type(field.type, f"{path}{field.name}", left_out)
        if kind is not None:
            found.append({"name": field.name, "type": kind, "nullable": True, "metadata": {}})
    return found


def _type(kind: pa.DataType, path: str, left_out: list[str]) -> object:
    """Return the Delta type, or None after adding the path to `left_out`."""
    if pa.types.is_struct(kind):
        # A struct whose members are all left out has no columns in Delta, so it is left out itself.
        fields = _fields(kind, f"{path}.", left_out)
        return {"type": "struct", "fields": fields} if fields else None
    if pa.types.is_list(kind):
        element = _type(kind.value_type, f"{path}[]", left_out)
        return None if element is None else {"type": "array", "elementType": element, "containsNull": True}
    name = _primitive(kind)
    if name is None:
        left_out.append(path)
    return name


def _primitive(kind: pa.DataType) -> str | None:
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return "timestamp"
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    names = {pa.string(): "string", pa.int64(): "long", pa.float64(): "double", pa.bool_(): "boolean", pa.date32(): "date"}
    return names.get(kind)

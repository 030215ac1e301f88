"""Field ids: numbers of a table's columns, their members and the elements of their lists, by which Iceberg's readers know them.

An id is assigned once and never reused. A column whose type changes in place gets new ids throughout, because its old files are rewritten.
Ids are listed in the order in which Iceberg's catalogs number a new table: all fields of a level, then the levels below each of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

FIELD_ID = b"PARQUET:field_id"
"""Key of the metadata of an Arrow field that Arrow's Parquet writer takes as the field's id."""

FieldIds = tuple[int, ...]
Path = tuple[str, ...]


def first_ids(columns: pa.Schema) -> FieldIds:
    return tuple(range(1, 1 + sum(1 for _ in _walk(columns))))


def later_ids(before: pa.Schema, ids: FieldIds, last: int, after: pa.Schema) -> FieldIds:
    """Return the ids of columns that follow others. `last` is the greatest id that the table ever had."""
    known = dict(zip((path for path, _ in _walk(before)), ids, strict=True))
    types = {field.name: field.type for field in before}
    kept = {field.name for field in after if field.name in types and _only_grew(types[field.name], field.type)}
    found = []
    for path, _ in _walk(after):
        number = known.get(path) if path[0] in kept else None
        if number is None:
            last += 1
            number = last
        found.append(number)
    return tuple(found)


def with_ids(columns: pa.Schema, ids: FieldIds) -> pa.Schema:
    """Return the columns with these ids. Raises ValueError unless there is one for each."""
    of = dict(zip((path for path, _ in _walk(columns)), ids, strict=True))
    return pa.schema([_with_id(field, (), of) for field in columns])


def _children(kind: pa.DataType) -> list[pa.Field[Any]]:
    """Return the members of a struct, the element of a list, or nothing."""
    return [kind.field(index) for index in range(kind.num_fields)]


def _walk(fields: Iterable[pa.Field[Any]], path: Path = ()) -> Iterator[tuple[Path, pa.Field[Any]]]:
    level: Sequence[pa.Field[Any]] = list(fields)
    for field in level:
        yield (*path, field.name), field
    for field in level:
        if field.type.num_fields:
            yield from _walk(_children(field.type), (*path, field.name))


def _with_id(field: pa.Field[Any], path: Path, of: dict[Path, int]) -> pa.Field[Any]:
    here = (*path, field.name)
    kind = field.type
    if pa.types.is_struct(kind):
        kind = pa.struct([_with_id(member, here, of) for member in _children(kind)])
    elif pa.types.is_list(kind):
        kind = pa.list_(_with_id(kind.value_field, here, of))
    return pa.field(field.name, kind, field.nullable, {FIELD_ID: str(of[here])})


def _only_grew(before: pa.DataType, after: pa.DataType) -> bool:
    """Tell whether a type is the same but for members that came to its structs."""
    if pa.types.is_struct(before) and pa.types.is_struct(after):
        types = {member.name: member.type for member in _children(before)}
        return all(member.name not in types or _only_grew(types[member.name], member.type) for member in _children(after))
    if pa.types.is_list(before) and pa.types.is_list(after):
        return _only_grew(before.value_type, after.value_type)
    return bool(before == after)

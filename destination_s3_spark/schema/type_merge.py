"""Changes of a table's columns, and the merge of a column's type with the type that a newer schema declares for it.

Existing members and options keep their positions and names, new ones are appended, missing ones stay. Everything else is a conflict.
`merge_types` rejects a conflict; `replace_types` replaces the table's type with the declared one at that path only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from destination_s3_spark.schema.airbyte_type import AirbyteType, Array, Field, Object, Union, option_name
from destination_s3_spark.schema.names import assign_names

ITEMS = "[]"
"""Placeholder for the items of an array in the path of a change."""


class ChangeKind(Enum):
    """The kinds of change. The values are Snowplow's names where these exist (schema-ddl, `parquet/Migrations.scala`)."""

    KEY_ADDITION = "KeyAddition"
    """A column or member that was not there before."""
    KEY_REMOVAL = "KeyRemoval"
    """A column the source no longer declares. It stays where it is."""
    KEY_RETURN = "KeyReturn"
    """A removed column the source declares again."""
    TYPE_WIDENING = "TypeWidening"
    """A union gained options."""
    RECOVERY = "Recovery"
    """The declared type sends the values of a key to another of its columns, which is new or was added earlier."""
    RETYPE = "Retype"
    """A column or member took another type in place, or a base column took over the values of a recovered column."""


@dataclass(frozen=True, slots=True)
class Change:
    """One change. `path`: JSON keys down to the column or member. `old` and `new`: its types, None where there is none."""

    kind: ChangeKind
    path: tuple[str, ...]
    old: AirbyteType | None
    new: AirbyteType | None


class SchemaVer(NamedTuple):
    """Snowplow's version number of a schema. Only a label for people; schemas are ordered by their ids."""

    model: int
    revision: int
    addition: int

    def __str__(self) -> str:
        return f"{self.model}-{self.revision}-{self.addition}"

    @classmethod
    def parse(cls, text: str) -> SchemaVer:
        """Parse the text of a version. Raises ValueError unless it has the form `1-0-0`."""
        model, revision, addition = (int(part) for part in text.split("-"))
        return cls(model, revision, addition)

    def after(self, changes: tuple[Change, ...]) -> SchemaVer:
        """Return the label of the schema that these changes lead to."""
        kinds = {change.kind for change in changes}
        if kinds & {ChangeKind.RECOVERY, ChangeKind.RETYPE}:
            return SchemaVer(self.model + 1, 0, 0)
        if ChangeKind.TYPE_WIDENING in kinds:
            return SchemaVer(self.model, self.revision + 1, 0)
        return SchemaVer(self.model, self.revision, self.addition + 1) if changes else self


FIRST_VERSION = SchemaVer(1, 0, 0)


class TypeConflictError(Exception):
    """Two types at `path` cannot be merged: `old` is the table's, `new` the declared one."""

    def __init__(self, path: tuple[str, ...], old: AirbyteType, new: AirbyteType) -> None:
        super().__init__()
        self.path = path
        self.old = old
        self.new = new


class Merged(NamedTuple):
    """A merged type and its differences from the table's type."""

    type: AirbyteType
    changes: tuple[Change, ...]


def arranged(declared: AirbyteType) -> AirbyteType:
    """Return the type as a table adopts it: with the members of every object sorted by name in code point order."""
    match declared:
        case Object(fields):
            return Object(_new_members(fields, ()))
        case Array(items):
            return Array(arranged(items))
        case Union(options):
            return Union(tuple(arranged(option) for option in options))
    return declared


def merge_types(table: AirbyteType, declared: AirbyteType, path: tuple[str, ...]) -> Merged:
    """Merge the declared type into the table's. Raises TypeConflictError when they do not merge."""
    return _merge(table, declared, path, _refuse)


def takes(column: AirbyteType, stored: AirbyteType) -> bool:
    """Tell whether a column of one type holds every value of another one as it is."""
    try:
        return merge_types(stored, column, ()).type == column
    except TypeConflictError:
        return False


def replace_types(table: AirbyteType, declared: AirbyteType, path: tuple[str, ...]) -> Merged:
    """Merge like `merge_types`, but resolve a conflict by taking the declared type, recorded as a RETYPE change."""
    return _merge(table, declared, path, _replace)


_Path = tuple[str, ...]
_Resolve = Callable[[_Path, AirbyteType, AirbyteType], Merged]


def _refuse(path: _Path, table: AirbyteType, declared: AirbyteType) -> Merged:
    raise TypeConflictError(path, table, declared)


def _replace(path: _Path, table: AirbyteType, declared: AirbyteType) -> Merged:
    new = arranged(declared)
    if isinstance(new, Union):
        new = Union(tuple(_with_members(option, table, path) for option in new.options))
    return Merged(new, (Change(ChangeKind.RETYPE, path, table, new),))


def _with_members(option: AirbyteType, table: AirbyteType, path: _Path) -> AirbyteType:
    """Return the option of a union that takes the values of the table's object or array, with members that it does not declare."""
    takes = isinstance(table, Object | Array) and option_name(option) == option_name(table)
    return _merge(table, option, path, _replace).type if takes else option


def _merge(table: AirbyteType, declared: AirbyteType, path: _Path, resolve: _Resolve) -> Merged:
    match table, declared:
        case Object(), Object():
            return _merge_objects(table, declared, path, resolve)
        case Array(), Array():
            items = _merge(table.items, declared.items, (*path, ITEMS), resolve)
            return Merged(Array(items.type), items.changes)
        case Union(), Union():
            return _merge_unions(table, declared.options, path, resolve)
        case Union(), _:
            return _merge_unions(table, (declared,), path, resolve)
    if table != declared:
        return resolve(path, table, declared)
    return Merged(table, ())


def _merge_objects(table: Object, declared: Object, path: _Path, resolve: _Resolve) -> Merged:
    incoming = {field.source: field for field in declared.fields}
    members: list[Field] = []
    changes: list[Change] = []
    for member in table.fields:
        field = incoming.pop(member.source, None)
        if field is None:
            members.append(member)
            continue
        merged = _merge(member.type, field.type, (*path, member.source), resolve)
        members.append(Field(member.source, member.name, merged.type))
        changes.extend(merged.changes)
    additions = _new_members(incoming.values(), members)
    changes.extend(Change(ChangeKind.KEY_ADDITION, (*path, member.source), None, member.type) for member in additions)
    return Merged(Object((*members, *additions)), tuple(changes))


def _merge_unions(table: Union, declared: tuple[AirbyteType, ...], path: _Path, resolve: _Resolve) -> Merged:
    """Merge options by name. An option that is missing or declared alone changes nothing, because the union still takes its values."""
    incoming = {option_name(option): option for option in declared}
    options: list[AirbyteType] = []
    changes: list[Change] = []
    for option in table.options:
        new = incoming.pop(option_name(option), option)
        merged = _merge(option, new, path, resolve)
        options.append(merged.type)
        changes.extend(merged.changes)
    if incoming:
        options.extend(arranged(option) for option in incoming.values())
        changes.append(Change(ChangeKind.TYPE_WIDENING, path, table, Union(tuple(options))))
    return Merged(Union(tuple(options)), tuple(changes))


def _new_members(fields: Iterable[Field], members: Iterable[Field]) -> tuple[Field, ...]:
    """Return the fields as additional members of an object that already has `members`.

    A field keeps its name if that is free, so arranging a type twice renames nothing.
    """
    declared = tuple(fields)
    names = assign_names((field.name for field in declared), [member.name for member in members], of_columns=False)
    additions = (Field(field.source, names[field.name], arranged(field.type)) for field in declared)
    return tuple(sorted(additions, key=lambda member: member.name))

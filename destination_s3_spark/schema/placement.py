"""Placement of a key's declared type in one of the key's columns.

A key has a base column. It gets a recovered column (Snowplow's term) when the source declares a type that none of its columns can take. At
most one of the columns is present, which means that it takes the values that the source sends.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import reduce

from destination_s3_spark.schema.airbyte_type import AirbyteType, Field, Union
from destination_s3_spark.schema.type_merge import Change, ChangeKind, Merged, TypeConflictError, arranged, merge_types, replace_types


class SchemaChange(Enum):
    """The effect on the table of a type that does not merge into its column. RECOVER, REWRITE and FAIL have the configuration's values."""

    RECOVER = "recover"
    """The column stays, and an additional column takes the values of the new type."""
    REWRITE = "rewrite"
    """The column takes the new type in place, and the table must be rewritten."""
    FAIL = "fail"
    """The sync ends before it writes anything."""
    KEEP = "keep"
    """The column keeps its type and takes the values too. Meant for text files, where types have no effect."""


@dataclass(frozen=True, slots=True)
class SchemaPolicy:
    """The policy by which a table follows its source.

    `fixed`: JSON keys of the columns that deduplication compares (primary key, cursor, `_ab_cdc_deleted_at`). A second column would split
    their values, so they take a new type in place. `replace`: a new generation will replace all stored rows, so every column takes a new
    type in place, regardless of `change`.
    """

    change: SchemaChange = SchemaChange.RECOVER
    fixed: frozenset[str] = frozenset()
    replace: bool = False

    def in_place(self, source: str) -> bool:
        if self.replace or self.change is SchemaChange.REWRITE:
            return True
        return source in self.fixed and self.change is not SchemaChange.FAIL


@dataclass(frozen=True, slots=True)
class TableField:
    id: int
    """Column id, never reused."""
    name: str
    source: str
    """JSON key of the values."""
    type: AirbyteType
    added_in: int
    """Id of the schema that added the column."""
    required: bool = False
    """Whether that schema required the column. This only decided its position; all columns are nullable."""
    present: bool = True
    """Whether the values that the source sends go to this column."""
    recovered_from: int | None = None
    """Id of the key's base column, None for a base column."""
    emptied: bool = False
    """Whether a rewrite moved the values of this recovered column into the base column."""

    @property
    def field(self) -> Field:
        return Field(self.source, self.name, self.type)


@dataclass(frozen=True, slots=True)
class Placement:
    """The columns of one key in the next schema. `recovered`: the type of a recovered column to add, or None."""

    columns: tuple[TableField, ...]
    changes: tuple[Change, ...] = ()
    recovered: AirbyteType | None = None

    @property
    def retyped(self) -> bool:
        """Whether the base column must be rewritten."""
        return any(change.kind is ChangeKind.RETYPE for change in self.changes)


def place(columns: Sequence[TableField], declared: AirbyteType | None, policy: SchemaPolicy) -> Placement:
    """Place the declared type of a key in one of its columns, base column first. None means that the key is no longer declared.

    Raises TypeConflictError for a conflict if the policy is FAIL.
    """
    source = columns[0].source
    if declared is None:
        return _removed(columns)
    if policy.in_place(source):
        return _into_base(columns, declared, source in policy.fixed)
    match policy.change:
        case SchemaChange.FAIL:
            return _without_conflict(columns, declared, source in policy.fixed)
        case SchemaChange.KEEP:
            return _as_it_is(columns, declared)
    return _recovered(columns, declared)


def _removed(columns: Sequence[TableField]) -> Placement:
    present = _present(columns)
    if present is None:
        return Placement(tuple(columns))
    return Placement(
        tuple(replace(column, present=False) for column in columns),
        (Change(ChangeKind.KEY_REMOVAL, (present.source,), present.type, None),),
    )


def _recovered(columns: Sequence[TableField], declared: AirbyteType) -> Placement:
    """Choose the first column that can take the type, so that a type that comes back finds its old column. Else request a new column."""
    for column in columns:
        try:
            return _present_as(columns, column, merge_types(column.type, declared, (column.source,)))
        except TypeConflictError:
            continue
    before = _present(columns) or columns[0]
    change = Change(ChangeKind.RECOVERY, (before.source,), before.type, arranged(declared))
    return Placement(tuple(replace(column, present=False) for column in columns), (change,), arranged(declared))


def _without_conflict(columns: Sequence[TableField], declared: AirbyteType, fixed: bool) -> Placement:
    """Place the type like `_recovered`, but raise TypeConflictError if values would go to another column than before."""
    if fixed:
        placement = _into_base(columns, declared, fixed)
        if placement.retyped:
            other = next((column.type for column in columns if column.type != declared), declared)
            raise TypeConflictError((columns[0].source,), other, declared)
        return placement
    present = _present(columns)
    if present is not None:
        return _present_as(columns, present, merge_types(present.type, declared, (present.source,)))
    placement = _recovered(columns, declared)
    if placement.recovered is not None:
        merge_types(columns[0].type, declared, (columns[0].source,))  # raises the conflict with the base column
    return placement


def _as_it_is(columns: Sequence[TableField], declared: AirbyteType) -> Placement:
    column = _present(columns) or columns[0]
    try:
        merged = merge_types(column.type, declared, (column.source,))
    except TypeConflictError:
        merged = Merged(column.type, ())
    return _present_as(columns, column, merged)


def _into_base(columns: Sequence[TableField], declared: AirbyteType, fixed: bool) -> Placement:
    """Give the base column the type, along with the values of all recovered columns that still hold some."""
    base = columns[0]
    path = (base.source,)
    filled = [column for column in columns[1:] if not column.emptied]
    # Parts that only a recovered column has, such as members of an object, must fit into the base column too.
    taken = reduce(lambda old, new: replace_types(old, new, path).type, [*(column.type for column in filled), declared])
    merged = replace_types(base.type, taken, path)
    if fixed and isinstance(merged.type, Union) and not isinstance(declared, Union):
        # A union would take each of its options unchanged, but deduplication compares values of one type only.
        merged = Merged(arranged(declared), (Change(ChangeKind.RETYPE, path, base.type, arranged(declared)),))
    moved = tuple(Change(ChangeKind.RETYPE, path, column.type, merged.type) for column in filled)
    returned = () if _present(columns) is not None else (Change(ChangeKind.KEY_RETURN, path, None, merged.type),)
    return Placement(
        (
            replace(base, type=merged.type, present=True),
            *(replace(column, present=False, emptied=True) for column in columns[1:]),
        ),
        (*returned, *merged.changes, *moved),
    )


def _present_as(columns: Sequence[TableField], chosen: TableField, merged: Merged) -> Placement:
    """Direct the key's values to the chosen column, with the merged type."""
    present = _present(columns)
    path = (chosen.source,)
    if present is None:
        moved: tuple[Change, ...] = (Change(ChangeKind.KEY_RETURN, path, None, merged.type),)
    elif present is not chosen:
        moved = (Change(ChangeKind.RECOVERY, path, present.type, merged.type),)
    else:
        moved = ()
    return Placement(
        tuple(
            replace(column, type=merged.type, present=True, emptied=False) if column is chosen else replace(column, present=False)
            for column in columns
        ),
        (*moved, *merged.changes),
    )


def _present(columns: Sequence[TableField]) -> TableField | None:
    return next((column for column in columns if column.present), None)

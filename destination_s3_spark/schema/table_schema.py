"""The columns of a table, and how they follow the schemas its source declares over time.

The order is Snowplow's ("Redshift automatic table migrations"): in the first schema required columns come first, then by name; columns
of a later schema are sorted the same way among themselves and appended. No column is ever moved, renamed or dropped. Everything here is
a pure function of the previous schema and the declared columns.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from destination_s3_spark.errors import Bug, ConfigError
from destination_s3_spark.schema.airbyte_type import AirbyteType, Field
from destination_s3_spark.schema.arrow import META_FIELDS, arrow_field
from destination_s3_spark.schema.change import FIRST_VERSION, Change, ChangeKind, SchemaVer
from destination_s3_spark.schema.json_schema import StreamFields
from destination_s3_spark.schema.names import Level, assign_names
from destination_s3_spark.schema.type_merge import TypeConflictError, arranged, merge_types
from destination_s3_spark.schema.type_text import type_to_text

if TYPE_CHECKING:
    from destination_s3_spark.protocol.catalog import StreamId


@dataclass(frozen=True, slots=True)
class TableField:
    """A data column. `id` is never reused, `source` is the JSON key.

    `added_in` is the id of the schema that brought it, `required` what that schema said of it (it only decided the place: columns are
    nullable). `present` is False while the source does not declare it.
    """

    id: int
    name: str
    source: str
    type: AirbyteType
    added_in: int
    required: bool = False
    present: bool = True


@dataclass(frozen=True, slots=True)
class TableSchema:
    """A table's data columns in order. Ids count from 0 in the table's chain; `version` is only a label."""

    schema_id: int
    fields: tuple[TableField, ...]
    version: SchemaVer = FIRST_VERSION

    @property
    def arrow(self) -> pa.Schema:
        """The connector's own columns, then the data columns."""
        return pa.schema([*META_FIELDS, *(arrow_field(Field(field.source, field.name, field.type)) for field in self.fields)])

    def column(self, source: str) -> TableField | None:
        """The column of a JSON key."""
        return next((field for field in self.fields if field.source == source), None)


@dataclass(frozen=True, slots=True)
class Evolution:
    """The schema after an evolution: the very same object, and no changes, when nothing new was declared."""

    schema: TableSchema
    changes: tuple[Change, ...]

    @property
    def label(self) -> str:
        """The SchemaVer label, for example `1-0-1`."""
        return str(self.schema.version)


def evolve(previous: TableSchema | None, incoming: StreamFields, stream: StreamId) -> Evolution:
    """The table's schema after a source declared `incoming`; ConfigError when it gives a column another type."""
    if previous is None:
        return Evolution(TableSchema(0, _new_columns(incoming, (), 0)), ())
    declared = {field.source: field.type for field in incoming.fields}
    columns: list[TableField] = []
    changes: list[Change] = []
    conflicts: list[TypeConflictError] = []
    for column in previous.fields:
        try:
            carried, column_changes = _carry(column, declared.get(column.source))
        except TypeConflictError as conflict:
            conflicts.append(conflict)
            continue
        columns.append(carried)
        changes.extend(column_changes)
    _refuse(conflicts, stream)
    additions = _new_columns(incoming, previous.fields, previous.schema_id + 1)
    changes.extend(Change(ChangeKind.KEY_ADDITION, (column.source,), None, column.type) for column in additions)
    if not changes:
        return Evolution(previous, ())
    version = previous.version.after(tuple(changes))
    return Evolution(TableSchema(previous.schema_id + 1, (*columns, *additions), version), tuple(changes))


def plan_fields(schema: TableSchema, incoming: Iterable[Field]) -> tuple[Field, ...]:
    """The declared columns as the table has them: its names and its merged types, in the declared order."""
    columns = {column.source: column for column in schema.fields}
    fields = [columns.get(field.source) for field in incoming]
    if any(column is None for column in fields):
        raise Bug("A declared column is missing from the schema its table evolved to. Report this as an error of the connector.")
    return tuple(Field(column.source, column.name, column.type) for column in fields if column is not None)


def _carry(column: TableField, declared: AirbyteType | None) -> tuple[TableField, tuple[Change, ...]]:
    """An existing column in the next schema. Raises TypeConflictError."""
    if declared is None:
        if not column.present:
            return column, ()
        return replace(column, present=False), (Change(ChangeKind.KEY_REMOVAL, (column.source,), column.type, None),)
    merged = merge_types(column.type, declared, (column.source,))
    returned = () if column.present else (Change(ChangeKind.KEY_RETURN, (column.source,), None, merged.type),)
    return replace(column, type=merged.type, present=True), (*returned, *merged.changes)


def _new_columns(incoming: StreamFields, existing: tuple[TableField, ...], schema_id: int) -> tuple[TableField, ...]:
    known = {column.source for column in existing}
    new = {field.source: field.type for field in incoming.fields if field.source not in known}
    names = assign_names(new, [column.name for column in existing], Level.COLUMN)
    order = sorted(new, key=lambda source: (source not in incoming.required, names[source]))
    first_id = 1 + max((column.id for column in existing), default=0)
    return tuple(
        TableField(number, names[source], source, arranged(new[source]), schema_id, required=source in incoming.required)
        for number, source in enumerate(order, first_id)
    )


def _refuse(conflicts: list[TypeConflictError], stream: StreamId) -> None:
    """The one place that decides about columns whose declared type is another one than the table's."""
    if not conflicts:
        return
    what = "; ".join(f'"{".".join(c.path)}" was {type_to_text(c.old)} and is now {type_to_text(c.new)}' for c in conflicts)
    raise ConfigError(
        f'Stream "{stream}": the source declares another type for columns its table already has: {what}. '
        "Undo the change in the source, or clear the stream and run a refresh into a new table.",
        stream=stream,
    )

"""Columns of a table, and the history of its schemas."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from destination_s3_spark.chain.blocks import Block
from destination_s3_spark.chain.events import SetDataSchema
from destination_s3_spark.cli.inspection.table import InspectedTable
from destination_s3_spark.cli.terminal import arrow_text
from destination_s3_spark.schema.airbyte_type import type_label


@dataclass(frozen=True, slots=True)
class InspectedColumn:
    """A column of the final table.

    `airbyte_type`, `field` and `since_schema` are None for the connector's own columns. `recovered_from` names the column whose values this
    one holds since that column's type changed. `declared` is whether the source still has the field.
    """

    column: str
    type: str
    airbyte_type: str | None
    field: str | None
    since_schema: int | None
    recovered_from: str | None
    declared: bool


@dataclass(frozen=True, slots=True)
class RecordedChange:
    """A change that a schema brought. `change`, `path`, `old` and `new` are None for a schema without changes, such as the first one."""

    schema_id: int
    version: str | None
    time: datetime
    block: int
    columns: int
    change: str | None
    path: str | None
    old: str | None
    new: str | None


def columns(table: InspectedTable) -> tuple[InspectedColumn, ...]:
    """Return the columns in their order, or nothing before the first schema."""
    fields = {field["name"]: field for field in (table.state.schema or {}).get("fields", ())}
    names = {field.get("id"): name for name, field in fields.items()}
    found = []
    for column in table.columns or ():
        field = fields.get(column.name, {})
        recorded = field.get("type")
        found.append(
            InspectedColumn(
                column.name,
                arrow_text(column.type),
                None if recorded is None else type_label(recorded),
                field.get("source"),
                field.get("addedIn"),
                None if field.get("recoveredFrom") is None else names.get(field["recoveredFrom"]),
                bool(field.get("present", True)),
            )
        )
    return tuple(found)


def schema_changes(schemas: Sequence[Block]) -> tuple[RecordedChange, ...]:
    """Return each schema with its changes, oldest first. A schema without changes is one row."""
    return tuple(change for block in schemas if isinstance(block.event, SetDataSchema) for change in _changes(block, block.event))


def _changes(block: Block, event: SetDataSchema) -> list[RecordedChange]:
    schema = event.schema
    head = (event.schema_id, schema.get("version"), block.system_time, block.sequence_number, len(schema.get("fields", ())))
    changes = [
        RecordedChange(
            *head, change["kind"], change["path"], *(type_label(change[side]) if side in change else None for side in ("old", "new"))
        )
        for change in schema.get("changes", ())
    ]
    return changes or [RecordedChange(*head, None, None, None, None)]

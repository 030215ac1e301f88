"""Report on a table's schema history in plain text."""

from __future__ import annotations

from typing import Any

from destination_s3_spark.chain.blocks import Block
from destination_s3_spark.chain.events import SetDataSchema
from destination_s3_spark.cli.inspection import InspectedTable
from destination_s3_spark.cli.report import Align, counted, grid, moment


def history(table: InspectedTable) -> str:
    """List each schema with its label and time, and below it the changes: kind, path of JSON keys, types."""
    if not table.schemas:
        return "No schema yet."
    return "\n".join(line for block in table.schemas for line in _schema_lines(block))


def recovered_columns(table: InspectedTable) -> str:
    """List the columns that took over another column's values when their type changed, or return an empty text if there are none."""
    fields = (table.state.schema or {}).get("fields", ())
    names = {field.get("id"): field["name"] for field in fields}
    header = (("column", Align.LEFT), ("holds values of", Align.LEFT), ("since schema", Align.RIGHT), ("type", Align.LEFT))
    rows = [
        (field["name"], str(names.get(field["recoveredFrom"])), str(field["addedIn"]), _type_name(field["type"]))
        for field in fields
        if field.get("recoveredFrom") is not None
    ]
    return grid(header, rows) if rows else ""


def _schema_lines(block: Block) -> list[str]:
    if not isinstance(block.event, SetDataSchema):
        return []
    schema = block.event.schema
    columns = counted(len(schema.get("fields", ())), "data column")
    title = (
        f"schema {block.event.schema_id}  {schema.get('version')}  {moment(block.system_time)}  block {block.sequence_number}, {columns}"
    )
    changes = [(change["kind"], change["path"], _types(change)) for change in schema.get("changes", ())]
    kind_width = max((len(kind) for kind, _, _ in changes), default=0)
    path_width = max((len(path) for _, path, _ in changes), default=0)
    return [title, *(f"    {kind:<{kind_width}}  {path:<{path_width}}  {types}".rstrip() for kind, path, types in changes)]


def _types(change: dict[str, Any]) -> str:
    old, new = (_type_name(change[side]) if side in change else None for side in ("old", "new"))
    return f"{old} -> {new}" if old and new else new or ""


def _type_name(recorded: str | dict[str, Any]) -> str:
    """Return the name of a type as recorded in the chain, without the members of nested types."""
    return recorded if isinstance(recorded, str) else str(recorded.get("kind"))

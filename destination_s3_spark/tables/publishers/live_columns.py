"""Files of a table that readers see, and their columns as the Parquet files store them."""

from __future__ import annotations

import pyarrow as pa

from destination_s3_spark.chain.files import FileEntry, FileKind
from destination_s3_spark.chain.live_files import LiveFiles
from destination_s3_spark.chain.state import TableState
from destination_s3_spark.schema.airbyte_type import Field
from destination_s3_spark.schema.encodings import DESTINATION_S3
from destination_s3_spark.schema.partitioning import Partitioning
from destination_s3_spark.schema.schema_event import from_event, stored_from_event
from destination_s3_spark.schema.table_schema import TableSchema, stored_fields
from destination_s3_spark.tables.publishers.publication import NotPublished


def shown_files(live: LiveFiles) -> list[FileEntry]:
    """List the final files that readers see, without adopted ones."""
    return [file for file in live.of(FileKind.FINAL) if not live.is_pending(file)]


def require_current_types(state: TableState, live: LiveFiles) -> None:
    """Raise NotPublished while files hold a column in an older type."""
    if any((file.schema_id or 0) < state.types_since for file in shown_files(live)):
        raise NotPublished(
            "Files with columns of an earlier type are live. The next sync that completes rewrites or replaces them; until then, readers "
            "keep the last published state."
        )


def recorded_columns(state: TableState) -> pa.Schema:
    """Return the columns of files that are written now. The table must have a schema. Raises DataError if its record is damaged."""
    return stored_from_event(state.schema or {})


def recorded_schema(state: TableState) -> TableSchema:
    """Return the schema of files that are written now. The table must have one. Raises DataError if its record is damaged."""
    return from_event(state.schema or {})


def recorded_fields(state: TableState) -> tuple[Field, ...]:
    """Return the columns of files that are written now as Airbyte types. The table must have a schema."""
    schema = recorded_schema(state)
    return stored_fields(schema, schema.encodings or DESTINATION_S3)


def recorded_partitioning(state: TableState) -> Partitioning | None:
    """Return the partitioning of files that are written now, or None without one. The table must have a schema."""
    if not (state.schema or {}).get("partition"):
        return None
    schema = recorded_schema(state)
    column = None if schema.partition is None else schema.column(schema.partition.source)
    if schema.partition is None or column is None:
        return None
    return Partitioning(schema.partition, Field(column.source, column.name, column.type))


def require_divided(state: TableState, live: LiveFiles) -> None:
    """Raise NotPublished unless all files have the table's partitioning. An earlier version of the connector writes files without it."""
    wanted = recorded_partitioning(state) is not None
    other = next((file.key for file in shown_files(live) if (file.partition is not None) != wanted), None)
    if other is not None or (wanted and live.adopted):
        raise NotPublished(
            f"'{other or live.adopted[0]}' was written by another version of the connector, which did not know the table's partitions. A "
            "refresh of the stream replaces it; until then readers see the table as it was."
        )

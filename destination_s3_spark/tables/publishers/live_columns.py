"""Files of a table that readers see, and their columns as the Parquet files store them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from destination_s3_spark.chain.files import FileEntry, FileKind
from destination_s3_spark.chain.live_files import LiveFiles
from destination_s3_spark.chain.state import TableState
from destination_s3_spark.schema.arrow import schema_from_text
from destination_s3_spark.schema.encodings import DESTINATION_S3, Encodings, stored_schema
from destination_s3_spark.tables.publishers.publication import NotPublished


def shown_files(live: LiveFiles) -> list[FileEntry]:
    """List the final files that readers see, without adopted ones."""
    return [file for file in live.of(FileKind.FINAL) if not live.is_pending(file)]


def stored_columns(state: TableState, live: LiveFiles) -> pa.Schema:
    """Return the columns of the files. The table must have a schema. Raises NotPublished while files hold a column in an older type."""
    if any((file.schema_id or 0) < state.types_since for file in shown_files(live)):
        raise NotPublished(
            "Files with columns of an earlier type are live. The next sync that completes rewrites or replaces them; until then, readers "
            "keep the last published state."
        )
    return recorded_columns(state)


def recorded_columns(state: TableState) -> pa.Schema:
    """Return the columns of files that are written now. The table must have a schema."""
    recorded = state.schema or {}
    encodings = Encodings.from_json(recorded["encodings"]) if recorded.get("encodings") else DESTINATION_S3
    return stored_schema(schema_from_text(recorded["arrowSchema"]), encodings)


def holds(kind: pa.DataType, wanted: Any) -> bool:
    """Return whether the type is, or contains at any depth, a wanted one."""
    return bool(wanted(kind)) or any(holds(kind.field(index).type, wanted) for index in range(kind.num_fields))

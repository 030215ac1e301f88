"""Columns of a table as its Parquet files store them, and the reasons why Iceberg's readers cannot read them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from destination_s3_spark.chain.files import FileEntry, FileKind
from destination_s3_spark.chain.live_files import LiveFiles
from destination_s3_spark.chain.state import TableState
from destination_s3_spark.formats.parquet import TimeEncoding, stored_schema
from destination_s3_spark.schema.arrow import schema_from_text
from destination_s3_spark.tables.publishers.publication import NotPublished

PARQUET = ".parquet"


def shown_files(live: LiveFiles) -> list[FileEntry]:
    """List the final files that readers see."""
    return [file for file in live.of(FileKind.FINAL) if not live.is_pending(file)]


def shown_columns(state: TableState, live: LiveFiles) -> pa.Schema:
    """Return the columns of the live files. Raises NotPublished unless Iceberg has a type for each and all files agree with them."""
    files = shown_files(live)
    _require_own_parquet(files, live)
    if any((file.schema_id or 0) < state.types_since for file in files):
        raise NotPublished(
            "Files with columns of an earlier type are live. The next sync that completes rewrites or replaces them; until then, readers "
            "keep the last published state."
        )
    recorded = state.schema or {}
    columns = schema_from_text(recorded["arrowSchema"])
    encoding = TimeEncoding((recorded.get("encodings") or {}).get("time", TimeEncoding.TIME.value))
    _require_types(stored := stored_schema(columns, encoding))
    return stored


def _require_own_parquet(files: Iterable[FileEntry], live: LiveFiles) -> None:
    if live.adopted:
        raise NotPublished(
            f"{len(live.adopted):,} live files come from destination-s3, whose timestamps in milliseconds Iceberg's readers misread. Run a "
            "refresh that removes the records: it replaces the files."
        )
    other = next((file.key for file in files if not file.key.endswith(PARQUET)), None)
    if other is not None:
        raise NotPublished(
            f"Live files of the table are not Parquet, for example '{other}'. Run a refresh that removes the records: it replaces them."
        )


def _require_types(columns: pa.Schema) -> None:
    times = [field.name for field in columns if _holds(field.type, pa.types.is_time)]
    if times:
        raise NotPublished(
            f"Spark cannot read an Iceberg table with TIME columns, and this one has {', '.join(times)}. Set format.time_encoding to int64 "
            "and run a refresh that removes the records."
        )
    if any(_holds(field.type, _is_millis) for field in columns):
        raise NotPublished(
            "The table's files have timestamps in milliseconds, which Iceberg's readers misread. Run a refresh that removes the records: "
            "its files have microseconds."
        )


def _is_millis(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind)) and kind.unit == "ms"


def _holds(kind: pa.DataType, wanted: Any) -> bool:
    """Return whether the type is, or contains at any depth, a wanted one."""
    return bool(wanted(kind)) or any(_holds(kind.field(index).type, wanted) for index in range(kind.num_fields))

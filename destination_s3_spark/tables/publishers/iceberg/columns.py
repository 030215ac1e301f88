"""Columns of a table for Iceberg, and the reasons why Iceberg's readers could not read its files."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from destination_s3_spark.chain.files import FileEntry
from destination_s3_spark.chain.live_files import LiveFiles
from destination_s3_spark.chain.state import TableState
from destination_s3_spark.tables.publishers.live_columns import holds, require_divided, shown_files, stored_columns
from destination_s3_spark.tables.publishers.publication import NotPublished

PARQUET = ".parquet"


def iceberg_columns(state: TableState, live: LiveFiles) -> pa.Schema:
    """Return the columns of the live files. Raises NotPublished unless Iceberg has a type for each and all files agree with them."""
    _require_own_parquet(shown_files(live), live)
    columns = stored_columns(state, live)
    require_divided(state, live)
    _require_types(columns)
    return columns


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
    times = [field.name for field in columns if holds(field.type, pa.types.is_time)]
    if times:
        raise NotPublished(
            f"Spark cannot read an Iceberg table with TIME columns, and this one has {', '.join(times)}. Set format.time_encoding to int64 "
            "and run a refresh that removes the records."
        )
    if any(holds(field.type, _is_millis) for field in columns):
        raise NotPublished(
            "The table's files have timestamps in milliseconds, which Iceberg's readers misread. Run a refresh that removes the records: "
            "its files have microseconds."
        )


def _is_millis(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind)) and kind.unit == "ms"

"""Rules for tables, as the user configured them."""

from __future__ import annotations

from dataclasses import dataclass

from destination_s3_spark.change_log.options import ChangeLogOptions
from destination_s3_spark.schema.policy import SchemaChange
from destination_s3_spark.tables.runs.keys import CdcDeletion


@dataclass(frozen=True, slots=True)
class Rules:
    """The user's decisions about tables."""

    schema_change: SchemaChange
    deletion: CdcDeletion
    target_file_bytes: int
    """Target size of the final files of a deduplicated table."""
    change_log: ChangeLogOptions | None = None
    """Options of the change log, or None to write no change log."""

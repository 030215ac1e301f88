"""The user's decisions about tables."""

from __future__ import annotations

from dataclasses import dataclass

from destination_s3_spark.change_log.options import ChangeLogOptions
from destination_s3_spark.schema.policy import SchemaChange
from destination_s3_spark.tables.runs.keys import CdcDeletion


@dataclass(frozen=True, slots=True)
class Rules:
    """Decisions about tables. `target_file_bytes`: size of the final files of a deduplicated table.

    `change_log`: what the log of its changes looks like, None for none.
    """

    schema_change: SchemaChange
    deletion: CdcDeletion
    target_file_bytes: int
    change_log: ChangeLogOptions | None = None

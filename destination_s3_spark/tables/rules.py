"""Rules for tables, as the user configured them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from destination_s3_spark.change_log.options import ChangeLogOptions
from destination_s3_spark.schema.partitioning import PartitionSpec
from destination_s3_spark.schema.placement import SchemaChange
from destination_s3_spark.stream_id import StreamId
from destination_s3_spark.tables.runs.keys import CdcDeletion


class Compaction(Enum):
    """Which tables have their small files joined at the end of a sync. AUTO: those whose readers are told which files are the table's."""

    AUTO = "auto"
    ON = "on"
    OFF = "off"


@dataclass(frozen=True, slots=True)
class PartitionRule:
    """The partitioning of the tables of streams whose name matches a pattern."""

    stream: str
    spec: PartitionSpec


@dataclass(frozen=True, slots=True)
class Rules:
    """The user's decisions about tables."""

    schema_change: SchemaChange
    deletion: CdcDeletion
    target_file_bytes: int
    """Size that files grow to as a table grows."""
    compaction: Compaction = Compaction.AUTO
    change_log: ChangeLogOptions | None = None
    """Options of the change log, or None to write no change log."""
    raw_days: int | None = None
    """Days to keep raw files whose rows are in the final table, or None to keep all."""
    change_log_days: int | None = None
    """Days to keep the change log before its newest snapshot, or None to keep all of it."""
    least_unproven_percent: int = 80
    """Rows that a replacement on unproven completion must have, in percent of those it replaces, and not none. 0 allows any."""
    partitions: tuple[PartitionRule, ...] = ()
    """The first one that matches a stream divides its table."""

    def partition_of(self, stream: StreamId) -> PartitionSpec | None:
        """Return the partitioning that the user wants for a stream's table."""
        return next((rule.spec for rule in self.partitions if stream.matches(rule.stream)), None)

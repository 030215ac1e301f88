"""Rules for tables, as the user configured them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from math import ceil

from destination_s3_spark.chain.state import Contents
from destination_s3_spark.change_log.options import ChangeLogOptions
from destination_s3_spark.schema.partitioning import PartitionSpec
from destination_s3_spark.schema.placement import SchemaChange
from destination_s3_spark.stream_id import StreamId
from destination_s3_spark.tables.runs.keys import CdcDeletion
from destination_s3_spark.wording import counted, size_text


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
class MergeRule:
    """When the tables of streams with a name of this pattern are merged: as soon as one of the bounds is reached. None is no bound."""

    stream: str
    longest_wait: timedelta | None
    percent: float | None
    """Waiting rows, in percent of the table's rows."""
    bytes: int | None
    """Size of the waiting runs."""

    def is_due(self, contents: Contents, now: datetime) -> bool:
        """Tell whether the waiting runs of a table are to be merged now. Those of an empty table always are."""
        waiting, due_at = contents.waiting, self.due_at(contents)
        return (
            not contents.rows
            or (due_at is not None and due_at <= now)
            or (self.percent is not None and waiting.rows * 100 >= self.percent * contents.rows)
            or (self.bytes is not None and waiting.bytes >= self.bytes)
        )

    def due_at(self, contents: Contents) -> datetime | None:
        """Return the time at which waiting rows are merged however few they are, or None if there is none."""
        since = contents.waiting_since
        return None if since is None or self.longest_wait is None else since + self.longest_wait


@dataclass(frozen=True, slots=True)
class HistoryRule:
    """The history of the tables of streams with a name of this pattern. `columns`: those whose changes make versions. None is all."""

    stream: str
    columns: frozenset[str] | None


@dataclass(frozen=True, slots=True)
class WaitingRows:
    """Rows that are committed and wait for a merge, beside the table that readers see.

    `due_at`: the time from which they are merged however few they are, if there is one. `due` says in words when they are merged.
    """

    rows: int
    runs: int
    bytes: int
    since: datetime
    due_at: datetime | None
    due: str

    def __str__(self) -> str:
        wait = "waits" if self.rows == 1 else "wait"
        held = f"{counted(self.rows, 'row')} ({counted(self.runs, 'run')}, {size_text(self.bytes)})"
        return f"{held} {wait} beside the table since {_minute(self.since)}, due {self.due}"

    def properties(self) -> dict[str, str]:
        """Return what publishers say about them, by the names in WAITING_PROPERTIES."""
        since = self.since.astimezone(UTC).isoformat(timespec="seconds")
        return dict(zip(WAITING_PROPERTIES, (str(self.rows), since, self.due), strict=True))


WAITING_PROPERTIES = ("airbyte.rows-waiting", "airbyte.waiting-since", "airbyte.merge-due")
"""Names of the properties of a published table that has waiting rows. No other table has them."""


NEXT_SYNC = "at the next sync"
"""When rows are due that no rule lets wait: the last sync had no time to merge them, or did not get so far."""


def waiting_rows(contents: Contents, rule: MergeRule | None) -> WaitingRows | None:
    """Describe the rows that wait under the rule for the table's merges. None if there are none, or an unfinished refresh replaces them."""
    waiting, since = contents.waiting, contents.waiting_since
    if not waiting.files or since is None:
        return None
    due_at = None if rule is None or contents.pending is not None else rule.due_at(contents)
    return WaitingRows(waiting.rows, waiting.files, waiting.bytes, since, due_at, _due(contents, rule, since))


def waiting_properties(contents: Contents, rule: MergeRule | None) -> dict[str, str]:
    """Return the properties with which a table is published: none without waiting rows."""
    waiting = waiting_rows(contents, rule)
    return {} if waiting is None else waiting.properties()


def _due(contents: Contents, rule: MergeRule | None, since: datetime) -> str:
    if rule is None or contents.pending is not None or rule.is_due(contents, since):
        return NEXT_SYNC
    due_at = rule.due_at(contents)
    bounds = (
        None if due_at is None else _minute(due_at),
        None if rule.percent is None else f"at {counted(ceil(contents.rows * rule.percent / 100), 'row')}",
        None if rule.bytes is None else f"at {size_text(rule.bytes)}",
    )
    return " or ".join(bound for bound in bounds if bound is not None)


def _minute(time: datetime) -> str:
    return f"{time.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


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
    merges: tuple[MergeRule, ...] = ()
    """The first one that matches a stream says when its deduplicated table is merged."""
    histories: tuple[HistoryRule, ...] = ()
    """The first one that matches a stream gives its deduplicated table a history."""
    history_days: int | None = None
    """Days to keep versions that have ended, or None to keep all."""

    def partition_of(self, stream: StreamId) -> PartitionSpec | None:
        return next((rule.spec for rule in self.partitions if stream.matches(rule.stream)), None)

    def merges_of(self, stream: StreamId) -> MergeRule | None:
        """Return the rule for the merges of a stream's table, or None if every sync merges it."""
        return next((rule for rule in self.merges if stream.matches(rule.stream)), None)

    def history_of(self, stream: StreamId) -> HistoryRule | None:
        """Return the rule for the history of a stream's table, or None if it has none."""
        return next((rule for rule in self.histories if stream.matches(rule.stream)), None)

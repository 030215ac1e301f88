"""Figures of a sync. Its lines for people and its line for programs are made from the same objects.

The names of the fields of `SyncFigures` and of the classes in it are those of the machine-readable summary in docs/operations.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from destination_s3_spark.decoding.changes import most_changed
from destination_s3_spark.stream_id import StreamId
from destination_s3_spark.sync.spool import Spool
from destination_s3_spark.sync.story.phases import Activity
from destination_s3_spark.tables.rules import WaitingRows, waiting_rows
from destination_s3_spark.tables.stream_table import StreamTable


class Ending(Enum):
    """The way in which a sync ended."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    STOPPED = "stopped"
    """By a signal."""


@dataclass(frozen=True, slots=True)
class ChangedValueCount:
    """The number of values of a field that were nulled or truncated for a reason. A part is None where it is not named."""

    field: str | None
    change: str | None
    reason: str | None
    values: int


@dataclass(frozen=True, slots=True)
class StreamFigures:
    """The figures of one stream. Those of files and bytes include raw files and what merges and compactions wrote.

    `rows_in_table` are the rows that readers see, None if that is unknown. `waiting`: rows that wait for a merge at the end.
    """

    namespace: str | None
    name: str
    sync_mode: str
    destination_sync_mode: str
    records_read: int
    bytes_read: int
    records_committed: int
    records_replayed: int
    records_barred: int
    rows_in_table: int | None
    commits: int
    rewrites: int
    files_written: int
    bytes_written: int
    values_changed: tuple[ChangedValueCount, ...]
    waiting: WaitingRows | None = None

    @property
    def full_name(self) -> str:
        """Namespace and name, as messages show them."""
        return str(StreamId(self.namespace, self.name))

    @property
    def empty(self) -> bool:
        """Whether nothing came in, nothing was written and nothing waits."""
        return not (self.records_read or self.files_written or self.waiting)


@dataclass(frozen=True, slots=True)
class SyncFigures:
    """The figures of a sync. `seconds_by_phase` has the values of `Phase` as keys; the phases overlap.

    `streams` are those with records, written files or waiting rows, in the order of the catalog.
    """

    version: str
    ending: Ending
    seconds: float
    seconds_by_phase: dict[str, float]
    records_read: int
    bytes_read: int
    records_committed: int
    states_read: int
    states_acknowledged: int
    messages_ignored: int
    records_of_unknown_streams: int
    streams: tuple[StreamFigures, ...]
    streams_without_records: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Pulse:
    """The figures of a sync that is going on. The rates are those since the previous pulse.

    `silent_s`: how long the source has been silent, None if it is not.
    """

    seconds: float
    records_read: int
    bytes_read: int
    records_per_s: float
    bytes_per_s: float
    records_committed: int
    spark_starting: bool
    activities: tuple[Activity, ...]
    silent_s: float | None


def stream_figures(index: int, table: StreamTable, spool: Spool) -> StreamFigures:
    """Return the figures of a stream as they are now."""
    stream, written, state = table.stream, table.writer.written, table.writer.state
    rule = table.rules.merges_of(stream.id) if table.deduplicated else None
    return StreamFigures(
        namespace=stream.id.namespace,
        name=stream.id.name,
        sync_mode=stream.sync_mode,
        destination_sync_mode=stream.destination_sync_mode.value,
        records_read=spool.records(index),
        bytes_read=spool.end(index),
        records_committed=written.records,
        records_replayed=written.replayed,
        records_barred=written.barred,
        rows_in_table=None if state is None or state.contents.adopted else state.contents.rows,
        commits=written.commits,
        rewrites=written.rewrites,
        files_written=written.files,
        bytes_written=written.bytes,
        values_changed=tuple(ChangedValueCount(*changed, values) for changed, values in most_changed(written.changed_values).items()),
        waiting=None if state is None else waiting_rows(state.contents, rule),
    )

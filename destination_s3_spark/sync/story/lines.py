"""Figures of a sync, their lines in words, and the summary as one line for programs.

The names of the fields of `SyncFigures` and of the classes in it are those of the machine-readable summary in docs/operations.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

import orjson

from destination_s3_spark.decoding.changes import most_changed
from destination_s3_spark.protocol.catalog import Catalog, Stream
from destination_s3_spark.stream_id import StreamId
from destination_s3_spark.sync.spool import Spool
from destination_s3_spark.sync.story.phases import Activity, Phase
from destination_s3_spark.tables.commit.batch import CommitResult
from destination_s3_spark.tables.rules import WaitingRows, waiting_rows
from destination_s3_spark.tables.stream_table import StreamTable
from destination_s3_spark.wording import counted, duration_text, listed, size_text


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


SUMMARY_PREFIX = "sync summary as JSON: "
"""Beginning of the line for programs. The rest of the line is one JSON object."""
MOST_NAMES = 10
"""Most streams that a line names."""
MOST_COMMIT_LINES = 10
"""Most lines for one commit or update of many tables. The tables with the most bytes are named, the others together."""
MOST_STREAM_LINES = 500
"""Most lines of the summary about single streams. The line for programs has all streams."""
MOST_FIELDS = 5
"""Most fields whose changed values a line names."""

Item = TypeVar("Item")


def start_line(version: str, typist: str, catalog: Catalog, master: str, place: str) -> str:
    """Say what is about to happen: by what, on which streams and how, and where to."""
    streams = listed([f"{stream.id} ({modes(stream)})" for stream in catalog.streams], MOST_NAMES)
    number = counted(len(catalog.streams), "stream")
    doing = f"destination-s3-spark {version} syncs {number} to {place}: {streams}"
    return f"{doing}. {installation(catalog)}. Spark runs on {master}, records are typed {typist}."


def installation(catalog: Catalog) -> str:
    """Say as what the caller treats the connector, which the catalog shows, and what it sends."""
    if catalog.has_generations:
        return "As a connector of the registry: generations and stream statuses"
    return "As a custom connector: no generations, no stream statuses"


def modes(stream: Stream) -> str:
    return f"{stream.sync_mode}, {stream.destination_sync_mode.value}"


def heartbeat_line(pulse: Pulse) -> str:
    """Say how far a sync is and what it is doing."""
    waiting = pulse.records_read - pulse.records_committed
    read = f"{counted(pulse.records_read, 'record')}, {size_text(pulse.bytes_read)} read"
    reading = any(activity.phase is Phase.READING for activity in pulse.activities)
    if reading and pulse.silent_s is None:
        read += f" ({pulse.records_per_s:,.0f} records/s, {size_text(round(pulse.bytes_per_s))}/s)"
    parts = [
        read,
        f"{pulse.records_committed:,} committed",
        f"{waiting:,} waiting to be committed" if waiting > 0 else "",
        "Spark is starting" if pulse.spark_starting else "",
        *(_activity_text(activity) for activity in pulse.activities if activity.phase is not Phase.READING),
    ]
    if reading and pulse.silent_s is not None:
        parts.append(f"waiting for the source, which has sent nothing for {duration_text(pulse.silent_s)}")
    elif not reading and pulse.records_read:
        parts.append("the input has ended")
    return f"after {duration_text(pulse.seconds)}: " + "; ".join(part for part in parts if part)


def commit_lines(results: Sequence[tuple[StreamId, CommitResult, str]], seconds: float) -> Iterator[str]:
    """Tell a commit of records, in one line per table with the place of the table, and one for the many small ones."""
    largest, others = _largest(results, lambda item: item[1].bytes)
    for stream, result, place in largest:
        again = f"; {counted(result.replayed, 'record')} already in the table left out" if result.replayed else ""
        again += f"; {counted(result.barred, 'record')} with forgotten keys left out" if result.barred else ""
        if result.sequence_number is None:
            yield f"{stream}: nothing to commit{again}"
            continue
        yield f"{stream}: committed {counted(result.rows, 'record')} to {place} ({_made(result, seconds)}){again}"
    if others:
        yield f"{counted(len(others), 'other stream')}: committed {_totals([result for _, result, _ in others], 'record')}"


def update_lines(results: Sequence[tuple[StreamId, CommitResult]], seconds: float) -> Iterator[str]:
    """Tell what merges, publications or compactions have written, as `commit_lines` does."""
    largest, others = _largest(results, lambda item: item[1].bytes)
    for stream, result in largest:
        yield f"{stream}: wrote {counted(result.rows, 'row')} ({_made(result, seconds)})"
    if others:
        yield f"{counted(len(others), 'other stream')}: wrote {_totals([result for _, result in others], 'row')}"


def summary_lines(figures: SyncFigures) -> Iterator[str]:
    """Tell how a sync went: as a whole, by stream, and the streams to which nothing happened."""
    yield _sync_text(figures)
    for stream in figures.streams[:MOST_STREAM_LINES]:
        yield _stream_text(stream)
    more = len(figures.streams) - MOST_STREAM_LINES
    if more > 0:
        yield f"{counted(more, 'more stream')} had records; the line for programs has their figures"
    if figures.streams_without_records:
        empty = figures.streams_without_records
        yield f"{counted(len(empty), 'stream')} had no records: {listed(empty, MOST_NAMES)}"


def summary_for_programs(figures: SyncFigures) -> str:
    return SUMMARY_PREFIX + orjson.dumps(figures).decode()


def _sync_text(figures: SyncFigures) -> str:
    phases = [f"{name} {duration_text(seconds)}" for name, seconds in figures.seconds_by_phase.items()]
    parts = [
        f"{counted(figures.records_read, 'record')}, {size_text(figures.bytes_read)} read",
        f"{figures.records_committed:,} committed",
        f"{figures.states_acknowledged:,} of {counted(figures.states_read, 'state')} acknowledged",
        f"{counted(figures.messages_ignored, 'other message')} ignored" if figures.messages_ignored else "",
        f"{counted(figures.records_of_unknown_streams, 'record')} of unknown streams ignored" if figures.records_of_unknown_streams else "",
    ]
    took = f". Seconds by phase: {', '.join(phases)}" if phases else ""
    return f"sync {figures.ending.value} after {duration_text(figures.seconds)}: {', '.join(part for part in parts if part)}{took}"


def _stream_text(stream: StreamFigures) -> str:
    parts = [
        f"{counted(stream.records_read, 'record')} read",
        f"{stream.records_committed:,} committed",
        f"{stream.records_replayed:,} already in the table" if stream.records_replayed else "",
        f"{stream.records_barred:,} with forgotten keys left out" if stream.records_barred else "",
        "" if stream.rows_in_table is None else f"{counted(stream.rows_in_table, 'row')} in the table",
        "" if stream.waiting is None else str(stream.waiting),
        f"{counted(stream.files_written, 'file')}, {size_text(stream.bytes_written)} written",
    ]
    return f"{stream.full_name}: {', '.join(part for part in parts if part)}{_changes_text(stream.values_changed)}"


def _changes_text(changes: Sequence[ChangedValueCount]) -> str:
    if not changes:
        return ""
    total = counted(sum(change.values for change in changes), "value")
    fields = [_change_text(change) for change in changes]
    return f"; {total} nulled or cut: {listed(fields, MOST_FIELDS)}"


def _change_text(change: ChangedValueCount) -> str:
    times = counted(change.values, "time")
    return f"{change.field or 'other fields'} {(change.change or 'changed').lower()} {times} ({change.reason or 'several reasons'})"


def _activity_text(activity: Activity) -> str:
    names = [str(stream) for stream in activity.streams]
    what = f" {listed(names, MOST_NAMES)}" if names else " tables"
    size = f" ({size_text(activity.bytes)})" if activity.bytes else ""
    done = "" if activity.parts is None else f", {activity.parts_done:,} of {counted(activity.parts, 'part')} done"
    return f"{activity.phase.value}{what}{size}{done}"


def _largest(items: Sequence[Item], size: Callable[[Item], int]) -> tuple[list[Item], list[Item]]:
    """Split the items into the largest ones, which get a line each, and the others. Both are in the given order."""
    if len(items) <= MOST_COMMIT_LINES:
        return list(items), []
    chosen = set(sorted(range(len(items)), key=lambda index: -size(items[index]))[: MOST_COMMIT_LINES - 1])
    return [items[i] for i in sorted(chosen)], [item for i, item in enumerate(items) if i not in chosen]


def _made(result: CommitResult, seconds: float) -> str:
    return f"{counted(result.files, 'file')}, {size_text(result.bytes)}, block {result.sequence_number}, {duration_text(seconds)}"


def _totals(results: Sequence[CommitResult], noun: str) -> str:
    rows, files, size = (sum(numbers) for numbers in zip(*((one.rows, one.files, one.bytes) for one in results), strict=True))
    return f"{counted(rows, noun)} in {counted(files, 'file')}, {size_text(size)}"

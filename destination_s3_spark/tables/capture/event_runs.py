"""Runs of events: temporary files that bring events from the key order of merge tasks to the log's order of arrival.

A run is in the order of the log, in pieces that can be read separately: a local file if all tasks run on one machine, else a scratch
object. It has Arrow's IPC format, because Parquet takes four times as long to write that many columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.ipc

from destination_s3_spark.errors import disk_error
from destination_s3_spark.storage.ranged import present
from destination_s3_spark.storage.s3 import S3Store
from destination_s3_spark.storage.settings import S3Settings
from destination_s3_spark.tables.capture.events import POSITION
from destination_s3_spark.tables.runs.merged_rows import READERS
from destination_s3_spark.tables.runs.winners import Indices
from destination_s3_spark.tables.updates.resources import TaskResources

RUNS_SHARE = 24
"""Divisor of a task's budget for the events of one run. While a run is written and the next one is collected, memory is five times that."""
EVENT_PIECE_BYTES = 512 * 2**10
"""Maximum size of a run's pieces in Arrow memory. Smaller pieces take longer to read and write."""
FIELD_BYTES = 40 * 2**10
"""Size per field that raises the maximum of a piece for logs with many fields, because pieces of few rows take longer, too."""
FETCH_BYTES = 64 * 2**20
"""Maximum stored bytes fetched from all runs at once, while earlier events are rendered. Large fetches save requests."""
FETCHES_SHARE = 12
"""Divisor of a task's budget for one fetch. The fetch that is read ahead takes the same amount."""
WINDOW_BYTES = 24 * 2**20
"""Maximum size of the events sorted at once, in Arrow memory."""
WINDOWS_SHARE = 6
"""Divisor of a task's budget for the events of a window. Sorting and rendering them takes twice that in addition."""
_COMPRESSED = pa.ipc.IpcWriteOptions(compression="lz4")
_PLAIN = pa.ipc.IpcWriteOptions()
"""Options of local files. Uncompressed they take half the time to write and read."""


Place: TypeAlias = Path | str
"""The path of a local file, or the key of an object."""


@dataclass(frozen=True, slots=True)
class EventRun:
    """A run: a file or object of `size` bytes, with an index of its pieces."""

    place: Place
    size: int
    firsts: Indices
    """The position of each piece's first event."""
    lasts: Indices
    """The position of each piece's last event."""
    bytes: Indices
    """The size of each piece in Arrow memory."""
    starts: Indices
    """The offset of each piece in the file, followed by the end of the last piece."""

    def within(self, low: int, high: int) -> slice:
        """Return the pieces that may have events at positions from `low` (inclusive) to `high` (exclusive)."""
        begin = int(np.searchsorted(self.lasts, low))
        return slice(begin, max(begin, int(np.searchsorted(self.firsts, high))))


def piece_bytes(event_bytes: int, fields: int, budget_bytes: int) -> int:
    """Choose the size of pieces so that a window has room for a piece of every run.

    `event_bytes` is the approximate size of all events in Arrow memory.
    """
    runs = event_bytes * RUNS_SHARE // budget_bytes + 1
    return max(1, min(max(EVENT_PIECE_BYTES, FIELD_BYTES * fields), budget_bytes // WINDOWS_SHARE // runs))


def write_run(events: Sequence[pa.RecordBatch], key: str, file: Path | None, size: int, s3: S3Settings) -> EventRun:
    """Sort events by position and write them as a run with pieces of about `size` bytes.

    The run is written to `file`, or to the object `key` if there is no file or it cannot be written. Events at the same position keep their
    order. Raises ConfigError or TransientError.
    """
    rows = _in_order(pa.Table.from_batches(events))
    if file is not None:
        with suppress(OSError):  # such as a full disk: the size of events is an estimate, and a wrong one must not end the sync
            file.parent.mkdir(parents=True, exist_ok=True)
            with pa.OSFile(str(file), "wb") as sink:
                return _written(rows, file, size, sink, _PLAIN)
        with suppress(OSError):
            file.unlink(missing_ok=True)
    buffer = pa.BufferOutputStream()
    run = _written(rows, key, size, buffer, _COMPRESSED)
    S3Store(s3).put(key, buffer.getvalue().to_pybytes())
    return run


def _written(rows: pa.Table, place: Place, size: int, sink: pa.NativeFile, options: pa.ipc.IpcWriteOptions) -> EventRun:
    firsts, lasts, sizes, starts = [], [], [], []
    with pa.ipc.new_stream(sink, rows.schema, options=options) as stream:
        stream.write_batch(pa.RecordBatch.from_pylist([], rows.schema))  # the first batch also writes the schema
        for piece in rows.to_batches(max_chunksize=max(1, len(rows) * size // max(rows.nbytes, 1))):
            starts.append(sink.tell())
            sizes.append(piece.nbytes)
            firsts.append(piece[POSITION][0].as_py())
            lasts.append(piece[POSITION][-1].as_py())
            stream.write_batch(piece)
        starts.append(sink.tell())
    return EventRun(place, sink.tell(), *(np.array(column, np.int64) for column in (firsts, lasts, sizes, starts)))


def read_events(runs: Sequence[EventRun], low: int, high: int, schema: pa.Schema, resources: TaskResources) -> Iterator[pa.Table]:
    """Yield the events at positions from `low` (inclusive) to `high` (exclusive), in order.

    Events at the same position come in the order of the runs. Memory stays within the budget if a piece of each run and all events of one
    position fit into a window. Raises DataError for a missing object, or TransientError.
    """
    window_bytes = min(WINDOW_BYTES, resources.budget_bytes // WINDOWS_SHARE)
    spans = _parts(runs, low, high, lambda run: np.diff(run.starts), min(FETCH_BYTES, resources.budget_bytes // FETCHES_SHARE))
    with ThreadPoolExecutor(READERS, "event-read") as pool:
        for span, fetched in _read_ahead(pool, runs, spans, resources.s3):
            for window in _parts(runs, *span, lambda run: run.bytes, window_bytes):
                found = [rows for part in fetched for rows in part.events(*window, schema)]
                if found:
                    yield _in_order(pa.concat_tables(found))


@dataclass(frozen=True, slots=True)
class _Fetched:
    """Consecutive pieces of a run, as bytes."""

    run: EventRun
    pieces: slice
    data: pa.Buffer

    def events(self, low: int, high: int, schema: pa.Schema) -> Iterator[pa.Table]:
        """Yield the events at positions from `low` (inclusive) to `high` (exclusive), in order."""
        run, chosen = self.run, self.run.within(low, high)
        if chosen.start == chosen.stop:
            return
        source = pa.BufferReader(self.data)
        source.seek(int(run.starts[chosen.start] - run.starts[self.pieces.start]))
        batches = [pa.ipc.read_record_batch(pa.ipc.read_message(source), schema) for _ in range(chosen.start, chosen.stop)]
        rows = pa.Table.from_batches(batches)
        begin, end = np.searchsorted(np.asarray(rows[POSITION]), (low, high))
        if begin < end:
            yield rows.slice(begin, end - begin)


def _read_ahead(
    pool: Executor, runs: Sequence[EventRun], spans: Iterable[tuple[int, int]], s3: S3Settings
) -> Iterator[tuple[tuple[int, int], list[_Fetched]]]:
    """Yield each span with its pieces, while the pieces of the next span are being fetched."""
    waiting: list[tuple[tuple[int, int], Iterator[_Fetched]]] = []
    for span in spans:
        inside = [run for run in runs if run.within(*span).start < run.within(*span).stop]
        waiting.append((span, pool.map(partial(_fetch, span=span, s3=s3), inside)))
        if len(waiting) > 1:
            first, fetched = waiting.pop(0)
            yield first, list(fetched)
    for last, fetched in waiting:
        yield last, list(fetched)


def _fetch(run: EventRun, span: tuple[int, int], s3: S3Settings) -> _Fetched:
    """Read the pieces of a run for a span. A local file is memory-mapped, without a copy."""
    pieces = run.within(*span)
    start, end = int(run.starts[pieces.start]), int(run.starts[pieces.stop])
    if isinstance(run.place, str):
        with present(run.place, s3):
            return _Fetched(run, pieces, pa.py_buffer(S3Store(s3).get_range(run.place, start, end, run.size)))
    try:
        with pa.memory_map(str(run.place)) as file:
            file.seek(start)
            return _Fetched(run, pieces, file.read_buffer(end - start))
    except OSError as error:
        raise disk_error(run.place.parent, error) from error


def _parts(
    runs: Sequence[EventRun], low: int, high: int, sizes: Callable[[EventRun], Indices], part_bytes: int
) -> Iterator[tuple[int, int]]:
    """Divide the positions into consecutive ranges (from, to) with pieces of about `part_bytes` each."""
    firsts = np.concatenate([run.firsts[run.within(low, high)] for run in runs])
    order = np.argsort(firsts, kind="stable")
    part = np.cumsum(np.concatenate([sizes(run)[run.within(low, high)] for run in runs])[order]) // max(1, part_bytes)
    cuts = np.unique(firsts[order][1:][np.diff(part) > 0])
    yield from pairwise([low, *cuts[(cuts > low) & (cuts < high)].tolist(), high])


def _in_order(events: pa.Table) -> pa.Table:
    return events.combine_chunks().take(pa.array(np.argsort(np.asarray(events[POSITION]), kind="stable")))

"""Events on their way from merge tasks, which find them key by key, to the files of the log, which have them in the order of arrival.

Comes in: the events of a merge task. Goes out: scratch objects, each in the order of the log and cut into pieces that can be read alone,
and from many of those the events of some positions, in order. The objects live for one sync, so they are Arrow's own bytes: of that many
columns Parquet takes four times as long to write.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.ipc

from destination_s3_spark.storage.s3 import S3Store
from destination_s3_spark.storage.settings import S3Settings
from destination_s3_spark.tables.changes import POSITION, RANK
from destination_s3_spark.tables.history import Indices
from destination_s3_spark.tables.presence import present

RUNS_SHARE = 24
"""One part in so many of a task's budget is for the events of a run: five times that while it is written and the next one comes in."""
PIECE_BYTES = 512 * 2**10
"""The most of what a run is cut into, in Arrow's memory: small pieces take longer."""
READERS = 8
"""Runs that are read side by side: enough to hide the store's latency."""
WINDOW_BYTES = 48 * 2**20
"""Events that are put in order at once, in Arrow's memory, while the next ones are read."""
WINDOWS_SHARE = 6
"""One part in so many of a task's budget is for the events of a window; as much again is read ahead, put in order and rendered."""
_OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4")


@dataclass(frozen=True, slots=True)
class EventRun:
    """A scratch object of `size` bytes. Of each piece: the positions of its first and last event, its bytes in Arrow's memory, and where
    it begins; `starts` also has the end of the last piece.
    """

    key: str
    size: int
    firsts: Indices
    lasts: Indices
    bytes: Indices
    starts: Indices

    def within(self, low: int, high: int) -> slice:
        """The pieces that reach into the positions from `low` on and below `high`."""
        begin = int(np.searchsorted(self.lasts, low))
        return slice(begin, max(begin, int(np.searchsorted(self.firsts, high))))


def piece_bytes(event_bytes: int, budget_bytes: int) -> int:
    """What to cut runs into so that a window has room for a piece of each, if all events together take about so much of Arrow's memory."""
    runs = event_bytes * RUNS_SHARE // budget_bytes + 1
    return max(1, min(PIECE_BYTES, budget_bytes // WINDOWS_SHARE // runs))


def write_run(events: Sequence[pa.Table], key: str, size: int, s3: S3Settings) -> EventRun:
    """Put events in order and into an object, cut into pieces of this size. Raises ConfigError or TransientError."""
    rows = _in_order(pa.concat_tables(events))
    sink = pa.BufferOutputStream()
    firsts, lasts, sizes, starts = [], [], [], []
    with pa.ipc.new_stream(sink, rows.schema, options=_OPTIONS) as stream:
        stream.write_batch(pa.RecordBatch.from_pylist([], rows.schema))  # the schema goes out with the first one
        for piece in rows.to_batches(max_chunksize=max(1, len(rows) * size // max(rows.nbytes, 1))):
            starts.append(sink.tell())
            sizes.append(piece.nbytes)
            firsts.append(piece[POSITION][0].as_py())
            lasts.append(piece[POSITION][-1].as_py())
            stream.write_batch(piece)
        starts.append(sink.tell())
    body = sink.getvalue()
    S3Store(s3).put(key, body.to_pybytes())
    return EventRun(key, body.size, *(np.array(column, np.int64) for column in (firsts, lasts, sizes, starts)))


def read_events(runs: Sequence[EventRun], low: int, high: int, schema: pa.Schema, budget_bytes: int, s3: S3Settings) -> Iterator[pa.Table]:
    """The events at positions from `low` on and below `high`, in order. Raises DataError for a run that is gone, TransientError.

    Memory: within the budget, as long as a piece of each run and all events of one position fit into a window.
    """
    with ThreadPoolExecutor(READERS, "event-read") as pool:
        waiting: list[Iterator[pa.Table | None]] = []
        for window in _windows(runs, low, high, min(WINDOW_BYTES, budget_bytes // WINDOWS_SHARE)):
            waiting.append(pool.map(partial(_pieces, window=window, schema=schema, s3=s3), runs))
            if len(waiting) > 1:
                yield from _put_together(waiting.pop(0))
        for parts in waiting:
            yield from _put_together(parts)


def _windows(runs: Sequence[EventRun], low: int, high: int, window_bytes: int) -> Iterator[tuple[int, int]]:
    """Consecutive ranges of positions (from, to) whose pieces have about as many bytes."""
    firsts = np.concatenate([run.firsts[run.within(low, high)] for run in runs])
    sizes = np.concatenate([run.bytes[run.within(low, high)] for run in runs])
    order = np.argsort(firsts, kind="stable")
    window = np.cumsum(sizes[order]) // max(1, window_bytes)
    cuts = np.unique(firsts[order][1:][np.diff(window) > 0])
    bounds = [low, *cuts[(cuts > low) & (cuts < high)].tolist(), high]
    yield from pairwise(bounds)


def _pieces(run: EventRun, window: tuple[int, int], schema: pa.Schema, s3: S3Settings) -> pa.Table | None:
    """The events of a run at the positions of the window, in order."""
    chosen = run.within(*window)
    if chosen.start == chosen.stop:
        return None
    with present(run.key, s3):
        data = S3Store(s3).get_range(run.key, int(run.starts[chosen.start]), int(run.starts[chosen.stop]), run.size)
    source = pa.BufferReader(data)
    batches = [pa.ipc.read_record_batch(pa.ipc.read_message(source), schema) for _ in range(chosen.start, chosen.stop)]
    rows = pa.Table.from_batches(batches)
    begin, end = np.searchsorted(np.asarray(rows[POSITION]), window)
    return rows.slice(begin, end - begin)


def _put_together(parts: Iterator[pa.Table | None]) -> Iterator[pa.Table]:
    found = [rows for rows in parts if rows is not None and len(rows)]
    if found:
        yield _in_order(pa.concat_tables(found))


def _in_order(events: pa.Table) -> pa.Table:
    """By position, and at one position by rank."""
    return events.combine_chunks().take(pa.array(np.lexsort((np.asarray(events[RANK]), np.asarray(events[POSITION])))))

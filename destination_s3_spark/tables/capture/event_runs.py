"""Events on their way from merge tasks, which find them key by key, to the files of the log, which have them in the order of arrival.

Comes in: the events of a merge task. Goes out: runs, each in the order of the log and cut into pieces that can be read alone, and from many
of those the events of some positions, in order. They live for one sync, so they are Arrow's own bytes: of that many columns Parquet takes
four times as long to write. Where all tasks run on one machine a run is a local file, and a scratch object where they do not.
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
from destination_s3_spark.storage.s3 import S3Store
from destination_s3_spark.storage.settings import S3Settings
from destination_s3_spark.tables.capture.events import POSITION
from destination_s3_spark.tables.capture.history import Indices
from destination_s3_spark.tables.stored.presence import present

RUNS_SHARE = 24
"""One part in so many of a task's budget is for the events of a run: five times that while it is written and the next one comes in."""
PIECE_BYTES = 512 * 2**10
"""The most of what a run is cut into, in Arrow's memory: small pieces take longer."""
FIELD_BYTES = 40 * 2**10
"""Where the log has so many fields that it is more, a piece may have so much for each: pieces of few rows take longer, too."""
READERS = 8
"""Runs that are read side by side: enough to hide the store's latency."""
FETCH_BYTES = 64 * 2**20
"""What is read at once of all runs, as it is stored, while the events read before are rendered: each request costs time."""
FETCHES_SHARE = 12
"""One part in so many of a task's budget is for what is read at once; as much again is read ahead."""
WINDOW_BYTES = 24 * 2**20
"""Events that are put in order at once, in Arrow's memory."""
WINDOWS_SHARE = 6
"""One part in so many of a task's budget is for the events of a window; twice as much again is put in order and rendered."""
_COMPRESSED = pa.ipc.IpcWriteOptions(compression="lz4")
_PLAIN = pa.ipc.IpcWriteOptions()
"""A file is written and read in half the time as it is."""


Place: TypeAlias = Path | str
"""A local file, or the key of an object."""


@dataclass(frozen=True, slots=True)
class EventRun:
    """A file or object of `size` bytes. Of each piece: the positions of its first and last event, its bytes in Arrow's memory, and where
    it begins; `starts` also has the end of the last piece.
    """

    place: Place
    size: int
    firsts: Indices
    lasts: Indices
    bytes: Indices
    starts: Indices

    def within(self, low: int, high: int) -> slice:
        """The pieces that reach into the positions from `low` on and below `high`."""
        begin = int(np.searchsorted(self.lasts, low))
        return slice(begin, max(begin, int(np.searchsorted(self.firsts, high))))

    def uncompressed(self, pieces: slice) -> Indices:
        """The bytes of these pieces in Arrow's memory."""
        return self.bytes[pieces]

    def stored(self, pieces: slice) -> Indices:
        """The bytes of these pieces in the file or object."""
        return np.diff(self.starts)[pieces]


def piece_bytes(event_bytes: int, fields: int, budget_bytes: int) -> int:
    """What to cut runs into so that a window has room for a piece of each, if all events together take about so much of Arrow's memory."""
    runs = event_bytes * RUNS_SHARE // budget_bytes + 1
    return max(1, min(max(PIECE_BYTES, FIELD_BYTES * fields), budget_bytes // WINDOWS_SHARE // runs))


def write_run(events: Sequence[pa.RecordBatch], key: str, file: Path | None, size: int, s3: S3Settings) -> EventRun:
    """Put events in order and into the file, or the object where there is none or it cannot be written, cut into pieces of this size.

    Events at one position stay as they are among each other. Raises ConfigError or TransientError.
    """
    rows = _in_order(pa.Table.from_batches(events))
    if file is not None:
        with suppress(OSError):  # such as a full disk: how much events take is an estimate, and the sync must not end because of it
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
        stream.write_batch(pa.RecordBatch.from_pylist([], rows.schema))  # the schema goes out with the first one
        for piece in rows.to_batches(max_chunksize=max(1, len(rows) * size // max(rows.nbytes, 1))):
            starts.append(sink.tell())
            sizes.append(piece.nbytes)
            firsts.append(piece[POSITION][0].as_py())
            lasts.append(piece[POSITION][-1].as_py())
            stream.write_batch(piece)
        starts.append(sink.tell())
    return EventRun(place, sink.tell(), *(np.array(column, np.int64) for column in (firsts, lasts, sizes, starts)))


def read_events(runs: Sequence[EventRun], low: int, high: int, schema: pa.Schema, budget_bytes: int, s3: S3Settings) -> Iterator[pa.Table]:
    """The events at positions from `low` on and below `high`, in order; those at one position in the order of the runs.

    Raises DataError for an object that is gone, TransientError.

    Memory: within the budget, as long as a piece of each run and all events of one position fit into a window.
    """
    window_bytes = min(WINDOW_BYTES, budget_bytes // WINDOWS_SHARE)
    spans = _parts(runs, low, high, EventRun.stored, min(FETCH_BYTES, budget_bytes // FETCHES_SHARE))
    with ThreadPoolExecutor(READERS, "event-read") as pool:
        for span, fetched in _read_ahead(pool, runs, spans, s3):
            for window in _parts(runs, *span, EventRun.uncompressed, window_bytes):
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
        """Those at positions from `low` on and below `high`, in order."""
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
    """Each span with the pieces that reach into it; those of the next span are under way."""
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
    pieces = run.within(*span)
    return _Fetched(run, pieces, _range(run, int(run.starts[pieces.start]), int(run.starts[pieces.stop]), s3))


def _range(run: EventRun, start: int, end: int, s3: S3Settings) -> pa.Buffer:
    """The bytes from `start` to `end` (exclusive); those of a file as the kernel has them, without a copy."""
    if isinstance(run.place, str):
        with present(run.place, s3):
            return pa.py_buffer(S3Store(s3).get_range(run.place, start, end, run.size))
    try:
        with pa.memory_map(str(run.place)) as file:
            file.seek(start)
            return file.read_buffer(end - start)
    except OSError as error:
        raise disk_error(run.place.parent, error) from error


def _parts(
    runs: Sequence[EventRun], low: int, high: int, sizes: Callable[[EventRun, slice], Indices], part_bytes: int
) -> Iterator[tuple[int, int]]:
    """Consecutive ranges of positions (from, to) whose pieces have about as many bytes."""
    firsts = np.concatenate([run.firsts[run.within(low, high)] for run in runs])
    order = np.argsort(firsts, kind="stable")
    part = np.cumsum(np.concatenate([sizes(run, run.within(low, high)) for run in runs])[order]) // max(1, part_bytes)
    cuts = np.unique(firsts[order][1:][np.diff(part) > 0])
    yield from pairwise([low, *cuts[(cuts > low) & (cuts < high)].tolist(), high])


def _in_order(events: pa.Table) -> pa.Table:
    """By position, stably."""
    return events.combine_chunks().take(pa.array(np.argsort(np.asarray(events[POSITION]), kind="stable")))

"""K-way merge of sorted sources: the winner of every key, in the order of the keys. Each source is read once, one portion ahead.

A round has a bound: the least key at which any source must read on. It takes the rows up to this key from every source and reduces them to
winners. All rows of these keys are then known, except for the last key, and only its winner waits for the next round. With soft deletions,
all decisive rows take the place of a winner. Memory is a few portions per source, even if one key has more versions than fit.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from destination_s3_spark.chain.files import FileEntry, FileKind
from destination_s3_spark.formats.bounded import reading
from destination_s3_spark.storage.ranged import opened
from destination_s3_spark.storage.settings import S3Settings
from destination_s3_spark.tables.runs.keys import KEY, after, keys_of, lower, upper
from destination_s3_spark.tables.runs.sorted_file import RUN_OPTIONS, MergeForm, SortedFile, position
from destination_s3_spark.tables.runs.winners import winners
from destination_s3_spark.tables.stored.rewrite import damaged_file
from destination_s3_spark.tables.updates.resources import TaskResources

READERS = 8
"""Sources of a task that are read in parallel: enough to hide the store's latency."""
PORTIONS_SHARE = 4
"""Divisor of the memory budget for the current portions of all sources. Reading ahead, merging and copying each take the same amount."""
ROUNDS_SHARE = 32
"""Divisor of the memory budget for rows of several rounds that are logged together. One call costs as much as thousands of rows."""


@dataclass(frozen=True, slots=True)
class RowSource:
    """A sorted object of `size` bytes without keys below `first` or above `last`. None is above every key.

    A FINAL or STATE file holds rows of the table, a DELTA is a run, and a TOMBSTONE holds deleted keys. The arrivals of a DELTA count from
    `offset`.
    """

    kind: FileKind
    key: str
    size: int
    offset: int = 0
    first: bytes = b""
    last: bytes | None = None

    @classmethod
    def of(cls, file: FileEntry, base: int = 0) -> RowSource:
        """Make the source of a sorted file whose bounds are known. The arrivals of a DELTA count from `base`."""
        offset = (file.offset or 0) - base if file.kind is FileKind.DELTA else 0
        return cls(file.kind, file.key, file.bytes, offset, lower(keys_of(file)), upper(keys_of(file)))


class ReadsSources(Protocol):
    @property
    def sources(self) -> Sequence[RowSource]: ...


def bytes_read(task: ReadsSources) -> int:
    return sum(source.size for source in task.sources)


@contextmanager
def row_streams(
    sources: Sequence[RowSource], form: MergeForm, bounds: tuple[bytes, bytes | None], resources: TaskResources
) -> Iterator[list[RowStream]]:
    """Open the sources as streams of rows within the bounds.

    Each source is opened when its first key is reached, and its footer is dropped at its end, because the footers of many runs would take
    more memory than their rows.
    """
    portion_bytes = max(RUN_OPTIONS.row_group_bytes, resources.budget_bytes // PORTIONS_SHARE // max(1, len(sources)))
    with ThreadPoolExecutor(READERS, "merge-read") as pool:
        yield [
            RowStream(_read(source, form, bounds, portion_bytes, resources.s3), pool, max(bounds[0], source.first)) for source in sources
        ]


def _read(source: RowSource, form: MergeForm, bounds: tuple[bytes, bytes | None], portion_bytes: int, s3: S3Settings) -> Iterator[pa.Table]:
    with opened(source.key, source.size, s3) as file, reading(lambda fault: damaged_file(source.key, fault)):
        yield from SortedFile(file, source.kind, form, source.offset).read(*bounds, portion_bytes)


class RowStream:
    """The rows of one source, none with a key below `first`. It reads ahead in the pool while its current rows are being merged."""

    def __init__(self, portions: Iterator[pa.Table], pool: Executor, first: bytes = b"") -> None:
        self._portions = portions
        self._pool = pool
        self.first = first
        self._ahead: Future[pa.Table | None] | None = None
        self._rows: pa.Table | None = None
        self._portion = 0
        self.taken = 0  # rows

    def start(self) -> None:
        self._ahead = self._pool.submit(next, self._portions, None)

    def fill(self) -> bool:
        """Make rows available, once started. Return False at the end of the source. Raises any error of the read.

        The source reads on as soon as half of a portion is taken. If it used up each portion first, every round would end with the portion
        of a single source, and many sources would cause many small rounds.
        """
        while self._ahead is not None and (self._rows is None or 2 * len(self._rows) < self._portion):
            rows = self._ahead.result()
            if rows is None:
                self._ahead = None
                break
            self._ahead = self._pool.submit(next, self._portions, None)
            self._portion = len(rows)
            rows = _compact(rows)
            self._rows = rows if self._rows is None else pa.concat_tables([self._rows, rows])
        return self._rows is not None

    @property
    def has_more(self) -> bool:
        """Whether the source may have rows beyond those read so far."""
        return self._ahead is not None

    @property
    def last(self) -> bytes:
        """The greatest key among the available rows. Only after `fill`."""
        key: bytes = self._filled[KEY][-1].as_py()
        return key

    def take(self, bound: bytes) -> pa.Table:
        """Take the available rows up to and including this key. Only after `fill`."""
        rows = self._filled
        count = len(rows) if self.last <= bound else position(rows[KEY], after(bound))
        self._rows = rows.slice(count) if count < len(rows) else None
        self.taken += count
        return rows.slice(0, count)

    @property
    def _filled(self) -> pa.Table:
        assert self._rows is not None  # noqa: S101 (`fill` came before)
        return self._rows


def merged_rows(streams: Iterable[RowStream], form: MergeForm) -> Iterator[pa.Table]:
    """Yield the winners of all keys in merge form, as tables with ascending keys. With soft deletions, yield all decisive rows."""
    pending: list[pa.Table] = []
    reading = _Reading(streams)
    while parts := reading.next_round():
        rows = pa.concat_tables([*pending, *parts])
        best = winners(rows, form.spec) if form.soft is None else form.soft.decisive(rows, form.spec)
        last = position(best[KEY], best[KEY][len(best) - 1].as_py())
        # Copy the rows of the last key, because a slice would keep the whole table in memory.
        pending = [best.take(np.arange(last, len(best)))]
        if last:
            yield best.slice(0, last)
    yield from pending


def all_rows(streams: Iterable[RowStream]) -> Iterator[pa.Table]:
    """Yield all rows, not only winners, in the order of their keys. Those of a key may be in several tables. Memory as in `merged_rows`."""
    reading = _Reading(streams)
    while parts := reading.next_round():
        rows = pa.concat_tables(parts)
        yield rows.take(pc.sort_indices(rows[KEY]))


def complete_rows(streams: Iterable[RowStream], table_bytes: int) -> Iterator[pa.Table]:
    """Yield all rows, not only winners, as tables of at least `table_bytes` except for the last one.

    All rows of a key are in the same table, and the keys of each table follow those of the previous one. Memory is that of `merged_rows`
    plus one table and all rows of one key.
    """
    complete: list[pa.Table] = []
    held: list[pa.Table] = []
    held_key = b""
    reading = _Reading(streams)
    while parts := reading.next_round():
        last = max(part[KEY][len(part) - 1].as_py() for part in parts if len(part))
        if held and last == held_key:
            held += map(_compact, parts)
            continue
        # The rows of the last round wait for this one, so that the last key of a source is no table by itself.
        if complete and sum(part.nbytes for part in complete) >= table_bytes:
            yield pa.concat_tables(complete)
            complete = []
        starts = [position(part[KEY], last) for part in parts]
        complete += [*held, *(part.slice(0, start) for part, start in zip(parts, starts, strict=True) if start)]
        held = [_compact(part.slice(start)) for part, start in zip(parts, starts, strict=True) if start < len(part)]
        held_key = last
    if complete or held:
        yield pa.concat_tables([*complete, *held])


def rows_taken(sources: Iterable[RowSource], streams: Iterable[RowStream]) -> Counter[FileKind]:
    """Count the rows taken from sources by their kind, given the stream of each."""
    taken = Counter[FileKind]()
    for source, stream in zip(sources, streams, strict=True):
        taken[source.kind] += stream.taken
    return taken


class _Reading:
    """The sources being read. A source is started only when its first key is reached, so files of disjoint keys take memory in turn."""

    def __init__(self, streams: Iterable[RowStream]) -> None:
        self._waiting = deque(sorted(streams, key=lambda stream: stream.first))
        self._live: list[RowStream] = []

    def next_round(self) -> list[pa.Table]:
        """Return the rows of all sources up to the bound of the round, or an empty list at the end."""
        self._live = [stream for stream in self._live if stream.fill()]
        while self._waiting and (not self._live or self._waiting[0].first <= self._bound):
            self._start()
        if not self._live:
            return []
        bound = self._bound
        return [stream.take(bound) for stream in self._live]

    @property
    def _bound(self) -> bytes:
        """The greatest key up to which the rows of all live sources have been read. There must be live sources."""
        short = [stream.last for stream in self._live if stream.has_more]
        return min(short) if short else max(stream.last for stream in self._live)

    def _start(self) -> None:
        """Start the waiting sources with the next first keys, and read them in parallel."""
        bound = self._bound if self._live else self._waiting[0].first
        started = []
        while self._waiting and self._waiting[0].first <= bound:
            started.append(self._waiting.popleft())
            started[-1].start()
        self._live += [stream for stream in started if stream.fill()]


def _compact(rows: pa.Table) -> pa.Table:
    """Return the rows in buffers that hold nothing else. A task may need only a few rows of a row group in each of many runs."""
    if rows.get_total_buffer_size() <= 2 * rows.nbytes:
        return rows
    return rows.take(np.arange(len(rows)))

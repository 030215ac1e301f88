"""Many sorted sources of rows -> the winner of every key, in the order of the keys. The heart of a merge.

Comes in: per source, tables in merge form (`tables.runs.sorted_file`) whose keys ascend. Each source is read once, a portion ahead. A
round takes from every source what lies up to the least key at which any of them must read on, so that all rows of those keys but the
last are there, and reduces it to winners; only the winner of that last key waits for the next round. Memory is a few portions of each
source, also when one key has more versions than fit: its rows are reduced round by round.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Executor, Future

import numpy as np
import pyarrow as pa

from destination_s3_spark.tables.runs.keys import KEY
from destination_s3_spark.tables.runs.winners import winners


class RowStream:
    """The rows of one source, none with a key below `first`. It reads on in the pool while what it has is being merged."""

    def __init__(self, portions: Iterator[pa.Table], pool: Executor, first: bytes = b"") -> None:
        self._portions = portions
        self._pool = pool
        self.first = first
        self._ahead: Future[pa.Table | None] | None = None
        self._rows: pa.Table | None = None
        self._portion = 0
        self.taken = 0
        """How many rows went out."""

    def start(self) -> None:
        """Begin to read."""
        self._ahead = self._pool.submit(next, self._portions, None)

    def fill(self) -> bool:
        """Have rows to take, once started; false at the end. Raises what reading raises.

        It reads on as soon as half of a portion is gone: were a source to use up its portion first, every round would only reach to the end
        of one source's, and many sources would make many small rounds.
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
        """Whether there may be rows beyond those it has."""
        return self._ahead is not None

    @property
    def last(self) -> bytes:
        """The greatest key among the rows it has. Only after `fill`."""
        return self._key(len(self._filled) - 1)

    def take(self, bound: bytes) -> pa.Table:
        """The rows up to this key, included, of those it has. Only after `fill`."""
        rows = self._filled
        count = self._count(bound)
        self._rows = rows.slice(count) if count < len(rows) else None
        self.taken += count
        return rows.slice(0, count)

    def _count(self, bound: bytes) -> int:
        low, high = 0, len(self._filled)
        if self.last <= bound:
            return high
        while low < high:
            middle = (low + high) // 2
            if self._key(middle) <= bound:
                low = middle + 1
            else:
                high = middle
        return low

    def _key(self, row: int) -> bytes:
        key: bytes = self._filled[KEY][row].as_py()
        return key

    @property
    def _filled(self) -> pa.Table:
        assert self._rows is not None  # noqa: S101 (`fill` came before)
        return self._rows


def merged_rows(streams: Iterable[RowStream], has_cursor: bool) -> Iterator[pa.Table]:
    """The winners of all keys, in merge form, as tables whose keys ascend."""
    pending: list[pa.Table] = []
    reading = _Reading(streams)
    while parts := reading.next_round():
        best = winners(pa.concat_tables([*pending, *parts]), has_cursor)
        # A copy of the row, which would keep the whole table in memory.
        pending = [best.take([len(best) - 1])]
        if len(best) > 1:
            yield best.slice(0, len(best) - 1)
    yield from pending


def complete_rows(streams: Iterable[RowStream], table_bytes: int) -> Iterator[pa.Table]:
    """All rows, none left out, as tables of at least this size (but the last one) with the rows of one key together.

    The keys of a table come after those of the one before it. Memory is that of `merged_rows`, a table, and all rows of one key.
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
        starts = [_first_of(part, last) for part in parts]
        complete += [*held, *(part.slice(0, start) for part, start in zip(parts, starts, strict=True))]
        if sum(part.nbytes for part in complete) >= table_bytes:
            yield from _put_together(complete)
            complete = []
        held = [_compact(part.slice(start)) for part, start in zip(parts, starts, strict=True) if start < len(part)]
        held_key = last
    yield from _put_together([*complete, *held])


def _put_together(parts: list[pa.Table]) -> Iterator[pa.Table]:
    if any(map(len, parts)):
        yield pa.concat_tables(parts)


def _first_of(rows: pa.Table, key: bytes) -> int:
    """The first row with this key, which is the greatest."""
    low, high = 0, len(rows)
    while low < high:
        middle = (low + high) // 2
        if rows[KEY][middle].as_py() < key:
            low = middle + 1
        else:
            high = middle
    return low


class _Reading:
    """The sources that are being read: not those yet whose keys all come later, so that files side by side take memory one by one."""

    def __init__(self, streams: Iterable[RowStream]) -> None:
        self._waiting = deque(sorted(streams, key=lambda stream: stream.first))
        self._live: list[RowStream] = []

    def next_round(self) -> list[pa.Table]:
        """The rows of all sources up to a key, the last one of some source that must read on; none at the end."""
        self._live = [stream for stream in self._live if stream.fill()]
        while self._waiting and (not self._live or self._waiting[0].first <= self._bound):
            self._start()
        if not self._live:
            return []
        bound = self._bound
        return [stream.take(bound) for stream in self._live]

    @property
    def _bound(self) -> bytes:
        """The key up to which all rows are there. Only with live sources, which have rows."""
        short = [stream.last for stream in self._live if stream.has_more]
        return min(short) if short else max(stream.last for stream in self._live)

    def _start(self) -> None:
        """Start those that come next, side by side."""
        bound = self._bound if self._live else self._waiting[0].first
        started = []
        while self._waiting and self._waiting[0].first <= bound:
            started.append(self._waiting.popleft())
            started[-1].start()
        self._live += [stream for stream in started if stream.fill()]


def _compact(rows: pa.Table) -> pa.Table:
    """The same rows without what else their buffers hold: of a run, a task may need few rows of a row group, and have many runs."""
    if rows.get_total_buffer_size() <= 2 * rows.nbytes:
        return rows
    return rows.take(np.arange(len(rows)))

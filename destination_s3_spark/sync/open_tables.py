"""Open tables of a sync."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from destination_s3_spark.chain.settle import MapCalls
from destination_s3_spark.tables.open_table import OpenTable
from destination_s3_spark.tables.stream_table import StreamTable


class OpenTables:
    """The open tables of a sync by catalog index. Each is opened once, many in parallel. Not thread-safe."""

    def __init__(self, tables: Mapping[int, StreamTable], map_tables: MapCalls) -> None:
        self._tables = tables
        self._map_tables = map_tables
        self._open: dict[int, OpenTable] = {}
        self._decided = False

    def __iter__(self) -> Iterator[OpenTable]:
        return iter(self._open.values())

    def __getitem__(self, stream: int) -> OpenTable:
        return self._open[stream]

    def open(self, streams: Iterable[int]) -> list[OpenTable]:
        """Open the tables that are not open yet and return only these. Raises ConfigError, Fenced, TransientError."""
        closed = [stream for stream in streams if stream not in self._open]
        self.decide(closed)
        self._open.update(zip(closed, self._map_tables(lambda stream: self._tables[stream].open(), closed), strict=True))
        return [self._open[stream] for stream in closed]

    def decide(self, streams: Iterable[int]) -> None:
        """Open the first of the tables alone, unless one was opened before. It decides between syncs that run at the same time."""
        tables = [self._tables[stream] for stream in streams]
        if tables and not self._decided:
            min(tables, key=lambda table: (table.stream.id.namespace or "", table.stream.id.name)).writer.open()
            self._decided = True

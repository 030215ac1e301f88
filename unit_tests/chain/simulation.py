"""A whole sync in miniature around the real commit code: a source that replays, a spool, lands, commits, and a platform that restarts it.

Records are numbers. A data file's content is `start:stop` of its stream's records, so a row can be counted wherever it shows up.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum

from destination_s3_spark.chain.files import FileEntry, FileKind
from destination_s3_spark.chain.log import Chain
from destination_s3_spark.chain.opening import Session
from destination_s3_spark.chain.territory import OrphanUploads, Table
from destination_s3_spark.errors import Fenced, SyncError, TransientError
from destination_s3_spark.formats.file_statistics import WrittenFile
from destination_s3_spark.protocol.state import StateKind, StateMessage
from destination_s3_spark.stream_id import StreamId
from destination_s3_spark.sync.checkpoints import Checkpoints
from destination_s3_spark.sync.commits import Commits
from destination_s3_spark.tables.commit.writer import TableWriter
from destination_s3_spark.tables.landing.slices import Segment, StagedSlice
from unit_tests.chain.bucket import Bucket
from unit_tests.lake.memory_bucket import Crash

RECORD_BYTES = 10
START = datetime(2026, 1, 1, tzinfo=UTC)
SCHEMA = {"schemaId": 0, "fields": [{"id": 1, "name": "n"}]}
_HASHES = [int.from_bytes(hashlib.md5(b"%d" % number).digest(), "big") for number in range(1000)]
MULTISETS = [sum(_HASHES[:number]) for number in range(1001)]

Positions = tuple[int, ...]


class Landing(Enum):
    """Whether every commit finds all streams landed, or the last stream lands at every second commit only."""

    EVERY_STREAM = "every stream"
    LAST_STREAM_LATE = "last stream late"


@dataclass(frozen=True)
class Shape:
    """What a sync looks like. `boundaries`: how many records of each stream lie before each STATE; `totals` lie before COMPLETE.

    `chunks`: into how many pieces the records between two STATEs come; `land_chunks`: land after so many of them, also inside a
    checkpoint; `pieces`: slices per cut; `commit_states`: STATEs per commit; `landing`: which streams land for a commit.
    """

    boundaries: tuple[Positions, ...]
    totals: Positions
    kind: StateKind = StateKind.STREAM
    chunks: int = 1
    land_chunks: int = 1
    pieces: int = 1
    commit_states: int = 1
    landing: Landing = Landing.EVERY_STREAM


ONE_TABLE = Shape(((5,), (10,), (15,), (20,)), (20,))


@dataclass
class Platform:
    """What Airbyte remembers between attempts: how many records of each stream the last STATE it got covers."""

    acked: list[int]
    states: int = 0

    def take(self, message: StateMessage) -> None:
        positions = [int(part) for part in message.line.split(b",")]
        self.states += 1
        for stream, position in enumerate(positions):
            if message.kind is not StateKind.STREAM or stream == message.stream:
                assert position >= self.acked[stream], "a STATE went out of order"
                self.acked[stream] = position


@dataclass
class World:
    """A bucket, and what a reader that globs the final files has seen in it: rows by (stream, record), and the worst it ever saw."""

    completes_again: bool = True
    visible: Counter[tuple[int, int]] = field(default_factory=Counter)
    copies_seen: int = 0

    def __post_init__(self) -> None:
        self.store = Bucket(completes_again=self.completes_again, watch=self._watch)

    def _watch(self, key: str, body: bytes, change: int) -> None:
        if not key.startswith("lake/final/"):
            return
        stream, start, stop = map(int, body.split(b":"))
        for number in range(start, stop):
            self.visible[stream, number] += change
            self.copies_seen = max(self.copies_seen, self.visible[stream, number])


def table(stream: int) -> Table:
    return Table(StreamId("sim", f"t{stream}"), f"t{stream}", f"lake/airbyte_internal/t{stream}/", f"lake/final/t{stream}/")


class Sync:
    """One attempt, as a process would run it. `run` returns when it succeeded; a SyncError is a failed attempt, Crash a dead one."""

    def __init__(self, world: World, shape: Shape, platform: Platform, boundaries: Sequence[Positions] | None = None) -> None:
        self._store = world.store
        self._shape = shape
        self._platform = platform
        self._boundaries = shape.boundaries if boundaries is None else boundaries
        self._start = tuple(platform.acked)
        session = Session(1, 0, START)
        orphans = OrphanUploads(self._store, "lake/")
        streams = range(len(shape.totals))
        chains = {stream: Chain(self._store, table(stream), lambda: START) for stream in streams}
        self.writers = {stream: TableWriter(chain, session, orphans) for stream, chain in chains.items()}
        self._checkpoints = Checkpoints()
        self.commits = Commits(self.writers, self._checkpoints, self._emit)
        self._received = list(self._start)
        self._cut = [0] * len(shape.totals)
        self._attempt_failed = False
        self._commits = 0

    def run(self) -> None:
        try:
            for writer in self.writers.values():
                writer.chain.read()
            self._read_source()
            for stream, total in enumerate(self._shape.totals):
                self._receive(stream, total)
                self._checkpoints.complete(stream, self._end(stream))
            self._land()
            self.commits.commit()
            self.commits.close(OrphanUploads(self._store, "lake/") if self._attempt_failed else None)
        except SyncError:
            self.commits.abandon()
            raise

    def _read_source(self) -> None:
        chunks = states = 0
        for boundary in self._boundaries:
            for stream, position in enumerate(boundary):
                for target in self._targets(stream, position):
                    self._receive(stream, target)
                    chunks += 1
                    if chunks % self._shape.land_chunks == 0:
                        self._land()
                if self._shape.kind is StateKind.STREAM and position > self._start[stream]:
                    self._state(boundary, stream)
                    states += 1
            if self._shape.kind is not StateKind.STREAM and any(p > s for p, s in zip(boundary, self._start, strict=True)):
                self._state(boundary, None)
                states += 1
            if states and states % self._shape.commit_states == 0:
                self._land_for_commit()
                self.commits.commit()

    def _targets(self, stream: int, position: int) -> list[int]:
        have = self._received[stream]
        if position <= have:
            return []
        steps = [have + (position - have) * step // self._shape.chunks for step in range(1, self._shape.chunks + 1)]
        return [step for step in steps if step > have]

    def _receive(self, stream: int, position: int) -> None:
        self._received[stream] = max(position, self._received[stream])

    def _end(self, stream: int) -> int:
        return (self._received[stream] - self._start[stream]) * RECORD_BYTES

    def _state(self, boundary: Positions, stream: int | None) -> None:
        text = b",".join(b"%d" % position for position in boundary)
        message = StateMessage(self._shape.kind, stream, text.decode(), text)
        streams = range(len(self._shape.totals))
        ends = {one: self._end(one) for one in streams}
        self._checkpoints.state(message, ends, {one: end // RECORD_BYTES for one, end in ends.items()}, 0.0)

    def _emit(self, message: StateMessage, _records: int) -> None:
        self._platform.take(message)

    def _land_for_commit(self) -> None:
        self._commits += 1
        late = self._shape.landing is Landing.LAST_STREAM_LATE and self._commits % 2
        self._land(list(self.writers)[:-1] if late else None)

    def _land(self, streams: Sequence[int] | None = None) -> None:
        """Cut whole checkpoints, then what an unfinished one has so far, as the sync does under pressure."""
        for stream in self.writers if streams is None else streams:
            self._land_up_to(stream, self._checkpoints.last_boundary(stream))
            self._land_up_to(stream, self._end(stream))

    def _land_up_to(self, stream: int, end: int) -> None:
        if end <= self._cut[stream]:
            return
        writer = self.writers[stream]
        writer.open()
        writer.ensure_schema(SCHEMA)
        for start, stop in self._pieces(stream, end):
            writer.stage(self._land_slice(stream, start, stop))
        self._cut[stream] = end

    def _pieces(self, stream: int, end: int) -> Iterator[tuple[int, int]]:
        start = self._cut[stream]
        if self.writers[stream].guarding:
            stops = [boundary for boundary in self._checkpoints.boundaries(stream) if start < boundary < end]
        else:
            records, pieces = (end - start) // RECORD_BYTES, self._shape.pieces
            stops = sorted({start + records * piece // pieces * RECORD_BYTES for piece in range(1, pieces)} - {start})
        for stop in (*stops, end):
            yield start, stop
            start = stop

    def _land_slice(self, stream: int, start: int, end: int) -> StagedSlice:
        files = []
        first, last = (self._start[stream] + offset // RECORD_BYTES for offset in (start, end))
        for kind in (FileKind.RAW, FileKind.FINAL):
            key = (
                f"lake/{'final/' if kind is FileKind.FINAL else 'airbyte_internal/'}t{stream}/f-{self.writers[stream].next_token()}.parquet"
            )
            files.append(self._stage_file(kind, key, b"%d:%d:%d" % (stream, first, last), last - first))
        stops = sorted({boundary for boundary in self._checkpoints.boundaries(stream) if start < boundary < end} | {end})
        segments = []
        for stop in stops:
            number = self._start[stream] + stop // RECORD_BYTES
            segments.append(Segment(stop, number - first, (MULTISETS[number] - MULTISETS[first]) % 2**128))
            first = number
        return StagedSlice(start, end, 0, tuple(files), tuple(segments))

    def _stage_file(self, kind: FileKind, key: str, body: bytes, rows: int) -> FileEntry:
        try:
            upload = self._store.stage(key, body)
        except TransientError:
            # A task is tried again with an upload of its own; the first one's is known to nobody.
            self._attempt_failed = True
            upload = self._store.stage(key, body)
        return FileEntry.staged(kind, upload, WrittenFile(rows))


@dataclass(frozen=True)
class Result:
    """What is left after the last attempt. Copies per record: in the chain and as seen by a glob; `copies_seen` is the worst moment."""

    attempts: int
    chain: Counter[tuple[int, int]]
    visible: Counter[tuple[int, int]]
    copies_seen: int
    uploads_left: int

    def lost(self, shape: Shape, copies: int = 1) -> int:
        return sum(copies - min(copies, self.chain[row], self.visible[row]) for row in rows(shape))

    def doubled(self, shape: Shape, copies: int = 1) -> int:
        return sum(max(0, self.chain[row] - copies) + max(0, self.visible[row] - copies) for row in rows(shape))


def rows(shape: Shape) -> Iterator[tuple[int, int]]:
    return ((stream, number) for stream, total in enumerate(shape.totals) for number in range(total))


class Stuck(Exception):
    """Attempt after attempt fails although nothing is broken any more."""


def run_until_done(
    world: World, shape: Shape, platform: Platform, boundaries: Callable[[], Sequence[Positions]] | None = None, attempts: int = 40
) -> int:
    """Start attempts, as the platform does, until one succeeds; their number."""
    for attempt in range(1, attempts + 1):
        world.store.restart()
        try:
            Sync(world, shape, platform, None if boundaries is None else boundaries()).run()
        except (Crash, TransientError, Fenced):
            continue
        return attempt
    raise Stuck


def result(world: World, shape: Shape, attempts: int) -> Result:
    """Read everything back, once with and once without the hint."""
    store = world.store
    store.hook = None
    in_chain: Counter[tuple[int, int]] = Counter()
    for stream in range(len(shape.totals)):
        chain, hinted = (Chain(store, table(stream)) for _ in range(2))
        chain.catch_up()
        hinted.read()
        hinted.catch_up()
        assert (hinted.state, hinted.live_files()) == (chain.state, chain.live_files())
        for file in chain.live_files().files:
            if file.kind is FileKind.FINAL:
                _, start, stop = map(int, store.objects[file.key].split(b":"))
                in_chain.update((stream, number) for number in range(start, stop))
    return Result(attempts, in_chain, world.visible, world.copies_seen, len(store.uploads))

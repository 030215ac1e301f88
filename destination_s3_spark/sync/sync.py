"""Course of one sync.

    read a line ─► spool it ─► batch due: Spark lands it (uploads not visible yet)
                            ─► commit due: one block per table, complete its uploads ─► emit the covered STATEs
    end of input ─► commit whole checkpoints ─► merge, publish or compact tables ─► close every table, or leave it to the next attempt

The main thread reads. `Pipeline` lands and commits one batch at a time. Only `Commits` emits STATEs.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from destination_s3_spark.chain.territory import OrphanUploads
from destination_s3_spark.engine.engine import Engine
from destination_s3_spark.engine.local_workers import LocalWorkers
from destination_s3_spark.errors import ConfigError, TransientError
from destination_s3_spark.protocol.catalog import Catalog
from destination_s3_spark.protocol.messages import Event, Idle, Records, Status, StreamStatus
from destination_s3_spark.protocol.state import StateMessage
from destination_s3_spark.storage.object_store import doubtful_uploads
from destination_s3_spark.stream_id import StreamId
from destination_s3_spark.sync.batches import Backlog, Due, Limits, cut_ends, due, slice_bytes, slice_count
from destination_s3_spark.sync.checkpoints import Checkpoints, Completion, is_clear, proved_by
from destination_s3_spark.sync.commits import Commits
from destination_s3_spark.sync.pipeline import Pipeline
from destination_s3_spark.sync.spool import Spool
from destination_s3_spark.sync.story.phases import Phase, Phases
from destination_s3_spark.sync.update_runner import UpdateRunner
from destination_s3_spark.tables.landing.slices import Slice
from destination_s3_spark.tables.open_table import OpenTable
from destination_s3_spark.tables.retention import delete_expired
from destination_s3_spark.tables.stream_table import StreamTable
from destination_s3_spark.tables.updates.choice import compaction_of, is_compacted, may_be_updated, merge_of, rewrite_of, update_of
from destination_s3_spark.tables.updates.held_back import Replacement, suspicious_replacement
from destination_s3_spark.tables.updates.resources import Resources
from destination_s3_spark.tables.updates.steps import Update
from destination_s3_spark.wording import counted, listed

MOST_NAMES = 10
"""Most streams that an error names."""
LOOK_EVERY_S = 0.05
"""Shortest interval between checks whether a batch is due. A check looks at every stream, and 100,000 events a second may come in."""


@dataclass(slots=True)
class Sync:
    """One run of `write`, and its parts. `tables`, and `open_tables` of them, are by catalog index; `pool` runs S3 calls for many tables.

    `workers` land records on this machine: Spark's, unless that is a cluster. `landing_bytes`: the memory of one for rows.
    `resources` may have to wait for Spark. `orphans` lists the open uploads again, including those of task attempts that died.
    `end_completes`: whether the end of the input completes streams that nothing else completes.
    """

    catalog: Catalog
    tables: Mapping[int, StreamTable]
    open_tables: dict[int, OpenTable]
    checkpoints: Checkpoints
    commits: Commits
    spool: Spool
    engine: Engine
    workers: Engine | LocalWorkers
    pipeline: Pipeline
    updates: UpdateRunner
    phases: Phases
    resources: Callable[[], Resources]
    landing_bytes: int
    limits: Limits
    pool: ThreadPoolExecutor
    orphans: Callable[[], OrphanUploads]
    end_completes: bool = False
    _cut: dict[int, int] = field(default_factory=dict, init=False)
    _statuses: dict[int, Status] = field(default_factory=dict, init=False)
    _held_back: dict[int, Replacement] = field(default_factory=dict, init=False)
    _next_look: float = field(default=0.0, init=False)
    _decided: bool = field(default=False, init=False)
    _doubtful: int = field(default_factory=doubtful_uploads, init=False)

    def run(self, events: Iterable[Event]) -> None:
        """Sync the input to its end. Raises SyncError; even then, everything acknowledged is in S3."""
        with self.phases.during(Phase.READING):
            for event in events:
                self._take(event)
                self._land_when_due()
        self._finish()

    def _take(self, event: Event) -> None:
        match event:
            case Records():
                self.workers.start()
                self.spool.append(event)
                self.phases.silent_since = None
            case StateMessage() as message:
                covered = message.covered(self.tables)
                ends = {stream: self.spool.end(stream) for stream in covered}
                records = {stream: self.spool.records(stream) for stream in covered}
                self.checkpoints.state(message, ends, records, time.monotonic())
            case StreamStatus(stream, status):
                self._statuses[stream] = status
                if status is Status.COMPLETE:
                    self.checkpoints.complete(stream, self.spool.end(stream))
            case Idle():
                self.phases.silent()

    def _land_when_due(self) -> None:
        """Submit a batch if one is due and the pipeline is idle. Wait for the pipeline if the spool or the next batch is full."""
        now = time.monotonic()
        if now < self._next_look and not self.spool.full:
            return
        self._next_look = now + LOOK_EVERY_S
        while True:
            backlog = self._backlog()
            if self.pipeline.busy:
                # Reading on would not speed anything up, and lines that stay in the spool for long cost disk writes.
                if not self.spool.full and sum(stream.bytes for stream in backlog.values()) < self.limits.batch_bytes:
                    return
                self.pipeline.wait()
            reason = due(backlog, self._oldest_state_age_s(), self.spool.size, self.limits)
            if reason is Due.NOTHING:
                return
            slices = self._slices(cut_ends(backlog, reason))
            staged = self.pipeline.uncommitted_bytes + sum(piece.end - piece.start for piece in slices)
            commit = reason is Due.AGE or staged >= self.limits.batch_bytes
            if not slices and not commit:
                return
            self.pipeline.submit(slices, commits=commit)

    def _finish(self) -> None:
        """Commit whole checkpoints, update the tables, join their small files and close them.

        An unfinished stream loses the records that no STATE covers, which the source sends again, and fails the sync.
        """
        completions = {stream: self._completion(stream) for stream in self.tables}
        self.pipeline.wait()
        self.pipeline.submit(self._slices(cut_ends(self._backlog(), Due.AGE)), commits=True)
        self.pipeline.wait()
        self._update(Phase.MERGING, self._due(completions))
        self._update(Phase.COMPACTING, self._compactions())
        self.engine.release()
        unfinished = [stream for stream, completion in completions.items() if completion is Completion.UNFINISHED]
        if unfinished:
            raise self._unfinished_error(unfinished)
        with self.phases.during(Phase.PUBLISHING):
            # Of what this sync has opened, all that the user no longer wants.
            list(self.pool.map(delete_expired, self.open_tables.values()))
            self._close()
        if self._held_back:
            raise self._held_back_error()

    def _close(self) -> None:
        self._decide([table for table in self.tables.values() if table.writer.state and not table.writer.state.closed])
        lost_attempts = self.engine.lost_attempts or self.workers.lost_attempts or doubtful_uploads() > self._doubtful
        self.commits.close(self.orphans() if lost_attempts else None, self._held_back)

    def _update(self, phase: Phase, updates: Sequence[tuple[StreamId, Update]]) -> None:
        if updates:
            with self.phases.during(phase, [stream for stream, _ in updates]):
                self.updates.run(updates)

    def _due(self, completions: Mapping[int, Completion]) -> list[tuple[StreamId, Update]]:
        """Open the tables that may be due for an update, and return the due updates with their streams.

        Suspicious replacements by streams with unproven completion are held back.
        """

        def may_be(stream: int) -> bool:
            return may_be_updated(self.tables[stream], complete=completions[stream] is not Completion.UNFINISHED)

        due = [stream for stream, may in zip(self.tables, self.pool.map(may_be, self.tables), strict=True) if may]
        self._opened(due)
        for stream in due:
            found = suspicious_replacement(self.open_tables[stream]) if completions[stream] is Completion.UNPROVEN else None
            if found is not None:
                self._held_back[stream] = found
        due = [stream for stream in due if stream not in self._held_back]
        updates = self.pool.map(lambda stream: update_of(self.open_tables[stream], self.resources), due)
        return [(self.tables[stream].stream.id, one) for stream, one in zip(due, updates, strict=True) if one is not None]

    def _compactions(self) -> list[tuple[StreamId, Update]]:
        tables = [table for table in self.open_tables.values() if is_compacted(table)]
        updates = self.pool.map(lambda table: compaction_of(table, self.resources), tables)
        return [(table.stream.id, update) for table, update in zip(tables, updates, strict=True) if update is not None]

    def _completion(self, stream: int) -> Completion:
        """Return what the input proves about the stream's end. If the end of the input completes it, commit its last records too."""
        status, end = self._statuses.get(stream), self.spool.end(stream)
        if status is not None or self.catalog.has_generations:
            return Completion.PROVED if status is Status.COMPLETE else Completion.UNFINISHED
        last = self.checkpoints.state_at(stream, end)
        found = proved_by(last, stream, self.catalog.streams[stream], self.spool.records(stream))
        if last is not None and found is Completion.UNPROVEN and is_clear(last, self.catalog.streams, self.spool.totals()[0]):
            return Completion.PROVED
        if found is Completion.UNFINISHED and self.end_completes:
            self.checkpoints.complete(stream, end)
            return Completion.UNPROVEN
        return found

    def _unfinished_error(self, unfinished: Sequence[int]) -> TransientError:
        number = f"{len(unfinished)} of {counted(len(self.tables), 'stream')}"
        names = listed([str(self.catalog.streams[stream].id) for stream in unfinished], MOST_NAMES)
        whose = "its" if len(unfinished) == 1 else "their"
        if self.catalog.has_generations:
            return TransientError(
                f"The input ended, but {number} did not complete ({names}). Everything up to {whose} last STATE is committed; run the sync "
                "again to go on from there."
            )
        return TransientError(
            f"The source did not finish: the input ended, but {number} sent no STATE after {whose} last record ({names}). What {whose} "
            "last STATE covers is committed, other records are dropped, and no table was replaced by them. The next attempt sends them "
            "again: look in the source's log for why it ended. If this source never sends a STATE, set batching.end_of_input to completes."
        )

    def _held_back_error(self) -> ConfigError:
        found = [f"{self.catalog.streams[stream].id} ({replacement})" for stream, replacement in self._held_back.items()]
        return ConfigError(
            f"Nothing proves that the source finished, and the new rows of {counted(len(found), 'stream')} are fewer than "
            f"tables.unproven_replacement allows: {listed(found, MOST_NAMES)}. The tables keep their old rows; the new ones wait beside "
            "them. If the source did finish, publish the new rows with the command accept; else drop them with discard, or run the sync "
            "again, which replaces them. A registry entry for the connector (command registry) lets Airbyte say that a source finished."
        )

    def _backlog(self) -> dict[int, Backlog]:
        return {
            stream: Backlog(self._cut.get(stream, 0), self.checkpoints.last_boundary(stream), self.spool.end(stream))
            for stream in self.tables
        }

    def _oldest_state_age_s(self) -> float:
        since = self.checkpoints.oldest_waiting_since
        return 0 if since is None else time.monotonic() - since

    def _slices(self, ends: Mapping[int, int]) -> tuple[Slice, ...]:
        """Open the tables, rewrite the outdated ones, and cut their streams up to these ends."""
        outdated = [table for table in self._opened(ends) if table.outdated]
        if outdated:
            resources = replace(self.resources(), time=None)  # rows of this sync cannot land before
            self._update(Phase.REWRITING, [(table.stream.id, rewrite_of(table, resources)) for table in outdated])
            self.engine.release()
        target = slice_bytes([end - self._cut.get(stream, 0) for stream, end in ends.items()], self.workers.cores) if ends else 0
        return tuple(piece for stream, end in ends.items() for piece in self._cut_stream(stream, end, target))

    def _opened(self, streams: Iterable[int]) -> list[OpenTable]:
        """Open the tables that are not open yet and return only these. A commit of STATEs alone opens a writer, but no table."""
        closed = {stream: self.tables[stream] for stream in streams if stream not in self.open_tables}
        with self.phases.during(Phase.OPENING):
            self._decide(list(closed.values()))
            list(self.pool.map(lambda table: table.writer.open(), closed.values()))  # the hint may be lost or out of date
        self._merge_first(list(closed.values()))
        with self.phases.during(Phase.OPENING):
            opened = list(self.pool.map(lambda table: table.open(), closed.values()))
        self.open_tables.update(zip(closed, opened, strict=True))
        return opened

    def _decide(self, tables: Sequence[StreamTable]) -> None:
        """Open the first of the tables alone, unless one was opened before. It decides between syncs that run at the same time."""
        if tables and not self._decided:
            min(tables, key=lambda table: (table.stream.id.namespace or "", table.stream.id.name)).writer.open()
            self._decided = True

    def _merge_first(self, tables: Sequence[StreamTable]) -> None:
        """Merge what waits in the tables and cannot wait together with rows of this sync."""
        earlier = [table for one in tables if (table := one.before_this_sync()) is not None]
        if not earlier:
            return
        resources = replace(self.resources(), time=None)
        updates = [(table.stream.id, update) for table in earlier if (update := merge_of(table.open(), resources)) is not None]
        self._update(Phase.REWRITING, updates)
        for table in earlier:
            table.writer.begin_generation()

    def _cut_stream(self, stream: int, end: int, slice_target: int) -> list[Slice]:
        """Cut the stream of an open table, at every checkpoint while the table watches for replays."""
        boundaries = [b for b in self.checkpoints.boundaries(stream) if self._cut.get(stream, 0) < b <= end]
        stops = sorted({*boundaries, end}) if self.tables[stream].writer.guarding else [end]
        cut: list[Slice] = []
        for stop in stops:
            start = self._cut.get(stream, 0)
            most = self.open_tables[stream].most_slice_bytes(self.landing_bytes)
            count = slice_count(stop - start, slice_target, most)
            cut += self.spool.cut(stream, stop, count, boundaries[bisect_right(boundaries, start) : bisect_right(boundaries, stop)])
            self._cut[stream] = stop
        return cut

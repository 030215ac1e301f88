"""Commits what is staged and lets the covered STATEs out: the place where the connector's promise is kept.

A STATE is emitted only after the commit of every record before it has returned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from destination_s3_spark.chain.orphan_uploads import OrphanUploads
from destination_s3_spark.chain.settle import MapCalls
from destination_s3_spark.errors import Bug, SyncError
from destination_s3_spark.protocol.state import StateMessage, Totals
from destination_s3_spark.sync.checkpoints import Checkpoints
from destination_s3_spark.tables.commit.result import CommitResult
from destination_s3_spark.tables.commit.writer import TableWriter
from destination_s3_spark.tables.landing.slices import StagedSlice

Emit = Callable[[StateMessage, int], None]
"""Sends a STATE out, with the number of records it covers, and flushes."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one table's step."""

    stream: int
    result: CommitResult | None = None
    error: SyncError | None = None


class Commits:
    """The commits of one sync. `writers` by catalog index. Not for use by two threads."""

    def __init__(self, writers: Mapping[int, TableWriter], checkpoints: Checkpoints, emit: Emit, map_tables: MapCalls = map) -> None:
        self._writers = writers
        self._checkpoints = checkpoints
        self._emit = emit
        self._map_tables = map_tables
        self._totals: dict[int, Totals] = {}

    def stage(self, stream: int, staged: StagedSlice) -> None:
        """Take over a landed slice of the stream."""
        self._writers[stream].stage(staged)

    def commit(self) -> dict[int, CommitResult]:
        """Commit every whole checkpoint that is staged, then emit the STATEs that are covered. Results by stream.

        A slice that reaches into an unfinished checkpoint waits for its end. When a table fails, the others still get their turn, then
        the first error is raised and no STATE goes out.
        """
        ready = {stream: self._checkpoints.ready(stream, writer.cut_ends) for stream, writer in self._writers.items()}
        results: dict[int, CommitResult] = {}

        def step(stream: int) -> CommitResult:
            return self._writers[stream].commit(ready[stream])

        for outcome in self._on_tables(step, [stream for stream in ready if ready[stream]]):
            if outcome.result is not None:
                self._checkpoints.committed(outcome.stream, ready[outcome.stream][-1].end)
                results[outcome.stream] = outcome.result
        for state in self._checkpoints.take_covered():
            self._totals |= state.totals
            self._emit(replace(state.message, totals=self._totals), state.records)
        return results

    def close(self, orphans: OrphanUploads | None = None) -> None:
        """Close every table, after a successful sync whose STATEs are all out. `orphans` as in `TableWriter.close`.

        Closing forgets what a source may send again, so with a STATE still waiting it would turn a replay into doubled rows.
        """
        if self._checkpoints.oldest_waiting_since is not None:
            raise Bug("Tables were to be closed while a STATE is still waiting for its records.")

        def step(stream: int) -> None:
            self._writers[stream].close(orphans)

        self._on_tables(step, self._writers)

    def abandon(self) -> None:
        """End the tables after a failed sync, up to one at which the store does not answer; never raises."""
        all(writer.abandon() for writer in self._writers.values())

    def _on_tables(self, step: Callable[[int], CommitResult | None], streams: Iterable[int]) -> list[Outcome]:
        """Do the step for each table. All get their turn before the first error is raised."""

        def guarded(stream: int) -> Outcome:
            try:
                return Outcome(stream, step(stream))
            except SyncError as error:
                return Outcome(stream, error=error)

        outcomes = list(self._map_tables(guarded, streams))
        for outcome in outcomes:
            if outcome.error is not None:
                raise outcome.error
        return outcomes

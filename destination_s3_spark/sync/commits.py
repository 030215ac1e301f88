"""Commits of staged slices to the tables of a sync, and emission of the STATEs that they cover.

This module upholds the connector's guarantee: a STATE is emitted only after the commit of every record before it has returned.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from destination_s3_spark.chain.settle import MapCalls
from destination_s3_spark.chain.territory import OrphanUploads
from destination_s3_spark.errors import Bug, DataError, Fenced, SyncError
from destination_s3_spark.protocol.state import StateMessage, Totals
from destination_s3_spark.sync.checkpoints import Checkpoints
from destination_s3_spark.tables.commit.batch import CommitResult
from destination_s3_spark.tables.commit.writer import TableWriter
from destination_s3_spark.tables.landing.slices import StagedSlice

Result = TypeVar("Result")


Emit = Callable[[StateMessage, int], None]
"""Emits a STATE with the number of records it covers, and flushes."""


@dataclass(slots=True)
class Commits:
    """The commits of one sync. `writers` are by catalog index. Not thread-safe."""

    writers: Mapping[int, TableWriter]
    checkpoints: Checkpoints
    emit: Emit
    map_tables: MapCalls = map
    _totals: dict[int, Totals] = field(default_factory=dict, init=False)

    def stage(self, stream: int, staged: StagedSlice) -> None:
        """Add a landed slice of the stream to its table's next commit."""
        self.writers[stream].stage(staged)

    def commit(self) -> dict[int, CommitResult]:
        """Commit every whole checkpoint that is staged, then emit the STATEs that are covered. Return the results by stream.

        A slice that reaches into an unfinished checkpoint waits for that checkpoint's end. If a table fails, the others are still
        committed; then the first error is raised and no STATE is emitted.
        """
        ready = {stream: self.checkpoints.ready(stream, writer.cut_ends) for stream, writer in self.writers.items()}
        results = self._on_tables(lambda stream: self.writers[stream].commit(ready[stream]), [one for one in ready if ready[one]])
        for stream in results:
            self.checkpoints.committed(stream, ready[stream][-1].end)
        for state in self.checkpoints.take_covered():
            self._totals |= state.totals
            self.emit(replace(state.message, totals=self._totals), state.records)
        return results

    def close(self, orphans: OrphanUploads | None = None, held_back: Container[int] = ()) -> None:
        """Close every table after a successful sync that has emitted all its STATEs. `orphans`: as in `TableWriter.close`.

        `held_back`: the streams with a pending generation that stays beside its table.

        Closing clears the replay list, so closing while a STATE is still waiting would turn a replay into duplicate rows. Raises Bug then.
        """
        if self.checkpoints.oldest_waiting_since is not None:
            raise Bug("Tables were to be closed while a STATE is still waiting for its records.")
        self._on_tables(lambda stream: self.writers[stream].close(orphans, holds_back=stream in held_back), list(self.writers))

    def abandon(self) -> None:
        """End the tables after a failed sync. Stop at the first table for which the store does not answer. Never raises."""
        all(writer.abandon() for writer in self.writers.values())

    def clear_up(self, error: Exception, orphans: OrphanUploads) -> None:
        """Drop what a failed sync has left in tables that another one has taken over. Call it after `abandon`. Never raises.

        No later sync looks there, because the other one closes the tables. Being overtaken shows in no other kinds of errors.
        """
        if isinstance(error, Fenced | DataError):
            list(self.map_tables(lambda writer: writer.clear_up(orphans), self.writers.values()))

    def _on_tables(self, step: Callable[[int], Result], streams: Sequence[int]) -> dict[int, Result]:
        """Run the step for each table and return the results. Raises the first error after the step has run for all tables."""

        def guarded(stream: int) -> Result | SyncError:
            try:
                return step(stream)
            except SyncError as error:
                return error

        results: dict[int, Result] = {}
        for stream, result in zip(streams, list(self.map_tables(guarded, streams)), strict=True):
            if isinstance(result, SyncError):
                raise result
            results[stream] = result
        return results

"""Background pipeline that lands a batch, releases it from the spool, and commits it if due, one batch at a time.

The reader submits a batch and continues reading. It waits only when the spool or the next batch is full.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial

from destination_s3_spark.engine.engine import Engine
from destination_s3_spark.engine.local_workers import LocalWorkers
from destination_s3_spark.errors import DataError
from destination_s3_spark.storage.credentials import forwardable
from destination_s3_spark.storage.settings import S3Settings
from destination_s3_spark.sync.batches import grouped
from destination_s3_spark.sync.commits import Commits
from destination_s3_spark.sync.spool import Spool
from destination_s3_spark.sync.story.lines import commit_lines
from destination_s3_spark.sync.story.phases import Phase, Phases
from destination_s3_spark.tables.columns.row_plan import unfit_warnings
from destination_s3_spark.tables.commit.batch import CommitResult
from destination_s3_spark.tables.landing.land import LandTask, UnreadableLine, land_slice
from destination_s3_spark.tables.landing.slices import Slice
from destination_s3_spark.tables.open_table import OpenTable

logger = logging.getLogger("airbyte")


@dataclass(slots=True)
class Pipeline:
    """A background thread that lands and commits batches, one at a time. `workers` land them; they must be on this machine.

    `tables` are those that are open, by catalog index.
    """

    tables: Mapping[int, OpenTable]
    spool: Spool
    workers: Engine | LocalWorkers
    commits: Commits
    s3: S3Settings
    phases: Phases
    uncommitted_bytes: int = field(default=0, init=False)
    _thread: ThreadPoolExecutor = field(default_factory=partial(ThreadPoolExecutor, 1, "pipeline"), init=False)
    _running: Future[None] | None = field(default=None, init=False)

    @property
    def busy(self) -> bool:
        """Whether a batch is in progress. Raises the error of the last batch if it failed."""
        if self._running is not None and self._running.done():
            self.wait()
        return self._running is not None

    def submit(self, slices: Sequence[Slice], *, commits: bool) -> None:
        """Start a batch: slices of all streams to land together, and whether to commit then. Without slices, only a commit is due.

        Waits for the previous batch, and raises its error if it failed.
        """
        self.wait()
        self._running = self._thread.submit(self._work, slices, commits)

    def wait(self) -> None:
        """Wait for the running batch. Raises its error if it failed."""
        running, self._running = self._running, None
        if running is not None:
            running.result()

    def stop(self) -> None:
        """Accept no more batches and wait for the running one, ignoring its outcome."""
        self._thread.shutdown(wait=True, cancel_futures=True)

    def _work(self, slices: Sequence[Slice], commits: bool) -> None:
        started = time.monotonic()
        if slices:
            streams = [self.tables[stream].stream.id for stream in sorted({piece.stream for piece in slices})]
            size = sum(piece.end - piece.start for piece in slices)
            with self.phases.during(Phase.LANDING, streams, size):
                self._land(slices)
            self.uncommitted_bytes += size
        if commits:
            with self.phases.during(Phase.COMMITTING):
                results = self.commits.commit()
            self._log(results, time.monotonic() - started)
            self.uncommitted_bytes = 0

    def _land(self, slices: Sequence[Slice]) -> None:
        groups = grouped(self._tasks(slices), lambda task: task.slice.end - task.slice.start, self.workers.cores)
        try:
            landed = self.workers.run(land_slice, groups)
        except UnreadableLine as failure:
            raise self._placed(failure) from None
        staged = {(task.slice.stream, task.slice.start): result for group, results in zip(groups, landed, strict=True)
                  for task, result in zip(group, results, strict=True)}  # fmt: skip
        unfit: dict[int, Counter[str]] = {}
        for piece in slices:
            result = staged[piece.stream, piece.start]
            unfit.setdefault(piece.stream, Counter()).update(result.unfit)
            self.commits.stage(piece.stream, result)
            self.spool.release(piece)
        self._warn(unfit)

    def _warn(self, unfit: Mapping[int, Mapping[str, int]]) -> None:
        for stream, counts in unfit.items():
            table = self.tables[stream]
            for warning in unfit_warnings(table.spec, counts) if table.spec is not None else ():
                logger.warning("stream %s: %s", table.stream.id, warning)

    def _tasks(self, slices: Sequence[Slice]) -> list[LandTask]:
        s3 = forwardable(self.s3)  # once per batch, because credentials may expire
        by_stream: dict[int, list[Slice]] = {}
        for piece in slices:
            by_stream.setdefault(piece.stream, []).append(piece)
        return [task for stream, pieces in by_stream.items() for task in self.tables[stream].land_tasks(pieces, s3)]

    def _placed(self, failure: UnreadableLine) -> DataError:
        """Return the failure as a DataError that gives the line's position in the input."""
        offset = self.spool.input_offset(failure.catalog_index, failure.record)
        name = self.tables[failure.catalog_index].stream.id
        return DataError(
            f"Stream {name}: the RECORD line at byte {offset} of the input cannot be read as a record of this stream. Nothing after the "
            "last acknowledged STATE was kept; report this to the source connector's maintainers and run the sync again.",
            stream=name,
        )

    def _log(self, results: Mapping[int, CommitResult], seconds: float) -> None:
        tables = [(self.tables[stream], result) for stream, result in results.items()]
        committed = [(table.stream.id, result, f"s3://{self.s3.bucket}/{table.layout.root}") for table, result in tables]
        for line in commit_lines(committed, seconds):
            logger.info("%s", line)

"""Background pipeline that lands a batch with Spark, releases it from the spool, and commits it if due, one batch at a time.

The reader submits a batch and continues reading. It waits only when the spool or the next batch is full. Executors of a cluster cannot read
the spool and receive slices through the bucket.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from enum import Enum
from functools import partial

from destination_s3_spark.engine.engine import Engine
from destination_s3_spark.errors import DataError, SyncError
from destination_s3_spark.storage.credentials import forwardable
from destination_s3_spark.storage.object_store import ObjectStore
from destination_s3_spark.storage.settings import S3Settings
from destination_s3_spark.sync.batches import grouped
from destination_s3_spark.sync.commits import Commits, OpenTables
from destination_s3_spark.sync.spool import Spool
from destination_s3_spark.sync.story.lines import commit_lines
from destination_s3_spark.sync.story.phases import Phase, Phases
from destination_s3_spark.tables.columns.row_plan import unfit_warnings
from destination_s3_spark.tables.commit.batch import CommitResult
from destination_s3_spark.tables.landing.land import (
    LandTask,
    RemoteLandTask,
    UnreadableLine,
    land_remote_slice,
    land_slice,
    object_keys,
    remote,
    upload_lines,
)
from destination_s3_spark.tables.landing.slices import Slice, StagedSlice

SLICE_UPLOADS_AT_ONCE = 4
"""Slices that are compressed and uploaded in parallel."""

logger = logging.getLogger("airbyte")

Land = Callable[[Sequence[Sequence[LandTask]]], list[list[StagedSlice]]]
"""Lands groups of tasks and returns the results in the same shape."""


class AfterLanding(Enum):
    """The action after a batch is staged."""

    COMMIT = "commit"
    GO_ON = "go on"


@dataclass(frozen=True, slots=True)
class LandingBatch:
    """Slices of all streams that are landed together. Without slices, only a commit is due."""

    slices: tuple[Slice, ...]
    then: AfterLanding

    @property
    def bytes(self) -> int:
        """Spooled bytes of the slices."""
        return sum(piece.end - piece.start for piece in self.slices)


class Pipeline:
    """A background thread that lands and commits batches, one at a time.

    `land` replaces the default landing for an engine with workers that cannot read the spool.
    """

    def __init__(
        self,
        tables: OpenTables,
        spool: Spool,
        engine: Engine,
        commits: Commits,
        s3: S3Settings,
        phases: Phases,
        land: Land | None = None,
    ) -> None:
        self._tables = tables
        self._spool = spool
        self._engine = engine
        self._commits = commits
        self._s3 = s3
        self._phases = phases
        self._land_groups = land or partial(engine.run, land_slice)
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="pipeline")
        self._running: Future[None] | None = None
        self.uncommitted_bytes = 0

    @property
    def busy(self) -> bool:
        """Whether a batch is in progress. Raises the error of the last batch if it failed."""
        if self._running is not None and self._running.done():
            self.wait()
        return self._running is not None

    def submit(self, batch: LandingBatch) -> None:
        """Start a batch, after waiting for the previous one. Raises the error of the previous batch if it failed."""
        self.wait()
        self._running = self._thread.submit(self._work, batch)

    def wait(self) -> None:
        """Wait for the running batch. Raises its error if it failed."""
        running, self._running = self._running, None
        if running is not None:
            running.result()

    def stop(self) -> None:
        """Accept no more batches and wait for the running one, ignoring its outcome."""
        self._thread.shutdown(wait=True, cancel_futures=True)

    def _work(self, batch: LandingBatch) -> None:
        started = time.monotonic()
        if batch.slices:
            streams = [self._tables[stream].stream.id for stream in sorted({piece.stream for piece in batch.slices})]
            with self._phases.during(Phase.LANDING, streams, batch.bytes):
                self._land(batch.slices)
            self.uncommitted_bytes += batch.bytes
        if batch.then is AfterLanding.COMMIT:
            with self._phases.during(Phase.COMMITTING):
                results = self._commits.commit()
            self._log(results, time.monotonic() - started)
            self.uncommitted_bytes = 0

    def _land(self, slices: Sequence[Slice]) -> None:
        groups = grouped(self._tasks(slices), lambda task: task.slice.end - task.slice.start, self._engine.cores)
        try:
            landed = self._land_groups(groups)
        except UnreadableLine as failure:
            raise self._placed(failure) from None
        staged = {(task.slice.stream, task.slice.start): result for group, results in zip(groups, landed, strict=True)
                  for task, result in zip(group, results, strict=True)}  # fmt: skip
        unfit: dict[int, Counter[str]] = {}
        for piece in slices:
            result = staged[piece.stream, piece.start]
            unfit.setdefault(piece.stream, Counter()).update(result.unfit)
            self._commits.stage(piece.stream, result)
            self._spool.release(piece)
        self._warn(unfit)

    def _warn(self, unfit: Mapping[int, Mapping[str, int]]) -> None:
        for stream, counts in unfit.items():
            table = self._tables[stream]
            for warning in unfit_warnings(table.spec, counts) if table.spec is not None else ():
                logger.warning("stream %s: %s", table.stream.id, warning)

    def _tasks(self, slices: Sequence[Slice]) -> list[LandTask]:
        s3 = forwardable(self._s3)  # once per batch, because credentials may expire
        by_stream: dict[int, list[Slice]] = {}
        for piece in slices:
            by_stream.setdefault(piece.stream, []).append(piece)
        return [task for stream, pieces in by_stream.items() for task in self._tables[stream].land_tasks(pieces, s3)]

    def _placed(self, failure: UnreadableLine) -> DataError:
        """Return the failure as a DataError that gives the line's position in the input."""
        offset = self._spool.input_offset(failure.catalog_index, failure.record)
        name = self._tables[failure.catalog_index].stream.id
        return DataError(
            f"Stream {name}: the RECORD line at byte {offset} of the input cannot be read as a record of this stream. Nothing after the "
            "last acknowledged STATE was kept; report this to the source connector's maintainers and run the sync again.",
            stream=name,
        )

    def _log(self, results: Mapping[int, CommitResult], seconds: float) -> None:
        """Log what a commit has made durable."""
        tables = [(self._tables[stream], result) for stream, result in results.items()]
        committed = [(table.stream.id, result, f"s3://{self._s3.bucket}/{table.layout.root}") for table, result in tables]
        for line in commit_lines(committed, seconds):
            logger.info("%s", line)


class RemoteLanding:
    """The landing of a sync's slices on the executors of a cluster."""

    def __init__(self, engine: Engine, store: ObjectStore, tables: OpenTables) -> None:
        self._engine = engine
        self._store = store
        self._tables = tables

    def land(self, groups: Sequence[Sequence[LandTask]]) -> list[list[StagedSlice]]:
        """Land every task like `Engine.run` with `land_slice`. Delete the slices from the bucket afterwards, unless this process dies."""
        travelling = [[self._named(task) for task in tasks] for tasks in groups]
        keys = [key for tasks in travelling for task in tasks for key in task.objects]
        try:
            self._upload(groups, travelling)
            landed = self._engine.run(land_remote_slice, travelling)
        except BaseException:
            self._clear_up(keys)
            raise
        self._store.delete(keys)
        return landed

    def _named(self, task: LandTask) -> RemoteLandTask:
        table = self._tables[task.slice.stream]
        prefix = table.layout.scratch_prefix(table.writer.next_token())
        return remote(task, object_keys(task.slice, prefix))

    def _upload(self, groups: Sequence[Sequence[LandTask]], travelling: Sequence[Sequence[RemoteLandTask]]) -> None:
        pairs = [
            (here.slice, there.objects)
            for tasks, twins in zip(groups, travelling, strict=True)
            for here, there in zip(tasks, twins, strict=True)
        ]
        with ThreadPoolExecutor(SLICE_UPLOADS_AT_ONCE, "slices") as pool:
            list(pool.map(lambda pair: upload_lines(pair[0], pair[1], self._store), pairs))

    def _clear_up(self, keys: Sequence[str]) -> None:
        """Delete the slices after a failure. Only log an error of the deletion: the next opening of the table deletes what is left."""
        try:
            self._store.delete(keys)
        except SyncError as error:
            logger.warning("records on their way to executors were left for the next sync to delete: %s", error)

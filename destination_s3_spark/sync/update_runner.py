"""Runner of table updates, with one Spark job per step for all tables together."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from destination_s3_spark.engine.engine import Engine, Progress
from destination_s3_spark.errors import Bug, SyncError
from destination_s3_spark.stream_id import StreamId
from destination_s3_spark.sync.batches import grouped
from destination_s3_spark.sync.story.lines import update_lines
from destination_s3_spark.tables.commit.batch import CommitResult
from destination_s3_spark.tables.updates.steps import Update, Work

LIMIT_S = 2 * 3600
"""Default of Airbyte's destination-timeout.seconds. Its own installations set a day."""

logger = logging.getLogger("airbyte")


@dataclass(slots=True)
class _Running:
    """An update between two of its steps."""

    stream: StreamId
    update: Update
    work: Work[Any, Any] | None = None
    result: CommitResult | None = None
    error: SyncError | None = None

    def go_on(self, step: Callable[[], Work[Any, Any]]) -> None:
        """Take a step of the update, which gives its next work."""
        try:
            self.work = step()
        except StopIteration as stop:
            self.work, self.result = None, stop.value
        except SyncError as error:
            self.work, self.error = None, error


@dataclass(slots=True)
class UpdateRunner:
    """The runner of table updates. `progress` receives the completed and the total number of task groups of the running job.

    `limit_s`: the time that there is, at half of which a warning comes; infinite for a command.
    """

    engine: Engine
    pool: Executor
    clock: Callable[[], float] = time.monotonic
    progress: Progress = lambda _done, _total: None
    limit_s: float = LIMIT_S
    _began: float = field(default=0.0, init=False)
    _warned: bool = field(default=False, init=False)

    def run(self, updates: Sequence[tuple[StreamId, Update]]) -> None:
        """Run every update to its end, each given with its stream. Raises the first error, after all updates have ended."""
        self._began = self.clock()
        self._warned = False
        running = [_Running(stream, update) for stream, update in updates]
        list(self.pool.map(lambda one: one.go_on(partial(next, one.update)), running))
        while working := [one for one in running if one.work is not None]:
            self._compute(working)
        for line in update_lines([(one.stream, one.result) for one in running if one.result is not None], self.clock() - self._began):
            logger.info("%s", line)
        for one in running:
            if one.error is not None:
                raise one.error

    def _compute(self, working: Sequence[_Running]) -> None:
        """Run the work of all updates, one job per kind, and advance each update."""
        kinds: dict[Callable[[Any], Any], list[_Running]] = {}
        for one in working:
            if one.work is not None:
                kinds.setdefault(one.work.function, []).append(one)
        for together in kinds.values():
            results: Sequence[list[Any] | None]
            try:
                results = self._job(together)
            except SyncError as error:
                # The failed task's table is unknown, and one table that cannot be merged must not hold up the others.
                results = [self._alone(one, error if len(together) == 1 else None) for one in together]
            going_on = [(one, result) for one, result in zip(together, results, strict=True) if result is not None]
            list(self.pool.map(lambda pair: pair[0].go_on(partial(pair[0].update.send, pair[1])), going_on))

    def _alone(self, one: _Running, known: SyncError | None) -> list[Any] | None:
        try:
            if known is not None:
                raise known
            return self._job([one])[0]
        except SyncError as error:
            one.go_on(partial(one.update.throw, error))
            return None

    def _job(self, together: Sequence[_Running]) -> list[list[Any]]:
        """Run the work of these updates, all of one kind, in one Spark job. Return each update's results in the order of its tasks."""
        tasks = [(owner, number, task) for owner, one in enumerate(together) for number, task in enumerate(_work(one).tasks)]
        groups = grouped(tasks, lambda item: _work(together[item[0]]).size(item[2]), self.engine.cores)
        function = _work(together[0]).function
        self.progress(0, len(groups))
        done = self.engine.run(function, [[task for _, _, task in group] for group in groups], self._progress)
        found = {(owner, number): result for group, results in zip(groups, done, strict=True)
                 for (owner, number, _), result in zip(group, results, strict=True)}  # fmt: skip
        return [[found[owner, number] for number in range(len(_work(one).tasks))] for owner, one in enumerate(together)]

    def _progress(self, groups_done: int, groups: int) -> None:
        self.progress(groups_done, groups)
        if self.clock() - self._began > self.limit_s / 2 and not self._warned:
            self._warned = True
            logger.warning(
                "Half of the 2 hours are over after which Airbyte's destination-timeout.seconds may stop a destination. If it stops this "
                "sync, nothing is lost, but the next one begins the merge again. Give the connector more CPUs, or let tables.merge "
                "put merges off and run the command merge outside of syncs."
            )


def _work(one: _Running) -> Work[Any, Any]:
    if one.work is None:
        raise Bug(f"The table of stream {one.stream} has no work to be done.")
    return one.work

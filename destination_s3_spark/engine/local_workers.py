"""Worker processes of this machine, for a sync whose Spark session is on a cluster: they land the records, which are here.

Handing records over to executors costs this process as much CPU time as landing them. The cluster gets the work that grows with the table.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool

from destination_s3_spark.engine.failures import workers_failure
from destination_s3_spark.engine.machine import oom_kills
from destination_s3_spark.engine.outcome import Done, Result, Task, outcome_of
from destination_s3_spark.engine.session import TASK_ATTEMPTS
from destination_s3_spark.engine.startup import shortcuts
from destination_s3_spark.errors import SyncError


class LocalWorkers:
    """Runner of functions over tasks in processes of this machine, like `Engine`.

    `tasks` names the module of these functions, and `cores` is the number of processes.
    """

    def __init__(self, tasks: str, cores: int) -> None:
        self.cores = cores
        self.lost_attempts = False
        """Whether uploads may be open that nobody knows, because a job or an attempt of a task has failed."""
        self._tasks = tasks
        self._pool: ProcessPoolExecutor | None = None
        self._lock = threading.Lock()
        self._oom_kills_before = oom_kills()

    def start(self) -> None:
        self._started()

    def stop(self) -> None:
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(cancel_futures=True)

    def _started(self) -> ProcessPoolExecutor:
        with self._lock:  # the reader starts them, and a batch whose worker died starts others
            if self._pool is None:
                context = multiprocessing.get_context("spawn")  # this process has threads, so it must not be forked
                self._pool = ProcessPoolExecutor(self.cores, context, _prepare, (self._tasks,))
            return self._pool

    def run(self, function: Callable[[Task], Result], groups: Sequence[Sequence[Task]]) -> list[list[Result]]:
        """Apply the function to every task. The tasks of a group run one after another in one process. Results have the shape of `groups`.

        If a process dies, all groups run again. Raises the first SyncError of a task unchanged, and TransientError after the last attempt.
        """
        results = []
        try:
            for outcome in self._outcomes(function, groups):
                if isinstance(outcome, SyncError):
                    raise outcome
                self.lost_attempts |= outcome.lost_attempts
                results.append(outcome.results)
        except BaseException:
            self.lost_attempts = True  # the other tasks may have staged files, and the caller never hears of them
            raise
        return results

    def _outcomes(self, function: Callable[[Task], Result], groups: Sequence[Sequence[Task]]) -> list[Done[Result] | SyncError]:
        for _ in range(TASK_ATTEMPTS):
            pool = self._started()
            try:
                return list(pool.map(outcome_of, [function] * len(groups), groups))
            except BrokenProcessPool:
                self.lost_attempts = True
                self.stop()
        raise workers_failure(TASK_ATTEMPTS, want_of_memory=oom_kills() > self._oom_kills_before)


def _prepare(tasks: str) -> None:
    """Prepare a new process like Spark's own workers."""
    threading.Thread(target=_end_with_parent, name="parent", daemon=True).start()
    shortcuts.prepare_process()
    importlib.import_module(tasks)


def _end_with_parent() -> None:
    """End this process when its parent has died, which the pool's queues would never tell."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)

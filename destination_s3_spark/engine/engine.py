"""Engine of a sync: functions over tasks, run as jobs of its Spark session.

Spark schedules, retries, isolates and scales functions over tasks, on this machine or on a cluster. The records stay in the Python workers:
a task carries file extents and keys, never rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from destination_s3_spark.engine.failures import job_failure
from destination_s3_spark.engine.outcome import Done, Result, Task, outcome_of
from destination_s3_spark.engine.session import TASK_ATTEMPTS, DriverSession, SparkSettings
from destination_s3_spark.engine.waiting import give_up_without_executors, watched
from destination_s3_spark.errors import SyncError

if TYPE_CHECKING:
    from pyspark import SparkContext

Progress = Callable[[int, int], None]
"""Receives the number of completed groups of tasks and the total number of groups."""

Groups = Sequence[Sequence[Any]]
"""Tasks of a job by group. The tasks of a group run one after another on one worker."""


class Engine:
    """Runner of functions over tasks on Spark. `run` starts the session if nobody has, and waits for it.

    `tasks` names the module of these functions. `prepare` receives the tasks of each job before they leave this process and returns them in
    the form executors need.
    """

    def __init__(
        self,
        settings: SparkSettings,
        tasks: str = __name__,
        prepare: Callable[[Groups], Groups] = lambda groups: groups,
    ) -> None:
        self._new_session = partial(DriverSession, settings, tasks)
        self.session = self._new_session()
        self._settings = settings
        self._prepare = prepare
        self.lost_attempts = False
        """Whether uploads may be open that nobody knows: a job, an attempt of a task or a request to begin an upload has failed."""

    @property
    def cores(self) -> int:
        """Number of tasks that run in parallel. On a cluster this waits for the session."""
        if self._settings.cluster is None:
            return self._settings.cores
        context = self.session.ready()
        with self._as_transient():
            return int(context.defaultParallelism)

    def start(self) -> None:
        """Start the session in the background, once."""
        self.session.start()

    def stop(self) -> None:
        self.session.stop()

    def release(self) -> None:
        """Give the executors of a cluster back. The next job starts another session. Keep a session on this machine."""
        if self._settings.cluster is not None:
            self.session.stop()
            self.session = self._new_session()

    def run(
        self, function: Callable[[Task], Result], groups: Sequence[Sequence[Task]], progress: Progress | None = None
    ) -> list[list[Result]]:
        """Apply the function to every task. The tasks of a group run one after another on one worker. Results have the shape of `groups`.

        `progress` is called at intervals with the number of completed groups. A SyncError that it raises ends the job. Raises the first
        SyncError of a task unchanged. Any other exception of a task becomes a Bug without its text.
        """
        if not groups:
            return []
        context = self.session.ready()
        try:
            return [self._results(outcome) for outcome in self._outcomes(context, partial(outcome_of, function), groups, progress)]
        except BaseException:
            self.lost_attempts = True  # the other tasks of the job may have staged files, and the caller never hears of them
            raise

    def _outcomes(
        self,
        context: SparkContext,
        function: Callable[[Sequence[Task]], Done[Result] | SyncError],
        groups: Sequence[Sequence[Task]],
        progress: Progress | None,
    ) -> list[Done[Result] | SyncError]:
        prepared, manager = list(self._prepare(groups)), self.session.manager
        with (
            self._as_transient(),
            nullcontext() if manager is None else give_up_without_executors(context, manager),  # Spark itself would wait indefinitely
            _watched(context, len(prepared), progress, self._settings.progress_every_s),
        ):
            return context.parallelize(prepared, len(prepared)).map(function).collect()

    def _results(self, outcome: Done[Result] | SyncError) -> list[Result]:
        if isinstance(outcome, SyncError):
            raise outcome
        self.lost_attempts = self.lost_attempts or outcome.lost_attempts
        return outcome.results

    @contextmanager
    def _as_transient(self) -> Iterator[None]:
        """Turn every error of Spark inside into a TransientError. A SyncError passes unchanged."""
        try:
            yield
        except SyncError:
            raise
        except Exception as error:
            raise job_failure(self.session.symptom(error), TASK_ATTEMPTS, on_cluster=self._settings.cluster is not None) from error


@contextmanager
def _watched(context: SparkContext, groups: int, progress: Progress | None, every_s: float) -> Iterator[None]:
    """Report the progress of the job that runs inside to `progress`. Cancel the job and raise its SyncError if it raises one."""
    if progress is None:
        yield
        return
    name = uuid4().hex

    def look() -> None:
        try:
            done = _completed_tasks(context, name)
        except Exception:  # noqa: BLE001 (the JVM is gone, and its job reports that)
            return
        progress(done, groups)

    context.setJobGroup(name, "progress is watched")
    with watched(look, lambda: context.cancelJobGroup(name), every_s, "spark-progress"):
        yield


def _completed_tasks(context: SparkContext, group: str) -> int:
    tracker = context.statusTracker()
    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
    stages = [tracker.getStageInfo(int(stage)) for job in jobs if job is not None for stage in job.stageIds]
    return sum(stage.numCompletedTasks for stage in stages if stage is not None)

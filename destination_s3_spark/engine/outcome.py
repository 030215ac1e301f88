"""What a group of tasks hands back to the driver: results, or why it failed, as a value.

Failures travel as values because Spark would retry an exception (pointless for a bad record), and would log its text, which may quote
a record's content.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from destination_s3_spark.errors import Bug, SyncError, frames_of
from destination_s3_spark.storage import doubtful_uploads

Task = TypeVar("Task")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Done(Generic[Result]):
    """All tasks of the group returned. `lost_attempts`: of a task, or of a request to begin an upload, which nobody knows then."""

    results: list[Result]
    lost_attempts: bool


@dataclass(frozen=True, slots=True)
class Failed:
    """A task raised: the error itself if it is one of ours (safe to show), else where it happened and its class."""

    error: SyncError


def guarded(function: Callable[[Task], Result]) -> Callable[[Sequence[Task]], Done[Result] | Failed]:
    """The function over a group of tasks, its exceptions turned into values."""

    def run(tasks: Sequence[Task]) -> Done[Result] | Failed:
        from pyspark import TaskContext  # noqa: PLC0415 (runs on a worker; the driver may not need Spark at all)

        context = TaskContext.get()
        doubtful = doubtful_uploads.count()
        try:
            results = [function(task) for task in tasks]
            died_before = context is not None and context.attemptNumber() > 0
            return Done(results, died_before or doubtful_uploads.count() > doubtful)
        except SyncError as error:
            return Failed(error)
        except Exception as error:  # noqa: BLE001 (whatever it is, its text may quote a record)
            sys.stderr.write(frames_of(error))  # the driver's, or the executor's on a cluster
            return Failed(Bug(_where(error)))

    return run


def _where(error: Exception) -> str:
    frames = traceback.extract_tb(error.__traceback__)[-3:]
    places = ", ".join(f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in frames)
    return f"A Spark task stopped with {type(error).__name__} at {places}. Nothing was acknowledged for it."

"""Outcome of a group of tasks as a value for the driver: its results, or the SyncError of the task that failed.

Failures travel as values because Spark would retry an exception, which is pointless for a bad record. Spark would also log the exception's
text, which may quote a record.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from destination_s3_spark.errors import Bug, SyncError, frames_of
from destination_s3_spark.storage.object_store import doubtful_uploads

Task = TypeVar("Task")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Done(Generic[Result]):
    """All tasks of the group returned.

    `lost_attempts`: an earlier attempt of the group, or of a request to begin an upload, may have left an unknown upload behind.
    """

    results: list[Result]
    lost_attempts: bool


def outcome_of(function: Callable[[Task], Result], tasks: Sequence[Task]) -> Done[Result] | SyncError:
    """Apply the function to a group of tasks, and return the results or the exception of a task.

    A SyncError is kept because its message is safe; any other becomes a Bug with its class and location.
    """
    from pyspark import TaskContext  # noqa: PLC0415 (runs on a worker; the driver may not need Spark at all)

    context = TaskContext.get()
    doubtful = doubtful_uploads()
    try:
        results = [function(task) for task in tasks]
        died_before = context is not None and context.attemptNumber() > 0
        return Done(results, died_before or doubtful_uploads() > doubtful)
    except SyncError as error:
        return error
    except Exception as error:  # noqa: BLE001 (the text of any exception may quote a record)
        sys.stderr.write(frames_of(error))  # the driver's stderr, or the executor's on a cluster
        return Bug(_where(error))


def _where(error: Exception) -> str:
    frames = traceback.extract_tb(error.__traceback__)[-3:]
    places = ", ".join(f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in frames)
    return f"A Spark task stopped with {type(error).__name__} at {places}. Nothing was acknowledged for it."

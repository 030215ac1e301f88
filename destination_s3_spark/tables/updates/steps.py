"""The protocol of updates, which bring pending deltas into a table's final files in steps that Spark computes.

An update is a generator. It yields work for Spark, receives the results in order, and returns the result of its commit. Its staged files
are invisible until that commit. If the process dies before, the next sync repeats the update.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar

from destination_s3_spark.tables.commit.batch import CommitResult

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Work(Generic[T, R]):
    """Tasks for one function on Spark. `size` is the weight of a task, by which a job divides tasks into even groups."""

    function: Callable[[T], R]
    tasks: Sequence[T]
    size: Callable[[T], int]

    def results(self) -> Steps[list[R]]:
        """Yield the tasks to be computed, if there are any, and return their results in the order of the tasks."""
        if not self.tasks:
            return []
        done: list[R] = yield self
        return done


Steps: TypeAlias = Generator[Work[Any, Any], list[Any], R]
"""Steps of an update that return a result."""
Update: TypeAlias = Steps["CommitResult | None"]

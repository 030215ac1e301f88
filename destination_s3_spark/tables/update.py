"""What an update is made of: the end of a stream's sync, when what landed beside its final table comes into it.

An update is a generator: it yields work for Spark, is sent the results in order, and returns what its commit did. Whatever it stages is
invisible until that commit; if the process dies before, the next sync does it again.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from destination_s3_spark.tables.commit.writer import CommitResult


@dataclass(frozen=True, slots=True)
class Work:
    """Tasks for one function on Spark. `size` weighs a task, so that the groups of a job become alike."""

    function: Callable[[Any], Any]
    tasks: Sequence[Any]
    size: Callable[[Any], int]


Update: TypeAlias = Generator[Work, "list[Any] | None", "CommitResult | None"]

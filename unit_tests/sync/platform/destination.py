"""The destination in this process, without Spark, which may die at any call of S3."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from destination_s3_spark.errors import SyncError
from destination_s3_spark.sync.batches import Limits
from unit_tests.lake.lake import LARGE, Lake
from unit_tests.lake.memory_bucket import Crash, Fate

SMALL = Limits(batch_bytes=300, age_s=3600, spool_bytes=600)
"""Batches of a few rows, which are committed while the input goes on."""


@dataclass(frozen=True, slots=True)
class Death:
    """The number of the call at which the destination dies, and whether the store still sees it."""

    call: int
    fate: Fate


@dataclass(frozen=True, slots=True)
class Ended:
    """What a destination leaves behind: the states that it acknowledged, as it sent them, and its error."""

    states: Sequence[Mapping[str, Any]]
    error: SyncError | None
    killed: bool


@dataclass
class Destination:
    """Syncs into one bucket."""

    lake: Lake
    runs: int = 0

    def write(self, catalog: Mapping[str, Any], delivered: Sequence[bytes], death: Death | None = None, *, in_small_batches: bool) -> Ended:
        """One run of `write` with these lines on stdin."""
        self.runs += 1
        directory = self.lake.directory / f"run-{self.runs}"
        directory.mkdir(parents=True)
        lake = replace(self.lake, directory=directory, limits=SMALL if in_small_batches else LARGE, states=[])
        if death is not None:
            last = len(lake.memory.calls) + death.call
            lake.memory.hook = lambda call: death.fate if call.number == last else None
        error, killed = None, False
        try:
            lake.sync(catalog, delivered)
        except SyncError as failure:
            error = failure
        except Crash:
            killed = True
        lake.memory.hook = None
        return Ended([message["state"] for message in lake.states], error, killed)

"""Phases of a sync: which are going on, on what, and how long each has taken."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import Enum
from threading import Lock

from destination_s3_spark.stream_id import StreamId


class Phase(Enum):
    """A kind of work. The value names it in messages. Landing and committing go on while the sync reads."""

    OPENING = "opening"
    """Tables are looked up and opened."""
    READING = "reading"
    """From the first look at the input to its end, with all waiting for the source or for a full spool."""
    LANDING = "landing"
    COMMITTING = "committing"
    REWRITING = "rewriting"
    """Files take changed types before anything lands beside them."""
    MERGING = "merging"
    """Deduplicated tables are merged, and complete refreshes replace their tables."""
    COMPACTING = "compacting"
    PUBLISHING = "publishing"
    """Tables are shown to their readers and closed, and what is older than the retention is deleted."""


@dataclass(frozen=True, slots=True)
class Activity:
    """A phase that is going on, on these streams. `bytes`: spooled bytes that it handles.

    `parts_done` of `parts` are done in the running step, once Spark reports them.
    """

    phase: Phase
    streams: tuple[StreamId, ...] = ()
    bytes: int = 0
    parts_done: int = 0
    parts: int | None = None


class Phases:
    """The phases of one sync. Usable from any thread. A phase goes on at most once at a time."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = Lock()
        self._active: dict[Phase, Activity] = {}
        self._seconds: dict[Phase, float] = {}
        self.silent_since: float | None = None
        """The time since which the source has sent nothing, or None if it sends or nobody reads."""

    @contextmanager
    def during(self, phase: Phase, streams: Sequence[StreamId] = (), size: int = 0) -> Iterator[None]:
        """Count the time that the body takes to the phase."""
        began = self._clock()
        with self._lock:
            self._active[phase] = Activity(phase, tuple(streams), size)
        try:
            yield
        finally:
            with self._lock:
                self._active.pop(phase, None)
                self._seconds[phase] = self._seconds.get(phase, 0) + self._clock() - began

    def progress(self, done: int, total: int) -> None:
        """Note how far the running rewrite, merge or compaction is in its step."""
        with self._lock:
            for phase in (Phase.REWRITING, Phase.MERGING, Phase.COMPACTING):
                if phase in self._active:
                    self._active[phase] = replace(self._active[phase], parts_done=done, parts=total)

    def silent(self) -> None:
        if self.silent_since is None:
            self.silent_since = self._clock()

    @property
    def active(self) -> tuple[Activity, ...]:
        """The phases that are going on, in the order of `Phase`."""
        with self._lock:
            return tuple(self._active[phase] for phase in Phase if phase in self._active)

    @property
    def seconds(self) -> Mapping[Phase, float]:
        """The seconds of each phase that has ended at least once, in the order of `Phase`."""
        with self._lock:
            return {phase: self._seconds[phase] for phase in Phase if phase in self._seconds}

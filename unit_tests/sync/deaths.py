"""Processes that die at one of their calls of S3: sweeps over all calls, after each of which another process takes over."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count, islice

from unit_tests.lake.lake import Lake
from unit_tests.lake.memory_bucket import Crash, Fate
from unit_tests.sampling import IS_NIGHTLY

FATES = (Fate.CRASH_BEFORE, Fate.CRASH_AFTER)


def deaths(step: int) -> Iterator[tuple[int, Fate]]:
    """Yield deaths at the first call, before and after the bucket has seen it, at the second, and so on: one in `step`, or all at night."""
    every = ((number, fate) for number in count(1) for fate in FATES)
    return islice(every, 0, None, 1 if IS_NIGHTLY else step)


@contextmanager
def dies_at(lake: Lake, number: int, fate: Fate) -> Iterator[list[str]]:
    """Let what runs within die at its call with this number. The list has S3's names of its calls in the end: fewer if it lived."""
    before, seen = len(lake.memory.calls), list[str]()
    lake.memory.hook = lambda call: fate if call.number == before + number else None
    try:
        yield seen
    except Crash:
        assert len(lake.memory.calls) >= before + number
    else:
        assert len(lake.memory.calls) < before + number, "it went on after its death"
    finally:
        seen += lake.memory.actions()[before:]
        lake.memory.hook = None

"""Processes that end at one of their calls of S3: sweeps over all calls, after each of which another process takes over."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count, islice

from destination_s3_spark.errors import SyncError
from unit_tests.lake.lake import Lake
from unit_tests.lake.memory_bucket import Crash, Fate, Refusal, S3Call
from unit_tests.sampling import IS_NIGHTLY

FATES = (Fate.CRASH_BEFORE, Fate.CRASH_AFTER)
"""How a process dies: before the bucket sees the call, or before the answer is there."""
DENIED = (Refusal(403, "AccessDenied"), Refusal(403, "AccessDenied", after=True))
"""How a process loses the bucket, and has to end by itself: with a call that does not arrive, or with one that does."""
ProcessEnd = Fate | Refusal


def ends(step: int, nightly: int = 1) -> Iterator[tuple[int, ProcessEnd]]:
    """Yield the four ends at the first call, those at the second, and so on: one in `step`, which is odd, or in `nightly`."""
    every = ((number, end) for number in count(1) for end in (*FATES, *DENIED))
    return islice(every, 0, None, nightly if IS_NIGHTLY else step)


@contextmanager
def ends_at(lake: Lake, number: int, end: ProcessEnd) -> Iterator[list[str]]:
    """Let what runs within end at its call with this number. The list has S3's names of its calls in the end: fewer if it lived."""
    before, seen = len(lake.memory.calls), list[str]()

    def hook(call: S3Call) -> ProcessEnd | None:
        if call.number < before + number:
            return None
        return end if call.number == before + number or end in FATES else DENIED[0]

    lake.memory.hook = hook
    try:
        yield seen
    except (Crash, SyncError):
        assert len(lake.memory.calls) >= before + number
    else:
        assert end not in FATES or len(lake.memory.calls) < before + number, "it went on after its death"
    finally:
        seen += lake.memory.actions()[before:]
        lake.memory.hook = None

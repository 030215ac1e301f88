"""Deaths of a process at each of its calls to a bucket in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy

from unit_tests.lake.lake import Lake
from unit_tests.lake.memory_bucket import Crash, Fate, S3Call
from unit_tests.sampling import moments

DYING = (Fate.CRASH_BEFORE, Fate.CRASH_AFTER)


def deaths(lake: Lake, work: Callable[[], object], fate: Fate, step: int = 1) -> Iterator[S3Call]:
    """Let `work` die at each of its calls in turn, or at one in `step`, and yield that call: it is time to look, and to go on.

    The work begins each time with what is in the bucket now. It has ended well once when the last death was yielded.
    """
    bucket = lake.memory
    versions, uploads, acknowledged = dict(bucket.versions), deepcopy(bucket.open_uploads), [*lake.states]
    for number in moments(step):
        bucket.versions, bucket.open_uploads = dict(versions), deepcopy(uploads)
        bucket.forget()
        lake.states[:] = acknowledged
        bucket.hook = lambda call, number=number: fate if call.number == number else None
        try:
            work()
        except Crash:
            died_at = bucket.calls[number - 1]
            bucket.hook = None
            yield died_at
        else:
            bucket.hook = None
            assert 1 < number > len(bucket.calls), f"a death at call {number} was not noticed"
            return

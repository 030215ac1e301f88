"""A bound on CPU time, for work that would take hours if its cost were not linear."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class TooMuchCpu(Exception):
    """The work has taken its CPU time and is not done."""


@contextmanager
def cpu_limit(seconds: float) -> Iterator[None]:
    """Raise TooMuchCpu in the body once this process has computed for so long. Only in the main thread."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise TooMuchCpu(f"not done after {seconds} s of CPU time")

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)

"""The shortcuts of a process of our own, and the switch that turns all of them off: for support, to find out whether one is at fault."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
from collections.abc import Iterator

from destination_s3_spark.engine.startup import worker_daemon
from destination_s3_spark.engine.startup.without_pandas import keep_out_pandas

VARIABLE = "DESTINATION_S3_SPARK_SHORTCUTS"
"""The environment variable; `off` turns them off."""
_MALLOPT = {"MALLOC_TRIM_THRESHOLD_": -1, "MALLOC_MMAP_THRESHOLD_": -3, "MALLOC_ARENA_MAX": -8}
"""Parameters of malloc.h, by the variables that set them when a process starts."""


def enabled() -> bool:
    """Whether shortcuts may be taken."""
    return os.environ.get(VARIABLE, "").strip().lower() != "off"


def prepare_process() -> None:
    """Set this process up like the workers that will be forked from it. Only for a process of our own, before it has threads."""
    if not enabled():
        return
    keep_out_pandas()
    keep_freed_memory()
    # numpy would start threads that wait in a loop for work there is none of.
    os.environ |= {name: value for name, value in worker_daemon.ENVIRONMENT.items() if name not in _MALLOPT}


def keep_freed_memory() -> None:
    """Let the C library, if it is glibc, keep what is freed for the next block of lines, which the kernel would have to zero each time.

    With one arena, as heaps of threads are given back at once. Holds for what is forked from this process too.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        for name, parameter in _MALLOPT.items():
            mallopt(parameter, int(worker_daemon.ENVIRONMENT[name]))


@contextlib.contextmanager
def importing() -> Iterator[None]:
    """Import modules inside without looking for garbage: they make many objects and none of it."""
    if not enabled():
        yield
        return
    gc.disable()
    yield
    gc.freeze()
    gc.enable()

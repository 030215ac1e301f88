"""Shortcuts of the connector's own process, and the switch that turns all of them off to find out whether one causes a problem."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
from collections.abc import Iterator

from destination_s3_spark.engine.startup import worker_daemon

VARIABLE = "DESTINATION_S3_SPARK_SHORTCUTS"
"""Environment variable of the switch: `off` disables the shortcuts."""
_MALLOPT = {"MALLOC_TRIM_THRESHOLD_": -1, "MALLOC_MMAP_THRESHOLD_": -3, "MALLOC_ARENA_MAX": -8}
"""Parameters of malloc.h by the variables that set them when a process starts."""


def enabled() -> bool:
    return os.environ.get(VARIABLE, "").strip().lower() != "off"


def prepare_process() -> None:
    """Set up this process like the workers that it will fork. Only for the connector's own process, before it has threads."""
    if not enabled():
        return
    worker_daemon.keep_out_pandas()
    keep_freed_memory()
    # Otherwise numpy starts threads that spin without work.
    os.environ |= {name: value for name, value in worker_daemon.ENVIRONMENT.items() if name not in _MALLOPT}


def keep_freed_memory() -> None:
    """Make glibc keep freed memory for the next block of lines, because the kernel would have to zero returned pages each time.

    One arena is used, because glibc returns heaps of threads at once. Forks of this process inherit the setting. Other C libraries are left
    alone.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        for name, parameter in _MALLOPT.items():
            mallopt(parameter, int(worker_daemon.ENVIRONMENT[name]))


@contextlib.contextmanager
def importing() -> Iterator[None]:
    """Import modules inside without garbage collection: imports create many objects and no garbage."""
    if not enabled():
        yield
        return
    gc.disable()
    yield
    gc.freeze()
    gc.enable()

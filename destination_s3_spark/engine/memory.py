"""How much memory the container may use, and how much of it the JVM gets.

The JVM schedules tasks and never holds a record, so it needs little; the Python workers, which type and encode, get the rest.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

CGROUP_LIMIT_FILES = (
    Path("/sys/fs/cgroup/memory.max"),  # cgroup v2
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),  # cgroup v1
)
OOM_KILL_FILES = (
    Path("/sys/fs/cgroup/memory.events"),  # cgroup v2
    Path("/sys/fs/cgroup/memory/memory.oom_control"),  # cgroup v1
)
JVM_HEAP_MIN_MB = 512
"""Spark's memory manager refuses to start below 450 MiB (1.5 times what it reserves)."""
JVM_HEAP_MAX_MB = 1024
JVM_SHARE_OF_CONTAINER = 8


def container_memory_bytes(limit_files: tuple[Path, ...] = CGROUP_LIMIT_FILES) -> int:
    """The cgroup's memory limit in bytes, or the machine's memory where there is none (`max`, or v1's huge number)."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for file in limit_files:
        try:
            text = file.read_text().strip()
        except OSError:
            continue
        if text.isdigit():
            return min(int(text), machine)
    return machine


def jvm_heap_mb(container_bytes: int) -> int:
    """The JVM's maximum heap in MiB: an eighth of the container, between 512 and 1024."""
    share = container_bytes // JVM_SHARE_OF_CONTAINER // 2**20
    return max(JVM_HEAP_MIN_MB, min(JVM_HEAP_MAX_MB, share))


def oom_kills(files: tuple[Path, ...] = OOM_KILL_FILES) -> int:
    """How many processes of the cgroup the kernel has killed for want of memory so far; 0 where nothing tells."""
    for file in files:
        with suppress(OSError):
            counts = dict(line.split() for line in file.read_text().splitlines())
            return int(counts.get("oom_kill", 0))
    return 0

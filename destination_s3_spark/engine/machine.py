"""CPUs and memory of the container, and the share of its memory for the JVM.

Python reports the machine's CPUs. Only the cgroup knows the quota of a container. The JVM schedules tasks and never holds a record, so it
needs little memory. The Python workers, which type and encode records, get the rest.
"""

from __future__ import annotations

import math
import os
from contextlib import suppress
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
CGROUP_LIMIT_FILES = (
    Path("/sys/fs/cgroup/memory.max"),  # cgroup v2
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),  # cgroup v1
)
OOM_KILL_FILES = (
    Path("/sys/fs/cgroup/memory.events"),  # cgroup v2
    Path("/sys/fs/cgroup/memory/memory.oom_control"),  # cgroup v1
)
JVM_HEAP_MIN_MB = 512
"""Spark's memory manager refuses to start with less than 450 MiB (1.5 times its reserve)."""
JVM_HEAP_MAX_MB = 1024
JVM_SHARE_OF_CONTAINER = 8


def container_memory_bytes(limit_files: tuple[Path, ...] = CGROUP_LIMIT_FILES) -> int:
    """Return the cgroup's memory limit in bytes, or the machine's memory without a limit (`max`, or a huge number in v1)."""
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
    """Return the JVM's maximum heap in MiB: an eighth of the container, between 512 and 1024."""
    share = container_bytes // JVM_SHARE_OF_CONTAINER // 2**20
    return max(JVM_HEAP_MIN_MB, min(JVM_HEAP_MAX_MB, share))


def oom_kills(files: tuple[Path, ...] = OOM_KILL_FILES) -> int:
    """Return the number of processes of the cgroup that the kernel's OOM killer has ended so far, 0 if unknown."""
    for file in files:
        with suppress(OSError):
            counts = dict(line.split() for line in file.read_text().splitlines())
            return int(counts.get("oom_kill", 0))
    return 0


def available_cpus(cgroups: Path = CGROUPS) -> int:
    """Return the number of CPUs in this process's affinity, or its cgroup's quota (rounded up) if that is lower."""
    allowed = len(os.sched_getaffinity(0))
    quota = _quota(cgroups)
    return allowed if quota is None else max(1, min(allowed, math.ceil(quota)))


def _quota(cgroups: Path) -> float | None:
    """Return the quota in CPU seconds per second, or None without a quota (`max` in cgroup v2, -1 in v1)."""
    try:
        quota, period = (cgroups / "cpu.max").read_text().split()
    except (OSError, ValueError):
        try:
            quota, period = ((cgroups / "cpu" / f"cpu.cfs_{name}_us").read_text().strip() for name in ("quota", "period"))
        except OSError:
            return None
    return int(quota) / int(period) if quota.isdigit() and int(quota) else None

"""How many CPUs this process may use. Python sees the machine's; a container is held to a quota, which only its cgroup tells."""

from __future__ import annotations

import math
import os
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")


def available_cpus(cgroups: Path = CGROUPS) -> int:
    """The CPUs of this process's affinity, or its cgroup's quota (rounded up) if that is less."""
    allowed = len(os.sched_getaffinity(0))
    quota = _quota(cgroups)
    return allowed if quota is None else max(1, min(allowed, math.ceil(quota)))


def _quota(cgroups: Path) -> float | None:
    """CPU seconds per second, or None where there is no quota: version 2 says `max`, version 1 -1."""
    try:
        quota, period = (cgroups / "cpu.max").read_text().split()
    except (OSError, ValueError):
        try:
            quota, period = ((cgroups / "cpu" / f"cpu.cfs_{name}_us").read_text().strip() for name in ("quota", "period"))
        except OSError:
            return None
    return int(quota) / int(period) if quota.isdigit() and int(quota) else None

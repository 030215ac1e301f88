"""Number of CPUs that this process may use.

Python reports the machine's CPUs. Only the cgroup knows the quota of a container.
"""

from __future__ import annotations

import math
import os
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")


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

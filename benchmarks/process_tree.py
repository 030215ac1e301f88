"""What a process and all its descendants take: peak memory, and the size of a directory they fill."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import psutil

INTERVAL_S = 0.1


@dataclass(frozen=True, slots=True)
class Sample:
    """What was taken at a time of the monotonic clock, in seconds; the directory's bytes are 0 where none is watched."""

    at: float
    rss_bytes: int
    directory_bytes: int


class Sampler:
    """Samples a process tree in the background while the `with` block runs.

    Resident set sizes are sums, so pages shared between forked processes count once for each: an upper bound.
    """

    def __init__(self, pid: int, directory: Path | None = None) -> None:
        self.samples: list[Sample] = []
        self._cpu_seconds: dict[int, tuple[str, float]] = {}
        self._root = psutil.Process(pid)
        self._directory = directory
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Sampler:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._stopped.set()
        self._thread.join()

    @property
    def peak_rss_bytes(self) -> int:
        """The most memory so far."""
        return max((sample.rss_bytes for sample in self.samples), default=0)

    @property
    def peak_directory_bytes(self) -> int:
        """The most disk space so far."""
        return self.peak_directory_bytes_after(0.0)

    def peak_directory_bytes_after(self, at: float) -> int:
        """The most disk space since then."""
        return max((sample.directory_bytes for sample in self.samples if sample.at >= at), default=0)

    def _run(self) -> None:
        while not self._stopped.wait(INTERVAL_S):
            size = 0 if self._directory is None else directory_bytes(self._directory)
            self.samples.append(Sample(time.monotonic(), self._rss(), size))

    @property
    def cpu_seconds(self) -> dict[str, float]:
        """User and system time by role: `driver` (the process itself), `jvm`, `workers`; without what came after the last sample."""
        totals: dict[str, float] = {}
        for role, seconds in self._cpu_seconds.values():
            totals[role] = totals.get(role, 0.0) + seconds
        return totals

    def _take_cpu(self, process: psutil.Process) -> None:
        times = process.cpu_times()
        self._cpu_seconds[process.pid] = self._role(process), times.user + times.system

    def _role(self, process: psutil.Process) -> str:
        if process.pid == self._root.pid:
            return "driver"
        return "jvm" if "java" in process.name() else "workers"

    def _rss(self) -> int:
        total = 0
        try:
            processes = [self._root, *self._root.children(recursive=True)]
        except psutil.NoSuchProcess:
            return 0
        for process in processes:
            try:
                total += process.memory_info().rss
                self._take_cpu(process)
            except psutil.NoSuchProcess:
                continue
        return total


def measured(name: str, command: Sequence[str], log: Path, **options: Any) -> tuple[float, float]:
    """Run a command, its output in `log`: seconds by the clock and of the CPU. `options` are Popen's. Raises SystemExit if it fails."""
    with log.open("wb") as output:
        started = time.monotonic()
        process = subprocess.Popen(command, stdout=output, stderr=output, **options)
        with Sampler(process.pid) as sampler:
            code = process.wait()
        seconds = time.monotonic() - started
    if code != 0:
        raise SystemExit(f"{name} ended with exit code {code}:\n{log.read_text()[-3_000:]}")
    return seconds, sum(sampler.cpu_seconds.values())


def directory_bytes(directory: Path) -> int:
    """The disk space files under the directory take now; those that vanish meanwhile count nothing."""
    total = 0
    for path in directory.rglob("*"):
        try:
            total += path.stat().st_blocks * 512
        except FileNotFoundError:
            continue
    return total

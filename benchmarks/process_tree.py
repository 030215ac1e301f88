"""What a process and all its descendants take: peak memory, and the size of a directory they fill."""

from __future__ import annotations

import threading
from pathlib import Path
from types import TracebackType

import psutil

INTERVAL_S = 0.1


class Sampler:
    """Samples a process tree in the background while the `with` block runs.

    `peak_rss_bytes` sums the resident set sizes, so pages shared between forked processes count once for each: an upper bound.
    """

    def __init__(self, pid: int, directory: Path | None = None) -> None:
        self.peak_rss_bytes = 0
        self.peak_directory_bytes = 0
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

    def _run(self) -> None:
        while not self._stopped.wait(INTERVAL_S):
            self.peak_rss_bytes = max(self.peak_rss_bytes, self._rss())
            if self._directory is not None:
                self.peak_directory_bytes = max(self.peak_directory_bytes, directory_bytes(self._directory))

    def _rss(self) -> int:
        total = 0
        try:
            processes = [self._root, *self._root.children(recursive=True)]
        except psutil.NoSuchProcess:
            return 0
        for process in processes:
            try:
                total += process.memory_info().rss
            except psutil.NoSuchProcess:
                continue
        return total


def directory_bytes(directory: Path) -> int:
    """The disk space files under the directory take now; those that vanish meanwhile count nothing."""
    total = 0
    for path in directory.rglob("*"):
        try:
            total += path.stat().st_blocks * 512
        except FileNotFoundError:
            continue
    return total

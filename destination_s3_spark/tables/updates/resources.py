"""Resources of updates: what travels with their tasks, and what plans them."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from datetime import timedelta
from itertools import count
from pathlib import Path

from destination_s3_spark.storage.settings import S3Settings


@dataclass(frozen=True, slots=True)
class TaskResources:
    """The bucket that a task of a merge reads and writes, and its memory. They travel with the task."""

    s3: S3Settings
    budget_bytes: int
    """Arrow memory for rows."""


@dataclass(frozen=True, slots=True)
class Resources:
    """The resources and limits by which updates are planned."""

    task: TaskResources
    cores: int
    """The number of parallel tasks."""
    disk: LocalDisk | None
    """The local disk that all tasks share, or None if they run on several machines."""
    time: MergeTime | None = None
    """The time that merges may take, or None for a command, which takes the time it needs."""
    least_file_bytes: int = 8 * 2**20
    """Minimum size of a final file, if there are rows for more than one."""
    least_log_bytes: int = 4 * 2**20
    """Minimum size of a change log file, if there are rows for more than one."""
    most_tombstone_files: int = 16
    """Number of tombstone files above which they are compacted into one, because every merge of their keys reads each of them."""


class MergeTime:
    """The time that the merges of a sync may take together. Thread-safe."""

    def __init__(self, limit: timedelta) -> None:
        self.limit = limit
        self._left = limit
        self._lock = threading.Lock()

    def reserve(self, needed: timedelta) -> bool:
        """Reserve the time for a merge. Return False if there is not enough left."""
        with self._lock:
            if needed > self._left:
                return False
            self._left -= needed
            return True


class LocalDisk:
    """Folders below `directory` with room for `size` bytes in total. The creator removes the directory at the end. Thread-safe."""

    def __init__(self, directory: Path, size: int) -> None:
        self._directory = directory
        self._left = size
        self._numbers = count()
        self._lock = threading.Lock()

    def reserved(self, size: int) -> Path | None:
        """Reserve `size` bytes and return the path of a new folder, or None if there is not enough room."""
        with self._lock:
            if size > self._left:
                return None
            self._left -= size
            return self._directory / str(next(self._numbers))

"""Room on the local disk for what the tasks of a sync hand to each other: only where all of them run on this machine."""

from __future__ import annotations

import threading
from itertools import count
from pathlib import Path


class LocalDisk:
    """Folders below `directory`, for `size` bytes in all. Whoever made it removes the directory in the end. Thread-safe."""

    def __init__(self, directory: Path, size: int) -> None:
        self._directory = directory
        self._left = size
        self._numbers = count()
        self._lock = threading.Lock()

    def reserved(self, size: int) -> Path | None:
        """The path of a new folder for so many bytes, or None when they are not left."""
        with self._lock:
            if size > self._left:
                return None
            self._left -= size
            return self._directory / str(next(self._numbers))

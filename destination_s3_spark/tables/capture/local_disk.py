"""Local disk space that the tasks of a sync share. It exists only if all tasks run on this machine."""

from __future__ import annotations

import threading
from itertools import count
from pathlib import Path


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

"""An object of the bucket as a seekable file, read by byte ranges: how Parquet readers fetch a footer and a few row groups."""

from __future__ import annotations

import os

from destination_s3_spark.storage.s3 import S3Store
from destination_s3_spark.storage.settings import ClientLimits, S3Settings

TAIL_BYTES = 128 * 2**10
"""What the first read near the end brings at once: most footers and all of a small file. Parquet readers ask for 64 KiB at first."""


class RangedFile:
    """A read-only file over an object of known `size` in bytes, one GET per read; the tail is read once and kept.

    Reads raise ObjectNotFound, ConfigError, TransientError, and DataError when the object is not of that size. Arrow takes turns when it
    reads from several threads; other threads need a file of their own.
    """

    def __init__(self, settings: S3Settings, key: str, size: int, limits: ClientLimits | None = None) -> None:
        self._store = S3Store(settings, limits)
        self._key = key
        self._size = size
        self._position = 0
        self._tail: bytes | None = None
        self.closed = False

    def read(self, size: int = -1) -> bytes:
        """Up to `size` bytes from the position, to the end if negative; fewer only at the end."""
        if self.closed:
            raise ValueError("read of a closed file")
        end = self._size if size is None or size < 0 else min(self._position + size, self._size)
        if end <= self._position:
            return b""
        data = self._fetch(self._position, end)
        self._position = end
        return data

    def _fetch(self, start: int, end: int) -> bytes:
        tail_start = max(self._size - TAIL_BYTES, 0)
        if start < tail_start:
            return self._store.get_range(self._key, start, end, self._size)
        if self._tail is None:
            self._tail = self._store.get_range(self._key, tail_start, self._size, self._size)
        return self._tail[start - tail_start : end - tail_start]

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move the position, also beyond the end; returns it."""
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size}[whence]
        if base + offset < 0:
            raise ValueError("seek to before the start of a file")
        self._position = base + offset
        return self._position

    def tell(self) -> int:
        """The position in bytes."""
        return self._position

    def readable(self) -> bool:
        """True: a source."""
        return True

    def writable(self) -> bool:
        """False: a source."""
        return False

    def seekable(self) -> bool:
        """True."""
        return True

    def flush(self) -> None:
        """Nothing to do."""

    def close(self) -> None:
        """No more reads."""
        self.closed = True
        self._tail = None

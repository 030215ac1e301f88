"""Seekable file over an S3 object, read by byte ranges. Parquet readers fetch a footer and a few row groups through it.

A data file that is gone is a DataError: something else deleted it, and only the user can restore it.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager

from destination_s3_spark.errors import DataError
from destination_s3_spark.storage.object_store import ObjectNotFound, ObjectStore
from destination_s3_spark.storage.s3 import S3Store
from destination_s3_spark.storage.settings import S3Settings

TAIL_BYTES = 128 * 2**10
"""Bytes of the first read near the end: enough for most footers. Parquet readers first ask for 64 KiB."""
WHOLE_BYTES = 4 * TAIL_BYTES
"""Most bytes of a file that is read at once. A second request would cost more than the bytes that it saves."""


class RangedFile(io.RawIOBase):
    """Read-only file over an object of known `size` in bytes. Each read is one GET; the tail is read once and kept.

    Reads raise ObjectNotFound, ConfigError, TransientError, and DataError when the object has another size. Arrow serializes the reads of
    its threads. Other threads need a file each.
    """

    def __init__(self, source: S3Settings | ObjectStore, key: str, size: int) -> None:
        self._store = S3Store(source) if isinstance(source, S3Settings) else source
        self._key = key
        self._size = size
        self._position = 0
        self._tail: bytes | None = None

    def read(self, size: int = -1) -> bytes:
        """Read up to `size` bytes from the position, or to the end if `size` is negative. Returns fewer bytes only at the end."""
        if self.closed:
            raise ValueError("read of a closed file")
        end = self._size if size is None or size < 0 else min(self._position + size, self._size)
        if end <= self._position:
            return b""
        data = self._fetch(self._position, end)
        self._position = end
        return data

    def _fetch(self, start: int, end: int) -> bytes:
        tail_start = 0 if self._size <= WHOLE_BYTES else self._size - TAIL_BYTES
        if start < tail_start:
            return self._store.get_range(self._key, start, end, self._size)
        if self._tail is None:
            self._tail = self._store.get_range(self._key, tail_start, self._size, self._size)
        return self._tail[start - tail_start : end - tail_start]

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Set the position, which may lie beyond the end, and return it."""
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size}[whence]
        if base + offset < 0:
            raise ValueError("seek to before the start of a file")
        self._position = base + offset
        return self._position

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def close(self) -> None:
        super().close()
        self._tail = None


@contextmanager
def present(key: str, s3: S3Settings) -> Iterator[None]:
    """Convert ObjectNotFound within the context to a DataError that names the object being read."""
    try:
        yield
    except ObjectNotFound:
        raise DataError(
            f"s3://{s3.bucket}/{key} is gone, but the table needs its rows. Nothing was changed. Did something else delete it? "
            "Restore it from a backup or a bucket version, or refresh the stream."
        ) from None


@contextmanager
def opened(key: str, size: int, s3: S3Settings) -> Iterator[RangedFile]:
    """Open a data file of `size` bytes, which must be there. Reads raise as those of RangedFile, and DataError if it is gone."""
    with present(key, s3), RangedFile(s3, key, size) as file:
        yield file

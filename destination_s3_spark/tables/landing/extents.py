"""Reading of extents: the one way back from the spool's files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType

from destination_s3_spark.errors import TransientError
from destination_s3_spark.tables.landing.slices import Extent


class ExtentFile(AbstractContextManager["ExtentFile"]):
    """The lines of an extent, read from its first to its last. `left` is the number of bytes that are still to be read.

    Raises TransientError where the file is shorter than the extent.
    """

    def __init__(self, extent: Extent) -> None:
        self._extent = extent
        self._file = Path(extent.path).open("rb")  # noqa: SIM115 (closed by `__exit__`)
        self._file.seek(extent.start)
        self.left = extent.end - extent.start

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._file.close()

    def read(self, size: int) -> bytes:
        """Read up to `size` bytes: fewer only at the end of the extent."""
        wanted = min(size, self.left)
        block = self._file.read(wanted)
        if len(block) < wanted:
            raise self._truncated()
        self.left -= wanted
        return block

    def read_lines(self, size: int) -> bytes:
        """Read up to `size` bytes, and on to the end of the line."""
        block = self.read(size)
        if block.endswith(b"\n"):
            return block
        rest = self._file.readline()
        self.left -= len(rest)
        if not rest.endswith(b"\n"):
            raise self._truncated()
        return block + rest

    def _truncated(self) -> TransientError:
        directory = Path(self._extent.path).parent
        return TransientError(
            f"A file in the spool directory '{directory}' has become shorter than what was written into it. Nothing after the last "
            "acknowledged STATE was kept. See that nothing else changes files there, or point batching.spool_dir at another local disk; "
            "then try again."
        )


def read_blocks(extents: Iterable[Extent], size: int) -> Iterator[bytes]:
    """Yield the bytes of the extents in blocks of at most `size`. A block ends with its extent."""
    for extent in extents:
        with ExtentFile(extent) as file:
            while file.left:
                yield file.read(size)

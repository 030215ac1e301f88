"""Slices of a stream between the spool and a table, and the one way back from the spool's files (`ExtentFile`).

A `Slice` is a range of one stream's spool. Landing turns it into a `StagedSlice`: files that are uploaded but not visible yet. All
positions (`start`, `end`, `boundaries`) are logical byte offsets in the stream's spool. They start at 0 and never restart within a sync.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from destination_s3_spark.chain.files import FileEntry
from destination_s3_spark.decoding.changes import ChangedField
from destination_s3_spark.errors import TransientError


@dataclass(frozen=True, slots=True)
class Extent:
    """The bytes `start` to `end` (exclusive) of a local file. They are whole lines."""

    path: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Slice:
    """A range of one stream's spool that one task lands.

    `first_record` is the ordinal of its first record in the stream. `boundaries` are the checkpoint ends `b` in it (`start < b <= end`),
    ascending.
    """

    stream: int
    start: int
    end: int
    first_record: int
    records: int
    extents: tuple[Extent, ...]
    boundaries: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Segment:
    """The part of a slice up to a checkpoint's end, or to the slice's own end.

    `end` is a spool offset. `records` and `multiset` cover only this part. `multiset` is the sum of the xxh3_128 of each record's raw
    `data` bytes, modulo 2**128. It is equal for the same records in any order.
    """

    end: int
    records: int
    multiset: int


@dataclass(frozen=True, slots=True)
class StagedSlice:
    """A landed slice with its staged files.

    `segments` have ascending ends, and the last one ends at `end`. `unfit` is the total of those of `decoding.record_typer.TypedBlock`.
    `changed_values` counts the values that were nulled or truncated, by field. `barred` counts the records that were left out because of
    their key; segments and files do not have them. `extracted_from`: the earliest extraction of a record, in milliseconds since 1970.
    `without_position`: the number of records without a position in the source's log. Both only of tables deduplicated by this position.
    """

    start: int
    end: int
    schema_id: int
    files: tuple[FileEntry, ...]
    segments: tuple[Segment, ...]
    unfit: Mapping[str, int] = field(default_factory=dict)
    changed_values: Mapping[ChangedField, int] = field(default_factory=dict)
    barred: int = 0
    extracted_from: int | None = None
    without_position: int = 0

    @property
    def records(self) -> int:
        """The number of records of the slice that land. Its final, raw and delta files each have this number of rows."""
        return sum(segment.records for segment in self.segments)


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

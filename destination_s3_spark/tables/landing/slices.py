"""Pieces of a stream on their way from the spool to a table.

A `Slice` is a range of one stream's spool; landing turns it into a `StagedSlice`: files that are uploaded but not visible yet.
All positions (`start`, `end`, `boundaries`) are logical byte offsets in the stream's spool, which start at 0 and never restart in a sync.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from destination_s3_spark.chain.files import DataFile, FileKind

__all__ = ["Extent", "FileKind", "Segment", "Slice", "StagedFile", "StagedSlice"]

StagedFile = DataFile
"""A file that is uploaded and not completed. The chain names it with the same fields, hence one type."""


@dataclass(frozen=True, slots=True)
class Extent:
    """The bytes `start` to `end` (exclusive) of a local file; whole lines."""

    path: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Slice:
    """A range of one stream's spool, to be landed by one task.

    `first_record` is the ordinal in the stream of its first record. `boundaries` are the checkpoint ends `b` inside it
    (`start < b <= end`), ascending.
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

    `end` is a spool offset; `records` and `multiset` count this part alone. `multiset` is the sum over the records of xxh3_128 of
    the raw `data` bytes, modulo 2**128: equal for the same records in any order.
    """

    end: int
    records: int
    multiset: int


@dataclass(frozen=True, slots=True)
class StagedSlice:
    """A landed slice: its files are staged, its records counted per segment (ascending `end`; the last one ends at `end`).

    `changes` and `misfits` are those of `decoding.record_typer.TypedBlock`.
    """

    start: int
    end: int
    schema_id: int
    files: tuple[StagedFile, ...]
    segments: tuple[Segment, ...]
    changes: Mapping[str, int]
    misfits: Mapping[str, int] = field(default_factory=dict)

    @property
    def records(self) -> int:
        """Records in the slice, which is the number of rows of each of its tables."""
        return sum(segment.records for segment in self.segments)

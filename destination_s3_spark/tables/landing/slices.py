"""Slices of a stream between the spool and a table.

A `Slice` is a range of one stream's spool. Landing turns it into a `StagedSlice`: files that are uploaded but not visible yet. All
positions (`start`, `end`, `boundaries`) are logical byte offsets in the stream's spool. They start at 0 and never restart within a sync.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from destination_s3_spark.chain.files import FileEntry
from destination_s3_spark.decoding.changed_values import ChangedField


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

    `segments` have ascending ends, and the last one ends at `end`. `changes` and `misfits` are the totals of those of
    `decoding.record_typer.TypedBlock`. `changed_values` counts the values in `changes` by field.
    """

    start: int
    end: int
    schema_id: int
    files: tuple[FileEntry, ...]
    segments: tuple[Segment, ...]
    changes: Mapping[str, int]
    misfits: Mapping[str, int] = field(default_factory=dict)
    changed_values: Mapping[ChangedField, int] = field(default_factory=dict)

    @property
    def records(self) -> int:
        """The number of records in the slice. Its final, raw and delta files each have this number of rows."""
        return sum(segment.records for segment in self.segments)

"""Slices of a stream's spool."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from destination_s3_spark.tables.landing.slices import Extent, Slice

START = 1_000
"""The offset of a slice in its stream's spool."""


def slice_of(directory: Path, lines: Sequence[bytes], every: int, cuts: int = 2) -> Slice:
    """A slice with a boundary after so many lines each, in several files."""
    ends, position = [], START
    for text in lines:
        position += len(text)
        ends.append(position)
    extents = []
    for number in range(cuts):
        path = directory / f"{number}.jsonl"
        path.write_bytes(b"".join(lines[len(lines) * number // cuts : len(lines) * (number + 1) // cuts]))
        extents.append(Extent(str(path), 0, path.stat().st_size))
    return Slice(0, START, position, 0, len(lines), tuple(extents), tuple(ends[every - 1 :: every]))

"""Blocks of a slice's lines, each to be typed at once, and the shares that the slice's checkpoints have in a block."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from xxhash import xxh3_128_intdigest

from destination_s3_spark.decoding.record_typer import TypedBlock
from destination_s3_spark.tables.landing.extents import ExtentFile
from destination_s3_spark.tables.landing.slices import Slice

BLOCK_BYTES = 4 * 2**20
"""Size of the lines typed at once: large enough for columnar processing, small enough for the CPU caches and to bound memory."""
MOST_VALUES = 4 * 2**20
"""Most lines of a block times the columns of the table. An absent value takes memory too, however short its line is."""
SHORTEST_LINE = 50
"""Bytes that no line of a record falls below. Tables with fewer columns than this have no more than MOST_VALUES values in a block."""
SMALL_CHECKPOINT_BYTES = 64 * 2**10
"""Smaller checkpoints share a block, because a block costs as much as the typing of about so many bytes."""


class LineBlock(NamedTuple):
    """Whole lines, and the offsets in the stream's spool at which they start and end."""

    lines: bytes
    start: int
    end: int


class Share(NamedTuple):
    """The part of a typed block up to a boundary, or up to the block's end: number of records and sum of hashes."""

    end: int
    records: int
    multiset: int


def blocks(piece: Slice, columns: int) -> Iterator[LineBlock]:
    """Yield the slice's lines in blocks of about BLOCK_BYTES for a table of so many columns.

    A block ends at a boundary of the slice, unless that would make a block of less than SMALL_CHECKPOINT_BYTES.
    """
    most_lines = max(1, MOST_VALUES // max(columns, 1)) if columns > SHORTEST_LINE else None
    stops = (*piece.boundaries, piece.end)
    position = piece.start
    for extent in piece.extents:
        with ExtentFile(extent) as file:
            while file.left:
                stop = stops[min(bisect_left(stops, position + SMALL_CHECKPOINT_BYTES), len(stops) - 1)]
                lines = file.read_lines(min(BLOCK_BYTES, stop - position))
                for part in (lines,) if most_lines is None else _parts(lines, most_lines):
                    yield LineBlock(part, position, position + len(part))
                    position += len(part)


def _parts(lines: bytes, most_lines: int) -> Iterator[bytes]:
    """Yield the lines in parts of at most so many."""
    ends = (np.flatnonzero(np.frombuffer(lines, np.uint8) == ord("\n")) + 1)[most_lines - 1 :: most_lines].tolist()
    start = 0
    for end in ends if ends and ends[-1] == len(lines) else [*ends, len(lines)]:
        yield lines[start:end]
        start = end


def shares(block: LineBlock, typed: TypedBlock, boundaries: tuple[int, ...]) -> Iterator[Share]:
    """Yield the shares of a block: one per boundary (ascending) inside it, and one up to its end if no boundary is there."""
    inside = boundaries[bisect_right(boundaries, block.start) : bisect_left(boundaries, block.end)]
    records = multiset = at = 0
    texts: list[bytes] = typed.raw["_airbyte_data"].cast(pa.binary()).to_pylist() if inside else []
    for boundary in inside:
        found = block.lines.count(b"\n", at, boundary - block.start)
        hashes = sum(map(xxh3_128_intdigest, texts[records : records + found]))
        yield Share(boundary, found, hashes)
        records, multiset, at = records + found, multiset + hashes, boundary - block.start
    yield Share(block.end, typed.records - records, (typed.multiset - multiset) % 2**128)


def leaves(of: pa.DataType | pa.Schema) -> int:
    """Return the number of columns of values: those of a table, and below structs and lists."""
    if isinstance(of, pa.Schema) or pa.types.is_struct(of):
        return sum(leaves(field.type) for field in of)
    return leaves(of.value_type) if pa.types.is_list(of) else 1

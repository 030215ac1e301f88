"""The spool: record lines of all streams on local disk, between reading and landing.

Lines are buffered in memory and written to segment files, one open file at a time, so that a thousand streams need no thousand file
descriptors. A segment is deleted as soon as everything in it has been landed. Positions are logical byte offsets in a stream, from 0.

Next to each segment lies a file of its runs (input offset and number of lines, 8 bytes each, this machine's order), from which the
place of any record in the input is found again. It is not counted in `size`.
"""

from __future__ import annotations

import shutil
from array import array
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from threading import Lock

from destination_s3_spark.errors import disk_error
from destination_s3_spark.protocol.messages import Records
from destination_s3_spark.tables.landing.slices import Extent, Slice

READ_BYTES = 2**20


@dataclass(frozen=True, slots=True)
class SpoolSizes:
    """`buffer`: bytes of lines held in memory over all streams before they are written. `segment`: a file is followed by another from
    this size on; smaller ones give disk back earlier. `mark`: how far apart, in a stream, the number of records is remembered; in
    between, lines are counted.
    """

    buffer: int = 32 * 2**20
    segment: int = 64 * 2**20
    mark: int = 64 * 2**10


@dataclass(slots=True)
class _Segment:
    """One file of a stream's lines. `held` counts its bytes that no released slice covers; `sealed` ones get no more lines."""

    path: Path
    start: int
    end: int
    first_record: int
    held: int = 0
    sealed: bool = False

    @property
    def runs_path(self) -> Path:
        return self.path.with_suffix(".runs")

    @property
    def size(self) -> int:
        return self.end - self.start


@dataclass(slots=True)
class _Mark:
    """A line end, and the number of records before it."""

    offset: int
    records: int


@dataclass(slots=True)
class _StreamSpool:
    """What is known of one stream: totals, the unwritten buffer, its segments, and the marks since the last cut."""

    end: int = 0
    records: int = 0
    chunks: list[bytes] = field(default_factory=list)
    runs: array[int] = field(default_factory=lambda: array("Q"))
    buffered: int = 0
    buffered_records: int = 0
    segments: list[_Segment] = field(default_factory=list)
    written_segments: int = 0
    marks: list[_Mark] = field(default_factory=lambda: [_Mark(0, 0)])


class Spool:
    """Bounded by whoever appends: `size` against `limit_bytes`. Safe between the thread that reads and the one that releases."""

    def __init__(self, directory: Path, limit_bytes: int, sizes: SpoolSizes | None = None) -> None:
        self.limit_bytes = limit_bytes
        self._sizes = sizes or SpoolSizes()
        self._directory = directory
        self._streams: defaultdict[int, _StreamSpool] = defaultdict(_StreamSpool)
        self._buffered = 0
        self._on_disk = 0
        self._outstanding: set[tuple[int, int, int]] = set()
        self._lock = Lock()
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)  # it will hold the user's records

    @property
    def size(self) -> int:
        """Bytes of lines in memory and in files that are not deleted yet."""
        with self._lock:
            return self._buffered + self._on_disk

    @property
    def full(self) -> bool:
        """Whether reading must wait until something is released."""
        return self.size >= self.limit_bytes

    def end(self, stream: int) -> int:
        """The offset behind the stream's last line."""
        with self._lock:
            return self._streams[stream].end

    def records(self, stream: int) -> int:
        """Records of the stream so far."""
        with self._lock:
            return self._streams[stream].records

    def append(self, records: Records) -> None:
        """Add lines to their stream. Raises TransientError when the disk is full."""
        with self._lock:
            spool = self._streams[records.stream]
            size = sum(map(len, records.chunks))
            spool.chunks += records.chunks
            spool.runs.extend(chain.from_iterable(records.runs))
            spool.end += size
            spool.records += records.records
            spool.buffered += size
            spool.buffered_records += records.records
            if spool.end - spool.marks[-1].offset >= self._sizes.mark:
                spool.marks.append(_Mark(spool.end, spool.records))
            self._buffered += size
            if self._buffered >= self._sizes.buffer:
                for number, buffered in self._streams.items():
                    self._write(number, buffered)

    def cut(self, stream: int, end: int, pieces: int, boundaries: Sequence[int]) -> list[Slice]:
        """Everything of the stream since its last cut, up to `end`, as at most `pieces` slices of whole lines and similar size.

        `end` is the end of a line, such as `end()` gave it. `boundaries` are the checkpoint ends inside, ascending. The slices' bytes
        are in files when this returns.
        """
        with self._lock:
            spool = self._streams[stream]
            start = spool.marks[0]
            if end <= start.offset:
                return []
            self._write(stream, spool)
            step = (end - start.offset) / pieces
            cuts = [self._line_end(spool, start.offset + round(step * piece)) for piece in range(1, pieces)]
            last = self._line_end(spool, end)
            slices = []
            for place in [*cuts, last]:
                if place.offset > start.offset:
                    slices.append(self._slice(stream, spool, start, place, boundaries))
                    start = place
            spool.marks = [last, *(mark for mark in spool.marks if mark.offset > last.offset)]
            spool.segments[-1].sealed = True  # what comes later must not keep these files alive
            return slices

    def release(self, piece: Slice) -> None:
        """Give back the disk of a slice that is landed; a segment goes when all its slices went."""
        with self._lock:
            self._outstanding.remove((piece.stream, piece.start, piece.end))
            spool = self._streams[piece.stream]
            for segment in spool.segments:
                segment.held -= max(0, min(segment.end, piece.end) - max(segment.start, piece.start))
            for segment in [segment for segment in spool.segments if not segment.held]:
                segment.path.unlink()
                segment.runs_path.unlink()
                self._on_disk -= segment.size
                spool.segments.remove(segment)

    def input_offset(self, stream: int, record: int) -> int:
        """The byte offset in the input of a record that is not released yet, by its ordinal in the stream."""
        with self._lock:
            spool = self._streams[stream]
            self._write(stream, spool)
            at = bisect_right(spool.segments, record, key=lambda segment: segment.first_record) - 1
            if at < 0 or record >= spool.records:
                raise IndexError(f"record {record} is not in the spool")
            return _input_offset(spool.segments[at], record)

    def close(self) -> None:
        """Remove the directory and everything in it."""
        with self._lock:
            shutil.rmtree(self._directory, ignore_errors=True)

    def _write(self, stream: int, spool: _StreamSpool) -> None:
        """Move the stream's buffer to the end of its last segment, or to a new one."""
        if not spool.chunks:
            return
        segment = self._segment(stream, spool)
        try:
            with segment.path.open("ab") as lines:
                lines.writelines(spool.chunks)
            with segment.runs_path.open("ab") as file:
                file.write(spool.runs)
        except OSError as error:
            raise disk_error(self._directory, error) from error
        segment.end += spool.buffered
        segment.held += spool.buffered
        self._on_disk += spool.buffered
        self._buffered -= spool.buffered
        spool.chunks, spool.runs, spool.buffered, spool.buffered_records = [], array("Q"), 0, 0

    def _segment(self, stream: int, spool: _StreamSpool) -> _Segment:
        """The segment that takes the stream's next lines."""
        last = spool.segments[-1] if spool.segments else None
        if last is None or last.sealed or last.size >= self._sizes.segment:
            start = spool.end - spool.buffered
            path = self._directory / f"{stream:05}-{spool.written_segments:06}.jsonl"
            last = _Segment(path, start, start, spool.records - spool.buffered_records)
            spool.segments.append(last)
            spool.written_segments += 1
        return last

    def _slice(self, stream: int, spool: _StreamSpool, start: _Mark, end: _Mark, boundaries: Sequence[int]) -> Slice:
        self._outstanding.add((stream, start.offset, end.offset))
        return Slice(
            stream=stream,
            start=start.offset,
            end=end.offset,
            first_record=start.records,
            records=end.records - start.records,
            extents=tuple(_extents(spool, start.offset, end.offset)),
            boundaries=tuple(boundary for boundary in boundaries if start.offset < boundary <= end.offset),
        )

    @staticmethod
    def _line_end(spool: _StreamSpool, target: int) -> _Mark:
        """The last line end at or before an offset of the uncut part, with its number of records."""
        mark = spool.marks[bisect_right(spool.marks, target, key=lambda mark: mark.offset) - 1]
        offset, records, position = mark.offset, mark.records, mark.offset
        for block in _blocks(_extents(spool, mark.offset, target)):
            records += block.count(b"\n")
            newline = block.rfind(b"\n")
            if newline >= 0:
                offset = position + newline + 1
            position += len(block)
        return _Mark(offset, records)


def _extents(spool: _StreamSpool, start: int, end: int) -> Iterator[Extent]:
    """Where in the segment files the bytes from `start` to `end` of the stream lie."""
    for segment in spool.segments:
        first, last = max(start, segment.start), min(end, segment.end)
        if first < last:
            yield Extent(str(segment.path), first - segment.start, last - segment.start)


def _blocks(extents: Iterator[Extent]) -> Iterator[bytes]:
    """The bytes of the extents, a bounded piece at a time."""
    for extent in extents:
        with Path(extent.path).open("rb") as file:
            file.seek(extent.start)
            left = extent.end - extent.start
            while left:
                block = file.read(min(left, READ_BYTES))
                yield block
                left -= len(block)


def _input_offset(segment: _Segment, record: int) -> int:
    """The record's run gives the offset of the run's first line; the lines of the run before the record give the rest."""
    runs = array("Q")
    runs.frombytes(segment.runs_path.read_bytes())
    before = record - segment.first_record
    with segment.path.open("rb") as lines:
        for offset, records in zip(runs[::2], runs[1::2], strict=True):
            if before < records:
                return offset + sum(len(next(lines)) for _ in range(before))
            before -= records
            for _ in range(records):
                next(lines)
    raise IndexError(f"record {record} is not in the spool")

"""The spool: record lines of all streams on the local disk, between reading and landing.

Lines are buffered in memory and written to segment files. Only one file is open at a time, so that a thousand streams do not need a
thousand file descriptors. A segment is deleted as soon as all its lines have landed. Positions are logical byte offsets in a stream.

Each segment has a second file with its runs: input offset and number of lines, 8 bytes each, in native byte order. They locate any record
in the input. `size` does not include this file.
"""

from __future__ import annotations

import shutil
from array import array
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock

from destination_s3_spark.errors import disk_error
from destination_s3_spark.protocol.messages import Records
from destination_s3_spark.tables.landing.slices import Extent, Slice, read_blocks

SPOOL_READ_BYTES = 2**20


@dataclass(frozen=True, slots=True)
class SpoolSizes:
    """The sizes of a spool's parts in bytes."""

    buffer: int = 32 * 2**20
    """Lines of all streams held in memory before they are written."""
    stream_buffer: int = 2 * 2**20
    """Lines of one stream held in memory before they are written. The processor's caches hold them until then."""
    segment: int = 64 * 2**20
    """Size of a file at which the next one begins. Smaller files free disk space earlier."""
    mark: int = 64 * 2**10
    """Distance within a stream between remembered record counts. Between them, lines are counted."""


@dataclass(slots=True)
class _Segment:
    """A file of a stream's lines. `held`: bytes that no released slice covers. `sealed`: the file gets no more lines."""

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
class _LineMark:
    """A line end and the number of records before it."""

    offset: int
    records: int


@dataclass(slots=True)
class _StreamSpool:
    """The spool's view of one stream: totals, unwritten buffer, segments, and the marks since the last cut."""

    end: int = 0
    records: int = 0
    chunks: list[bytes] = field(default_factory=list)
    runs: array[int] = field(default_factory=lambda: array("Q"))
    buffered: int = 0
    buffered_records: int = 0
    segments: list[_Segment] = field(default_factory=list)
    written_segments: int = 0
    marks: list[_LineMark] = field(default_factory=lambda: [_LineMark(0, 0)])


class Spool:
    """The spooled lines of all streams. Thread-safe between the thread that reads and the one that releases.

    The caller enforces the bound: it must stop appending while `full`.
    """

    def __init__(self, directory: Path, limit_bytes: int, sizes: SpoolSizes | None = None) -> None:
        self.limit_bytes = limit_bytes
        self._sizes = sizes or SpoolSizes()
        self._directory = directory
        self._streams: defaultdict[int, _StreamSpool] = defaultdict(_StreamSpool)
        self._buffered = 0
        self._on_disk = 0
        self._outstanding: set[tuple[int, int, int]] = set()
        self._lock = Lock()
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)  # private, because it holds the user's records

    @property
    def size(self) -> int:
        """Bytes of lines in memory and in files not deleted yet."""
        with self._lock:
            return self._buffered + self._on_disk

    @property
    def full(self) -> bool:
        """Whether reading must wait until slices are released."""
        return self.size >= self.limit_bytes

    def end(self, stream: int) -> int:
        """Return the offset after the stream's last line."""
        with self._lock:
            return self._streams[stream].end

    def records(self, stream: int) -> int:
        with self._lock:
            return self._streams[stream].records

    def totals(self) -> tuple[int, int]:
        """Return the number of records so far and their bytes, of all streams."""
        with self._lock:
            return sum(spool.records for spool in self._streams.values()), sum(spool.end for spool in self._streams.values())

    def append(self, records: Records) -> None:
        """Add lines to their stream. Raises TransientError when the disk is full."""
        with self._lock:
            spool = self._streams[records.stream]
            size = len(records.lines)
            spool.chunks.append(records.lines)
            spool.runs.extend(records.runs)
            spool.end += size
            spool.records += records.records
            spool.buffered += size
            spool.buffered_records += records.records
            if spool.end - spool.marks[-1].offset >= self._sizes.mark:
                spool.marks.append(_LineMark(spool.end, spool.records))
            self._buffered += size
            if spool.buffered >= self._sizes.stream_buffer:
                self._write(records.stream, spool)
            elif self._buffered >= self._sizes.buffer:
                for number, buffered in self._streams.items():
                    self._write(number, buffered)

    def cut(self, stream: int, end: int, pieces: int, boundaries: Sequence[int]) -> list[Slice]:
        """Cut the stream from its last cut up to `end` into at most `pieces` slices of whole lines and similar size.

        `end` is the end of a line, as returned by `end()`. `boundaries` are the checkpoint ends in between, ascending. The slices' bytes
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
            spool.marks = [last, *spool.marks[bisect_right(spool.marks, last.offset, key=lambda mark: mark.offset) :]]
            spool.segments[-1].sealed = True  # later lines must not delay the deletion of these files
            return slices

    def release(self, piece: Slice) -> None:
        """Release a landed slice. A segment is deleted once all its slices are released."""
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
        """Return the byte offset in the input of a record, given its ordinal in the stream.

        Raises IndexError when the record is not in the spool, such as after its release.
        """
        with self._lock:
            spool = self._streams[stream]
            self._write(stream, spool)
            at = bisect_right(spool.segments, record, key=lambda segment: segment.first_record) - 1
            if at < 0 or record >= spool.records:
                raise IndexError(f"record {record} is not in the spool")
            return _input_offset(spool.segments[at], record)

    def close(self) -> None:
        with self._lock:
            shutil.rmtree(self._directory, ignore_errors=True)

    def _write(self, stream: int, spool: _StreamSpool) -> None:
        """Append the stream's buffer to its last segment or to a new one. Raises TransientError when the disk is full."""
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
        """Return the segment for the stream's next lines."""
        last = spool.segments[-1] if spool.segments else None
        if last is None or last.sealed or last.size >= self._sizes.segment:
            start = spool.end - spool.buffered
            path = self._directory / f"{stream:05}-{spool.written_segments:06}.jsonl"
            last = _Segment(path, start, start, spool.records - spool.buffered_records)
            spool.segments.append(last)
            spool.written_segments += 1
        return last

    def _slice(self, stream: int, spool: _StreamSpool, start: _LineMark, end: _LineMark, boundaries: Sequence[int]) -> Slice:
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
    def _line_end(spool: _StreamSpool, target: int) -> _LineMark:
        """Return the last line end at or before an offset of the uncut part, with the number of records before it."""
        mark = spool.marks[bisect_right(spool.marks, target, key=lambda mark: mark.offset) - 1]
        offset, records, position = mark.offset, mark.records, mark.offset
        for block in read_blocks(_extents(spool, mark.offset, target), SPOOL_READ_BYTES):
            records += block.count(b"\n")
            newline = block.rfind(b"\n")
            if newline >= 0:
                offset = position + newline + 1
            position += len(block)
        return _LineMark(offset, records)


def _extents(spool: _StreamSpool, start: int, end: int) -> Iterator[Extent]:
    """Yield the extents of the segment files that hold the stream's bytes from `start` to `end`."""
    for segment in spool.segments:
        first, last = max(start, segment.start), min(end, segment.end)
        if first < last:
            yield Extent(str(segment.path), first - segment.start, last - segment.start)


def _input_offset(segment: _Segment, record: int) -> int:
    """Return the record's offset in the input: its run's offset plus the lengths of the run's earlier lines."""
    runs = array("Q")
    runs.frombytes(segment.runs_path.read_bytes())
    before = record - segment.first_record
    with segment.path.open("rb") as lines:
        for offset, records in zip(runs[::2], runs[1::2], strict=True):
            if before < records:
                return offset + sum(len(lines.readline()) for _ in range(before))
            before -= records
            for _ in range(records):
                lines.readline()
    raise IndexError(f"record {record} is not in the spool")

from __future__ import annotations

import random
import resource
import stat
import threading
from array import array
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from destination_s3_spark.errors import TransientError
from destination_s3_spark.protocol.messages import Records
from destination_s3_spark.sync.spool import Spool, SpoolSizes
from destination_s3_spark.tables.landing.slices import Slice
from unit_tests.sampling import examples


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[Spool]:
    spool = Spool(tmp_path / "spool", limit_bytes=2**30)
    yield spool
    spool.close()


def lines_of(*texts: bytes, stream: int = 0, at: int = 0) -> Records:
    """One run: the lines stand next to each other at this input offset."""
    return Records(stream, b"".join(text + b"\n" for text in texts), len(texts), array("Q", (at, len(texts))))


def content(piece: Slice) -> bytes:
    found = b""
    for extent in piece.extents:
        with Path(extent.path).open("rb") as file:
            file.seek(extent.start)
            found += file.read(extent.end - extent.start)
    return found


def files(spool_directory: Path) -> list[str]:
    return sorted(path.name for path in spool_directory.iterdir())


def test_what_was_appended_is_in_the_files_when_cut_returns(spool: Spool) -> None:
    spool.append(lines_of(b"one", b"two"))
    spool.append(lines_of(b"other", stream=3))
    spool.append(lines_of(b"three"))
    assert (spool.end(0), spool.records(0), spool.end(3), spool.end(7), spool.size) == (14, 3, 6, 0, 20)
    (piece,) = spool.cut(0, 14, 1, ())
    assert content(piece) == b"one\ntwo\nthree\n"
    assert (piece.stream, piece.start, piece.end, piece.first_record, piece.records) == (0, 0, 14, 0, 3)


def test_a_cut_inside_leaves_the_rest_for_the_next_cut(spool: Spool) -> None:
    spool.append(lines_of(b"one", b"two", b"three"))
    (first,) = spool.cut(0, 8, 1, ())
    assert spool.cut(0, 8, 1, ()) == []
    spool.append(lines_of(b"four"))
    (second,) = spool.cut(0, spool.end(0), 1, ())
    assert (content(first), content(second)) == (b"one\ntwo\n", b"three\nfour\n")
    assert (second.start, second.first_record, second.records) == (8, 2, 2)


def test_a_stream_without_lines_has_no_slices(spool: Spool) -> None:
    assert spool.cut(5, 0, 4, ()) == []


def test_pieces_are_whole_lines_of_similar_size(spool: Spool) -> None:
    for number in range(2000):
        spool.append(lines_of(*[b"%06d-%d" % (number, item) + b"x" * 90 for item in range(10)]))
    end = spool.end(0)
    pieces = spool.cut(0, end, 4, ())
    assert len(pieces) == 4
    assert all(abs((piece.end - piece.start) - end / 4) < 200 for piece in pieces)
    assert all(content(piece).count(b"\n") == piece.records and content(piece).endswith(b"\n") for piece in pieces)
    assert [piece.first_record for piece in pieces] == [sum(piece.records for piece in pieces[:index]) for index in range(4)]


def test_more_pieces_than_lines_give_a_slice_a_line(spool: Spool) -> None:
    spool.append(lines_of(b"a" * 50, b"b", b"c"))
    assert [content(piece)[:1] for piece in spool.cut(0, spool.end(0), 60, ())] == [b"a", b"b", b"c"]


def test_each_slice_knows_the_boundaries_inside_it(spool: Spool) -> None:
    ends = []
    for _ in range(6):
        spool.append(lines_of(b"12345", b"67890"))
        ends.append(spool.end(0))
    pieces = spool.cut(0, ends[-1], 2, ends)
    assert [piece.boundaries for piece in pieces] == [(12, 24, 36), (48, 60, 72)]


def test_released_slices_give_their_files_back(spool: Spool, tmp_path: Path) -> None:
    directory = tmp_path / "spool"
    spool.append(lines_of(b"one", b"two", b"three"))
    first, second = spool.cut(0, 14, 2, ())
    spool.append(lines_of(b"four"))
    spool.release(second)
    assert (spool.size, files(directory)) == (19, ["00000-000000.jsonl", "00000-000000.runs"])
    spool.release(first)
    assert (spool.size, files(directory)) == (5, [])
    (rest,) = spool.cut(0, spool.end(0), 1, ())
    assert content(rest) == b"four\n"
    spool.release(rest)
    assert (spool.size, files(directory)) == (0, [])


def test_lines_behind_a_cut_do_not_go_into_its_files(spool: Spool) -> None:
    spool.append(lines_of(b"one"))
    (first,) = spool.cut(0, 4, 1, ())
    spool.append(lines_of(b"two"))
    (second,) = spool.cut(0, 8, 1, ())
    assert {extent.path for extent in first.extents}.isdisjoint(extent.path for extent in second.extents)


def test_a_slice_is_released_once(spool: Spool) -> None:
    spool.append(lines_of(b"one"))
    (piece,) = spool.cut(0, 4, 1, ())
    spool.release(piece)
    with pytest.raises(KeyError):
        spool.release(piece)


def test_memory_is_bounded_and_segments_end_at_their_size(tmp_path: Path) -> None:
    sizes = SpoolSizes(buffer=40, segment=100)
    spool = Spool(tmp_path / "spool", 2**30, sizes)
    for written in range(10, 181, 10):
        spool.append(lines_of(b"123456789"))
        assert written - sum(path.stat().st_size for path in (tmp_path / "spool").glob("*.jsonl")) < sizes.buffer
        assert spool.size == written
    (piece,) = spool.cut(0, spool.end(0), 1, ())
    assert [extent.end - extent.start for extent in piece.extents] == [120, 60], "the first one to reach 100 is the last to grow"
    spool.close()


def test_a_streams_full_buffer_is_written_alone(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool", 2**30, SpoolSizes(buffer=30, stream_buffer=10))
    spool.append(lines_of(b"1234", stream=1))
    spool.append(lines_of(b"1234567"))
    assert files(tmp_path / "spool") == []
    spool.append(lines_of(b"9"))
    assert files(tmp_path / "spool") == ["00000-000000.jsonl", "00000-000000.runs"]
    for stream in range(2, 7):
        spool.append(lines_of(b"1234", stream=stream))
    assert len(files(tmp_path / "spool")) == 2 * 7, "of all streams, because together they fill the buffer"
    spool.close()


def test_full_at_the_limit_and_no_more_after_a_release(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool", limit_bytes=10)
    spool.append(lines_of(b"12345"))
    assert not spool.full
    spool.append(lines_of(b"789"))
    assert spool.full
    spool.release(spool.cut(0, 10, 1, ())[0])
    assert not spool.full
    spool.close()


def test_a_record_is_found_in_the_input_by_its_ordinal(spool: Spool) -> None:
    chosen = random.Random(3)
    offsets: list[int] = []
    position = 0
    for _ in range(40):
        runs, chunk = array("Q"), b""
        for _ in range(chosen.randrange(1, 5)):
            position += chosen.randrange(50)  # other streams' lines
            runs.extend((position, chosen.randrange(1, 6)))
            for _ in range(runs[-1]):
                line = b"x" * chosen.randrange(1, 30) + b"\n"
                offsets.append(position)
                position += len(line)
                chunk += line
        spool.append(Records(0, chunk, sum(runs[1::2]), runs))
        if chosen.random() < 0.3:
            spool.cut(0, spool.end(0), 2, ())
    assert [spool.input_offset(0, record) for record in range(len(offsets))] == offsets
    with pytest.raises(IndexError):
        spool.input_offset(0, len(offsets))


def test_a_released_record_has_no_place_any_more(spool: Spool) -> None:
    spool.append(lines_of(b"one", b"two"))
    spool.append(lines_of(b"three", at=100))
    first, *_ = spool.cut(0, 8, 1, ())
    spool.cut(0, spool.end(0), 1, ())
    assert spool.input_offset(0, 2) == 100
    spool.release(first)
    assert spool.input_offset(0, 2) == 100, "its segment still holds a record"


@pytest.fixture
def full_disk(tmp_path: Path) -> Spool:
    """A spool whose first segment lies on a device that is always full."""
    spool = Spool(tmp_path / "spool", limit_bytes=2**30)
    (tmp_path / "spool" / "00000-000000.jsonl").symlink_to("/dev/full")
    return spool


def test_a_full_disk_stops_the_sync_and_says_what_to_do(full_disk: Spool) -> None:
    full_disk.append(lines_of(b"a customer's name"))
    with pytest.raises(TransientError, match=r"is full.*batching\.spool_dir") as caught:
        full_disk.cut(0, full_disk.end(0), 1, ())
    assert "customer" not in caught.value.message
    full_disk.close()


def test_a_directory_that_vanished_is_named(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool", limit_bytes=2**30)
    spool.append(lines_of(b"x"))
    (tmp_path / "spool").rmdir()
    with pytest.raises(TransientError, match=r"cannot be used: No such file.*batching\.spool_dir"):
        spool.cut(0, 2, 1, ())


def test_the_directory_is_for_its_owner_and_gone_after_close(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "a" / "spool", limit_bytes=2**30)
    assert stat.S_IMODE((tmp_path / "a" / "spool").stat().st_mode) == 0o700
    spool.append(lines_of(b"x"))
    spool.cut(0, 2, 1, ())
    spool.close()
    spool.close()
    assert files(tmp_path / "a") == []


def test_a_thousand_streams_need_no_thousand_open_files(spool: Spool) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = max(int(path.name) for path in Path("/proc/self/fd").iterdir()) + 1
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + 8, hard))
    try:
        for stream in range(1000):
            spool.append(lines_of(b"%d" % stream, stream=stream, at=stream))
        pieces = [piece for stream in range(1000) for piece in spool.cut(stream, spool.end(stream), 1, ())]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert [content(piece) for piece in pieces] == [b"%d\n" % stream for stream in range(1000)]


def test_releasing_while_reading_loses_nothing(spool: Spool) -> None:
    landed: list[bytes] = []
    waiting: list[Slice] = []
    done = threading.Event()

    def land() -> None:
        while not done.is_set() or waiting:
            if waiting:
                piece = waiting.pop(0)
                landed.append(content(piece))
                spool.release(piece)

    pipeline = threading.Thread(target=land)
    pipeline.start()
    for number in range(3000):
        spool.append(lines_of(b"%d" % number))
        if number % 7 == 0:
            waiting.extend(spool.cut(0, spool.end(0), 2, ()))
    waiting.extend(spool.cut(0, spool.end(0), 2, ()))
    done.set()
    pipeline.join()
    assert b"".join(landed) == b"".join(b"%d\n" % number for number in range(3000))
    assert spool.size == 0


steps = st.lists(
    st.one_of(
        st.tuples(
            st.just("append"), st.integers(0, 2), st.lists(st.binary(max_size=12).map(lambda text: text.replace(b"\n", b"")), min_size=1)
        ),
        st.tuples(st.just("cut"), st.integers(0, 2), st.tuples(st.integers(1, 4), st.booleans())),
        st.tuples(st.just("release"), st.integers(0, 50), st.none()),
    ),
    max_size=40,
)


@given(steps=steps, buffer_bytes=st.integers(1, 60), segment_bytes=st.integers(1, 60), mark_bytes=st.integers(1, 40))
@examples(150)
def test_bytes_in_are_bytes_out_through_any_order_of_appends_cuts_and_releases(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int, object]], buffer_bytes: int, segment_bytes: int, mark_bytes: int
) -> None:
    sizes = SpoolSizes(buffer_bytes, segment_bytes, mark_bytes)
    Conservation(Spool(tmp_path_factory.mktemp("any") / "spool", 2**30, sizes)).play(steps)


class Conservation:
    """Plays steps on a spool beside a model of plain byte strings, and compares them after each."""

    def __init__(self, spool: Spool) -> None:
        self.spool = spool
        self.appended = [b"", b"", b""]
        self.line_ends: list[list[int]] = [[0], [0], [0]]
        self.offsets: list[list[int]] = [[], [], []]
        self.cut_to = [0, 0, 0]
        self.outstanding: list[Slice] = []
        self.released = 0
        self.position = 0

    def play(self, steps: list[tuple[str, int, object]]) -> None:
        for action, number, detail in steps:
            getattr(self, action)(number, detail)
            held = sum(map(len, self.appended)) - self.released
            assert self.spool.size >= held, "released bytes may wait for the rest of their file, others never go"
        for stream in range(3):
            self.cut(stream, (2, False))
        for record, offset in ((len(each) - 1, each[-1]) for each in self.offsets[:1] if each):
            if any(piece.stream == 0 and piece.first_record <= record < piece.first_record + piece.records for piece in self.outstanding):
                assert self.spool.input_offset(0, record) == offset
        while self.outstanding:
            self.release(0, None)
        assert self.spool.size == 0
        self.spool.close()

    def append(self, stream: int, lines: list[bytes]) -> None:
        chunk = b"".join(line + b"\n" for line in lines)
        self.spool.append(Records(stream, chunk, len(lines), array("Q", (self.position, len(lines)))))
        for line in lines:
            self.offsets[stream].append(self.position)
            self.position += len(line) + 1
            self.line_ends[stream].append(self.line_ends[stream][-1] + len(line) + 1)
        self.appended[stream] += chunk
        assert (self.spool.end(stream), self.spool.records(stream)) == (len(self.appended[stream]), len(self.offsets[stream]))

    def cut(self, stream: int, detail: tuple[int, bool]) -> None:
        pieces, inside = detail
        ends = [end for end in self.line_ends[stream] if end >= self.cut_to[stream]]
        end = ends[len(ends) // 2] if inside else ends[-1]
        slices = self.spool.cut(stream, end, pieces, ends)
        assert len(slices) <= pieces
        position = self.cut_to[stream]
        for piece in slices:
            assert piece.start == position < piece.end
            position = piece.end
            expected = self.appended[stream][piece.start : piece.end]
            assert content(piece) == expected
            assert piece.first_record == self.line_ends[stream].index(piece.start)
            assert piece.records == expected.count(b"\n")
            assert piece.boundaries == tuple(b for b in ends if piece.start < b <= piece.end)
        assert position == end
        self.cut_to[stream] = end
        self.outstanding += slices

    def release(self, number: int, _: None) -> None:
        if self.outstanding:
            piece = self.outstanding.pop(number % len(self.outstanding))
            self.spool.release(piece)
            self.released += piece.end - piece.start

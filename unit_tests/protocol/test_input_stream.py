from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from destination_s3_spark.protocol.reader import PIPE_BYTES, bytes_waiting, read_blocks


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """(end to read, end to write); a test may close them."""
    ends = os.pipe()
    yield ends
    for end in ends:
        with suppress(OSError):
            os.close(end)


def test_a_file_comes_in_blocks_and_never_waits(tmp_path: Path) -> None:
    content = os.urandom(2 * PIPE_BYTES + 17)
    path = tmp_path / "input"
    path.write_bytes(content)
    with path.open("rb") as file:
        blocks = list(read_blocks(file.fileno(), idle_s=60))
    assert b"".join(blocks) == content
    assert all(0 < len(block) <= PIPE_BYTES for block in blocks)


def test_an_open_and_silent_pipe_ticks_with_empty_blocks(pipe: tuple[int, int]) -> None:
    reading, writing = pipe
    blocks = read_blocks(reading, idle_s=0.02)
    assert next(blocks) == b""
    assert next(blocks) == b""
    os.write(writing, b"some")
    assert next(blocks) == b"some"
    assert next(blocks) == b""
    os.write(writing, b"last")
    os.close(writing)
    assert list(blocks) == [b"last"]


def test_bytes_that_arrive_end_the_wait_at_once(pipe: tuple[int, int]) -> None:
    reading, writing = pipe
    later = threading.Timer(0.05, os.write, (writing, b"x"))
    later.start()
    assert next(read_blocks(reading, idle_s=30)) == b"x", "not the empty block of a wait that ran out"
    later.join()


def test_a_pipe_is_made_large_enough_to_keep_the_writer_busy(pipe: tuple[int, int]) -> None:
    reading, writing = pipe
    os.write(writing, b"x")
    assert next(read_blocks(reading)) == b"x"
    assert fcntl.fcntl(reading, fcntl.F_GETPIPE_SZ) >= PIPE_BYTES


def test_bytes_that_wait_are_counted_where_that_can_be_told(pipe: tuple[int, int]) -> None:
    reading, writing = pipe
    assert bytes_waiting(reading) == 0
    os.write(writing, b"x" * 1000)
    assert bytes_waiting(reading) == 1000
    with Path("/dev/null").open("rb") as nothing:
        assert bytes_waiting(nothing.fileno()) == 0

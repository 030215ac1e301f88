"""Blocks of bytes from a file descriptor, with an empty block whenever it stays silent."""

from __future__ import annotations

import fcntl
import os
import select
import termios
from array import array
from collections.abc import Iterator
from contextlib import suppress

PIPE_BYTES = 2**20
"""Largest pipe that an unprivileged process may request (/proc/sys/fs/pipe-max-size)."""
INPUT_BLOCK_BYTES = PIPE_BYTES
"""Block size: a full pipe. Smaller blocks cost more calls, and larger ones would not fit in the second-level cache."""


def read_blocks(fd: int, idle_s: float = 1.0, block_bytes: int = INPUT_BLOCK_BYTES) -> Iterator[bytes]:
    """Yield the bytes of a file, pipe or socket as they arrive, until its end, and an empty block per `idle_s` seconds of silence."""
    with suppress(OSError):  # only pipes have a size, and only a larger one helps
        if fcntl.fcntl(fd, fcntl.F_GETPIPE_SZ) < PIPE_BYTES:
            fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    while True:
        if not poll.poll(idle_s * 1000):
            yield b""
            continue
        block = os.read(fd, block_bytes)
        if not block:
            return
        yield block


def bytes_waiting(fd: int) -> int:
    """Return how many bytes can be read at once from a file, pipe or socket; 0 if unknown."""
    answer = array("i", [0])
    with suppress(OSError):
        fcntl.ioctl(fd, termios.FIONREAD, answer)
    return answer[0]

"""Output of Spark's JVM, its launcher and the Python workers below it: passed on to stderr, less the lines of a good start."""

from __future__ import annotations

import os
import re
import threading
from collections import deque
from contextlib import suppress
from typing import IO

NOISE = (b"WARNING: Using incubator modules: jdk.incubator.vector",)
"""Lines of every start. Spark itself asks for this module, and Java has no option against its warning."""
KEPT = 50
"""Last lines that are kept for a diagnosis."""
QUOTED = 3
"""Most lines that a message quotes."""
QUOTED_CHARACTERS = 300
STDERR = 2

_STACK_FRAME = re.compile(r"\s*(?:at |\.\.\. \d+ more|#\s*$)")


class JvmOutput:
    """Reader of the output. Until `follow`, it waits in the pipe: a process that is to be forked must not have threads.

    One thread may follow the output while another one, which stops the sync, finishes it.
    """

    def __init__(self, pipe: IO[bytes]) -> None:
        self._pipe = pipe
        self._last: deque[str] = deque(maxlen=KEPT)
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def follow(self) -> None:
        """Pass the output on from now on, in the background and until it ends. Do nothing if it is finished."""
        with self._lock:
            if self._thread is None and not self._pipe.closed:
                thread = threading.Thread(target=self._pass_on, name="jvm-output", daemon=True)
                thread.start()
                self._thread = thread

    def finish(self, timeout_s: float) -> None:
        """Wait for the end of the output of a JVM that has ended. Without `follow`, nobody reads it."""
        with self._lock:
            if self._thread is None:
                self._pipe.close()
                return
        self._thread.join(timeout_s)

    @property
    def last_lines(self) -> tuple[str, ...]:
        """The last lines so far, without those of a good start."""
        return tuple(self._last)

    def _pass_on(self) -> None:
        with self._pipe:
            for line in self._pipe:
                if line.strip() in NOISE:
                    continue
                self._last.append(line.decode(errors="replace").rstrip())
                with suppress(OSError):  # stderr may be closed, and the JVM must not wait for it
                    os.write(STDERR, line)


def quoted(lines: tuple[str, ...]) -> str:
    """Return the last lines that say something, without stack frames, in one line for a message; "" if there are none."""
    telling = [line.strip() for line in lines if line.strip() and not _STACK_FRAME.match(line)]
    return " | ".join(line[:QUOTED_CHARACTERS] for line in telling[-QUOTED:])

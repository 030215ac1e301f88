"""Heartbeat of a sync: a line at regular intervals, for as long as it goes on."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType

EVERY_S = 10.0
"""Seconds between two beats. A sync that ends earlier has none."""
GOODBYE_S = 1.0
"""Seconds to wait for a beat that is being written. It can only hang if the platform does not read the output."""

logger = logging.getLogger("airbyte")


class Heartbeat:
    """A thread that logs what `beat` returns. It sleeps in between, and neither a beat nor its failure disturbs the sync."""

    def __init__(self, beat: Callable[[], str], every_s: float | None = None) -> None:
        self._beat = beat
        self._every_s = EVERY_S if every_s is None else every_s
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)

    def __enter__(self) -> Heartbeat:
        with suppress(RuntimeError):  # the system refuses more threads, which the sync will notice where it needs one
            self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Return when no further beat will be written."""
        self._over.set()
        if self._thread.ident is not None:
            self._thread.join(GOODBYE_S)

    def _run(self) -> None:
        due = time.monotonic() + self._every_s
        while not self._over.wait(max(0.0, due - time.monotonic())):
            due += self._every_s
            try:
                logger.info("%s", self._beat())
            except Exception:  # a sync must not fail because of what is said about it
                logger.debug("the heartbeat has failed and ends", exc_info=True)
                return

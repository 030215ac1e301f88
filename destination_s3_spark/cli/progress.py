"""Progress of what takes longer than a moment, on stderr: a bar on a terminal, elsewhere a line every ten seconds."""

from __future__ import annotations

import sys
import threading
import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

from destination_s3_spark.cli.filtered import filtered_output, unfiltered
from destination_s3_spark.wording import LINE_END, printable

SHOWN_AFTER_S = 2.0
"""Seconds after which a bar appears. What is over by then shows none."""
LINE_EVERY_S = 10.0
REDRAWN_EVERY_S = 0.1


class Progress:
    """Display of the progress of one thing. `update` may be called from any thread, as often as one likes."""

    def __init__(self, doing: str, total: int | None = None, *, line_every_s: float = LINE_EVERY_S) -> None:
        self._doing = printable(doing, LINE_END)
        self._total = total
        self._done = 0
        self._note = ""
        self._line_every_s = line_every_s
        self._over = threading.Event()
        self._began = time.monotonic()
        self._watcher = threading.Thread(target=self._watch, name="progress", daemon=True)
        self._counting = threading.Lock()

    def __enter__(self) -> Progress:
        self._watcher.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._over.set()
        self._watcher.join()

    def advance(self) -> None:
        """Count one more as done."""
        with self._counting:
            self._done += 1

    def update(self, done: int, total: int | None = None, note: str = "") -> None:
        """Set what is done so far. `total` replaces the total if given, `note` is shown behind the numbers."""
        self._done, self._total, self._note = done, self._total if total is None else total, printable(note, LINE_END)

    def _watch(self) -> None:
        if sys.stderr.isatty():
            if not self._over.wait(SHOWN_AFTER_S):
                self._draw()
            return
        while not self._over.wait(self._line_every_s):
            sys.stderr.write(f"{self._line()}\n")
            sys.stderr.flush()

    def _draw(self) -> None:
        note = TextColumn("{task.fields[note]}", markup=False)
        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            note,
        )
        # Text on stdout goes through the bar's console only if it appears on the same screen.
        console = Console(file=unfiltered(sys.stderr))
        with Bar(*columns, console=console, transient=True, redirect_stdout=sys.stdout.isatty()) as bar, filtered_output():
            task = bar.add_task(self._doing, total=self._total, note=self._note)
            while not self._over.wait(REDRAWN_EVERY_S):
                bar.update(task, completed=self._done, total=self._total, note=self._note)

    def _line(self) -> str:
        of = "" if self._total is None else f" of {self._total:,}"
        counts = f": {self._done:,}{of}" if self._done or self._total is not None else ""
        note = f", {self._note}" if self._note else ""
        return f"{self._doing}{counts}{note}, {time.monotonic() - self._began:.0f} s"

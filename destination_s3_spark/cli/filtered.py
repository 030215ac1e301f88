"""Standard output and standard error of the commands for operators, with everything unprintable filtered out."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO, TextIO

from destination_s3_spark.wording import printable


class FilteredText(io.TextIOBase):
    """A text stream that writes only what can be printed to another one. `buffer` is for documents that are safe by themselves."""

    def __init__(self, unfiltered: TextIO) -> None:
        self.unfiltered = unfiltered

    @property
    def buffer(self) -> BinaryIO:
        """The bytes below the unfiltered stream."""
        return self.unfiltered.buffer

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """The encoding of the unfiltered stream."""
        return self.unfiltered.encoding

    def write(self, text: str) -> int:
        """Write the text as it can be printed."""
        self.unfiltered.write(printable(text))
        return len(text)

    def flush(self) -> None:
        """Flush the unfiltered stream."""
        self.unfiltered.flush()

    def isatty(self) -> bool:
        """Return whether the unfiltered stream is a terminal."""
        return self.unfiltered.isatty()

    def fileno(self) -> int:
        """Return the file descriptor of the unfiltered stream."""
        return self.unfiltered.fileno()

    def writable(self) -> bool:
        return True


@contextmanager
def filtered_output() -> Iterator[None]:
    """Filter all that is written to stdout and stderr inside."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = FilteredText(before[0]), FilteredText(before[1])
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def unfiltered(stream: TextIO) -> TextIO:
    """Return the stream for text that is printable and for the terminal's own sequences of colours."""
    return stream.unfiltered if isinstance(stream, FilteredText) else stream

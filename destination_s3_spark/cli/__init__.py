"""Commands of the command line: the tree of all commands, and the operators' ones. Airbyte calls none of them.

What they write to standard output and standard error is printable and without secrets: everything else is filtered out.
"""

from __future__ import annotations

import codecs
import io
import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TextIO, cast

from destination_s3_spark.errors import SyncError
from destination_s3_spark.protocol.secrets import SecretFilter, secrets_of_environment
from destination_s3_spark.wording import LINE_END, printable

EXIT_FAILED = 1
EXIT_INTERRUPTED = 128 + signal.SIGINT
MASKS = SecretFilter()
"""Filter of the running command. It knows the secrets of the environment, and, once the configuration is read, its secrets too."""

_PLAIN = {"␤": "|", "═": "=", "─": "-", "…": "~", "✓": "+", "✗": "x", "→": ">"}
"""Replacements for characters in reports that the terminal's character set lacks."""


def operator_command(argv: Sequence[str]) -> int:
    """Run a command of the tree and return its exit code: 0 for success, 1 for a failure, 2 for a wrong usage, 130 if interrupted."""

    def command() -> int:
        from destination_s3_spark.cli import tree  # noqa: PLC0415 (click is for operators only)

        return tree.run(argv)

    return run(command)


def run(command: Callable[[], int]) -> int:
    """Run a command that talks to a person and return its exit code. Errors are reported on stderr."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        codecs.register_error("plain", _plain)
        sys.stdout.reconfigure(errors="plain")
    MASKS.clear()
    MASKS.add(secrets_of_environment(os.environ))
    with filtered_output():
        return _run(command)


def _run(command: Callable[[], int]) -> int:
    try:
        code = command()
        sys.stdout.flush()
    except SyncError as error:
        sys.stderr.write(f"{presentable(error.message, LINE_END)}\n")  # a name within must not look like another message
        code = EXIT_FAILED
    except KeyboardInterrupt:
        sys.stderr.write("Interrupted.\n")
        code = EXIT_INTERRUPTED
    except BrokenPipeError:  # the reader closed the pipe early (`| head`)
        code = 0
    with suppress(BrokenPipeError):
        sys.stdout.flush()
    return code


def _plain(error: UnicodeError) -> tuple[str, int]:
    """Replace each character that cannot be encoded by exactly one other, so that columns stay aligned."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(_PLAIN.get(character, "?") for character in error.object[error.start : error.end]), error.end


def presentable(text: str, line_end: str = "\n") -> str:
    """Return a text as it may be shown: without secrets, and printable."""
    return printable(MASKS.masked(text), line_end)


class FilteredText:
    """A text stream that writes only what may be shown to another one, and is that one otherwise.

    Its `buffer` is for documents that are safe by themselves.
    """

    def __init__(self, unfiltered: TextIO) -> None:
        self.unfiltered = unfiltered

    def __getattr__(self, name: str) -> Any:
        return getattr(self.unfiltered, name)

    def write(self, text: str) -> int:
        self.unfiltered.write(presentable(text))
        return len(text)

    def writelines(self, texts: Iterable[str]) -> None:
        self.write("".join(texts))


@contextmanager
def filtered_output() -> Iterator[None]:
    """Filter all that is written to stdout and stderr inside."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (cast("TextIO", FilteredText(stream)) for stream in before)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def unfiltered(stream: TextIO) -> TextIO:
    """Return the stream for text that is printable and for the terminal's own sequences of colours."""
    return stream.unfiltered if isinstance(stream, FilteredText) else stream

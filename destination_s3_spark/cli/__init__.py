"""Commands of the command line: the tree of all commands, and the operators' ones. Airbyte calls none of them."""

from __future__ import annotations

import codecs
import io
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress

from destination_s3_spark.cli.filtered import filtered_output
from destination_s3_spark.errors import SyncError

EXIT_FAILED = 1
EXIT_INTERRUPTED = 128 + signal.SIGINT

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
    with filtered_output():
        return _run(command)


def _run(command: Callable[[], int]) -> int:
    try:
        code = command()
        sys.stdout.flush()
    except SyncError as error:
        sys.stderr.write(f"{error.message}\n")
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

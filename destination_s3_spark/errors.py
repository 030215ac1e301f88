"""Errors that end a sync, grouped by the action they call for.

Each message says what happened, where, and what to do next. No message may contain a secret or the content of a record.
"""

from __future__ import annotations

import errno
import os
import traceback
from collections.abc import Iterator
from enum import Enum
from pathlib import Path

from destination_s3_spark.stream_id import StreamId

REPORT = "Please report this."
NO_THREAD = "can't start new thread"
"""Python's message when the system refuses a new thread. The exception is a plain RuntimeError without an errno."""


class FailureType(Enum):
    """Values of `failure_type` in Airbyte's TRACE ERROR (airbyte_protocol.yaml)."""

    CONFIG = "config_error"
    TRANSIENT = "transient_error"
    SYSTEM = "system_error"


class SyncError(Exception):
    """A failure with a message for the user. `stream` is the affected stream, None if there is none."""

    failure_type = FailureType.SYSTEM

    def __init__(self, message: str, *, stream: StreamId | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.stream = stream


class ConfigError(SyncError):
    """A failure that needs a change to the configuration, the connection or a permission. A retry does not help."""

    failure_type = FailureType.CONFIG


class TransientError(SyncError):
    """A temporary failure outside the connector. Running the sync again resolves it."""

    failure_type = FailureType.TRANSIENT


def disk_error(directory: Path, error: OSError) -> TransientError:
    """Return the error for a failed read or write in the sync's own directory."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return TransientError(
            f"The disk of the spool directory '{directory}' is full. Give it more space, or point batching.spool_dir at a larger "
            "disk, and lower batching.max_spool_gb to what it holds; then try again."
        )
    return TransientError(
        f"The spool directory '{directory}' cannot be used: {os.strerror(error.errno or 0)}. "
        "Point batching.spool_dir at a directory on a working local disk and try again."
    )


def lack_error(error: Exception) -> TransientError | None:
    """Return the error for a lack of threads, open files or memory in this process; None for any other error."""
    number = error.errno if isinstance(error, OSError) else None
    if isinstance(error, RuntimeError) and str(error) == NO_THREAD:
        return TransientError(
            "The system refuses to start more threads. Raise the limit of the container (pids) or of the user (ulimit -u), or run fewer "
            "processes beside the connector; then try again."
        )
    if number in (errno.EMFILE, errno.ENFILE):
        return TransientError("The system refuses to open more files. Raise the limit (ulimit -n) and try again.")
    if number == errno.ENOMEM or isinstance(error, MemoryError):
        return TransientError("The connector ran out of memory. Give the container more (4 GiB is advised) and try again.")
    return None


class DataError(SyncError):
    """Input or stored data that cannot be read. The sync stops before anything is lost."""


class Fenced(SyncError):
    """Another writer took over the table. This one must stop without emitting another STATE."""


class Bug(SyncError):
    """A violated internal invariant: an error of this connector. The message asks the user to report it."""

    def __init__(self, message: str, *, stream: StreamId | None = None) -> None:
        # The message of a Bug raised in a worker already ends with the request.
        super().__init__(message if message.endswith(REPORT) else f"{message} {REPORT}", stream=stream)


def causes_of(error: BaseException) -> Iterator[BaseException]:
    """Yield the error and its chain of causes, the error first."""
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)


def frames_of(error: BaseException) -> str:
    """Return where the error and its causes were raised, root cause first: files, lines, functions and types.

    Values and error messages are left out because they may quote a record or a secret.
    """
    parts = [f"{''.join(traceback.format_tb(one.__traceback__))}{type(one).__qualname__}\n" for one in causes_of(error)]
    return "which led to\n".join(reversed(parts))

"""The errors a sync can end with, grouped by what to do about them.

Each one says what happened, where, and what to do next. None of them may carry a secret or the content of a record.
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
"""All that Python says of a thread that the system refuses."""


class FailureType(Enum):
    """Airbyte's `failure_type` of a TRACE ERROR (airbyte_protocol.yaml)."""

    CONFIG = "config_error"
    TRANSIENT = "transient_error"
    SYSTEM = "system_error"


class SyncError(Exception):
    """A failure with a message for the user. `stream` is the one it concerns, if there is one."""

    failure_type = FailureType.SYSTEM

    def __init__(self, message: str, *, stream: StreamId | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.stream = stream


class ConfigError(SyncError):
    """The user must change the configuration, the connection or a permission; trying again will not help."""

    failure_type = FailureType.CONFIG


class TransientError(SyncError):
    """Something outside failed for now; running the sync again is the remedy."""

    failure_type = FailureType.TRANSIENT


def disk_error(directory: Path, error: OSError) -> TransientError:
    """What to say when files of the sync's own directory cannot be written or read."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return TransientError(
            f"The disk of the spool directory '{directory}' is full. Give it more space, or point batching.spool_dir at a larger "
            "disk, and lower batching.max_spool_gb to what it holds; then run the sync again."
        )
    return TransientError(
        f"The spool directory '{directory}' cannot be used: {os.strerror(error.errno or 0)}. "
        "Point batching.spool_dir at a directory on a working local disk and run the sync again."
    )


def lack_error(error: Exception) -> TransientError | None:
    """What to say when the system has no more threads, files or memory for this process; None for any other error."""
    number = error.errno if isinstance(error, OSError) else None
    if isinstance(error, RuntimeError) and str(error) == NO_THREAD:
        return TransientError(
            "The system lets the connector start no more threads. Raise the limit of its container (pids) or user (ulimit -u), or let less "
            "run beside it; then run the sync again."
        )
    if number in (errno.EMFILE, errno.ENFILE):
        return TransientError("The system lets the connector open no more files. Raise the limit (ulimit -n) and run the sync again.")
    if number == errno.ENOMEM or isinstance(error, MemoryError):
        return TransientError("The connector got no more memory. Give the container more (4 GiB is advised) and run the sync again.")
    return None


class DataError(SyncError):
    """The input cannot be read: stop before anything is lost."""


class Fenced(SyncError):
    """Another writer took over the table; this one must stop without emitting another STATE."""


class Bug(SyncError):
    """An internal invariant was violated: an error of this connector. The message asks the user to report it."""

    def __init__(self, message: str, *, stream: StreamId | None = None) -> None:
        # One that comes from a worker is made of a message that asks already.
        super().__init__(message if message.endswith(REPORT) else f"{message} {REPORT}", stream=stream)


def causes_of(error: BaseException) -> Iterator[BaseException]:
    """The error, what caused it, what caused that, and so on."""
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)


def frames_of(error: BaseException) -> str:
    """Where the error and its causes were raised, the first cause first: files, lines, functions and types.

    Neither values nor the texts of errors are in it, which may quote a record or a secret.
    """
    parts = [f"{''.join(traceback.format_tb(one.__traceback__))}{type(one).__qualname__}\n" for one in causes_of(error)]
    return "which led to\n".join(reversed(parts))

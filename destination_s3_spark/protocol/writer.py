"""The only way to stdout: protocol messages, one per line, each flushed before the call returns.

STATE lines go out as they are. Text for people (`FOR_PEOPLE`) passes the secret filter first.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import TYPE_CHECKING, Any, BinaryIO

import orjson

from destination_s3_spark.errors import Bug, FailureType, SyncError, TransientError, causes_of, frames_of
from destination_s3_spark.protocol.secrets import SecretFilter
from destination_s3_spark.stream_id import StreamId

if TYPE_CHECKING:
    from airbyte_cdk.models import AirbyteMessage

UNKNOWN_FAILURE = (
    "The connector failed in a way it did not foresee; no further STATE was acknowledged. Report the error with its stack trace."
)
FOR_PEOPLE = frozenset({"message", "internal_message", "stack_trace"})
"""The fields of messages that hold text of ours; all others are the protocol's."""


class Level(Enum):
    """The levels of a LOG message; the value is the protocol's word."""

    FATAL = "FATAL"
    ERROR = "ERROR"
    WARN = "WARN"
    INFO = "INFO"
    DEBUG = "DEBUG"
    TRACE = "TRACE"


class ProtocolWriter:
    """Writes to the platform from any thread. Once the other end is closed, `state` raises and everything else is dropped."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._lock = threading.Lock()
        self._closed = False
        self._filter = SecretFilter()

    def mask(self, secrets: Iterable[str]) -> None:
        """Mask these in all text for people from now on."""
        self._filter.add(secrets)

    def state(self, line: bytes) -> None:
        """Send a STATE line, as it is. Raises TransientError when nobody reads any more: the sync must stop."""
        if not self._write(line):
            raise TransientError("The platform closed the connector's output, so no STATE can be acknowledged; run the sync again.")

    def log(self, level: Level, message: str) -> None:
        """Send a LOG message."""
        self._send({"type": "LOG", "log": {"level": level.value, "message": message}})

    def trace_error(self, error: BaseException, stream: StreamId | None = None) -> None:
        """Send the TRACE ERROR that ends a sync. `stream` is what it concerns, where the error itself does not say."""
        known = isinstance(error, SyncError)
        details: dict[str, Any] = {
            "message": error.message if isinstance(error, SyncError) else UNKNOWN_FAILURE,
            "internal_message": _causes(error),
            "failure_type": (error.failure_type if isinstance(error, SyncError) else FailureType.SYSTEM).value,
        }
        if not known or isinstance(error, Bug):
            details["stack_trace"] = frames_of(error)
        concerned = error.stream if isinstance(error, SyncError) and error.stream else stream
        if concerned:
            namespace = {} if concerned.namespace is None else {"namespace": concerned.namespace}
            details["stream_descriptor"] = {"name": concerned.name, **namespace}
        self._send({"type": "TRACE", "trace": {"type": "ERROR", "emitted_at": time.time_ns() // 1_000_000, "error": details}})

    def spec(self, specification: Mapping[str, Any]) -> None:
        """Send the SPEC message."""
        self._send({"type": "SPEC", "spec": specification})

    def message(self, message: AirbyteMessage) -> None:
        """Send a message of the CDK (SPEC, CONNECTION_STATUS, …)."""
        from airbyte_cdk.models import AirbyteMessageSerializer  # noqa: PLC0415 (its import is slow, and a sync needs none of it)

        self._send(AirbyteMessageSerializer.dump(message))

    def _send(self, document: Any) -> None:
        self._write(orjson.dumps(self._filtered(document)) + b"\n")

    def _filtered(self, value: Any, field: str = "") -> Any:
        """The value with the secrets in its texts for people masked; before they become JSON, which would spell some of them differently.

        What the platform reads stays as it is: it must find the stream an error is about.
        """
        if isinstance(value, str):
            text = value.encode("utf-8", "replace").decode()
            return self._filter.masked(text) if field in FOR_PEOPLE else text
        if isinstance(value, dict):
            return {key: self._filtered(item, key) for key, item in value.items()}
        if isinstance(value, list):
            return [self._filtered(item) for item in value]
        return value

    def _write(self, line: bytes) -> bool:
        """Whether the line went out."""
        with self._lock:
            if self._closed:
                return False
            try:
                self._stream.write(line)
                self._stream.flush()
            except (BrokenPipeError, ConnectionResetError):
                self._closed = True
            return not self._closed


class ProtocolLogHandler(logging.Handler):
    """Sends Python's log records as LOG messages. An exception is named with its frames, not with its text, which may hold data."""

    _LEVELS = ((logging.CRITICAL, Level.FATAL), (logging.ERROR, Level.ERROR), (logging.WARNING, Level.WARN), (logging.INFO, Level.INFO))

    def __init__(self, writer: ProtocolWriter) -> None:
        super().__init__()
        self._writer = writer

    def emit(self, record: logging.LogRecord) -> None:
        """Send one log record; of one that cannot be formatted only its place, as the arguments may be anything."""
        try:
            message = record.getMessage()
        except (TypeError, ValueError):
            message = f"A log message of {record.pathname}, line {record.lineno}, cannot be formatted."
        if record.exc_info and record.exc_info[1] is not None:
            message += "\n" + frames_of(record.exc_info[1])
        self._writer.log(next((level for least, level in self._LEVELS if record.levelno >= least), Level.DEBUG), message)


def _causes(error: BaseException) -> str:
    """The types of the error and of what caused it. Not their texts: a library's error may quote a record."""
    return " <- ".join(type(one).__qualname__ for one in causes_of(error))

"""Writer of protocol messages, the only access to stdout: one message per line, flushed before each call returns.

STATE lines are sent unchanged. Text for users (`FOR_PEOPLE`) passes the secret filter first, and loses what cannot be printed.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Mapping
from typing import Any, BinaryIO

import orjson

from destination_s3_spark.errors import Bug, SyncError, TransientError, causes_of, frames_of
from destination_s3_spark.protocol.secrets import SecretFilter
from destination_s3_spark.wording import printable

UNKNOWN_FAILURE = (
    "The connector failed in a way it did not foresee; no further STATE was acknowledged. Report the error with its stack trace."
)
FOR_PEOPLE = frozenset({"message", "internal_message", "stack_trace"})
"""Message fields that contain the connector's own text. All other fields belong to the protocol."""


class ProtocolWriter:
    """Writer to the platform, usable from any thread. Once the reader has closed stdout, `state` raises and other messages are dropped."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._lock = threading.Lock()
        self._closed = False
        self._filter = SecretFilter()

    def mask(self, secrets: Iterable[str]) -> None:
        self._filter.add(secrets)

    def state(self, line: bytes) -> None:
        """Send a STATE line unchanged. Raises TransientError if the platform has closed stdout: the sync must stop."""
        if not self._write(line):
            raise TransientError("The platform closed the connector's output, so no STATE can be acknowledged; run the sync again.")

    def log(self, level: str, message: str) -> None:
        self._send({"type": "LOG", "log": {"level": level, "message": message}})

    def trace_error(self, error: BaseException) -> None:
        known = error if isinstance(error, SyncError) else SyncError(UNKNOWN_FAILURE)
        details: dict[str, Any] = {
            "message": known.message,
            # The types of the error and its causes. Their texts are left out: a library's error may quote a record.
            "internal_message": " <- ".join(type(one).__qualname__ for one in causes_of(error)),
            "failure_type": known.failure_type.value,
        }
        if known is not error or isinstance(error, Bug):
            details["stack_trace"] = frames_of(error)
        if known.stream:
            namespace = {} if known.stream.namespace is None else {"namespace": known.stream.namespace}
            details["stream_descriptor"] = {"name": known.stream.name, **namespace}
        self._send({"type": "TRACE", "trace": {"type": "ERROR", "emitted_at": time.time_ns() // 1_000_000, "error": details}})

    def spec(self, specification: Mapping[str, Any]) -> None:
        self._send({"type": "SPEC", "spec": specification})

    def connection_status(self, status: str, message: str) -> None:
        """Send the CONNECTION_STATUS message, SUCCEEDED or FAILED. An empty text is left out."""
        self._send({"type": "CONNECTION_STATUS", "connectionStatus": {"status": status, **({"message": message} if message else {})}})

    def _send(self, document: Any) -> None:
        self._write(orjson.dumps(self._filtered(document)) + b"\n")

    def _filtered(self, value: Any, field: str = "") -> Any:
        """Return the value with secrets masked in its texts for users. This precedes the JSON encoding, which would escape some secrets.

        Fields that the platform interprets stay unchanged, because it must find the stream of an error.
        """
        if isinstance(value, str):
            text = value.encode("utf-8", "replace").decode()
            return printable(self._filter.masked(text)) if field in FOR_PEOPLE else text
        if isinstance(value, dict):
            return {key: self._filtered(item, key) for key, item in value.items()}
        if isinstance(value, list):
            return [self._filtered(item) for item in value]
        return value

    def _write(self, line: bytes) -> bool:
        """Write the line. Returns False if stdout is closed."""
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
    """Log handler that sends Python's log records as LOG messages. An exception is shown by its frames; its text may contain data."""

    _LEVELS = ((logging.CRITICAL, "FATAL"), (logging.ERROR, "ERROR"), (logging.WARNING, "WARN"), (logging.INFO, "INFO"))

    def __init__(self, writer: ProtocolWriter) -> None:
        super().__init__()
        self._writer = writer

    def emit(self, record: logging.LogRecord) -> None:
        """Send one log record. If it cannot be formatted, send only its location, because the arguments may contain anything."""
        try:
            message = record.getMessage()
        except (TypeError, ValueError):
            message = f"A log message of {record.pathname}, line {record.lineno}, cannot be formatted."
        if record.exc_info and record.exc_info[1] is not None:
            message += "\n" + frames_of(record.exc_info[1])
        self._writer.log(next((level for least, level in self._LEVELS if record.levelno >= least), "DEBUG"), message)

"""The connector as a process: its stdout, its log, its signals and its exit code; and `write`, from the command line to the sync.

`write` has no use for the CDK, whose import alone takes as long as a small sync's own work, so nothing here imports it.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, BinaryIO, NoReturn

import orjson

from destination_s3_spark.config.config import Config
from destination_s3_spark.config.spark_conf import is_local
from destination_s3_spark.engine.startup import shortcuts
from destination_s3_spark.errors import Bug, ConfigError, SyncError, TransientError, frames_of
from destination_s3_spark.protocol.catalog import parse_catalog
from destination_s3_spark.protocol.input_stream import bytes_waiting
from destination_s3_spark.protocol.secrets import secrets_of
from destination_s3_spark.protocol.writer import ProtocolLogHandler, ProtocolWriter
from destination_s3_spark.storage.settings import USUAL_LIMITS, ClientLimits
from destination_s3_spark.sync.runtime import runtime_for

TERMINATION_S = 8.0
"""How long clearing up may take after SIGTERM: a store that does not answer must not hold the process up until it is killed."""
RECORDS_BYTES = 32 * 2**10
"""Input of so many bytes has records, which Spark will be needed for."""
EXIT_OK, EXIT_FAILED = 0, 1
EXIT_SIGNAL = 128
"""Added to the number of the signal that ended the process, as shells do."""
SPEC_FILE = Path(__file__).with_name("spec.json")

CHANNEL_VARIABLE = "DATA_CHANNEL_MEDIUM"
"""By which Airbyte's platform says how records travel: STDIO or SOCKET."""
SENT_AGAIN = "what was not acknowledged is sent again by the next sync"

logger = logging.getLogger("airbyte")


class Terminated(BaseException):
    """SIGTERM or SIGINT came: stop where we are. What is not committed is aborted by the next sync, or by us if there is time."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def run(command: Callable[[ProtocolWriter], None]) -> int:
    """Run a command with the real stdout; the exit code. Whatever happens is told there in the protocol's way."""
    output = ProtocolWriter(_claim_stdout())
    _log_through(output)
    try:
        command(output)
    except Terminated as stopped:
        # Threads may still wait for S3; the platform waits ten seconds.
        if stopped.number == signal.SIGTERM:  # the platform's own wish, so no error
            logger.warning("stopped by SIGTERM; %s", SENT_AGAIN)
        else:
            output.trace_error(TransientError(f"The sync was interrupted; {SENT_AGAIN}."))
        os._exit(EXIT_SIGNAL + stopped.number)
    except KeyboardInterrupt:  # before a sync has begun
        output.trace_error(TransientError("The command was interrupted; it has changed nothing."))
        os._exit(EXIT_SIGNAL + signal.SIGINT)
    except Exception as error:  # noqa: BLE001 (the last resort: every failure leaves as a TRACE)
        output.trace_error(error)
        _tell_place(error)
        return EXIT_FAILED
    return EXIT_OK


def _tell_place(error: Exception) -> None:
    """Say on stderr where an error was raised that has to be reported: a platform may cut the TRACE down to its message."""
    if not isinstance(error, SyncError) or isinstance(error, Bug):
        with contextlib.suppress(OSError):  # nobody has to listen
            sys.stderr.write(frames_of(error))


def write(arguments: Sequence[str], s3_limits: ClientLimits = USUAL_LIMITS) -> int:
    """Sync stdin as the command line says (`write --config FILE --catalog FILE`); the exit code."""
    parser = argparse.ArgumentParser(prog="destination-s3-spark write", description="Writes data to the destination")
    parser.add_argument("--config", required=True, help="path to the JSON configuration file")
    parser.add_argument("--catalog", required=True, help="path to the configured catalog JSON file")
    parsed = parser.parse_args(arguments)
    shortcuts.prepare_process()
    return run(lambda output: _write(Path(parsed.config), Path(parsed.catalog), output, s3_limits))


def options_of(path: Path, output: ProtocolWriter) -> dict[str, Any]:
    """The configuration in a file, its secrets masked in all output from now on. It is validated by `Config`. Raises ConfigError."""
    try:
        options = orjson.loads(_read_file(path, "configuration"))
    except orjson.JSONDecodeError:
        options = None
    if not isinstance(options, dict):
        raise ConfigError(f"The configuration file {path} does not hold a JSON object.")
    specification: Mapping[str, Any] = orjson.loads(SPEC_FILE.read_bytes())
    output.mask(secrets_of(specification["connectionSpecification"], options))
    return options


def _write(config: Path, catalog: Path, output: ProtocolWriter, s3_limits: ClientLimits) -> None:
    _require_standard_input()
    options = options_of(config, output)
    parsed = Config.parse(options)
    stdin = sys.stdin.fileno()
    with _stopping_on_signals(), runtime_for(parsed) as runtime:
        shortened = shortcuts.enabled() and is_local(parsed.spark.master)
        early = shortened and bytes_waiting(stdin) >= RECORDS_BYTES
        with shortcuts.importing():
            if early:
                runtime.engine.launch()
            # Takes half a second, as the JVM does to start.
            from destination_s3_spark.sync.assembly import write as write_sync  # noqa: PLC0415
            from destination_s3_spark.sync.doubts import doubts  # noqa: PLC0415

        if shortened:
            runtime.engine.fork_template()
        if early:
            runtime.engine.start()
        for doubt in doubts(parsed, options):
            logger.warning(doubt)
        write_sync(parsed, parse_catalog(_read_file(catalog, "catalog")), stdin, output, runtime, s3_limits)


def _require_standard_input() -> None:
    """Raise ConfigError where the platform is told to send records another way: none would ever come in here."""
    medium = os.environ.get(CHANNEL_VARIABLE, "").strip().upper()
    if medium not in ("", "STDIO"):
        raise ConfigError(
            f"This connector reads its standard input only, and {CHANNEL_VARIABLE} in its environment says that records come another way. "
            "Turn the socket data channel off for this connection, or set the variable to STDIO."
        )


def _claim_stdout() -> BinaryIO:
    """The real stdout for the protocol alone: whatever else prints, the JVM included, goes to stderr from now on."""
    protocol = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return protocol


def _log_through(output: ProtocolWriter) -> None:
    """Make LOG messages of what Python code logs: ours from INFO on, that of libraries from WARNING on."""
    root = logging.getLogger()
    root.handlers = [ProtocolLogHandler(output)]
    root.setLevel(logging.WARNING)
    for name in ("airbyte", __package__ or ""):
        ours = logging.getLogger(name)
        ours.handlers = []
        ours.propagate = True
        ours.setLevel(logging.INFO)


@contextlib.contextmanager
def _stopping_on_signals() -> Iterator[None]:
    signals = (signal.SIGTERM, signal.SIGINT)

    def stop(number: int, _frame: FrameType | None) -> NoReturn:
        for one in signals:
            signal.signal(one, signal.SIG_IGN)
        last_resort = threading.Timer(TERMINATION_S, os._exit, [EXIT_SIGNAL + number])
        last_resort.daemon = True
        last_resort.start()
        raise Terminated(number)

    previous = [(one, signal.signal(one, stop)) for one in signals]
    try:
        yield
    finally:
        for one, handler in previous:
            signal.signal(one, handler)


def _read_file(path: Path, what: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"The {what} file {path} cannot be read: {error.strerror}.") from error

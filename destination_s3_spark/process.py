"""Process of the connector: stdout, log, signals and exit code, and `check` and `write` from the command line.

Nothing here imports the CDK, which no command needs: that import alone takes as long as the work of a small sync.
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
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Any, BinaryIO, NoReturn

from destination_s3_spark.cli.configuration import json_object, read_file
from destination_s3_spark.config.config import Config
from destination_s3_spark.config.spark_conf import is_local
from destination_s3_spark.engine.startup import shortcuts
from destination_s3_spark.errors import Bug, ConfigError, SyncError, TransientError, frames_of
from destination_s3_spark.protocol.catalog import parse_catalog
from destination_s3_spark.protocol.reader import bytes_waiting, read_blocks
from destination_s3_spark.protocol.secrets import configuration_secrets, secrets_of_environment
from destination_s3_spark.protocol.writer import ProtocolLogHandler, ProtocolWriter
from destination_s3_spark.storage.settings import USUAL_LIMITS, ClientLimits
from destination_s3_spark.sync.runtime import runtime_for

TERMINATION_S = 8.0
"""Seconds for the cleanup after SIGTERM. An unresponsive store must not hold the process up until the platform kills it."""
RECORDS_BYTES = 32 * 2**10
"""Bytes waiting on stdin that must include records. Spark, which they need, is then started early."""
EXIT_OK, EXIT_FAILED = 0, 1
EXIT_SIGNAL = 128
"""Base of the exit code of a process that a signal ended: the signal's number is added, as shells do."""

CHANNEL_VARIABLE = "DATA_CHANNEL_MEDIUM"
"""Environment variable in which Airbyte's platform says how records travel: STDIO or SOCKET."""
SENT_AGAIN = "the next sync resends everything that was not acknowledged"

logger = logging.getLogger("airbyte")


class Terminated(BaseException):
    """SIGTERM or SIGINT arrived: stop immediately. The next sync, or this one if there is time, aborts uncommitted uploads."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def run(command: Callable[[ProtocolWriter], None]) -> int:
    """Run a command with the real stdout and return its exit code. Every outcome is reported there as protocol messages."""
    output = ProtocolWriter(_claim_stdout())
    _log_through(output)
    try:
        return reported(command, output)
    except Terminated as stopped:
        # Exit without waiting: threads may be blocked on S3, and the platform kills the process after ten seconds.
        logger.warning("stopped by %s; %s", signal.Signals(stopped.number).name, SENT_AGAIN)  # requested, so not an error
        os._exit(EXIT_SIGNAL + stopped.number)
    except KeyboardInterrupt:  # interrupted before a sync installed its handlers
        output.trace_error(TransientError("The command was interrupted; it has changed nothing."))
        os._exit(EXIT_SIGNAL + signal.SIGINT)


def reported(command: Callable[[ProtocolWriter], None], output: ProtocolWriter) -> int:
    """Run a command, report its failure as a TRACE, and return the exit code."""
    try:
        command(output)
    except Exception as error:  # noqa: BLE001 (last resort: every failure is reported)
        output.trace_error(error)
        _tell_place(error)
        return EXIT_FAILED
    return EXIT_OK


def _tell_place(error: Exception) -> None:
    """Write the stack frames of an error that has to be reported to stderr: a platform may cut the TRACE down to its message."""
    if not isinstance(error, SyncError) or isinstance(error, Bug):
        with contextlib.suppress(OSError):  # stderr may be closed
            sys.stderr.write(frames_of(error))


def write(arguments: Sequence[str]) -> int:
    """Sync stdin according to `write --config FILE --catalog FILE`, and return the exit code."""
    parser = argparse.ArgumentParser(prog="destination-s3-spark write", description="Writes data to the destination")
    parser.add_argument("--config", required=True, help="path to the JSON configuration file")
    parser.add_argument("--catalog", required=True, help="path to the configured catalog JSON file")
    parsed = parser.parse_args(arguments)
    shortcuts.prepare_process()

    def sync(output: ProtocolWriter) -> None:
        with _stopping_on_signals():
            write_from(sys.stdin.fileno(), Path(parsed.config), Path(parsed.catalog), output, USUAL_LIMITS)

    return run(sync)


def check(arguments: Sequence[str]) -> int:
    """Check the connection according to `check --config FILE [--forget]`, and return the exit code."""
    parser = argparse.ArgumentParser(prog="destination-s3-spark check", description="checks the config can be used to connect")
    parser.add_argument("--config", required=True, help="path to the JSON configuration file")
    parser.add_argument("--forget", action="store_true", help="also try what forget needs")
    parsed = parser.parse_args(arguments)
    return run(lambda output: check_connection(Path(parsed.config), output, forgets=parsed.forget))


def check_options(options: Mapping[str, Any], *, forgets: bool = False) -> list[str]:
    """Perform every S3 action of a sync, or also of `forget`, under the real bucket path, and run a task if Spark is a cluster.

    Log and return warnings about options that are probably mistakes. Raises SyncError with the change to make.
    """
    from destination_s3_spark.storage.configured import path_template, s3_settings  # noqa: PLC0415
    from destination_s3_spark.storage.s3 import S3Store  # noqa: PLC0415
    from destination_s3_spark.sync.check import CHECK_LIMITS, check, check_cluster, check_forget  # noqa: PLC0415
    from destination_s3_spark.sync.scratch import scratch_directory  # noqa: PLC0415
    from destination_s3_spark.tables.configured import option_warnings  # noqa: PLC0415
    from destination_s3_spark.tables.publishers.registry import check_publishers  # noqa: PLC0415

    config = Config.parse(options)
    warnings = option_warnings(config, options)
    template = path_template(config, datetime.now(UTC), sync_id=0)
    with scratch_directory(config):
        pass
    settings = s3_settings(config, CHECK_LIMITS)
    check(settings, template)
    if forgets:
        check_forget(settings, template)
    check_publishers(config, S3Store(settings), template)
    check_cluster(config, template)
    for warning in warnings:
        logger.warning(warning)
    return warnings


def check_connection(config: Path, output: ProtocolWriter, *, forgets: bool) -> None:
    """Check the connection of a configuration file, and send CONNECTION_STATUS. Raises ConfigError for a file that is no JSON object."""
    options = _options_of(config, output)
    try:  # `Config` validates the configuration: its errors name options and never show values
        warnings = check_options(options, forgets=forgets)
    except SyncError as error:
        output.connection_status("FAILED", error.message)
    else:
        output.connection_status("SUCCEEDED", " ".join(warnings))


def _options_of(path: Path, output: ProtocolWriter) -> dict[str, Any]:
    """Read the configuration file. Mask its secrets and the secrets of the environment in all further output. Raises ConfigError.

    `Config` validates the options.
    """
    output.mask(secrets_of_environment(os.environ))
    options = json_object(read_file(path, "configuration file"))
    if options is None:
        raise ConfigError(f"The configuration file {path} does not hold a JSON object.")
    output.mask(configuration_secrets(options))
    return options


def write_from(stdin: int, config: Path, catalog: Path, output: ProtocolWriter, s3_limits: ClientLimits) -> None:
    """Sync a file descriptor according to files of the configuration and the catalog. Raises SyncError."""
    _require_standard_input()
    options = _options_of(config, output)
    parsed = Config.parse(options)
    with runtime_for(parsed) as runtime:
        shortened = shortcuts.enabled() and is_local(parsed.spark.master)
        early = shortened and bytes_waiting(stdin) >= RECORDS_BYTES
        with shortcuts.importing():
            if early:
                runtime.engine.session.launch()
            # This import takes half a second, about as long as the JVM needs to start.
            from destination_s3_spark.sync.assembly import write as write_sync  # noqa: PLC0415
            from destination_s3_spark.tables.configured import option_warnings  # noqa: PLC0415

        if shortened:
            runtime.engine.session.fork_template()
        if early:
            runtime.engine.start()
        for warning in option_warnings(parsed, options):
            logger.warning(warning)
        write_sync(parsed, parse_catalog(read_file(catalog, "catalog file")), read_blocks(stdin), output, runtime, s3_limits)


def _require_standard_input() -> None:
    """Raise ConfigError if the platform was told to send records another way: none would ever arrive on stdin."""
    medium = os.environ.get(CHANNEL_VARIABLE, "").strip().upper()
    if medium not in ("", "STDIO"):
        raise ConfigError(
            f"This connector reads its standard input only, and {CHANNEL_VARIABLE} in its environment says that records come another way. "
            "Turn the socket data channel off for this connection, or set the variable to STDIO."
        )


def _claim_stdout() -> BinaryIO:
    """Return the real stdout for protocol messages only. All other output, including the JVM's, goes to stderr from now on."""
    protocol = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return protocol


def _log_through(output: ProtocolWriter) -> None:
    """Turn Python log records into LOG messages: the connector's from INFO on, libraries' from WARNING on."""
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
    """Raise Terminated inside at the first SIGTERM or SIGINT. A SIGINT after it ends the process at once, a SIGTERM is ignored."""
    signals = (signal.SIGTERM, signal.SIGINT)

    def stop(number: int, _frame: FrameType | None) -> NoReturn:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGINT, lambda again, _: os._exit(EXIT_SIGNAL + again))
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

"""The connector as the Airbyte CDK knows it: spec, check and write.

The CDK gives argument parsing, the spec and the secret filter. Its read loop and its printing are replaced: they drop lines they cannot
parse and fields of a STATE they do not know, and they do not flush.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import signal
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from io import TextIOWrapper
from pathlib import Path
from types import FrameType
from typing import Any, BinaryIO, NoReturn

import orjson
from airbyte_cdk.destinations import Destination
from airbyte_cdk.models import (
    AirbyteConnectionStatus,
    AirbyteMessage,
    ConfiguredAirbyteCatalog,
    ConfiguredAirbyteCatalogSerializer,
    Status,
    Type,
)
from airbyte_cdk.utils.airbyte_secrets_utils import get_secrets, update_secrets

from destination_s3_spark.config import Config
from destination_s3_spark.errors import ConfigError, SyncError
from destination_s3_spark.protocol.catalog import parse_catalog
from destination_s3_spark.protocol.writer import ProtocolLogHandler, ProtocolWriter
from destination_s3_spark.storage.configured import path_template, s3_settings
from destination_s3_spark.sync.assembly import write as write_sync
from destination_s3_spark.sync.check import check as check_connection
from destination_s3_spark.sync.in_process import write_messages

TERMINATION_S = 8.0
"""How long clearing up may take after SIGTERM: a store that does not answer must not hold the process up until it is killed."""
EXIT_OK, EXIT_FAILED, EXIT_TERMINATED = 0, 1, 128 + signal.SIGTERM

logger = logging.getLogger("airbyte")


class Terminated(BaseException):
    """SIGTERM came: stop where we are. What is not committed is aborted by the next sync, or by us if there is time."""


class DestinationS3Spark(Destination):
    """`launch` is the process's entry; the other methods also work inside another Python process."""

    def check(self, logger: logging.Logger, config: Mapping[str, Any]) -> AirbyteConnectionStatus:
        """Do every S3 action a sync needs, in the real bucket path; FAILED says which one was refused and what to do."""
        try:
            parsed = Config.parse(config)
            check_connection(s3_settings(parsed), path_template(parsed, datetime.now(UTC), sync_id=0))
        except SyncError as error:
            logger.error("check failed: %s", type(error).__name__)
            return AirbyteConnectionStatus(status=Status.FAILED, message=error.message)
        return AirbyteConnectionStatus(status=Status.SUCCEEDED)

    def write(
        self, config: Mapping[str, Any], configured_catalog: ConfiguredAirbyteCatalog, input_messages: Iterable[AirbyteMessage]
    ) -> Iterator[AirbyteMessage]:
        """Sync messages that are already objects (PyAirbyte, tests). Fields the CDK's models do not know are gone by then."""
        catalog = parse_catalog(orjson.dumps(ConfiguredAirbyteCatalogSerializer.dump(configured_catalog)))
        return write_messages(Config.parse(config), catalog, input_messages)

    def launch(self, args: list[str]) -> int:
        """Run a command of the command line; the exit code. Whatever happens is told on stdout in the protocol's way."""
        parsed = self.parse_args(args)
        self._output = ProtocolWriter(_claim_stdout())
        _log_through(self._output)
        try:
            for message in self.run_cmd(parsed):
                self._output.message(message)
        except Terminated:
            # Threads may still wait for S3; the platform waits ten seconds.
            logger.warning("stopped by SIGTERM; what was not acknowledged is sent again by the next sync")
            os._exit(EXIT_TERMINATED)
        except Exception as error:  # noqa: BLE001 (the last resort: every failure leaves as a TRACE)
            self._output.trace_error(error)
            return EXIT_FAILED
        return EXIT_OK

    def run_cmd(self, parsed_args: argparse.Namespace) -> Iterator[AirbyteMessage]:
        """The messages of a command. The configuration is validated by `Config`, which names options and never shows values."""
        spec = self.spec(logger)
        if parsed_args.command == "spec":
            yield AirbyteMessage(type=Type.SPEC, spec=spec)
            return
        config = _read_options(Path(parsed_args.config))
        # The filter masks in this order: a secret that holds another one must come first.
        update_secrets(sorted(get_secrets(spec.connectionSpecification, config), key=len, reverse=True))
        if parsed_args.command == "check":
            yield self._run_check(config)
            return
        yield from self._run_write(config, parsed_args.catalog, TextIOWrapper(sys.stdin.buffer, encoding="utf-8"))

    def _run_write(self, config: Mapping[str, Any], configured_catalog_path: str, input_stream: TextIOWrapper) -> Iterator[AirbyteMessage]:
        """Sync the bytes of the input. STATEs are written as bytes, so nothing is yielded."""
        parsed = Config.parse(config)
        catalog = parse_catalog(_read_file(Path(configured_catalog_path), "catalog"))
        with _stopping_on_sigterm():
            write_sync(parsed, catalog, input_stream.fileno(), self._output)
        yield from ()


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
def _stopping_on_sigterm() -> Iterator[None]:
    def stop(_number: int, _frame: FrameType | None) -> NoReturn:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        last_resort = threading.Timer(TERMINATION_S, os._exit, [EXIT_TERMINATED])
        last_resort.daemon = True
        last_resort.start()
        raise Terminated

    previous = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


def _read_options(path: Path) -> dict[str, Any]:
    try:
        options = orjson.loads(_read_file(path, "configuration"))
    except orjson.JSONDecodeError:
        options = None
    if not isinstance(options, dict):
        raise ConfigError(f"The configuration file {path} does not hold a JSON object.")
    return options


def _read_file(path: Path, what: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"The {what} file {path} cannot be read: {error.strerror}.") from error

"""Connector class for the Airbyte CDK, PyAirbyte and Airbyte's standard tests, which hand over objects instead of lines.

The connector's own process does not use it (`process`): the CDK's read loop and its printing drop lines that do not parse and unknown
fields of a STATE, they do not flush, and its import takes long.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from io import BytesIO
from typing import Any

import orjson
from airbyte_cdk.destinations import Destination
from airbyte_cdk.models import (
    AirbyteConnectionStatus,
    AirbyteMessage,
    AirbyteMessageSerializer,
    ConfiguredAirbyteCatalog,
    ConfiguredAirbyteCatalogSerializer,
    Status,
)

from destination_s3_spark.config.config import Config
from destination_s3_spark.errors import SyncError
from destination_s3_spark.process import check_options
from destination_s3_spark.protocol.catalog import Catalog, parse_catalog
from destination_s3_spark.protocol.reader import read_blocks
from destination_s3_spark.protocol.writer import ProtocolWriter
from destination_s3_spark.sync import assembly
from destination_s3_spark.sync.runtime import runtime_for
from destination_s3_spark.tables.configured import option_warnings

logger = logging.getLogger("airbyte")

_Queue = queue.SimpleQueue[bytes | BaseException | None]
"""Lines of STATEs, errors, and None at the end."""


class DestinationS3Spark(Destination):
    """Airbyte destination inside another Python process. The specification is the package's `spec.json`, which the CDK reads."""

    def check(self, logger: logging.Logger, config: Mapping[str, Any]) -> AirbyteConnectionStatus:  # noqa: ARG002 (the CDK's signature)
        """Perform every S3 action of a sync, as `process.check_options`. FAILED carries the change to make."""
        try:
            warnings = check_options(config)
        except SyncError as error:
            return AirbyteConnectionStatus(status=Status.FAILED, message=error.message)
        return AirbyteConnectionStatus(status=Status.SUCCEEDED, message=" ".join(warnings) or None)

    def write(
        self, config: Mapping[str, Any], configured_catalog: ConfiguredAirbyteCatalog, input_messages: Iterable[AirbyteMessage]
    ) -> Iterator[AirbyteMessage]:
        """Sync messages that are already objects (PyAirbyte, tests). The CDK's models have dropped the fields they do not know."""
        catalog = parse_catalog(orjson.dumps(ConfiguredAirbyteCatalogSerializer.dump(configured_catalog)))
        parsed = Config.parse(config)
        for warning in option_warnings(parsed, config):
            logger.warning(warning)
        return _synced(parsed, catalog, input_messages)


def _synced(config: Config, catalog: Catalog, messages: Iterable[AirbyteMessage]) -> Iterator[AirbyteMessage]:
    """Sync the messages and yield the STATEs as they are committed. Raises the error of `messages` if any, else the sync's SyncError."""
    output: _Queue = queue.SimpleQueue()
    read_fd, write_fd = os.pipe()
    feeder = threading.Thread(target=_feed, args=(messages, catalog, write_fd, output), daemon=True)
    runner = threading.Thread(target=_run, args=(config, catalog, read_fd, output), daemon=True)
    feeder.start()
    runner.start()
    failure: BaseException | None = None
    while (item := output.get()) is not None:
        if isinstance(item, BaseException):
            failure = failure or item
        else:
            yield AirbyteMessageSerializer.load(orjson.loads(item))
    runner.join()
    if failure is not None:
        raise failure


class _StateQueue(BytesIO):
    """A stream for `ProtocolWriter` that puts its lines into a queue."""

    def __init__(self, output: _Queue) -> None:
        super().__init__()
        self._output = output

    def write(self, line: bytes) -> int:  # type: ignore[override]
        self._output.put(line)
        return len(line)


def _feed(messages: Iterable[AirbyteMessage], catalog: Catalog, fd: int, output: _Queue) -> None:
    # A broken pipe means that the sync failed and reports its own error. `_lines` catches the source's errors.
    with suppress(BrokenPipeError), os.fdopen(fd, "wb") as pipe:
        pipe.writelines(_lines(messages, catalog, output))


def _lines(messages: Iterable[AirbyteMessage], catalog: Catalog, output: _Queue) -> Iterator[bytes]:
    try:
        for message in messages:
            yield orjson.dumps(AirbyteMessageSerializer.dump(message)) + b"\n"
    except GeneratorExit:
        raise
    except BaseException as error:  # noqa: BLE001 (_synced raises it again)
        output.put(error)
        # A bare end of input could be mistaken for a complete one.
        yield from (_incomplete(stream.id.namespace, stream.id.name) for stream in catalog.streams)


def _incomplete(namespace: str | None, name: str) -> bytes:
    descriptor = {"name": name, "namespace": namespace}
    status = {"stream_descriptor": descriptor, "status": "INCOMPLETE"}
    return orjson.dumps({"type": "TRACE", "trace": {"type": "STREAM_STATUS", "emitted_at": 0, "stream_status": status}}) + b"\n"


def _run(config: Config, catalog: Catalog, fd: int, output: _Queue) -> None:
    try:
        with runtime_for(config) as runtime:
            assembly.write(config, catalog, read_blocks(fd), ProtocolWriter(_StateQueue(output)), runtime)
    except BaseException as error:  # noqa: BLE001 (_synced raises it again)
        output.put(error)
    finally:
        os.close(fd)
        output.put(None)

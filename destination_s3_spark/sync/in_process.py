"""In-process sync of message objects instead of lines on stdin, for PyAirbyte and for tests. It runs the same sync."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress
from io import BytesIO

import orjson
from airbyte_cdk.models import AirbyteMessage, AirbyteMessageSerializer

from destination_s3_spark.config.config import Config
from destination_s3_spark.protocol.catalog import Catalog
from destination_s3_spark.protocol.writer import ProtocolWriter
from destination_s3_spark.sync.assembly import write
from destination_s3_spark.sync.runtime import runtime_for


def write_messages(config: Config, catalog: Catalog, messages: Iterable[AirbyteMessage]) -> Iterator[AirbyteMessage]:
    """Sync the messages and yield the STATEs as they are committed. Raises the error of `messages` if any, else the sync's SyncError."""
    output: queue.SimpleQueue[bytes | BaseException | None] = queue.SimpleQueue()
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

    def __init__(self, output: queue.SimpleQueue[bytes | BaseException | None]) -> None:
        super().__init__()
        self._output = output

    def write(self, line: bytes) -> int:  # type: ignore[override]
        self._output.put(line)
        return len(line)


def _feed(messages: Iterable[AirbyteMessage], catalog: Catalog, fd: int, output: queue.SimpleQueue[bytes | BaseException | None]) -> None:
    # A broken pipe means that the sync failed and reports its own error. `_lines` catches the source's errors.
    with suppress(BrokenPipeError), os.fdopen(fd, "wb") as pipe:
        pipe.writelines(_lines(messages, catalog, output))


def _lines(
    messages: Iterable[AirbyteMessage], catalog: Catalog, output: queue.SimpleQueue[bytes | BaseException | None]
) -> Iterator[bytes]:
    try:
        for message in messages:
            yield orjson.dumps(AirbyteMessageSerializer.dump(message)) + b"\n"
    except GeneratorExit:
        raise
    except BaseException as error:  # noqa: BLE001 (write_messages raises it again)
        output.put(error)
        # A bare end of input could be mistaken for a complete one.
        yield from (_incomplete(stream.id.namespace, stream.id.name) for stream in catalog.streams)


def _incomplete(namespace: str | None, name: str) -> bytes:
    descriptor = {"name": name, "namespace": namespace}
    status = {"stream_descriptor": descriptor, "status": "INCOMPLETE"}
    return orjson.dumps({"type": "TRACE", "trace": {"type": "STREAM_STATUS", "emitted_at": 0, "stream_status": status}}) + b"\n"


def _run(config: Config, catalog: Catalog, fd: int, output: queue.SimpleQueue[bytes | BaseException | None]) -> None:
    try:
        with runtime_for(config) as runtime:
            write(config, catalog, fd, ProtocolWriter(_StateQueue(output)), runtime)
    except BaseException as error:  # noqa: BLE001 (write_messages raises it again)
        output.put(error)
    finally:
        os.close(fd)
        output.put(None)

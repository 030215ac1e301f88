"""A catalog by stream names, and the reader's events brought into a form that does not depend on how the input was cut into blocks."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable

import pytest

from destination_s3_spark.protocol.catalog import Catalog, parse_catalog
from destination_s3_spark.protocol.messages import Event, Idle, Records, StreamStatus
from destination_s3_spark.protocol.state import StateMessage
from destination_s3_spark.stream_id import StreamId

Story = list[tuple[object, ...]]


@pytest.fixture(scope="session")
def catalog_of() -> Callable[..., Catalog]:
    """A catalog with these streams, given as `name` or `(namespace, name)`."""

    def make(*streams: str | tuple[str | None, str]) -> Catalog:
        ids = [StreamId(None, stream) if isinstance(stream, str) else StreamId(*stream) for stream in streams]
        described: list[dict[str, object]] = [{"name": stream.name, "namespace": stream.namespace, "json_schema": {}} for stream in ids]
        text = {"streams": [{"stream": stream, "destination_sync_mode": "append"} for stream in described]}
        return parse_catalog(json.dumps(text).encode())

    return make


@pytest.fixture(scope="session")
def story() -> Callable[[Iterable[Event]], Story]:
    """Between two control events: (stream, line, its offset in the input) of each record, sorted by offset; then the control event."""

    def tell(events: Iterable[Event]) -> Story:
        told: Story = []
        records: Story = []
        for event in events:
            if isinstance(event, Records):
                records += _placed(event)
            elif isinstance(event, StateMessage | StreamStatus):
                told += sorted(records, key=lambda record: record[2])  # type: ignore[arg-type,return-value]
                told.append(("state", event.echo(0)) if isinstance(event, StateMessage) else ("status", event.stream, event.status))
                records = []
            else:
                assert isinstance(event, Idle)
        return told + sorted(records, key=lambda record: record[2])  # type: ignore[arg-type,return-value]

    return tell


def _placed(event: Records) -> Story:
    lines = event.lines.splitlines(keepends=True)
    assert event.lines.endswith(b"\n")
    assert sum(event.runs[1::2]) == event.records == len(lines)
    placed: Story = []
    for start, count in zip(event.runs[::2], event.runs[1::2], strict=True):
        offset = start
        for _ in range(count):
            line = lines[len(placed)]
            placed.append((event.stream, line, offset))
            offset += len(line)
    return placed

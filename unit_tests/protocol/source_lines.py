"""Lines of a source, blocks of them, and the error that they end in."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator

import pytest

from destination_s3_spark.errors import DataError
from destination_s3_spark.protocol.catalog import Catalog
from destination_s3_spark.protocol.messages import Event
from destination_s3_spark.protocol.reader import ProtocolReader

CatalogOf = Callable[..., Catalog]


Tell = Callable[[Iterable[Event]], list[tuple[object, ...]]]


MARKER = "a-secret-marker"


def record(stream: str = "users", data: str = '{"id":1}', namespace: str | None = None, tail: str = "") -> bytes:
    where = "" if namespace is None else f'"namespace":"{namespace}",'
    return f'{{"type":"RECORD","record":{{{where}"stream":"{stream}","data":{data},"emitted_at":1700000000000{tail}}}}}'.encode()


def state(cursor: int, stream: str = "users") -> bytes:
    blob = {"type": "STREAM", "stream": {"stream_descriptor": {"name": stream}, "stream_state": {"cursor": cursor}}}
    return json.dumps({"type": "STATE", "state": blob}).encode()


def status(name: str, stream: str = "users") -> bytes:
    reported = {"stream_descriptor": {"name": stream}, "status": name}
    return json.dumps({"type": "TRACE", "trace": {"type": "STREAM_STATUS", "emitted_at": 1.0, "stream_status": reported}}).encode()


def lines(*each: bytes) -> bytes:
    return b"".join(line + b"\n" for line in each)


def in_blocks(text: bytes, size: int) -> Iterator[bytes]:
    return (text[start : start + size] for start in range(0, len(text), size))


def error_of(catalog: Catalog, text: bytes) -> DataError:
    with pytest.raises(DataError) as caught:
        list(ProtocolReader(catalog).events([text]))
    assert MARKER not in caught.value.message
    return caught.value

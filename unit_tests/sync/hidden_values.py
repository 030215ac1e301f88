"""Every form in which an object may hold a value that should not be there."""

from __future__ import annotations

import base64
import gzip
import io
from collections.abc import Iterator
from contextlib import suppress

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq


def unpacked(key: str, body: bytes) -> Iterator[bytes]:
    """What an object holds: as it is, decompressed, and as the rows and the metadata of its format."""
    yield key.encode() + body
    if body.startswith(b"\x1f\x8b"):
        yield gzip.decompress(body)
    if body.startswith(b"PAR1"):
        table = pq.read_table(pa.BufferReader(body))
        yield repr((table.to_pydict(), pq.read_metadata(pa.BufferReader(body)).metadata)).encode()
    if body.startswith(b"Obj\x01"):
        yield repr(list(fastavro.reader(io.BytesIO(body)))).encode("utf-8", "backslashreplace")


def in_other_forms(text: bytes) -> Iterator[bytes]:
    """Yield a text, and what its words are as hexadecimal digits and as base64."""
    yield text
    for word in text.replace(b'"', b" ").replace(b"'", b" ").split():
        with suppress(ValueError):
            yield bytes.fromhex(word.decode())
        with suppress(ValueError):
            yield base64.b64decode(word, validate=True)

"""Arrow schema as Open Data Fabric records it: a flatbuffer with the `Schema` table as its root.

Arrow libraries write the same table inside a `Message` table with a frame in front (the encapsulated IPC message). pyarrow has no call for
the bare form, but following a few offsets converts one into the other (https://arrow.apache.org/docs/format/Columnar.html, Schema.fbs and
Message.fbs; https://flatbuffers.dev/internals/). The conversion does not depend on the fields of the schema.
"""

from __future__ import annotations

import struct

import pyarrow as pa

_FRAME = struct.Struct("<Ii")
"""Continuation marker and length of the metadata that follows."""
_HEADER_SLOT = 2
"""Index of `header` among the fields of Message: version, header_type, header, bodyLength."""


def bare_flatbuffer(schema: pa.Schema) -> bytes:
    """Return the schema as a bare flatbuffer. It is valid but not minimal, because it still contains pyarrow's unused Message table."""
    message = bytearray(schema.serialize().to_pybytes())
    del message[: _FRAME.size]
    table = _u32(message, 0)
    vtable = table - _i32(message, table)
    (header_offset,) = struct.unpack_from("<H", message, vtable + 4 + 2 * _HEADER_SLOT)
    header = table + header_offset
    struct.pack_into("<I", message, 0, header + _u32(message, header))
    return bytes(message)


def _u32(buffer: bytes | bytearray, position: int) -> int:
    (value,) = struct.unpack_from("<I", buffer, position)
    return int(value)


def _i32(buffer: bytes | bytearray, position: int) -> int:
    (value,) = struct.unpack_from("<i", buffer, position)
    return int(value)

"""An Arrow schema in the form Open Data Fabric records it: a flatbuffer whose root is the `Schema` table.

Arrow libraries write the same table inside a `Message` table with a frame in front (the encapsulated IPC message). pyarrow offers no
call for the bare form, but going from one to the other only takes a few offsets (https://arrow.apache.org/docs/format/Columnar.html,
Schema.fbs and Message.fbs; https://flatbuffers.dev/internals/). Nothing here depends on the fields of the schema.
"""

from __future__ import annotations

import struct

import pyarrow as pa

_FRAME = struct.Struct("<Ii")
"""Continuation marker and length of the metadata that follows."""
_CONTINUATION = 0xFFFFFFFF
_HEADER_SLOT = 2
"""Index of `header` among the fields of Message: version, header_type, header, bodyLength."""
_MESSAGE = struct.Struct("<IHHHHHHixBhI4x")
"""The root offset, padding, a Message's vtable (size, table size, three field offsets), the table, padding to 8 bytes."""
_MESSAGE_TABLE = 16
_VTABLE_SIZE, _TABLE_SIZE = 10, 12
_VERSION_AT, _HEADER_TYPE_AT, _HEADER_AT = 6, 5, 8
_METADATA_V5, _HEADER_IS_SCHEMA = 4, 1


def bare_flatbuffer(schema: pa.Schema) -> bytes:
    """The schema as a bare flatbuffer: valid, and not minimal, since pyarrow's Message table stays inside unused."""
    message = bytearray(schema.serialize().to_pybytes())
    del message[: _FRAME.size]
    table = _u32(message, 0)
    vtable = table - _i32(message, table)
    (header_offset,) = struct.unpack_from("<H", message, vtable + 4 + 2 * _HEADER_SLOT)
    header = table + header_offset
    struct.pack_into("<I", message, 0, header + _u32(message, header))
    return bytes(message)


def schema_from_bare_flatbuffer(flatbuffer: bytes) -> pa.Schema:
    """The schema of a bare flatbuffer, whoever wrote it. pa.ArrowInvalid or OSError when pyarrow's verifier refuses it."""
    if len(flatbuffer) < 8 or _u32(flatbuffer, 0) > len(flatbuffer) - 4:
        raise pa.ArrowInvalid("not a flatbuffer: its root lies outside of it")
    schema_table = _MESSAGE.size + _u32(flatbuffer, 0)
    message = _MESSAGE.pack(
        _MESSAGE_TABLE,
        0,
        _VTABLE_SIZE,
        _TABLE_SIZE,
        _VERSION_AT,
        _HEADER_TYPE_AT,
        _HEADER_AT,
        _VTABLE_SIZE,
        _HEADER_IS_SCHEMA,
        _METADATA_V5,
        schema_table - (_MESSAGE_TABLE + _HEADER_AT),
    )
    metadata = message + flatbuffer + bytes(-len(flatbuffer) % 8)
    return pa.ipc.read_schema(pa.py_buffer(_FRAME.pack(_CONTINUATION, len(metadata)) + metadata))


def _u32(buffer: bytes | bytearray, position: int) -> int:
    (value,) = struct.unpack_from("<I", buffer, position)
    return int(value)


def _i32(buffer: bytes | bytearray, position: int) -> int:
    (value,) = struct.unpack_from("<i", buffer, position)
    return int(value)

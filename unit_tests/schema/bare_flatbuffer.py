"""The reader of bare Arrow schemas that Open Data Fabric's tools have: pyarrow has none, so a message is put around them."""

from __future__ import annotations

import struct

import pyarrow as pa

_FRAME = struct.Struct("<Ii")
"""Continuation marker and length of the metadata that follows."""
_CONTINUATION = 0xFFFFFFFF
_MESSAGE = struct.Struct("<IHHHHHHixBhI4x")
"""The root offset, padding, a Message's vtable (size, table size, three field offsets), the table, padding to 8 bytes."""
_MESSAGE_TABLE = 16
_VTABLE_SIZE, _TABLE_SIZE = 10, 12
_VERSION_AT, _HEADER_TYPE_AT, _HEADER_AT = 6, 5, 8
_METADATA_V5, _HEADER_IS_SCHEMA = 4, 1


def schema_from_bare_flatbuffer(flatbuffer: bytes) -> pa.Schema:
    """The schema of a bare flatbuffer, whoever wrote it. pa.ArrowInvalid or OSError when pyarrow's verifier refuses it."""
    if len(flatbuffer) < 8 or int.from_bytes(flatbuffer[:4], "little") > len(flatbuffer) - 4:
        raise pa.ArrowInvalid("not a flatbuffer: its root lies outside of it")
    schema_table = _MESSAGE.size + int.from_bytes(flatbuffer[:4], "little")
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

"""Conversion of Arrow columns to plain text and to JSON, shared by all text formats.

Numbers take their JSON form; integral doubles end in `.0`, decimals have all digits of their scale. Dates and times follow ISO 8601,
without a zero fraction and with `Z` for UTC. Containers become compact JSON with all their members.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from destination_s3_spark.decoding.value_text import decimal_texts
from destination_s3_spark.formats.rows import row_bytes, row_offsets
from destination_s3_spark.formats.text_file import text_join

_BEFORE_TIME = (-16, -15)
"""Position of Arrow's blank between date and `HH:MM:SS.ffffff`, counted from the end because years can have more than four digits."""
_NO_FRACTION = ".000000"
_FIRST_PRINTABLE = 0x20


def texts(values: pa.Array[Any]) -> pa.StringArray:
    """Return the text of each value, null for null. Strings stay unchanged, containers become JSON."""
    kind = values.type
    if pa.types.is_string(kind):
        return values
    if pa.types.is_nested(kind):
        return json_texts(values)
    if pa.types.is_floating(kind):
        return _doubles(values)
    if pa.types.is_decimal(kind):
        return decimal_texts(values)
    if pa.types.is_time64(kind) or pa.types.is_timestamp(kind):
        return _times(values)
    return values.cast(pa.string())


def json_texts(values: pa.Array[Any]) -> pa.StringArray:
    """Return the JSON of each value. A null value gives an Arrow null, not the text `null`."""
    kind = values.type
    if pa.types.is_struct(kind):
        return _objects(values)
    if pa.types.is_list(kind):
        return _arrays(values)
    if pa.types.is_string(kind):
        return text_join('"', escaped(values), '"')
    if pa.types.is_temporal(kind):
        return text_join('"', texts(values), '"')
    return texts(values)


def escaped(strings: pa.StringArray) -> pa.StringArray:
    """Return the strings escaped as JSON, without the enclosing quotes."""
    data = string_bytes(strings)
    for mark in (b"\\", b'"'):
        if mark in data:
            strings = pc.replace_substring(strings, mark.decode(), f"\\{mark.decode()}")
    codes = np.frombuffer(data, np.uint8)
    for code in np.unique(codes[codes < _FIRST_PRINTABLE]):
        strings = pc.replace_substring(strings, chr(code), json.dumps(chr(code))[1:-1])
    return strings


def string_bytes(strings: pa.StringArray) -> bytes:
    """Return the concatenated bytes of all strings, so that one search covers them all."""
    offsets = row_offsets(strings)
    data: bytes = row_bytes(strings).slice(int(offsets[0]), int(offsets[-1] - offsets[0])).to_pybytes()
    return data


def holds_free_text(kind: pa.DataType) -> bool:
    """Return whether texts of this type can have any characters. Texts of all other types never need quotes or escapes."""
    return bool(pa.types.is_string(kind) or pa.types.is_nested(kind))


def _doubles(values: pa.DoubleArray) -> pa.StringArray:
    """Return the shortest texts that parse back to the same numbers."""
    if len(values) == 0:
        return pa.array([], pa.string())
    numbers = pc.fill_null(values, 0.0).to_numpy(zero_copy_only=False)
    listed = orjson.dumps(numbers, option=orjson.OPT_SERIALIZE_NUMPY)  # one call in C for the whole column: [1.5,10.0]
    codes = np.frombuffer(listed, np.uint8)
    ends = np.flatnonzero((codes == ord(",")) | (codes == ord("]")))
    offsets = np.concatenate([np.zeros(1, np.int32), ends.astype(np.int32)])
    cells = pa.StringArray.from_buffers(len(values), pa.py_buffer(offsets), pa.py_buffer(listed))
    return pc.if_else(values.is_valid(), pc.binary_replace_slice(cells, 0, 1, ""), None)


def _times(values: pa.Array[Any]) -> pa.StringArray:
    """Return the texts of times of day or timestamps. Timestamps with a zone are in UTC."""
    if not pa.types.is_timestamp(values.type):
        return _without_zeros(values.cast(pa.string()))
    # Arrow formats timestamps without a zone twenty times as fast.
    naive = values.cast(pa.timestamp("us", values.type.tz)).view(pa.timestamp("us"))
    texts = pc.binary_replace_slice(naive.cast(pa.string()), *_BEFORE_TIME, "T")
    return text_join(_without_zeros(texts), "Z") if values.type.tz else _without_zeros(texts)


def _without_zeros(texts: pa.StringArray) -> pa.StringArray:
    """Remove fractions of a second that are zero."""
    return pc.replace_substring(texts, _NO_FRACTION, "") if _NO_FRACTION.encode() in string_bytes(texts) else texts


def _objects(values: pa.StructArray) -> pa.StringArray:
    members: list[str | pa.Array[Any]] = []
    for field, column in zip(values.type, values.flatten(), strict=True):
        members += [f",{json_name(field.name)}:", pc.fill_null(json_texts(column), "null")]
    joined = pc.binary_replace_slice(text_join(*members, "}"), 0, 1, "{")
    return pc.if_else(values.is_valid(), joined, None)


def _arrays(values: pa.ListArray[Any]) -> pa.StringArray:
    items = pc.fill_null(json_texts(values.flatten()), "null")
    ends = np.cumsum(pc.fill_null(pc.list_value_length(values), 0).to_numpy(zero_copy_only=False), dtype=np.int32)
    lists = pa.ListArray.from_arrays(pa.array(np.concatenate([np.zeros(1, np.int32), ends])), items)
    return pc.if_else(values.is_valid(), text_join("[", pc.binary_join(lists, ","), "]"), None)


def json_name(name: str) -> str:
    """Return a member's name as a JSON string with non-ASCII characters unescaped."""
    return json.dumps(name, ensure_ascii=False)

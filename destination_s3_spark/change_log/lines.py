"""Shared parts of the change log's text formats: values as plain text and as JSON, gzip, event counts, the cursor and the texts of Exists.

Numbers take their JSON form; integral doubles end in `.0`, decimals have all digits of their scale. Dates and times follow ISO 8601,
without a zero fraction and with `Z` for UTC. Containers become compact JSON with all their members.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from destination_s3_spark.chain.files import OperationCount
from destination_s3_spark.change_log.events import LogColumns, RunningCount
from destination_s3_spark.decoding.value_text import decimal_texts
from destination_s3_spark.formats.file_format import Sink
from destination_s3_spark.formats.row_bytes import row_bytes, row_offsets
from destination_s3_spark.formats.text_file import TextFile, text_join

_BLOCK_BYTES = 8 * 2**20
"""Arrow bytes converted to text at a time. Their text can be several times as large, and a string array holds at most 2 GiB."""
_NAMES_BYTES = 64 * 2**20
"""Limit for the bytes of column names in the text of a block. They make up most of an event with many booleans."""
_QUOTED = 10
"""Approximate bytes per column in a line, besides its name and value."""
_BEFORE_TIME = (-16, -15)
"""Position of Arrow's blank between date and `HH:MM:SS.ffffff`, counted from the end because years can have more than four digits."""
_NO_FRACTION = ".000000"
_FIRST_PRINTABLE = 0x20


def plain_texts(values: pa.Array[Any]) -> pa.StringArray:
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
        return text_join('"', plain_texts(values), '"')
    return plain_texts(values)


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


class LogLines(TextFile):
    """A text file of the change log being written to a sink. `schema` is by default that of rows."""

    def __init__(self, sink: Sink, columns: LogColumns, schema: pa.Schema | None = None) -> None:
        super().__init__(sink, columns.row_schema if schema is None else schema, compressed=True)
        in_each_image = sum(len(field.name) + _QUOTED for field in columns.fields)
        self._most_rows = _NAMES_BYTES // (3 * in_each_image + 1) or 1  # new, old and Exists

    def write(self, batch: pa.RecordBatch) -> None:
        """Append rows or events. Raises pa.ArrowInvalid unless the batch has the file's columns."""
        rows = min(self._most_rows, batch.num_rows * _BLOCK_BYTES // max(batch.nbytes, _BLOCK_BYTES) or 1)
        for start in range(0, max(batch.num_rows, 1), rows):
            super().write(batch.slice(start, rows))


class EventLines(LogLines):
    """A text file of events being written to a sink. `start` is the count before its first event."""

    def __init__(self, sink: Sink, columns: LogColumns, start: OperationCount) -> None:
        super().__init__(sink, columns, columns.event_schema)
        self._log = columns
        self._running = RunningCount(start)


def choices(numbers: np.ndarray[Any, Any], texts: Sequence[str]) -> pa.StringArray:
    """Return the text at each number's index. All texts are ASCII and of equal length."""
    width = len(texts[0])
    # Taking items of that width is ten times as fast in numpy as taking their bytes one by one.
    data = np.frombuffer("".join(texts).encode(), f"V{width}").take(numbers).view(np.uint8)
    offsets = np.arange(0, len(numbers) * width + 1, width, dtype=np.int32)
    return pa.StringArray.from_buffers(len(numbers), pa.py_buffer(offsets), pa.py_buffer(data))


def cursor_pieces(
    cursor: pa.StructArray, inside: Callable[[pa.StringArray], pa.StringArray] = lambda texts: texts
) -> tuple[str | pa.StringArray, ...]:
    """Return the `text_join` parts of each cursor as compact JSON. `inside` escapes its texts if the JSON stands inside quotes."""
    members = []
    for field, column in zip(cursor.type, cursor.flatten(), strict=True):
        name, quote = inside(pa.array([json_name(field.name), '"'])).to_pylist()
        if pa.types.is_string(column.type):
            members.append((f"{name}:{quote}", inside(escaped(column)), quote))
        else:
            members.append((f"{name}:", inside(json_texts(column)), ""))
    return object_pieces(members)


def object_pieces(members: Sequence[tuple[str, pa.StringArray, str]]) -> tuple[str | pa.StringArray, ...]:
    """Return the `text_join` parts of one JSON object per row, with the row's non-null members.

    A member is its values with the text before and after each. At least one member is required.
    """
    found = [member for member in members if member[1].null_count < len(member[1])]
    if not found:
        return (pa.repeat("{}", len(members[0][1])),)
    everywhere = next((number for number, (_, texts, _) in enumerate(found) if texts.null_count == 0), None)
    if everywhere is None:
        listed = text_join(*(text_join(",", *member) for member in found), null="")
        return ("{", pc.binary_replace_slice(listed, 0, 1, ""), "}")
    parts: list[str | pa.StringArray] = ["{", *(text_join(*member, ",").fill_null("") for member in found[:everywhere])]
    parts += found[everywhere]
    for before, texts, after in found[everywhere + 1 :]:
        member = f",{before}", texts, after
        parts += member if texts.null_count == 0 else (text_join(*member).fill_null(""),)
    return (*parts, "}")


def line_ends(batch: pa.RecordBatch) -> pa.StringArray:
    """Return a line end for each row. The array fixes the number of lines even if all other parts are scalars."""
    return pa.repeat("\n", batch.num_rows)

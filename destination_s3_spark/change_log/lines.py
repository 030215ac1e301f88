"""Shared parts of the change log's text formats: gzip, event counts, JSON objects, the cursor and the texts of Exists."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from destination_s3_spark.chain.operation_count import OperationCount
from destination_s3_spark.change_log import cells
from destination_s3_spark.change_log.events import LogColumns, RunningCount
from destination_s3_spark.formats.file_writer import Sink
from destination_s3_spark.formats.text_file import Compression, TextFile, text_join

_BLOCK_BYTES = 8 * 2**20
"""Arrow bytes converted to text at a time. Their text can be several times as large, and a string array holds at most 2 GiB."""
_NAMES_BYTES = 64 * 2**20
"""Limit for the bytes of column names in the text of a block. They make up most of an event with many booleans."""
_QUOTED = 10
"""Approximate bytes per column in a line, besides its name and value."""


class LogLines(TextFile):
    """A text file of the change log being written to a sink."""

    def __init__(self, sink: Sink, columns: LogColumns, schema: pa.Schema) -> None:
        super().__init__(sink, schema, Compression.GZIP)
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

    @property
    def operation_count(self) -> OperationCount:
        """Count after the last event written."""
        return self._running.count


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
    """Return the `text_join` pieces of each cursor as compact JSON. `inside` escapes its texts if the JSON stands inside quotes."""
    members = []
    for field, column in zip(cursor.type, cursor.flatten(), strict=True):
        name, quote = inside(pa.array([cells.json_name(field.name), '"'])).to_pylist()
        if pa.types.is_string(column.type):
            members.append((f"{name}:{quote}", inside(cells.escaped(column)), quote))
        else:
            members.append((f"{name}:", inside(cells.json_texts(column)), ""))
    return object_pieces(members)


def object_pieces(members: Sequence[tuple[str, pa.StringArray, str]]) -> tuple[str | pa.StringArray, ...]:
    """Return the `text_join` pieces of one JSON object per row, with the row's non-null members.

    A member is its values with the text before and after each. At least one member is required.
    """
    found = [member for member in members if member[1].null_count < len(member[1])]
    if not found:
        return (pa.repeat("{}", len(members[0][1])),)
    everywhere = next((number for number, (_, texts, _) in enumerate(found) if texts.null_count == 0), None)
    if everywhere is None:
        listed = text_join(*(text_join(",", *member) for member in found), null="")
        return ("{", pc.binary_replace_slice(listed, 0, 1, ""), "}")
    pieces: list[str | pa.StringArray] = ["{", *(text_join(*member, ",").fill_null("") for member in found[:everywhere])]
    pieces += found[everywhere]
    for before, texts, after in found[everywhere + 1 :]:
        member = f",{before}", texts, after
        pieces += member if texts.null_count == 0 else (text_join(*member).fill_null(""),)
    return (*pieces, "}")


def line_ends(batch: pa.RecordBatch) -> pa.StringArray:
    """Return a line end for each row. The array fixes the number of lines even if all other pieces are scalars."""
    return pa.repeat("\n", batch.num_rows)

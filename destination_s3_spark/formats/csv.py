"""Writer of CSV files in destination-s3's dialect: commons-csv's default, with every value quoted that is not a number.

A file always has a header line. Values are separated by `,`, lines end in CRLF, and `"` is doubled inside quotes. Null is written as `""`,
like an empty string. Data columns arrive as JSON text, which is null for a null or absent value. Strings are decoded, numbers keep their
digits, and all other values stay JSON text.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from destination_s3_spark.decoding.plan import Values
from destination_s3_spark.exact_json.values import string_value
from destination_s3_spark.formats.file_format import FileColumns, Sink
from destination_s3_spark.formats.text_file import (
    JoinedTextFile,
    TextFile,
    TextOptions,
    meta_json,
    text_format,
    text_join,
)

_NULL = '""'
_META_COLUMNS = 4
_LINE_END = b"\r\n"


@dataclass(frozen=True, slots=True)
class CsvOptions(TextOptions):
    stem: ClassVar[str] = ".csv"

    @property
    def values(self) -> Values:
        """The whole record in one column, or with flattening one column of JSON text per field."""
        return Values.CELLS if self.flattened else Values.RECORD

    def open(self, sink: Sink, columns: FileColumns) -> CsvFile:
        return CsvFile(sink, columns.arrow, self)

    def open_joined(self, sink: Sink) -> JoinedCsvFile:
        return JoinedCsvFile(sink, compressed=self.compressed)


class CsvFile(TextFile):
    """One CSV file being written into a sink. Its header holds the names of the columns."""

    def __init__(self, sink: Sink, columns: pa.Schema, options: CsvOptions) -> None:
        super().__init__(sink, columns, compressed=options.compressed)
        header = ",".join(f'"{_doubled(name)}"' for name in columns.names) + "\r\n"
        self._put(header.encode())

    def _lines(self, batch: pa.RecordBatch) -> pa.StringArray:
        raw_id, extracted_at, meta, generation_id = batch.columns[:_META_COLUMNS]
        cells = [
            text_join('"', raw_id, '"'),
            extracted_at.view(pa.int64()).cast(pa.string()),
            _quoted(meta_json(meta)),
            generation_id.cast(pa.string()),
            *(_cells(column) for column in batch.columns[_META_COLUMNS:]),
        ]
        parts = chain.from_iterable((cell, ",") for cell in cells)
        return text_join(*list(parts)[:-1], "\r\n")


class JoinedCsvFile(JoinedTextFile):
    """The rows of CSV files behind one header."""

    _quotes = 0
    """The number of quotes in the text so far."""

    def _header_bytes(self, text: bytes) -> int:
        """Find the first line end that is not inside a name."""
        end = 0
        while True:
            end = text.index(_LINE_END, end) + len(_LINE_END)
            if text.count(b'"', 0, end) % 2 == 0:
                return end

    def _line_ends(self, text: memoryview) -> int:
        """Count the line ends that are not inside a value."""
        data = np.frombuffer(text, np.uint8)
        quotes, ends = np.flatnonzero(data == ord('"')), np.flatnonzero(data == ord("\n"))
        before = self._quotes + np.searchsorted(quotes, ends)
        self._quotes += len(quotes)
        return int(np.count_nonzero(before % 2 == 0))


def _cells(values: pa.Array[Any]) -> pa.Array[Any]:
    """Return JSON texts as cells. A JSON string without a backslash already has the form of a quoted cell."""
    if values.null_count == len(values):
        return pa.array([_NULL] * len(values))
    first = pc.utf8_slice_codeunits(values, 0, 1)
    is_text = pc.is_in(first, pa.array(["{", "[", "t", "f"]))
    escaped = pc.fill_null(pc.and_(pc.equal(first, '"'), pc.match_substring(values, "\\")), False)
    cells = values
    if pc.any(is_text).as_py():
        cells = pc.if_else(is_text, _quoted(values), cells)
    if pc.any(escaped).as_py():
        strings = (string_value(text.encode()) for text in values.filter(escaped).to_pylist())
        cells = pc.replace_with_mask(cells, escaped, pa.array([f'"{_doubled(string)}"' for string in strings]))
    return pc.fill_null(cells, _NULL)


def _quoted(texts: pa.Array[Any]) -> pa.Array[Any]:
    return pc.binary_join_element_wise('"', pc.replace_substring(texts, '"', '""'), '"', "")


def _doubled(text: str) -> str:
    return text.replace('"', '""')


CSV = text_format("CSV", "CSV", CsvOptions.stem, CsvOptions)

"""Parsing of change log files into events and rows in every format: the inverse of the writers.

Values have their JSON types. Text formats store all values as text, so the column's type tells how to parse numbers, booleans and
containers. Dates and times stay text in every format. In a log with decimals, numbers with a point or an exponent are `decimal.Decimal`,
and so are integers beyond 64 bits.
"""

from __future__ import annotations

import decimal
import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, TypeAlias

import msgspec
import orjson
import pyarrow as pa

from destination_s3_spark.chain.files import OperationCount
from destination_s3_spark.change_log.events import IN_NEW, IN_OLD
from destination_s3_spark.change_log.lines import json_texts
from destination_s3_spark.change_log.manifest import LogKind, Manifest
from destination_s3_spark.change_log.options import ChangeLogFormat
from destination_s3_spark.change_log.replicant import CSV_NULL, JSON_NULL
from destination_s3_spark.formats.bounded import lines_of
from destination_s3_spark.formats.parquet_pages import PagedFile
from destination_s3_spark.formats.read_back import csv_rows

Values: TypeAlias = dict[str, Any]
"""Values by column. A column that is not in the image is missing."""

BinarySource: TypeAlias = Any
"""A seekable binary file that Arrow can read, such as `io.BytesIO` or `storage.ranged.RangedFile`."""

_READ_BYTES = 8 * 2**20
_CSV_CELL = re.compile(r'(?:^|,)(?:"((?:[^"]++|"")*+)"|([^,"]*+))')
PARQUET_ROWS_AT_ONCE = 8192
_DECIMAL = "decimal128("
"""The beginning of a decimal type in the text of a column's type."""


ROW = "S"
"""The `op` of a row in a snapshot or upserts file."""


@dataclass(frozen=True, slots=True)
class Event:
    """An event, or a row of a snapshot or upserts file as one with a new image alone."""

    op: str
    new: Values
    old: Values
    cursor: dict[str, Any]
    operation_count: dict[str, int]

    def of_key(self, names: Iterable[str]) -> Values:
        return {name: self.old[name] if name in self.old else self.new[name] for name in names}


def read_events(manifest: Manifest, file: BinarySource) -> Iterator[Event]:
    """Return the events of a file, or its rows. Reading them raises DAMAGE for a file that is damaged."""
    if manifest.kind is not LogKind.CHANGES:
        return (Event(ROW, row, {}, {}, {}) for row in read_rows(manifest, file))
    match manifest.format:
        case ChangeLogFormat.REPLICANT_CSV:
            return _csv_events(manifest, file)
        case ChangeLogFormat.REPLICANT_JSON:
            return _replicant_json_events(manifest, file)
        case ChangeLogFormat.JSONL:
            return (Event(e["op"], e["new"], e["old"], e["cursor"], e["operationCount"]) for e in _json_lines(manifest, file))
        case ChangeLogFormat.PARQUET:
            return _parquet_events(manifest, file)


def read_rows(manifest: Manifest, file: BinarySource) -> Iterator[Values]:
    """Return the rows of a snapshot or upserts file."""
    match manifest.format:
        case ChangeLogFormat.REPLICANT_CSV:
            return _csv_rows(manifest, file)
        case ChangeLogFormat.REPLICANT_JSON:
            return _replicant_json_rows(manifest, file)
        case ChangeLogFormat.JSONL:
            return _json_lines(manifest, file)
        case ChangeLogFormat.PARQUET:
            return _parquet_rows(manifest, file)


def _csv_events(manifest: Manifest, file: BinarySource) -> Iterator[Event]:
    names, parsers = _columns(manifest)
    for *triplets, op, cursor, counts in _csv_cells(manifest, file):
        exists = [int(cell) for cell in triplets[2::3]]
        values = [_parsed(parsers, image) for image in (triplets[0::3], triplets[1::3])]
        new, old = (_image(names, image, exists, bit) for image, bit in zip(values, (IN_NEW, IN_OLD), strict=True))
        yield Event(op, new, old, orjson.loads(cursor), orjson.loads(counts))


def _csv_rows(manifest: Manifest, file: BinarySource) -> Iterator[Values]:
    names, parsers = _columns(manifest)
    for row in _csv_cells(manifest, file):
        yield dict(zip(names, _parsed(parsers, row), strict=True))


def _csv_cells(manifest: Manifest, file: BinarySource) -> Iterator[list[Any]]:
    """Yield the texts of each row's cells, None for a bare NULL. Python's csv module cannot tell a bare NULL from a quoted one."""
    for row in islice(text_rows(manifest, file), manifest.header_rows, None):
        yield [_csv_cell(cell) for cell in _CSV_CELL.finditer(row.decode().removesuffix("\n"))]


def text_rows(manifest: Manifest, file: BinarySource) -> Iterator[bytes]:
    """Yield the rows of a text file with their line ends, behind its header if it has one. Raises ValueError for a row without an end."""
    lines = lines_of(_unzipped(file))
    return csv_rows(lines) if manifest.format is ChangeLogFormat.REPLICANT_CSV else lines


def _csv_cell(found: re.Match[str]) -> str | None:
    quoted, bare = found.groups()
    if quoted is not None:
        return quoted.replace('""', '"')
    return None if bare == CSV_NULL else bare


def _replicant_json_events(manifest: Manifest, file: BinarySource) -> Iterator[Event]:
    names, parsers = _columns(manifest)
    for event in _json_lines(manifest, file):
        exists = [int(event["exists"][name]) for name in names]
        values = [_parsed(parsers, _not_null(event[image][name] for name in names)) for image in ("after", "before")]
        new, old = (_image(names, image, exists, bit) for image, bit in zip(values, (IN_NEW, IN_OLD), strict=True))
        yield Event(event["opType"], new, old, orjson.loads(event["cursor"]), orjson.loads(event["operationcount"]))


def _replicant_json_rows(manifest: Manifest, file: BinarySource) -> Iterator[Values]:
    names, parsers = _columns(manifest)
    for row in _json_lines(manifest, file):
        yield dict(zip(names, _parsed(parsers, _not_null(row[name] for name in names)), strict=True))


def _parquet_events(manifest: Manifest, file: BinarySource) -> Iterator[Event]:
    for batch in _parquet_batches(file):
        columns = (
            batch["op"].to_pylist(),
            *(map(_loads(manifest), json_texts(batch[image]).to_pylist()) for image in ("new", "old")),
            batch["exists"].to_pylist(),
            map(orjson.loads, batch["cursor"].to_pylist()),
            batch["operation_count"].to_pylist(),
        )
        for op, new, old, exists, cursor, counts in zip(*columns, strict=True):
            images = (_image(new, new.values(), exists.values(), IN_NEW), _image(old, old.values(), exists.values(), IN_OLD))
            yield Event(op, *images, cursor, msgspec.to_builtins(OperationCount(**counts)))


def _parquet_rows(manifest: Manifest, file: BinarySource) -> Iterator[Values]:
    for batch in _parquet_batches(file):
        rows = pa.StructArray.from_arrays(batch.columns, batch.schema.names)
        yield from map(_loads(manifest), json_texts(rows).to_pylist())


def _parquet_batches(file: BinarySource) -> Iterator[pa.RecordBatch]:
    yield from PagedFile(file).batches(PARQUET_ROWS_AT_ONCE)


def _json_lines(manifest: Manifest, file: BinarySource) -> Iterator[dict[str, Any]]:
    return map(_loads(manifest), text_rows(manifest, file))


def _unzipped(file: BinarySource) -> pa.NativeFile:
    return pa.CompressedInputStream(pa.BufferedInputStream(pa.PythonFile(file, mode="r"), _READ_BYTES), "gzip")


def _columns(manifest: Manifest) -> tuple[list[str], list[Callable[[str], Any]]]:
    """Return the names of the columns and, for each, the function that parses its texts."""
    loads = _loads(manifest)
    return [column.name for column in manifest.columns], [_parser(column.type, loads) for column in manifest.columns]


def _loads(manifest: Manifest) -> Callable[[str | bytes], Any]:
    """Return the function that parses JSON. It keeps all digits if the log has decimals."""
    if any(_DECIMAL in column.type for column in manifest.columns):
        return partial(json.loads, parse_float=decimal.Decimal, parse_int=_integer)
    return orjson.loads


def _integer(text: str) -> int | decimal.Decimal:
    value = int(text)
    return value if value.bit_length() < 64 else decimal.Decimal(text)  # orjson writes no larger integers


def _parser(type_text: str, loads: Callable[[str], Any]) -> Callable[[str], Any]:
    match re.split("[<(]", type_text)[0]:
        case "int64" | "double" | "bool" | "struct" | "list" | "decimal128":
            return loads
        case _:
            return str


def _parsed(parsers: Iterable[Callable[[str], Any]], texts: Iterable[str | None]) -> list[Any]:
    return [None if text is None else parse(text) for parse, text in zip(parsers, texts, strict=True)]


def _image(names: Iterable[str], values: Iterable[Any], exists: Iterable[int], bit: int) -> Values:
    return {name: value for name, value, bits in zip(names, values, exists, strict=True) if bits & bit}


def _not_null(texts: Iterable[str]) -> Iterator[str | None]:
    return (None if text == JSON_NULL else text for text in texts)

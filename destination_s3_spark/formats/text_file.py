"""The common parts of the text formats: compression, flattening of records, and the JSON of the meta column."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain, groupby
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from isal import isal_zlib

from destination_s3_spark.formats.file_format import (
    Content,
    DifferentColumns,
    DirectWriter,
    FileColumns,
    FileFormat,
    FileOptions,
    SeekableFile,
    Sink,
    require_columns,
)
from destination_s3_spark.formats.file_statistics import WrittenFile
from destination_s3_spark.formats.row_bytes import row_bytes, row_offsets

if TYPE_CHECKING:  # a cluster's executors have no pydantic
    from destination_s3_spark.config.format_options import CsvFormat, JsonlFormat

GZIP = ".gz"
"""What compression adds to the extension."""
_GZIP_LEVEL = 2
"""ISA-L's default level. On lines of a change log it is six times as fast as zlib's level 4, and the files have the same size."""
_GZIP_WINDOW = 16 + isal_zlib.MAX_WBITS
"""zlib's convention to request a gzip header and trailer. The header holds no time and no name, so equal rows give equal bytes."""
_META_PREFIX = "_airbyte_"
_BLOCK_BYTES = 4 * 2**20
"""Bytes of a file read at once when files are joined."""
_LINE_END = ord("\n")


@dataclass(frozen=True, slots=True)
class TextOptions:
    """The options of a text file. `flattened`: whether a record's fields are beside the connector's own columns, not in `_airbyte_data`."""

    flattened: bool = False
    compressed: bool = True

    stem: ClassVar[str]
    """The extension without that of gzip."""

    @property
    def extension(self) -> str:
        return self.stem + GZIP if self.compressed else self.stem

    def require_fitting(self, columns: FileColumns) -> None:
        """Accept all columns, because all values are written as text."""


def text_format(title: str, format_type: str, stem: str, made: Callable[[bool, bool], FileOptions]) -> FileFormat:
    """Return a text format. `made` makes its options."""

    def options(chosen: CsvFormat | JsonlFormat) -> FileOptions:
        return made(chosen.flattening == "Root level flattening", chosen.compression.compression_type == "GZIP")

    return FileFormat(title, format_type, (stem, stem + GZIP), typed=False, sorted_rows=False, options=options)


class TextWriter(DirectWriter[Content]):
    """A text file being written, compressed by gzip if asked for."""

    def __init__(self, sink: Sink, *, compressed: bool) -> None:
        super().__init__(sink)
        self._gzip = isal_zlib.compressobj(_GZIP_LEVEL, isal_zlib.DEFLATED, _GZIP_WINDOW) if compressed else None

    def close(self) -> WrittenFile:
        if self._gzip is not None:
            super()._put(self._gzip.flush())
        return super().close()

    def _put(self, data: bytes | memoryview) -> None:
        super()._put(data if self._gzip is None else self._gzip.compress(data))


class TextFile(TextWriter[pa.RecordBatch]):
    """One text file of rows being written into a sink."""

    def __init__(self, sink: Sink, columns: pa.Schema, *, compressed: bool) -> None:
        super().__init__(sink, compressed=compressed)
        self._columns = columns

    def write(self, batch: pa.RecordBatch) -> None:
        require_columns(batch, self._columns)
        if batch.num_rows == 0:
            return
        lines = self._lines(batch)
        offsets = row_offsets(lines)
        self._put(memoryview(row_bytes(lines).slice(int(offsets[0]), int(offsets[-1] - offsets[0]))))
        self._rows += batch.num_rows

    @abstractmethod
    def _lines(self, batch: pa.RecordBatch) -> pa.StringArray:
        """Return each row as text with its line end."""


class JoinedTextFile(TextWriter[SeekableFile]):
    """The lines of text files in one file, behind the header of the first. All must have the same header."""

    def __init__(self, sink: Sink, *, compressed: bool) -> None:
        super().__init__(sink, compressed=compressed)
        self._header: bytes | None = None

    def write(self, source: SeekableFile) -> None:
        texts = iter(partial(source.read, _BLOCK_BYTES), b"") if self._gzip is None else _unzipped(source)
        first = next(texts, b"")
        header = first[: self._header_bytes(first)]
        if self._header is None:
            self._header = header
            self._put(header)
        if header != self._header:
            raise DifferentColumns
        for text in chain([memoryview(first)[len(header) :]], map(memoryview, texts)):
            self._rows += self._line_ends(text)
            self._put(text)

    def _header_bytes(self, text: bytes) -> int:  # noqa: ARG002 (only some formats have headers)
        """Return the length of the header at the start of a file."""
        return 0

    def _line_ends(self, text: memoryview) -> int:
        """Return the number of line ends in the next part of the text."""
        return int(np.count_nonzero(np.frombuffer(text, np.uint8) == _LINE_END))


def _unzipped(source: SeekableFile) -> Iterator[bytes]:
    """Yield the text of a gzip file in blocks, the first of which holds at least the header of any table."""
    decompressor = isal_zlib.decompressobj(_GZIP_WINDOW)
    while data := source.read(_BLOCK_BYTES):
        if text := decompressor.decompress(data):
            yield text


def beside_meta(key: str) -> str:
    """Return the name of a record's key beside the connector's own columns. Keys that begin like theirs, in any case, get `_1` appended."""
    return f"{key}_1" if key.lower().startswith(_META_PREFIX) else key


def meta_json(meta: pa.StructArray) -> pa.StringArray:
    sync_ids, changes = meta.flatten()
    texts: Any = pa.scalar("[]")
    if pc.any(pc.greater(pc.list_value_length(changes), 0)).as_py():
        texts = pa.array([msgspec.json.encode(row) for row in changes.to_pylist()], pa.string())
    return text_join('{"sync_id":', sync_ids.cast(pa.string()), ',"changes":', texts, "}")


def text_join(*parts: str | pa.Scalar | pa.Array[Any], null: str | None = None) -> pa.StringArray:
    """Join the parts of each row. A plain string is repeated in every row.

    A null part makes the row null, or is replaced by `null` when given.
    """
    # Every part costs time in every row, so neighbouring strings are joined first.
    runs = groupby(parts, lambda part: isinstance(part, str))
    fewer = chain.from_iterable([pa.scalar("".join(run))] if plain else run for plain, run in runs)
    handling = "emit_null" if null is None else "replace"
    joined: pa.StringArray = pc.binary_join_element_wise(*fewer, "", null_handling=handling, null_replacement=null or "")
    return joined

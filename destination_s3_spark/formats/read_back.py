"""Rows of text files that were written before: the bytes of each, and its record as JSON text.

What a file's name and its own rows say is enough: whether it is CSV or JSON Lines, compressed, and whether the record's fields are beside
the connector's own columns.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from destination_s3_spark.exact_json.members import members
from destination_s3_spark.exact_json.values import object_text
from destination_s3_spark.formats.bounded import MOST_UNPACKED_BYTES, lines_of
from destination_s3_spark.formats.csv import CsvOptions
from destination_s3_spark.formats.file_format import SeekableFile, Sink, in_pieces
from destination_s3_spark.formats.text_file import GZIP, TextWriter, beside_meta

WHOLE_RECORD = "_airbyte_data"
"""The column with the record, if its fields have none."""
OWN_COLUMNS = frozenset(
    {"_airbyte_raw_id", "_airbyte_ab_id", "_airbyte_extracted_at", "_airbyte_emitted_at", "_airbyte_loaded_at", "_airbyte_meta"}
    | {"_airbyte_generation_id", "_airbyte_additional_properties"}
)
"""The connector's columns beside those of the record, and those of earlier versions of destination-s3."""


@dataclass(frozen=True, slots=True)
class StoredText:
    """A text file under this key. `booleans`: names of the fields whose `true` in CSV is not a text."""

    key: str
    booleans: frozenset[str] = frozenset()

    def rows(self, file: SeekableFile) -> Iterator[tuple[bytes, bytes | None]]:
        """Yield each row's bytes and its record, None for the header. Raises ValueError for a file that is damaged."""
        stream = pa.CompressedInputStream(in_pieces(file), "gzip") if self.key.endswith(GZIP) else in_pieces(file)
        lines = lines_of(stream)
        if CsvOptions.stem in self.key.rpartition("/")[2]:
            yield from self._csv(lines)
        else:
            yield from ((line, _record_of_line(line)) for line in lines)

    def open_kept(self, sink: Sink) -> KeptRows:
        return KeptRows(sink, compressed=self.key.endswith(GZIP))

    def _csv(self, lines: Iterator[bytes]) -> Iterator[tuple[bytes, bytes | None]]:
        rows = csv_rows(lines)
        header = next(rows, b"")
        yield header, None
        names = [cell.decode() for cell, _ in _cells(header)]
        for row in rows:
            cells = list(_cells(row))
            if len(cells) != len(names):
                raise ValueError("a row of CSV has other columns than the header")
            if WHOLE_RECORD in names:
                yield row, cells[names.index(WHOLE_RECORD)][0]
                continue
            pairs = zip(names, cells, strict=True)
            yield row, object_text({_source(name): self._value(name, *cell) for name, cell in pairs if name not in OWN_COLUMNS})

    def _value(self, name: str, text: bytes, quoted: bool) -> bytes:
        """Return a cell's JSON text. An empty text and null are the same in CSV, and count as null."""
        if not quoted or (name in self.booleans and text in (b"true", b"false")):
            return text
        return json.dumps(text.decode()).encode() if text else b"null"


class KeptRows(TextWriter[Iterable[bytes]]):
    """A text file of rows as they were."""

    def write(self, content: Iterable[bytes]) -> None:
        for row in content:
            self._put(row)
            self._rows += 1

    def write_header(self, header: bytes) -> None:
        """Write a row that does not count."""
        self._put(header)


def csv_rows(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Yield rows of CSV with their line ends; those inside of quotes belong to a value.

    Raises ValueError if quotes stay open, or for a row that is too long.
    """
    row, quotes, length = list[bytes](), 0, 0
    for line in lines:
        row.append(line)
        quotes += line.count(b'"')
        length += len(line)
        if quotes % 2 == 0:
            yield b"".join(row)
            row, quotes, length = [], 0, 0
        if length > MOST_UNPACKED_BYTES:
            raise ValueError("a row is longer than any")
    if row:
        raise ValueError("the file ends inside of quotes")


def _cells(row: bytes) -> Iterator[tuple[bytes, bool]]:
    """Yield the text of each cell, and whether it is quoted."""
    at, text = 0, row.removesuffix(b"\n").removesuffix(b"\r")
    while at <= len(text):
        if text[at : at + 1] == b'"':
            end = at + 1
            while text[(end := text.index(b'"', end)) + 1 :][:1] == b'"':
                end += 2
            yield text[at + 1 : end].replace(b'""', b'"'), True
            at = end + 2
        else:
            end = text.find(b",", at)
            end = len(text) if end < 0 else end
            yield text[at:end], False
            at = end + 1


def _record_of_line(line: bytes) -> bytes:
    found = members(line)
    whole = next((member for member in found if member.key == WHOLE_RECORD), None)
    if whole is not None:
        return line[whole.start : whole.end]
    return object_text({_source(member.key): line[member.start : member.end] for member in found if member.key not in OWN_COLUMNS})


def _source(name: str) -> str:
    """Return the field's name of a column beside the connector's own (see `beside_meta`)."""
    return name[:-2] if name.endswith("_1") and beside_meta(name[:-2]) == name else name

"""Files of one format joined into one, with every row as it was."""

from __future__ import annotations

import csv
import gzip
import io
import json
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from destination_s3_spark.formats import text_file
from destination_s3_spark.formats.avro import AvroCodec, AvroOptions
from destination_s3_spark.formats.csv import CsvOptions
from destination_s3_spark.formats.file_format import DifferentColumns, FileOptions
from destination_s3_spark.formats.file_statistics import WrittenFile
from destination_s3_spark.formats.jsonl import JsonlOptions
from destination_s3_spark.formats.parquet import ParquetOptions
from destination_s3_spark.schema.encodings import Encodings, ExtractedAtEncoding, TimeEncoding
from unit_tests.cases import each

PROPERTIES: dict[str, Any] = {
    "id": {"type": "integer"},
    'a "name"\r\n,': {"type": "string"},
    "clock": {"type": "string", "format": "time", "airbyte_type": "time_without_timezone"},
    "tags": {"type": "array", "items": {"type": "string"}},
}
FILES = [
    ['{"id":1,"a \\"name\\"\\r\\n,":"one \\r\\n \\" two","clock":"08:00:00","tags":["é",null]}', '{"id":"no number"}'],
    ['{"id":3,"tags":[]}'],
    ["{}", '{"id":5,"clock":"23:59:59.999999"}', '{"id":6}'],
]
LOCAL = Encodings(ExtractedAtEncoding.MICROS, TimeEncoding.LOCAL)
INT64 = Encodings(ExtractedAtEncoding.MICROS, TimeEncoding.INT64)
OPTIONS: list[FileOptions] = [
    *(ParquetOptions(encodings=encodings) for encodings in (Encodings(), LOCAL, INT64)),
    *(AvroOptions(codec, 1) for codec in (AvroCodec.NULL, AvroCodec.DEFLATE, AvroCodec.SNAPPY, AvroCodec.ZSTANDARD)),
    *(made(flattened, compressed) for made in (JsonlOptions, CsvOptions) for flattened in (False, True) for compressed in (False, True)),
]
WITH_COLUMNS = [one for one in OPTIONS if not isinstance(one, CsvOptions | JsonlOptions) or (isinstance(one, CsvOptions) and one.flattened)]
"""Options of files that have columns of their own; all others have the same."""


def join(options: FileOptions, files: list[bytes]) -> tuple[bytes, WrittenFile]:
    sink = io.BytesIO()
    joined = options.open_joined(sink)
    for file in files:
        joined.write(io.BytesIO(file))
    written = joined.close()
    return sink.getvalue(), written


def text(options: FileOptions, file: bytes) -> str:
    return (gzip.decompress(file) if options.extension.endswith(".gz") else file).decode()


def rows(options: FileOptions, file: bytes) -> list[Any]:
    match options:
        case ParquetOptions():
            table = pq.read_table(pa.BufferReader(file))
            return table.to_pylist()
        case AvroOptions():
            return list(fastavro.reader(io.BytesIO(file)))
        case CsvOptions():
            return list(csv.DictReader(io.StringIO(text(options, file), newline="")))
        case _:
            return [json.loads(line) for line in text(options, file).splitlines()]


@each("options", OPTIONS)
def test_the_rows_of_all_files_are_in_the_joined_one(options: FileOptions, landing: Any) -> None:
    made = [landing(options, PROPERTIES).file(data) for data in FILES]
    joined, written = join(options, made)
    expected = [row for file in made for row in rows(options, file)]
    assert rows(options, joined) == expected
    assert len(expected) == 6
    assert written.rows == 6
    if isinstance(options, ParquetOptions):
        one, many = (pq.ParquetFile(io.BytesIO(file)) for file in (joined, made[0]))
        assert one.schema.equals(many.schema)
        assert one.schema_arrow.equals(many.schema_arrow, check_metadata=True)
        assert one.num_row_groups == 1


@each("options", WITH_COLUMNS)
def test_files_of_other_columns_are_not_joined(options: FileOptions, landing: Any) -> None:
    made = [landing(options, PROPERTIES).file(FILES[0]), landing(options, {"id": {"type": "integer"}}).file(FILES[1])]
    with pytest.raises(DifferentColumns):
        join(options, made)


def test_an_avro_file_that_ends_early_is_an_error(landing: Any) -> None:
    options = AvroOptions()
    with pytest.raises(ValueError, match="ends early"):
        join(options, [landing(options, PROPERTIES).file(FILES[0])[:-20]])


def test_avro_files_are_read_in_large_pieces(landing: Any) -> None:
    """Each read of an object is a request."""

    class Counted(io.BytesIO):
        reads = 0

        def read(self, size: int | None = -1, /) -> bytes:
            self.reads += 1
            return super().read(size)

    options = AvroOptions()
    source = Counted(landing(options, PROPERTIES).file(FILES[0]))
    options.open_joined(io.BytesIO()).write(source)
    assert source.reads <= 2, "the file, and its end"


@each("size", [150, 151, 152, 4096])
@each("options", [CsvOptions(flattened=True, compressed=False), JsonlOptions(compressed=False)])
def test_rows_are_counted_however_the_text_is_cut(options: FileOptions, size: int, landing: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_file, "_BLOCK_BYTES", size)
    made = [landing(options, PROPERTIES).file(data) for data in FILES]
    joined, written = join(options, made)
    assert (written.rows, len(rows(options, joined))) == (6, 6)

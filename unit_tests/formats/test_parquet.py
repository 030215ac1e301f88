from __future__ import annotations

import gc
import io
from datetime import UTC, date, datetime, time
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from destination_s3_spark.formats.parquet import ParquetCodec, ParquetFile, ParquetOptions
from destination_s3_spark.schema.encodings import Encodings, TimeEncoding, stored_schema
from unit_tests.cases import each

NOON = datetime(2026, 1, 2, 12, 0, 0, 123456, tzinfo=UTC)
EXTRACTED = datetime(2026, 1, 2, 12, 0, 0, 123000, tzinfo=UTC)
SCHEMA = pa.schema(
    [
        pa.field("_airbyte_raw_id", pa.string(), nullable=False),
        pa.field("_airbyte_extracted_at", pa.timestamp("ms", tz="UTC"), nullable=False),
        pa.field("text", pa.string()),
        pa.field("flag", pa.bool_()),
        pa.field("whole", pa.int64()),
        pa.field("real", pa.float64()),
        pa.field("day", pa.date32()),
        pa.field("clock", pa.time64("us")),
        pa.field("moment", pa.timestamp("us", tz="UTC")),
        pa.field("list", pa.list_(pa.time64("us"))),
        pa.field("union", pa.struct([("type", pa.string()), ("integer", pa.int64()), ("time_with_timezone", pa.time64("us"))])),
    ]
)
ROWS: list[dict[str, Any]] = [
    {
        "_airbyte_raw_id": "a",
        "_airbyte_extracted_at": EXTRACTED,
        "text": "é",
        "flag": True,
        "whole": 2**63 - 1,
        "real": 0.5,
        "day": date(1, 1, 1),
        "clock": time(23, 59, 59, 999999),
        "moment": NOON,
        "list": [time(1), None],
        "union": {"type": "integer", "integer": 1, "time_with_timezone": None},
    },
    {"_airbyte_raw_id": "b", "_airbyte_extracted_at": EXTRACTED, **dict.fromkeys(SCHEMA.names[2:])},
]


def batch(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(rows, schema=SCHEMA)


def written(options: ParquetOptions, *batches: pa.RecordBatch) -> pq.ParquetFile:
    sink = io.BytesIO()
    file = ParquetFile(sink, SCHEMA, options)
    for rows in batches:
        file.write(rows)
    file.close()
    return pq.ParquetFile(io.BytesIO(sink.getvalue()))


def test_physical_and_logical_types_are_those_of_destination_s3() -> None:
    schema = written(ParquetOptions(), batch(ROWS)).schema
    columns = {column.path: (column.physical_type, str(column.logical_type)) for column in (schema.column(i) for i in range(len(schema)))}
    utc = "isAdjustedToUTC=true, timeUnit="
    micros_of_day = ("INT64", f"Time({utc}microseconds)")
    timestamp = "Timestamp({}{}, is_from_converted_type=false, force_set_converted_type=false)"
    assert columns == {
        "_airbyte_raw_id": ("BYTE_ARRAY", "String"),
        "_airbyte_extracted_at": ("INT64", timestamp.format(utc, "milliseconds")),
        "text": ("BYTE_ARRAY", "String"),
        "flag": ("BOOLEAN", "None"),
        "whole": ("INT64", "None"),
        "real": ("DOUBLE", "None"),
        "day": ("INT32", "Date"),
        "clock": micros_of_day,
        "moment": ("INT64", timestamp.format(utc, "microseconds")),
        "list.list.element": micros_of_day,
        "union.type": ("BYTE_ARRAY", "String"),
        "union.integer": ("INT64", "None"),
        "union.time_with_timezone": micros_of_day,
    }


def test_meta_columns_are_required_and_data_columns_optional() -> None:
    schema = written(ParquetOptions(), batch(ROWS)).schema
    depth = {column.path: column.max_definition_level for column in (schema.column(i) for i in range(len(schema)))}
    assert (depth["_airbyte_raw_id"], depth["text"], depth["list.list.element"], depth["union.integer"]) == (0, 1, 3, 2)


def test_the_footer_has_the_arrow_schema_and_no_pandas_metadata() -> None:
    file = written(ParquetOptions(), batch(ROWS))
    assert file.schema_arrow == SCHEMA
    assert file.schema_arrow.metadata is None
    assert list(file.metadata.metadata) == [b"ARROW:schema"]
    assert file.metadata.format_version == "2.6"


@each("codec", ParquetCodec)
def test_every_codec_is_written_and_read_back(codec: ParquetCodec) -> None:
    file = written(ParquetOptions(codec=codec), batch(ROWS))
    assert file.metadata.row_group(0).column(0).compression == codec.value
    assert file.read().to_pylist() == ROWS


def test_rows_of_many_batches_share_a_row_group_until_it_is_full() -> None:
    rows = batch(ROWS)
    file = written(ParquetOptions(row_group_bytes=rows.nbytes * 3), *[rows] * 7)
    assert [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)] == [6, 6, 2]
    assert file.read().to_pylist() == ROWS * 7


def test_close_returns_the_number_of_rows() -> None:
    file = ParquetFile(io.BytesIO(), SCHEMA, ParquetOptions(row_group_bytes=1))
    for rows in (ROWS, [], ROWS[:1]):
        file.write(batch(rows))
    assert file.close().rows == 3


def test_a_file_without_rows_is_readable() -> None:
    file = written(ParquetOptions(), batch([]))
    assert (file.metadata.num_rows, file.num_row_groups) == (0, 0)
    assert file.schema_arrow == SCHEMA


@each(("dictionary", "encoded"), [(True, True), (False, False)])
def test_dictionary_encoding_can_be_turned_off(dictionary: bool, encoded: bool) -> None:
    file = written(ParquetOptions(dictionary=dictionary), batch(ROWS * 10))
    assert ("RLE_DICTIONARY" in file.metadata.row_group(0).column(2).encodings) is encoded


def test_columns_that_hardly_repeat_get_no_dictionary_at_any_depth() -> None:
    schema = pa.schema(
        [
            ("id", pa.string()),
            ("kind", pa.string()),
            ("place", pa.struct([("name", pa.string()), ("street.number", pa.int64())])),
            ("tags", pa.list_(pa.struct([("tag", pa.string()), ("at", pa.int64())]))),
            ("nothing", pa.string()),
        ]
    )
    rows = [
        {
            "id": f"id {number}",
            "kind": f"kind {number % 7}",
            "place": {"name": f"place {number % 50}", "street.number": number},
            "tags": [{"tag": "a", "at": 2 * number}, {"tag": "b", "at": 2 * number + 1}],
        }
        for number in range(5000)
    ]
    sink = io.BytesIO()
    file = ParquetFile(sink, schema, ParquetOptions())
    file.write(pa.RecordBatch.from_pylist(rows, schema=schema))
    assert file.close().rows == 5000
    columns = [pq.ParquetFile(sink).metadata.row_group(0).column(index) for index in range(7)]
    encoded = {column.path_in_schema for column in columns if "RLE_DICTIONARY" in column.encodings}
    assert encoded == {"kind", "place.name", "tags.list.element.tag", "nothing"}
    assert pq.read_table(sink).to_pylist() == [{**row, "nothing": None} for row in rows]


def test_a_column_falls_back_from_its_dictionary_when_that_outgrows_its_page() -> None:
    rows = batch([ROWS[1] | {"text": f"{number:0100}"} for number in range(3000)] * 2)
    small, large = (
        written(ParquetOptions(dictionary_page_bytes=size), rows).metadata.row_group(0).column(2).total_uncompressed_size
        for size in (1000, 1_000_000)
    )
    assert small > large


def test_small_pages_make_a_column_longer() -> None:
    rows = batch([ROWS[1] | {"whole": number} for number in range(10_000)])
    large, small = (
        written(ParquetOptions(page_bytes=size, dictionary=False), rows).metadata.row_group(0).column(4).total_uncompressed_size
        for size in (1_000_000, 1000)
    )
    assert small > large


def test_times_can_be_stored_as_plain_integers_at_any_depth() -> None:
    file = written(ParquetOptions(encodings=Encodings(time=TimeEncoding.INT64)), batch(ROWS))
    assert not [field for field in file.schema_arrow if "time64" in str(field.type)]
    first = file.read().to_pylist()[0]
    assert (first["clock"], first["list"], first["union"]["time_with_timezone"]) == (86_399_999_999, [3_600_000_000, None], None)
    assert file.read().cast(SCHEMA).to_pylist() == ROWS


def test_the_stored_schema_keeps_names_and_nullability() -> None:
    stored = stored_schema(SCHEMA, Encodings(time=TimeEncoding.INT64))
    assert stored.names == SCHEMA.names
    assert [field.nullable for field in stored] == [field.nullable for field in SCHEMA]
    assert stored_schema(SCHEMA, Encodings()) is SCHEMA


def test_a_batch_may_differ_in_nullability_only() -> None:
    nullable = pa.schema([field.with_nullable(True) for field in SCHEMA])
    rows = pa.RecordBatch.from_pylist(ROWS, schema=nullable)
    assert written(ParquetOptions(), rows, batch(ROWS)).read().to_pylist() == ROWS * 2


def test_a_batch_with_other_columns_is_refused() -> None:
    file = ParquetFile(io.BytesIO(), SCHEMA, ParquetOptions())
    with pytest.raises(pa.ArrowInvalid, match="not those of its file"):
        file.write(batch(ROWS).select(["text"]))
    with pytest.raises(pa.ArrowInvalid, match="not those of its file"):
        file.write(batch(ROWS).set_column(2, "text", pa.array([1, 2])))
    file.abandon()


def test_a_null_in_a_meta_column_is_refused() -> None:
    file = ParquetFile(io.BytesIO(), SCHEMA, ParquetOptions())
    file.write(batch([ROWS[0] | {"_airbyte_raw_id": None}]))
    with pytest.raises(pa.ArrowInvalid, match="_airbyte_raw_id"):
        file.close()
    file.abandon()


def test_the_sink_stays_open_and_an_abandoned_file_writes_no_more() -> None:
    sink = io.BytesIO()
    file = ParquetFile(sink, SCHEMA, ParquetOptions(row_group_bytes=1))
    file.write(batch(ROWS))
    before = sink.getvalue()
    file.abandon()
    del file
    gc.collect()
    assert sink.getvalue() == before
    assert not sink.closed


class OnlyWrites:
    """The least a sink can be."""

    def __init__(self) -> None:
        self.chunks: list[bytes] = []

    def write(self, data: bytes) -> int:
        self.chunks.append(bytes(data))
        return len(data)


def test_a_sink_needs_only_write() -> None:
    sink = OnlyWrites()
    file = ParquetFile(sink, SCHEMA, ParquetOptions())  # type: ignore[arg-type]
    file.write(batch(ROWS))
    file.close()
    assert pq.read_table(io.BytesIO(b"".join(sink.chunks))).to_pylist() == ROWS


def test_an_error_of_the_sink_reaches_the_caller() -> None:
    class Broken(OnlyWrites):
        def write(self, data: bytes) -> int:
            if self.chunks:
                raise ConnectionError("part 2 was refused")
            return super().write(data)

    file = ParquetFile(Broken(), SCHEMA, ParquetOptions(row_group_bytes=1))  # type: ignore[arg-type]
    with pytest.raises(ConnectionError, match="part 2"):
        file.write(batch(ROWS))
    file.abandon()


def test_duckdb_and_polars_read_the_values(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    with path.open("wb") as sink:
        file = ParquetFile(sink, SCHEMA, ParquetOptions(codec=ParquetCodec.ZSTD))
        file.write(batch(ROWS))
        file.close()
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        row = connection.execute(
            'SELECT whole, day, epoch_us(moment), epoch_us(clock), "list"[1]::VARCHAR, "union".integer FROM read_parquet(?)',
            [str(path)],
        ).fetchone()
    assert row == (2**63 - 1, date(1, 1, 1), int(NOON.timestamp() * 1_000_000), 86_399_999_999, "01:00:00+00", 1)
    frame = pl.read_parquet(path)
    assert frame.schema["moment"] == pl.Datetime("us", "UTC")
    assert frame.schema["_airbyte_extracted_at"] == pl.Datetime("ms", "UTC")
    assert frame.row(0, named=True)["moment"] == NOON
    assert frame.row(0, named=True)["clock"] == time(23, 59, 59, 999999)
    assert frame.row(1, named=True)["union"] is None

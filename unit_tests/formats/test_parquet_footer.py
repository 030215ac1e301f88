"""Parquet files joined by copying their pages: what readers see of them."""

from __future__ import annotations

import io
import random
from contextlib import suppress
from datetime import UTC, date, datetime, time
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from destination_s3_spark.formats.parquet_footer import (
    DamagedFooter,
    Footer,
    footer_bytes,
    joinable,
    joined_footer,
    narrowed_footer,
    narrowed_pages_end,
    read_footer,
)
from unit_tests.cases import each
from unit_tests.sampling import examples

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("text", pa.string()),
        pa.field("number", pa.float64()),
        pa.field("flag", pa.bool_()),
        pa.field("day", pa.date32()),
        pa.field("at", pa.timestamp("us", "UTC")),
        pa.field("clock", pa.time64("us")),
        pa.field("place", pa.struct([("city", pa.string()), ("tags", pa.list_(pa.string()))])),
    ]
)
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "id": st.integers(-(2**63), 2**63 - 1),
            "text": st.none() | st.text(max_size=20),
            "number": st.none() | st.floats(allow_nan=False),
            "flag": st.none() | st.booleans(),
            "day": st.none() | st.dates(date(1900, 1, 1)),
            "at": st.none() | st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1)).map(lambda at: at.replace(tzinfo=UTC)),
            "clock": st.none() | st.times(time(0), time(23, 59)),
            "place": st.none()
            | st.fixed_dictionaries(
                {"city": st.none() | st.text(max_size=5), "tags": st.none() | st.lists(st.text(max_size=3), max_size=2)}
            ),
        }
    ),
    max_size=20,
)


def written(rows: list[dict[str, Any]], **options: Any) -> bytes:
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, SCHEMA, version="2.6", **options) as writer:
        for start in range(0, len(rows), 7):
            writer.write_table(pa.Table.from_pylist(rows[start : start + 7], SCHEMA))
        writer.add_key_value_metadata({"table": "users"})
    return sink.getvalue()


def footer(file: bytes) -> Footer:
    return read_footer(file[-footer_bytes(file) :], len(file))


def joined(files: list[bytes]) -> bytes:
    footers = [footer(file) for file in files]
    assert joinable(footers)
    pages = [file[4 if number else 0 : found.pages_end] for number, (file, found) in enumerate(zip(files, footers, strict=True))]
    return b"".join(pages) + joined_footer(footers)


@examples(60)
@given(st.lists(ROWS, min_size=1, max_size=4), st.sampled_from(["none", "snappy", "zstd"]), st.booleans(), st.booleans())
def test_joined_files_have_the_rows_of_all(files: list[Any], compression: str, dictionary: bool, index: bool) -> None:
    made = joined([written(rows, compression=compression, use_dictionary=dictionary, write_page_index=index) for rows in files])
    expected = pa.Table.from_pylist([row for rows in files for row in rows], SCHEMA)
    file = pq.ParquetFile(io.BytesIO(made))
    assert file.read().equals(expected)
    assert file.metadata.num_rows == len(expected)
    assert file.metadata.metadata[b"table"] == b"users"
    assert pl.read_parquet(made).to_arrow().select(["id"]).cast(pa.schema([SCHEMA.field("id")])).equals(expected.select(["id"]))


@examples(40)
@given(ROWS, st.sampled_from(["none", "snappy", "zstd"]), st.booleans(), st.integers(1, len(SCHEMA)))
def test_a_file_without_its_last_columns_has_the_rows_of_the_others(rows: Any, compression: str, dictionary: bool, columns: int) -> None:
    file, schema, sink = written(rows, compression=compression, use_dictionary=dictionary), pa.schema(list(SCHEMA)[:columns]), io.BytesIO()
    pq.write_table(schema.empty_table(), sink)
    of_file, empty = footer(file), footer(sink.getvalue())
    pages_end = narrowed_pages_end(of_file, empty)
    narrow = file[:pages_end] + narrowed_footer(of_file, empty)
    expected = pa.Table.from_pylist(rows, SCHEMA).select(schema.names)
    read = pq.ParquetFile(io.BytesIO(narrow))
    assert read.schema_arrow.equals(schema)
    assert read.read().equals(expected)
    assert read.metadata.metadata[b"table"] == b"users"
    assert pl.read_parquet(narrow).columns == schema.names
    for group in range(read.metadata.num_row_groups):
        chunks = [read.metadata.row_group(group).column(number) for number in range(read.metadata.num_columns)]
        assert read.metadata.row_group(group).total_byte_size == sum(chunk.total_uncompressed_size for chunk in chunks)
    if rows:
        first = chunks[-1].dictionary_page_offset or chunks[-1].data_page_offset
        assert pages_end == first + chunks[-1].total_compressed_size


def test_statistics_still_belong_to_their_row_groups(tmp_path: Any) -> None:
    files = [written([{"id": file * 100 + row, "text": f"row {row}"} for row in range(20)]) for file in range(5)]
    path = tmp_path / "joined.parquet"
    path.write_bytes(joined(files))
    metadata = pq.read_metadata(path)
    assert metadata.num_row_groups == 15
    for group in range(15):
        assert metadata.row_group(group).column(0).statistics.min == group // 3 * 100 + group % 3 * 7
    found = duckdb.sql(f"SELECT count(*), min(text) FROM '{path}' WHERE id BETWEEN 305 AND 405")
    assert found is not None
    assert found.fetchall() == [(21, "row 0")]
    assert pl.scan_parquet(path).filter(pl.col("id") == 219).select("text").collect().item() == "row 19"


def test_one_file_is_rewritten_to_itself() -> None:
    file = written([{"id": 1}])
    assert joined([file]) == file


def test_files_that_differ_are_not_joined() -> None:
    sink = io.BytesIO()
    pq.write_table(pa.table({"id": [1]}), sink)
    assert not joinable([footer(written([])), footer(sink.getvalue())])


def test_what_is_no_parquet_is_refused() -> None:
    with pytest.raises(DamagedFooter, match="does not end like a Parquet file"):
        footer_bytes(b"something else")


def footer_of_nothing() -> bytes:
    """The least that a footer can be: its length and the magic number."""
    return bytes(4) + b"PAR1"


@each("seed", range(300))
def test_a_damaged_footer_is_refused_or_read(seed: int) -> None:
    """Whatever its bytes are, it ends in no other error."""
    chosen = random.Random(seed)
    file = written([{"id": number, "text": "x"} for number in range(20)])
    start = len(file) - footer_bytes(file)
    damaged = bytearray(file)
    for _ in range(chosen.choice((1, 3, 30))):
        damaged[chosen.randrange(start, len(file) - 4)] = chosen.randrange(256)
    tail = bytes(damaged[chosen.choice((0, start, len(file) - chosen.randrange(4, 200))) :])
    with suppress(DamagedFooter):
        found = read_footer(tail, len(file))
        assert len(joined_footer([found, found])) > len(footer_of_nothing())


@each("kind", [3, 8, 12])
def test_a_position_that_is_no_integer(kind: int) -> None:
    file = written([{"id": 1, "text": "x"}])
    footer = read_footer(file, len(file))
    (group,) = footer.fields[4].value[1]
    for chunk in group[1].value[1]:
        chunk[2] = type(group[1])(kind, 200)
    with pytest.raises(DamagedFooter, match="row groups lack"):
        joined_footer([footer, footer])


def test_more_items_than_bytes() -> None:
    structs = b"\x29\xfc\xff\xff\xff\xff\x07" + bytes(9)
    with pytest.raises(DamagedFooter, match="cannot be decoded"):
        read_footer(structs + len(structs).to_bytes(4, "little") + b"PAR1", 10**9)

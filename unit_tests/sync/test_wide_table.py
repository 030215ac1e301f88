"""The files are plain Parquet: pyarrow, DuckDB and Polars read the same rows out of them."""

from __future__ import annotations

import json
from collections.abc import Callable

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from unit_tests.lake.contents import USERS
from unit_tests.lake.lake import Lake
from unit_tests.lake.messages import EMITTED_AT_MS
from unit_tests.lake.outcome import BUCKET_PATH
from unit_tests.lake.table_readers import META_COLUMNS, Row, by_raw_id, read_duckdb, read_polars, read_pyarrow
from unit_tests.sync.wide_table import BROKEN, FULL, write_wide_table

EXPECTED_FULL = {
    "id": 1, "text": 'é\n\u0000"', "flag": True, "ratio": 0.1, "day": -1, "moment": 1_709_243_999_123_456, "local": 1_709_251_199_000_000,
    "clock": 1_800_000_000, "wall_clock": 84_600_500_000, "address": {"number": 5, "street": "High St"}, "tags": ["a", None, ""],
    "lines": [{"count": 2, "sku": "s"}, {"count": None, "sku": None}], "anything": '{"k":[1,2.5]}',
}  # fmt: skip


@pytest.fixture(scope="module")
def wide_table(make_lake: Callable[[], Lake]) -> Lake:
    lake = make_lake()
    write_wide_table(lake)
    return lake


def rows_by_id(rows: list[Row]) -> dict[int, Row]:
    return {row["id"]: row for row in rows}


def test_three_engines_read_the_same_rows(wide_table: Lake) -> None:
    paths = wide_table.final_files()
    expected = by_raw_id([{"added": None, **row} for row in read_pyarrow(paths)])
    assert len(expected) == 4
    for read in (read_duckdb, read_polars):
        assert by_raw_id(read(paths)) == expected, read


def test_values_arrive_typed(wide_table: Lake) -> None:
    row = rows_by_id(wide_table.rows())[1]
    assert {name: row[name] for name in EXPECTED_FULL} == EXPECTED_FULL
    assert row["either"] == {"type": "string", "integer": None, "string": "six"}
    assert row["_airbyte_extracted_at"] == EMITTED_AT_MS * 1000
    assert row["_airbyte_meta"] == {"sync_id": 7, "changes": []}


def test_values_that_do_not_fit_are_null_and_noted(wide_table: Lake) -> None:
    row = rows_by_id(wide_table.rows())[2]
    lost = {"flag", "ratio", "day", "moment", "address", "tags"}
    assert {name: row[name] for name in lost} == dict.fromkeys(lost)
    assert row["either"] == {"type": "integer", "integer": 6, "string": None}
    notes = {change["field"]: (change["change"], change["reason"]) for change in row["_airbyte_meta"]["changes"]}
    too_large, unfit = ("NULLED", "DESTINATION_FIELD_SIZE_LIMITATION"), ("NULLED", "DESTINATION_SERIALIZATION_ERROR")
    assert notes == {**dict.fromkeys(lost, unfit), "ratio": too_large, "lines.[0].count": unfit}


def test_the_raw_table_holds_the_exact_text(wide_table: Lake) -> None:
    raw = {json.loads(row["_airbyte_data"])["id"]: row for row in wide_table.raw_rows()}
    assert list(raw[1]) == [*META_COLUMNS, "_airbyte_data"]
    assert '"k":[1,2.5]' in raw[1]["_airbyte_data"]
    assert json.loads(raw[1]["_airbyte_data"]) == FULL
    assert json.loads(raw[2]["_airbyte_data"]) == BROKEN
    typed = rows_by_id(wide_table.rows())
    assert {number: row["_airbyte_raw_id"] for number, row in raw.items()} == {
        number: row["_airbyte_raw_id"] for number, row in typed.items()
    }


def test_a_new_column_comes_last_and_old_files_stay_as_they_are(wide_table: Lake) -> None:
    chain = wide_table.chains()[USERS]
    old, new = (list(schema.names) for schema in chain.schemas.values())
    assert new == [*old, "added"]
    assert old[:5] == [*META_COLUMNS, "id"], "required columns come first"
    assert old[5:] == sorted(old[5:])


def test_the_default_layout_is_the_one_of_destination_s3(wide_table: Lake) -> None:
    key = wide_table.chains()[USERS].final_keys[0]
    folder, _, name = key.rpartition("/")
    assert folder == f"{BUCKET_PATH}/shop/users"
    year, month, day, epoch, rest = name.split("_", 4)
    assert (len(year), len(month), len(day), len(epoch)) == (4, 2, 2, 13)
    assert rest.endswith(".parquet")
    head = wide_table.bucket.server.client().head_object(Bucket=wide_table.bucket.name, Key=key)
    assert head["Metadata"]["ab-generation-id"] == "1"


def test_files_say_in_their_parquet_types_what_they_hold(wide_table: Lake) -> None:
    schema = pq.read_schema(wide_table.final_files()[0])
    assert schema.field("_airbyte_extracted_at").type == pa.timestamp("ms", "UTC")
    assert schema.field("moment").type == pa.timestamp("us", "UTC")
    assert schema.field("day").type == pa.date32()
    assert schema.field("clock").type == pa.time64("us")
    assert schema.field("id").type == pa.int64()

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from datetime import time
from typing import Any

import duckdb
import polars
import pyarrow as pa
import pytest
from msgspec.structs import replace

from destination_s3_spark import tables
from destination_s3_spark.chain.events import AddData, OffsetInterval, ReplaceData
from destination_s3_spark.chain.files import FileKind
from destination_s3_spark.chain.log import Chain
from destination_s3_spark.chain.state import Checkpoint
from destination_s3_spark.errors import ConfigError
from destination_s3_spark.formats.file_statistics import KeyRange
from destination_s3_spark.schema.arrow import RAW_SCHEMA
from unit_tests.lake.memory_client import bucket_of

ID = [("id", pa.int64())]
CSV = {"format": {"format_type": "CSV"}}


@pytest.fixture
def table(make_table: Callable[..., Any]) -> Any:
    return make_table()


def ids(dataset: Any) -> list[int]:
    return sorted(dataset.to_table()["id"].to_pylist())


def append(table: Any, writer: Any, *numbers: int) -> Any:
    schema = table.set_schema(writer, 0, ID)
    rows = table.rows(schema, *({"id": number} for number in numbers))
    files = table.stage(writer, FileKind.FINAL, rows), table.stage(writer, FileKind.RAW, rows)
    table.commit(writer, *files)
    return files


def chain(table: Any) -> Chain:
    found = Chain(table.store, table.table)
    found.catch_up()
    return found


def test_a_table_comes_as_the_newest_commit_left_it(table: Any) -> None:
    writer = table.writer()
    append(table, writer, 1, 2)
    append(table, writer, 3)

    dataset = tables.read(table.config(), "users", "shop")

    assert ids(dataset) == [1, 2, 3]
    assert dataset.count_rows() == 3
    assert dataset.schema.names == ["_airbyte_raw_id", "_airbyte_extracted_at", "_airbyte_meta", "_airbyte_generation_id", "id"]


def test_the_package_hands_out_tables_without_another_import() -> None:
    program = "import destination_s3_spark; destination_s3_spark.tables.read"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_duckdb_and_polars_scan_it(table: Any) -> None:
    writer = table.writer()
    append(table, writer, 1, 2, 3)
    users = tables.read(table.config(), "users", "shop")

    assert duckdb.execute("select sum(id) from users where id > 1").fetchall() == [(5,)]
    assert polars.scan_pyarrow_dataset(users).filter(polars.col("id") > 1).select("id").collect()["id"].to_list() == [2, 3]


def test_a_stream_without_a_namespace(make_table: Callable[..., Any]) -> None:
    table = make_table(None, "users")
    append(table, table.writer(), 7)

    assert ids(tables.read(table.config(), "users")) == [7]
    assert ids(tables.read(table.config(), "users", "")) == [7]


def test_files_of_older_schemas_have_nulls_in_what_came_later_also_inside_records(table: Any) -> None:
    writer = table.writer()
    old = table.set_schema(writer, 0, [("id", pa.int64()), ("address", pa.struct([("street", pa.string())]))])
    table.commit(writer, table.stage(writer, FileKind.FINAL, table.rows(old, {"id": 1, "address": {"street": "High St"}})))
    lines = pa.list_(pa.struct([("sku", pa.string())]))
    address = pa.struct([("city", pa.string()), ("street", pa.string())])
    new = table.set_schema(writer, 1, [("id", pa.int64()), ("address", address), ("lines", lines)])
    newer = {"id": 2, "address": {"city": "Ulm", "street": "Am See"}, "lines": [{"sku": "x"}]}
    table.commit(writer, table.stage(writer, FileKind.FINAL, table.rows(new, newer)))

    dataset = tables.read(table.config(), "users", "shop")

    assert dataset.schema == new
    assert dataset.to_table(columns=["id", "address", "lines"]).sort_by("id").to_pylist() == [
        {"id": 1, "address": {"city": None, "street": "High St"}, "lines": None},
        newer,
    ]
    assert dataset.to_table(columns={"city": pa.compute.field("address", "city")})["city"].to_pylist() == [None, "Ulm"]


def test_times_kept_as_integers_come_as_times(table: Any) -> None:
    writer = table.writer()
    schema = table.set_schema(writer, 0, [("at", pa.time64("us"))])
    rows = table.rows(schema, {"at": time(1, 2, 3)}, {"at": None})
    encoded = rows.set_column(4, "at", rows["at"].cast(pa.int64()))
    table.commit(writer, table.stage(writer, FileKind.FINAL, encoded))

    assert tables.read(table.config(), "users", "shop").to_table()["at"].to_pylist() == [time(1, 2, 3), None]


def test_a_block_whose_files_are_not_all_there_does_not_count(table: Any) -> None:
    writer = table.writer()
    append(table, writer, 1)
    schema = table.set_schema(writer, 0, ID)
    files = [table.stage(writer, FileKind.FINAL, table.rows(schema, {"id": number})) for number in (2, 3)]
    interval = OffsetInterval(1, 2)
    other = chain(table)
    other.mark_settled()
    other.append(AddData(0, 1, 0, 0, interval, tuple(files), (Checkpoint("later", 2, "00", 0),)))
    table.store.complete_upload(files[0].upload)

    assert ids(tables.read(table.config(), "users", "shop")) == [1]

    table.store.complete_upload(files[1].upload)
    assert ids(tables.read(table.config(), "users", "shop")) == [1, 2, 3]


def test_a_replacement_counts_once_its_files_are_there_and_not_before(table: Any) -> None:
    writer = table.writer()
    append(table, writer, 1, 2)
    schema = table.set_schema(writer, 0, ID)
    new = table.stage(writer, FileKind.FINAL, table.rows(schema, {"id": 9}))
    removed = writer.live_files().of(FileKind.FINAL)
    other = chain(table)
    other.mark_settled()
    other.append(ReplaceData(0, 1, 0, (new,), removed))

    assert ids(tables.read(table.config(), "users", "shop")) == [1, 2]

    table.store.complete_upload(new.upload)
    table.store.delete([file.key for file in removed])
    assert ids(tables.read(table.config(), "users", "shop")) == [9]


def test_a_table_on_its_way_to_other_types_is_read_with_those_its_files_have(table: Any) -> None:
    writer = table.writer()
    append(table, writer, 1)
    table.set_schema(writer, 1, [("id", pa.struct([("text", pa.string())]))], retyped=["id"])

    dataset = tables.read(table.config(), "users", "shop")

    assert dataset.schema.field("id").type == pa.int64()
    assert ids(dataset) == [1]


def keys(first: str, last: str) -> KeyRange:
    return KeyRange(first, last, "cafe")


def test_a_deduplicated_text_table_is_read_from_its_merge_state(table: Any) -> None:
    writer = table.writer()
    table.set_schema(writer, 0, ID)
    state_schema = RAW_SCHEMA.append(pa.field("_airbyte_key", pa.binary()))
    rows = table.rows(state_schema, {"_airbyte_data": '{"id":1.50}', "_airbyte_key": b"1"})
    final = table.stage(writer, FileKind.FINAL, b"id\n1.50\n", ".csv")
    writer.merge([final, replace(table.stage(writer, FileKind.STATE, rows, keys=keys("01", "02")), copy_of=final.key)], [], None)

    dataset = tables.read(table.config(**CSV), "users", "shop")

    assert dataset.schema == RAW_SCHEMA
    assert dataset.to_table()["_airbyte_data"].to_pylist() == ['{"id":1.50}']


def test_a_deduplicated_avro_table_is_read_typed(table: Any) -> None:
    writer = table.writer()
    schema = table.set_schema(writer, 0, ID)
    final = table.stage(writer, FileKind.FINAL, b"Obj", ".avro")
    state = table.stage(writer, FileKind.STATE, table.rows(schema, {"id": 4}), keys=keys("01", "02"))
    writer.merge([final, replace(state, copy_of=final.key)], [], None)

    assert ids(
        tables.read(table.config(format={"format_type": "Avro", "compression_codec": {"codec": "no compression"}}), "users", "shop")
    ) == [4]


@pytest.mark.parametrize("extension", [".csv", ".csv.gz", ".jsonl", ".avro", ""])
def test_append_tables_of_other_formats_say_what_to_read_instead(table: Any, extension: str) -> None:
    writer = table.writer()
    table.set_schema(writer, 0, ID)
    table.commit(writer, table.stage(writer, FileKind.FINAL, b"x", extension))

    with pytest.raises(ConfigError, match=rf"Read the files under s3://{table.settings.bucket}/lake/shop/users/ with a reader of"):
        tables.read(table.config(**CSV), "users", "shop")


def test_an_unknown_stream_is_an_error_that_says_where_it_was_looked_for(table: Any) -> None:
    append(table, table.writer(), 1)

    with pytest.raises(ConfigError, match=r"no table of stream 'shop\.user' at s3://.*/lake/airbyte_internal/shop_raw__stream_user/"):
        tables.read(table.config(), "user", "shop")


def test_a_table_without_rows_has_its_columns(table: Any) -> None:
    writer = table.writer()
    schema = table.set_schema(writer, 0, ID)
    writer.close()

    dataset = tables.read(table.config(), "users", "shop")

    assert dataset.schema == schema
    assert dataset.count_rows() == 0


def test_reading_writes_nothing(table: Any) -> None:
    append(table, table.writer(), 1)
    before = {found.key: table.store.get(found.key) for found in table.store.list("")}

    tables.read(table.config(), "users", "shop").to_table()

    assert {found.key: table.store.get(found.key) for found in table.store.list("")} == before


def test_a_table_at_rest_is_opened_with_two_calls(table: Any) -> None:
    writer = table.writer()
    append(table, writer, 1, 2)
    writer.close()

    memory = bucket_of(table.settings)
    memory.forget()
    tables.read(table.config(), "users", "shop")

    assert memory.actions() == ["GetObject", "GetObject"]


def test_a_file_that_a_later_merge_deleted_is_not_found(table: Any) -> None:
    writer = table.writer()
    append(table, writer, 1)
    dataset = tables.read(table.config(), "users", "shop")
    table.store.delete([file.key for file in writer.live_files().files])

    with pytest.raises(OSError, match=r"NO_SUCH_KEY|RESOURCE_NOT_FOUND"):
        dataset.to_table()

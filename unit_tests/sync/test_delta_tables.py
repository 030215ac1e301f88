"""Delta tables after whole syncs: every reader has the rows of the chain, values and filters, after each kind of change."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from destination_s3_spark.errors import ConfigError, SyncError
from destination_s3_spark.storage.client import s3_client
from destination_s3_spark.storage.settings import S3Settings
from unit_tests.lake.messages import catalog as catalog_of
from unit_tests.lake.messages import stream
from unit_tests.sampling import examples
from unit_tests.sync.delta_lake import DATE, PROPERTIES, ROOT, DeltaLake, catalog, join_every_third_file, person, sync


@pytest.fixture
def lake(s3_settings: S3Settings, tmp_path: Path) -> DeltaLake:
    return DeltaLake(s3_settings, tmp_path, options={"publish": {"delta": True}})


def test_appends(lake: DeltaLake) -> None:
    sync(lake, catalog(), map(person, range(7)))
    sync(lake, catalog(), map(person, range(7, 20)), emitted_at=1_700_000_100_456)

    assert [row["id"] for row in sorted(lake.check(), key=lambda row: row["id"])] == list(range(20))


def test_merges_deletions_and_refreshes(lake: DeltaLake) -> None:
    properties = {**PROPERTIES, "_ab_cdc_deleted_at": {"type": "string"}}
    sync(lake, catalog(properties, "append_dedup"), map(person, range(10)))
    assert len(lake.check(filters=False)) == 10
    changed = [person(3, name="new"), person(12), {"id": 5, "_ab_cdc_deleted_at": "2026-01-01"}]
    sync(lake, catalog(properties, "append_dedup"), changed, emitted_at=1_700_000_200_000)
    assert {row["id"]: row["name"] for row in lake.check()}[3] == "new"
    assert lake.readers().values() == [0, 1, 2, 3, 4, 6, 7, 8, 9, 12]

    sync(lake, catalog(properties, "append_dedup", 2, 2), map(person, range(3)))
    assert len(lake.check()) == 3
    sync(lake, catalog(properties, "append_dedup", 3, 3), [])
    assert lake.check() == []


@pytest.mark.parametrize("mode", ["append", "append_dedup"])
def test_decimals_and_their_nulls(lake: DeltaLake, mode: str) -> None:
    named = [{"stream": "users", "column": column, "precision": 12, "scale": 2} for column in ("price", "later")]
    lake.options = {**lake.options, "tables": {"decimal_columns": named}}
    sync(lake, catalog(mode=mode), map(person, range(10)))
    sync(lake, catalog({**PROPERTIES, "later": {"type": "number"}}, mode), [person(number, later=0.1) for number in range(10, 20)])

    rows = lake.check()
    assert {str(row["price"]) for row in rows} >= {"-3.00", "-1.50", "24.00", "None"}
    dataset = lake.readers().table().to_pyarrow_dataset()
    for column in ("price", "later"):
        nulls = sum(row[column] is None for row in rows)
        assert 0 < nulls < 20
        assert dataset.to_table(filter=pc.field(column).is_null()).num_rows == nulls


def test_an_overwriting_refresh_of_appended_rows(lake: DeltaLake) -> None:
    sync(lake, catalog(), map(person, range(10)))
    sync(lake, catalog(generation=2, minimum=2), map(person, range(20, 25)))

    assert sorted(row["id"] for row in lake.check()) == list(range(20, 25))


def test_new_columns_and_new_members_at_any_depth(lake: DeltaLake) -> None:
    sync(lake, catalog(), map(person, range(5)))
    address = {"type": "object", "properties": {**PROPERTIES["address"]["properties"], "street": {"type": "string"}}}
    item = PROPERTIES["lines"]["items"]
    lines = {"type": "array", "items": {**item, "properties": {**item["properties"], "note": {"type": "string"}}}}
    properties = {**PROPERTIES, "address": address, "lines": lines, "score": {"type": "number"}, "since": DATE}
    more = {"score": 1.5, "since": "2026-03-04", "address": {"street": "s", "zip": 7}, "lines": [{"note": "n", "count": 1}]}
    sync(lake, catalog(properties), [person(number, **more) for number in range(5, 9)])

    rows = {row["id"]: row for row in lake.check()}
    assert (rows[0]["score"], rows[5]["score"]) == (None, 1.5)
    assert (rows[0]["address"]["street"], rows[5]["address"]["street"]) == (None, "s")


def test_objects_with_lists_whose_statistics_are_never_complete(lake: DeltaLake) -> None:
    inner = {"type": "object", "properties": {"tags": PROPERTIES["tags"], "n": {"type": "integer"}}}
    order = {"type": "object", "properties": {"total": {"type": "number"}, "lines": PROPERTIES["lines"], "inner": inner}}
    properties = {**PROPERTIES, "order": order}

    def ordered(number: int) -> dict[str, Any]:
        some = {"total": number / 2, "lines": [{"sku": "s"}], "inner": {"tags": ["t"], "n": number} if number % 2 else None}
        return person(number, order=some if number % 3 else None)

    sync(lake, catalog(), map(person, range(3)))
    for start in (3, 9):
        sync(lake, catalog(properties), map(ordered, range(start, start + 6)))

    assert len(lake.check()) == 15


def test_files_from_before_the_option_are_described_by_their_footers(lake: DeltaLake) -> None:
    on, lake.options = lake.options, {}
    for start in (0, 5):
        sync(lake, catalog(), map(person, range(start, start + 5)))
    lake.options = on
    sync(lake, catalog(), map(person, range(10, 15)))

    lake.check()
    adds = lake.readers().table().get_add_actions(flatten=True)
    assert sorted(pa.table(adds)["min.id"].to_pylist()) == [0, 5, 10]


@pytest.mark.parametrize("mode", ["append", "append_dedup"])
@pytest.mark.parametrize("change", ["recover", "rewrite"])
def test_a_column_of_another_type(lake: DeltaLake, mode: str, change: str) -> None:
    lake.options = {**lake.options, "tables": {"schema_change": change}}
    sync(lake, catalog(mode=mode), map(person, range(5)))
    properties = {**PROPERTIES, "price": {"type": "string"}, "zip": {"type": "integer"}}
    sync(lake, catalog(properties, mode), [person(number, price="ten", zip=1) for number in range(5, 9)])

    rows = {row["id"]: row for row in lake.check()}
    assert len(rows) == 9
    assert "ten" in rows[5].values()


def test_while_files_wait_for_another_type_readers_keep_the_old_version(lake: DeltaLake, caplog: pytest.LogCaptureFixture) -> None:
    lake.options = {**lake.options, "tables": {"schema_change": "rewrite", "raw_tables": False}}
    sync(lake, catalog({"id": {"type": "integer"}, "x": {"type": "string"}}), [{"id": 1, "x": "one"}])
    with pytest.raises(SyncError):
        sync(lake, catalog({"id": {"type": "integer"}, "x": {"type": "integer"}}), [{"id": 2, "x": 3}])

    assert lake.readers().values("x") == ["one"]


def test_times_of_day_are_left_out_with_a_warning(lake: DeltaLake, caplog: pytest.LogCaptureFixture) -> None:
    properties = {**PROPERTIES, "clock": {"type": "string", "format": "time"}}
    with caplog.at_level(logging.WARNING, "airbyte"):
        sync(lake, catalog(properties), [person(number, clock="12:34:56") for number in range(3)])
        sync(lake, catalog(properties), [person(number, clock="12:34:56") for number in range(3, 6)])

    assert len(lake.check()) == 6
    said = [record.getMessage() for record in caplog.records if "Delta has no type for a time of day" in record.getMessage()]
    assert said == [
        "table users: Delta has no type for a time of day, so its readers do not see clock. With time_encoding int64 they see microseconds."
    ]


def test_times_of_day_as_integers_are_columns(lake: DeltaLake) -> None:
    lake.format = {"format_type": "Parquet", "time_encoding": "int64"}
    sync(lake, catalog({"id": {"type": "integer"}, "clock": {"type": "string", "format": "time"}}), [{"id": 1, "clock": "00:00:01"}])

    assert lake.readers().values("clock") == [1_000_000]


def test_decimals_are_columns(lake: DeltaLake) -> None:
    lake.options = {**lake.options, "tables": {"declared_decimals": True}}
    properties = {"id": {"type": "integer"}, "price": {"type": "number", "multipleOf": 0.01}}
    sync(lake, catalog(properties), [{"id": 1, "price": 2.5}, {"id": 2}])
    sync(lake, catalog(properties), [{"id": 3, "price": -0.01}])

    assert sorted(row["price"] for row in lake.check() if row["price"] is not None) == [Decimal("-0.01"), Decimal("2.50")]


def test_members_with_times_of_day_are_left_out(lake: DeltaLake) -> None:
    clock = {"type": "string", "format": "time"}
    inner = {"type": "object", "properties": {"t": clock, "n": {"type": "integer"}}}
    only = {"type": "object", "properties": {"t": clock}}
    properties = {"id": {"type": "integer"}, "s": inner, "only": only, "l": {"type": "array", "items": inner}}
    sync(
        lake, catalog(properties), [{"id": 1, "s": {"t": "01:00:00", "n": 2}, "only": {"t": "01:00:00"}, "l": [{"t": "01:00:00", "n": 3}]}]
    )

    readers = lake.readers()
    for table in (readers.table().to_pyarrow_table(), readers.polars().collect().to_arrow()):
        (row,) = table.to_pylist()
        assert (row["s"], row["l"], "only" in row) == ({"n": 2}, [{"n": 3}], False)


def test_files_of_destination_s3_are_part_of_it(lake: DeltaLake) -> None:
    sync(lake, catalog(), map(person, range(4)))
    (body,) = [body for body in lake.files(".parquet") if len(pq.read_table(pa.BufferReader(body))) == 4]
    client = s3_client(lake.settings)
    for key in [found.key for found in lake.store.list("lake/")]:
        client.delete_object(Bucket=lake.settings.bucket, Key=key)
    old = f"{ROOT}2026_01_01_1700000000000_0.parquet"
    client.put_object(Bucket=lake.settings.bucket, Key=old, Body=body, Metadata={"ab-generation-id": "1"})
    for start in range(4, 64, 5):
        sync(lake, catalog(), map(person, range(start, start + 5)))

    assert len(lake.check(filters=False)) == 64
    assert sorted(row["id"] for row in lake.check()) == list(range(64))


@pytest.mark.parametrize(
    ("column", "value", "said"),
    [
        ("name", 7, "is string in the table and int64"),
        ("address", {"city": "Ulm", "zip": "89073"}, r"is struct<.*zip: int64.*> in the table and struct<.*zip: string>"),
        ("lines", [{"sku": "a", "count": "2"}], r"is list<.*count: int64.*> in the table and list<.*count: string.*>"),
    ],
)
def test_files_of_destination_s3_with_another_type_are_refused(
    lake: DeltaLake, caplog: pytest.LogCaptureFixture, column: str, value: object, said: str
) -> None:
    body, old = pa.BufferOutputStream(), f"{ROOT}2026_01_01_1700000000000_0.parquet"
    pq.write_table(pa.table({"id": [1], column: [value]}), body)
    lake.store.put(old, body.getvalue().to_pybytes(), {"ab-generation-id": "0"})
    sync(lake, catalog(), [person(2)])

    assert re.search(rf"the column '{column}' {said} in '{re.escape(old)}', which an earlier connector wrote", caplog.text)
    assert not any("_delta_log" in found.key for found in lake.store.list(ROOT))
    sync(lake, catalog(generation=2, minimum=2), [person(3)])
    assert [row["id"] for row in lake.check()] == [3]


def test_a_key_that_not_every_reader_finds_is_refused(lake: DeltaLake, caplog: pytest.LogCaptureFixture) -> None:
    lake.options = {**lake.options, "file_name_pattern": "file ü {part_number}"}
    sync(lake, catalog(), map(person, range(4)))

    assert "has characters that not every Delta reader finds. Change file_name_pattern" in caplog.text
    assert not any("_delta_log" in found.key for found in lake.store.list(ROOT))


def test_another_format_is_a_config_error(lake: DeltaLake) -> None:
    lake.format = {"format_type": "CSV"}
    with pytest.raises(ConfigError, match=r"publish\.delta is on, but the format is CSV"):
        sync(lake, catalog(), [])


def test_a_shared_folder_is_a_config_error(lake: DeltaLake) -> None:
    lake.options = {**lake.options, "s3_path_format": "all/"}
    streams = catalog_of(stream(), stream("orders"))
    with pytest.raises(ConfigError, match=r"stream 'orders' and stream 'users' overlap.*switch publish\.delta off"):
        lake.sync(streams, [])


def test_files_of_two_formats_keep_the_old_version(lake: DeltaLake, caplog: pytest.LogCaptureFixture) -> None:
    lake.format, lake.options = {"format_type": "JSONL"}, {}
    sync(lake, catalog({"id": {"type": "integer"}}), [{"id": 1}])
    lake.format, lake.options = {"format_type": "Parquet"}, {"publish": {"delta": True}}
    sync(lake, catalog({"id": {"type": "integer"}}), [{"id": 2}])
    said = [text for text in caplog.messages if "is not a Parquet file. A refresh of the stream replaces" in text]
    assert [any(readers in text for text in said) for readers in ("Delta readers", "readers of its manifest")] == [True, True]
    assert not [found for found in lake.store.list(ROOT) if found.key.endswith("manifest")]

    sync(lake, catalog({"id": {"type": "integer"}}, generation=2, minimum=2), [{"id": 3}])
    assert lake.readers().values() == [3]


WIDE = {**PROPERTIES, "score": {"type": "number"}, "since": DATE}
OTHER_TYPES = {**WIDE, "price": {"type": "string"}, "flag": {"type": "integer"}}
STEPS = st.sampled_from(["rows", "wide rows", "other types", "changes", "refresh", "idle", "without Delta", "rebuild", "repair"])


@pytest.mark.parametrize("mode", ["append", "append_dedup"])
@settings(examples(8), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(STEPS, min_size=2, max_size=6))
def test_any_history_reads_like_the_chain(
    mode: str, steps: list[str], make_bucket: Callable[[], S3Settings], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    join_every_third_file(monkeypatch)
    lake, properties, generation, start = DeltaLake(make_bucket(), tmp_path / uuid4().hex), PROPERTIES, 1, 0
    for number, step in enumerate(steps):
        lake.options = {"publish": {"delta": step != "without Delta"}}
        if step in {"rebuild", "repair"}:
            if start:
                lake.rebuild() if step == "rebuild" else lake.repair()
                lake.check(filters=False)
            continue
        properties = {"wide rows": WIDE, "other types": OTHER_TYPES}.get(step, properties)
        generation += step == "refresh"
        first = {"changes": max(0, start - 4), "idle": start}.get(step, start)
        people = [] if step == "idle" else [person(one, name=f"step {number}") for one in range(first, start + 3)]
        start += 0 if step == "idle" else 3
        sync(lake, catalog(properties, mode, generation, generation if step == "refresh" else 0), people, 1_700_000_000_000 + number)
        if step != "without Delta" and start:
            lake.check(filters=False)

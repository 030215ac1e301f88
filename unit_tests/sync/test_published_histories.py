"""Histories as tables of their own: what readers see through every publisher after every kind of change, and after crashes."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import boto3
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from destination_s3_spark.chain.files import HISTORY_KINDS, FileKind
from destination_s3_spark.chain.table_store import TableStore
from destination_s3_spark.storage.settings import S3Settings
from destination_s3_spark.stream_id import StreamId
from destination_s3_spark.tables.commit.repair import Repair, repair
from destination_s3_spark.tables.publishers.publication import ShownTable, rivals_of
from unit_tests.lake.lake import Lake
from unit_tests.lake.messages import complete, state
from unit_tests.sampling import sample
from unit_tests.sync.delta_lake import join_every_third_file
from unit_tests.sync.process_ends import ends, ends_at
from unit_tests.sync.versioned_lake import COLUMNS, FIRST, HISTORY, Change, Life, brief, history, refresh, sync, users
from unit_tests.tables.publishers.delta_readers import DeltaReaders
from unit_tests.tables.publishers.iceberg.lake import reader

ROOT = "lake/airbyte_history/users/"
MANIFEST = f"{ROOT}_symlink_format_manifest/manifest"
ENDS_APART = 81
"""With each commit, one end of a process in so many is tried."""
COLUMN_NAMES = ("id", "name", "amount", "_valid_from", "_valid_to", "_is_current", "_is_deleted")


@pytest.fixture
def glue(moto_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("AWS_ENDPOINT_URL_GLUE", moto_endpoint)
    return boto3.client("glue", "us-east-1", endpoint_url=moto_endpoint, aws_access_key_id="k", aws_secret_access_key="s")


@pytest.fixture
def lake(s3_settings: S3Settings, tmp_path: Path) -> Lake:
    iceberg = {"type": "sql", "database_uri": f"sqlite:///{tmp_path}/catalog.db", "catalog_name": "lake"}
    return Lake(s3_settings, tmp_path, options={"tables": HISTORY, "publish": {"delta": True, "iceberg": iceberg}})


def with_glue(lake: Lake, **publish: Any) -> Lake:
    publish = {"glue": {"database": lake.settings.bucket.replace("-", "_")}, **publish}
    return replace(lake, options={**lake.options, "publish": publish})


def plain(rows: Iterable[Mapping[str, Any]]) -> list[tuple[Any, ...]]:
    return sorted((tuple(row[name] for name in COLUMN_NAMES) for row in rows), key=str)


def by_manifest(lake: Lake) -> list[tuple[Any, ...]]:
    return rows_of(lake, [line.removeprefix(f"s3://{lake.settings.bucket}/") for line in lake.store.get(MANIFEST).decode().splitlines()])


def rows_of(lake: Lake, keys: Iterable[str]) -> list[tuple[Any, ...]]:
    return plain(row for key in keys for row in pq.read_table(pa.BufferReader(lake.store.get(key))).to_pylist())


def by_delta(lake: Lake) -> list[tuple[Any, ...]]:
    found = DeltaReaders.of_copy(lake.settings, ROOT, lake.directory)
    rows = plain(found.table().to_pyarrow_table().to_pylist())
    assert plain(found.polars().collect().to_dicts()) == rows
    current = found.table().to_pyarrow_dataset().to_table(filter=pa.compute.field("_is_current") == pa.scalar(True))
    assert plain(current.to_pylist()) == [row for row in rows if row[5]]
    return rows


def by_iceberg(lake: Lake) -> list[tuple[Any, ...]]:
    table = reader(lake.directory, lake.settings).load_table(("default", "users_history"))
    rows = plain(table.scan().to_arrow().to_pylist())
    assert plain(table.scan("_is_current = true").to_arrow().to_pylist()) == [row for row in rows if row[5]]
    assert plain(table.scan("_valid_to is null").to_arrow().to_pylist()) == [row for row in rows if row[5]]
    return rows


def expect_shown(lake: Lake, number: int = 1) -> list[dict[str, Any]]:
    """Every publisher shows the versions of this history, and nothing of the table or another history."""
    rows = history(lake, number)
    assert by_manifest(lake) == by_delta(lake) == by_iceberg(lake) == plain(rows)
    return rows


def repaired(lake: Lake) -> Repair | None:
    factory = lake.factory()
    found = factory.find()
    (table,) = found.tables
    return repair(factory.store, table, factory.publishers(found)[table.stream], factory.orphans(), FIRST)


def test_every_publisher_shows_a_history_after_every_kind_of_change(lake: Lake, caplog: pytest.LogCaptureFixture) -> None:
    a, b = {"name": "a"}, {"name": "b"}
    sync(lake, Change(1, 1, a), Change(1, 2, b), Change(2, 1, a), Change(3, 4, a))
    assert brief(expect_shown(lake)) == [(1, "a", 1, 2), (1, "b", 2, None), (2, "a", 1, None), (3, "a", 4, None)]
    sync(lake, Change(2, 5, None), Change(3, 2, b), Change(4, 6, a))
    assert len(expect_shown(lake)) == 6

    wider = {"extra": {"type": ["null", "array"], "items": {"type": "integer"}}, **COLUMNS}
    sync(lake, Change(4, 8, {"name": "c", "extra": [1, 2]}), catalog=users(columns=wider))
    assert [row for row in expect_shown(lake) if row["name"] == "c"]
    table = reader(lake.directory, lake.settings).load_table(("default", "users_history"))
    assert table.scan("name = 'c'").to_arrow()["extra"].to_pylist() == [[1, 2]]

    options, lake.options = lake.options, {**lake.options, "tables": {**HISTORY, "merge": [{"stream": "*", "when_runs_mb": 1_000}]}}
    sync(lake, Change(1, 9, {"name": "waits"}), catalog=users(columns=wider))
    assert not [row for row in expect_shown(lake) if row["name"] == "waits"]
    assert "airbyte.rows-waiting" in DeltaReaders.of_copy(lake.settings, ROOT, lake.directory).table().metadata().configuration
    lake.options = options
    refresh(lake, 2, Change(1, 10, a), Change(5, 10, a), at=11)
    assert {row[0] for row in brief(expect_shown(lake)) if len(row) == 5} == {2, 3, 4}
    assert not [text for text in caplog.messages if "not published" in text]


@pytest.mark.parametrize("seed", sample(range(8), 2))
def test_every_publisher_shows_every_step_of_a_life(lake: Lake, seed: int) -> None:
    life = Life(lake, random.Random(seed))
    sync(lake, *life.new(4))
    for _ in range(8):
        life.step()
        expect_shown(lake)
    lake.options = {**lake.options, "tables": HISTORY}
    sync(lake, *life.new(2), catalog=life.catalog())
    assert list(life.missing(expect_shown(lake))) == []
    assert lake.verified().problems == ()


def test_another_key_or_type_is_shown_in_place_of_the_former_history(lake: Lake) -> None:
    sync(lake, Change(1, 1, {"name": "a", "amount": 1}), Change(1, 2, {"name": "b", "amount": 2}))
    expect_shown(lake)
    former = history(lake)
    sync(lake, Change(1, 5, {"name": "b", "amount": 3}), catalog=users(2, 2, key="name"))
    assert len(expect_shown(lake, 2)) == 1
    texts = {**COLUMNS, "amount": {"type": ["null", "string"]}}
    lake.options = {**lake.options, "tables": {**HISTORY, "schema_change": "rewrite"}}
    sync(lake, Change(1, 6, {"name": "c", "amount": "4"}), catalog=users(2, key="name", columns=texts))
    assert sorted(row["amount"] for row in expect_shown(lake, 3)) == ["3", "4"]
    assert history(lake) == former


def test_a_history_that_is_switched_off_stays_as_it_was_shown(lake: Lake) -> None:
    sync(lake, Change(1, 1, {"name": "a"}), Change(2, 2, {"name": "b"}))
    shown, options = expect_shown(lake), lake.options
    lake.options = {**options, "tables": {}}
    sync(lake, Change(1, 5, {"name": "c"}))
    assert expect_shown(lake) == shown
    lake.options = {**options, "tables": {}, "publish": {}}
    sync(lake, Change(1, 6, {"name": "d"}))
    assert not list(lake.store.list(f"{ROOT}_delta_log/")), "an outdated log tells others that files are free to be deleted"
    assert by_iceberg(lake) == plain(shown)
    lake.options = options
    sync(lake, Change(1, 7, {"name": "e"}))
    assert [row["name"] for row in expect_shown(lake, 2)] == ["d", "e", "b"]


def test_a_sync_may_die_at_any_request_and_repair_shows_its_history(lake: Lake) -> None:
    life = Life(lake, random.Random(1))
    sync(lake, *life.new(9))
    for call, end in ends(ENDS_APART, nightly=9):
        changes = life.new(3)
        with ends_at(lake, call, end) as seen:
            sync(lake, *changes)
        repaired(lake)
        expect_shown(lake)
        sync(lake, *changes)
        expect_shown(lake)
        if len(seen) < call:
            break
    assert call > 30


def test_a_writer_that_was_overtaken_takes_readers_back_to_nothing(lake: Lake) -> None:
    sync(lake, Change(1, 1, {"name": "a"}), Change(2, 1, {"name": "b"}))
    before = lake.own_chain()
    then, files = before.head, before.live_files()
    sync(lake, Change(1, 3, {"name": "c"}), Change(2, 4, None))
    newest = expect_shown(lake)
    factory = lake.factory()
    (found,) = factory.find().tables
    for publisher in factory.publishers(factory.find())[found.stream]:
        publisher.publish(TableStore(factory.store, lake.own_chain()), then, files, None)
    assert expect_shown(lake) == newest


def test_a_query_that_was_planned_before_a_merge_finds_the_versions_it_was_planned_for(lake: Lake) -> None:
    lake.options = {**lake.options, "publish": {**lake.options["publish"], "keep_replaced_minutes": 60}}
    sync(lake, Change(1, 1, {"name": "a"}), Change(2, 1, {"name": "b"}))
    before = plain(history(lake))
    delta = DeltaReaders.of_copy(lake.settings, ROOT, lake.directory).table()
    iceberg = reader(lake.directory, lake.settings).load_table(("default", "users_history"))
    sync(lake, Change(1, 3, {"name": "c"}), Change(2, 4, None))
    by_delta_then = rows_of(lake, [f"{ROOT}{path}" for path in delta.get_add_actions()["path"].to_pylist()])
    assert by_delta_then == plain(iceberg.scan().to_arrow().to_pylist()) == before
    assert by_manifest(lake) == by_delta(lake) == by_iceberg(lake) != before
    assert lake.verified().problems == ()


def test_joined_and_rebuilt_files_leave_a_history_as_it_is(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    join_every_third_file(monkeypatch)
    life = Life(lake, random.Random(3))
    for _ in range(4):
        sync(lake, *life.new(6))
    assert len(lake.live(FileKind.RAW)) < 4
    assert lake.own_chain().head.contents.history is not None
    rows = expect_shown(lake)
    assert lake.verified().problems == ()
    lake.rebuild()
    assert expect_shown(lake) == rows
    assert lake.verified().problems == ()
    sync(lake, *life.new(6))
    assert list(life.missing(expect_shown(lake))) == []


def test_an_idle_sync_shows_a_history_that_readers_lack(lake: Lake) -> None:
    sync(lake, Change(1, 1, {"name": "a"}))
    store = lake.store
    store.delete([MANIFEST, *(found.key for found in store.list(f"{ROOT}_delta_log/"))])
    lake.sync(users(), [state(2), complete()])
    expect_shown(lake)
    assert repaired(lake) is None


def test_glue_has_a_history_beside_its_table(lake: Lake, glue: Any) -> None:
    lake = with_glue(lake)
    sync(lake, Change(1, 1, {"name": "a"}))
    database = lake.settings.bucket.replace("-", "_")
    found = glue.get_table(DatabaseName=database, Name="users_history")["Table"]
    place = f"s3://{lake.settings.bucket}/{ROOT}"
    assert found["Parameters"]["airbyte.table-id"] == place
    assert found["StorageDescriptor"]["Location"] == f"{place}_symlink_format_manifest/"
    types = {column["Name"]: column["Type"] for column in found["StorageDescriptor"]["Columns"]}
    assert [types[name] for name in COLUMN_NAMES[3:]] == ["timestamp", "timestamp", "boolean", "boolean"]
    assert glue.get_table(DatabaseName=database, Name="users")["Table"]["Parameters"]["airbyte.table-id"] != place

    lake = with_glue(lake, delta=True)
    sync(lake, Change(1, 2, {"name": "b"}))
    assert glue.get_table(DatabaseName=database, Name="users_history")["Table"]["StorageDescriptor"]["Location"] == place


def test_a_history_takes_no_name_from_a_table() -> None:
    def table(name: str, *, is_history: bool = False) -> ShownTable:
        return ShownTable(StreamId(None, name), f"lake/{name}/", f"lake/{name}/", is_history=is_history)

    orders, other = table("orders"), table("orders_history")
    kept, wide = table("orders", is_history=True), table("Orders", is_history=True)
    found = rivals_of({one: one.name.name.lower() for one in (kept, orders, wide, other)})
    assert found == {kept: other.stream, wide: other.stream}
    assert rivals_of({one: one.name.name.lower() for one in (kept, wide)}) == {kept: wide.stream, wide: kept.stream}


def test_the_files_of_a_history_have_the_ids_and_statistics_by_which_readers_skip_them(lake: Lake) -> None:
    sync(lake, Change(1, 1, {"name": "a"}), Change(2, 1, {"name": "b"}))
    sync(lake, Change(1, 3, {"name": "c"}))
    files = lake.own_chain().live_files().of(*HISTORY_KINDS)
    assert all(file.statistics is not None for file in files)
    table = reader(lake.directory, lake.settings).load_table(("default", "users_history"))
    assert [len(list(table.scan(condition).plan_files())) for condition in ("_is_current = false", "id = 7")] == [1, 0]
    assert len(lake.live(next(iter(HISTORY_KINDS)))) == 1

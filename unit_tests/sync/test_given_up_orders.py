"""Refreshes under another mode, key, cursor, rule, partition or encoding that are given up: the rows that are there stay as they landed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from destination_s3_spark import tables
from destination_s3_spark.chain.log import Chain
from destination_s3_spark.errors import ConfigError, TransientError
from destination_s3_spark.storage.settings import S3Settings
from destination_s3_spark.sync.batches import Limits
from unit_tests.lake.lake import Lake
from unit_tests.lake.messages import JsonObject, complete, record, schema_of, state, stream
from unit_tests.lake.messages import catalog as catalog_of
from unit_tests.places import table_of

WAITS = {"merge": [{"stream": "users", "when_runs_mb": 1000}]}
EACH_STATE = Limits(batch_bytes=1, age_s=3600, spool_bytes=2**31)
OTHERS: dict[str, dict[str, Any]] = {
    "mode": {"mode": "append"},
    "key": {"key": ["id", "part"]},
    "cursor": {"cursor": "reverse"},
}
"""What the refresh has in place of what the rows have."""


class Killed(BaseException):
    """The end of a process."""


def catalog(
    generation: int | None, minimum: int = 0, mode: str = "append_dedup", key: Sequence[str] = ("id",), cursor: str = "at"
) -> JsonObject:
    """The catalog of a stream. Without a generation, as a custom connector gets it."""
    ids: dict[str, Any] = {"generation": generation, "minimum_generation": None if generation is None else minimum, "sync_id": generation}
    types = {"id": "integer", "part": "integer", "name": "string", "at": "integer", "reverse": "integer"}
    return catalog_of(
        stream(
            schema=schema_of({name: {"type": of} for name, of in types.items()}),
            mode=mode,
            key=key,
            cursor=cursor,
            **ids,
        )
    )


def version(number: int, name: str, at: int) -> bytes:
    """A version of a row. Each has another `part`, as a column that changes."""
    data = {"id": number, "part": at, "name": name, "at": at, "reverse": -at}
    return record(data, emitted_at=at)


def first_syncs(lake: Lake, generation: int | None = 1) -> None:
    """Two syncs, the second of which brings other versions of a row."""
    end = [] if generation is None else [complete()]
    lake.sync(catalog(generation), [version(1, "a1", 1) + version(2, "b1", 2) + version(3, "c1", 3), state(1), *end])
    lake.sync(catalog(generation), [version(1, "a2", 4) + version(1, "a3", 5), state(2), *end])


def killed_refresh(lake: Lake, **other: Any) -> None:
    """A refresh that dies before any of its rows are committed."""

    def blocks() -> Iterator[bytes]:
        yield version(9, "x", 9)
        raise Killed

    with pytest.raises(Killed):
        lake.sync(catalog(2, 2, **other), blocks())
    chain = Chain(lake.store, table_of("users"))
    chain.catch_up()
    assert chain.head.contents.has_earlier_schema(without_pending=True)


def names(lake: Lake) -> list[tuple[int, str]]:
    """The ids and names of the rows that readers see, sorted."""
    return sorted((row["id"], row["name"]) for row in tables.read(lake.raw_config(), "users").to_table().to_pylist())


@pytest.fixture
def lake(s3_settings: S3Settings, tmp_path: Path) -> Lake:
    return Lake(s3_settings, tmp_path, limits=EACH_STATE, options={"tables": WAITS})


@pytest.mark.parametrize("stays", [True, False], ids=["kept", "taken back"])
@pytest.mark.parametrize("other", OTHERS)
def test_what_waits_is_merged_by_what_it_landed_under(lake: Lake, other: str, stays: bool) -> None:
    first_syncs(lake)
    killed_refresh(lake, **OTHERS[other])
    now = OTHERS[other] if stays else {}
    lake.sync(catalog(2, **now), [version(5, "e1", 6), state(4), complete()])
    lake.options = {"tables": {}}
    lake.sync(catalog(2, **now), [version(6, "f1", 7), state(5), complete()])
    assert names(lake) == [(1, "a3"), (2, "b1"), (3, "c1"), (5, "e1"), (6, "f1")]


@pytest.mark.parametrize("other", OTHERS)
def test_what_a_refresh_of_an_empty_table_landed_is_merged_before_it_goes_on_otherwise(lake: Lake, other: str) -> None:
    with pytest.raises(TransientError):
        lake.sync(catalog(1, 1), [version(1, "a1", 1) + version(2, "b1", 2), state(1), version(1, "a2", 4) + version(1, "a3", 5), state(2)])
    assert names(lake) == []
    now = OTHERS[other]
    lake.sync(catalog(1, 1, **now), [version(5, "e1", 6), state(3), complete()])
    lake.options = {"tables": {}}
    lake.sync(catalog(1, **now), [version(6, "f1", 7), state(4), complete()])
    assert names(lake) == [(1, "a3"), (2, "b1"), (5, "e1"), (6, "f1")]


@pytest.mark.parametrize("other", [*OTHERS, "none"])
def test_rows_of_a_refresh_that_join_those_of_another_order_are_told(lake: Lake, other: str, caplog: pytest.LogCaptureFixture) -> None:
    first_syncs(lake)
    now = OTHERS.get(other, {})
    with pytest.raises(TransientError):
        lake.sync(catalog(2, 2, **now), [version(9, "x", 9), state(3), version(10, "y", 9)])
    lake.sync(catalog(2, **now), [version(5, "e1", 10), state(4), complete()])
    lake.sync(catalog(2, **now), [version(6, "f1", 11), state(5), complete()])
    told = [entry.getMessage() for entry in caplog.records if "ended early" in entry.getMessage()]
    assert ["2 rows that waited" in one for one in told] == ([] if other == "none" else [True])


def test_rows_that_land_after_the_refresh_under_its_key_are_merged_by_that(lake: Lake) -> None:
    first_syncs(lake)
    killed_refresh(lake, **OTHERS["key"])
    for number, at in enumerate((6, 7), start=4):
        lake.sync(catalog(2, **OTHERS["key"]), [version(1, f"a{at}", at), state(number), complete()])
    lake.options = {"tables": {}}
    lake.sync(catalog(2, **OTHERS["key"]), [version(6, "f1", 8), state(6), complete()])
    assert names(lake) == [(1, "a3"), (1, "a6"), (1, "a7"), (2, "b1"), (3, "c1"), (6, "f1")]


def test_commands_and_fresh_reads_go_by_what_the_rows_landed_under(lake: Lake) -> None:
    first_syncs(lake, None)
    with pytest.raises(ConfigError, match="accept"):
        lake.sync(catalog(None, mode="overwrite"), [version(9, "x", 9), state(3)])
    assert lake.connector().run("discard").exit_code == 0
    fresh = tables.read(lake.raw_config(), "users", fresh=True).to_table().to_pylist()
    assert sorted(row["name"] for row in fresh) == ["a3", "b1", "c1"]
    assert lake.connector().run("forget", "--stream", "users", "--where", '{"name": "a3"}').exit_code == 0
    assert lake.connector().run("merge").exit_code == 0
    assert names(lake) == [(2, "b1"), (3, "c1")]


def test_keys_are_compared_with_the_rules_that_the_rows_landed_under(lake: Lake) -> None:
    hashed = {"tables": {**WAITS, "hash_secret": "k" * 32, "columns": [{"stream": "users", "column": "id", "action": "hash"}]}}
    first_syncs(lake)
    plain, lake.options = lake.options, hashed
    killed_refresh(lake)
    with pytest.raises(ConfigError, match="as sent, now hash"):
        lake.sync(catalog(2), [version(5, "e1", 6), state(4), complete()])
    lake.options = plain
    lake.sync(catalog(2), [version(5, "e1", 6), state(4), complete()])
    lake.options = {"tables": {}}
    lake.sync(catalog(2), [version(6, "f1", 7), state(5), complete()])
    assert names(lake) == [(1, "a3"), (2, "b1"), (3, "c1"), (5, "e1"), (6, "f1")]


@pytest.mark.parametrize("stays", [True, False], ids=["kept", "taken back"])
def test_files_keep_their_folders_and_encodings(s3_settings: S3Settings, tmp_path: Path, stays: bool) -> None:
    lake = Lake(s3_settings, tmp_path, limits=EACH_STATE)
    other = {"tables": {"partition_by": [{"stream": "users", "column": "id", "transform": "identity"}]}}
    first_syncs(lake)
    lake.options, lake.format = other, {"format_type": "Parquet", "extracted_at_encoding": "micros"}
    killed_refresh(lake)
    if not stays:
        lake.options, lake.format = {}, {"format_type": "Parquet"}
    lake.sync(catalog(2), [version(5, "e1", 6), state(4), complete()])
    assert names(lake) == [(1, "a3"), (2, "b1"), (3, "c1"), (5, "e1")]
    store = lake.store
    keys = [found.key for found in store.list("lake/users/") if found.key.endswith(".parquet")]
    assert all(key.count("/") == 2 for key in keys)
    assert {pq.read_schema(pa.BufferReader(store.get(key))).field("_airbyte_extracted_at").type.unit for key in keys} == {"ms"}


def test_a_refresh_with_partitions_that_was_given_up_leaves_a_text_table_as_it_is(s3_settings: S3Settings, tmp_path: Path) -> None:
    lake = Lake(s3_settings, tmp_path, limits=EACH_STATE, format={"format_type": "JSONL"})
    first_syncs(lake)
    lake.options, lake.format = (
        {"tables": {"partition_by": [{"stream": "users", "column": "id", "transform": "identity"}]}},
        {"format_type": "Parquet"},
    )
    killed_refresh(lake)
    lake.options, lake.format = {}, {"format_type": "JSONL"}
    lake.sync(catalog(2), [version(5, "e1", 6), state(4), complete()])
    found = tables.read(lake.raw_config(), "users").to_table().to_pylist()
    assert sorted(json.loads(row["_airbyte_data"])["name"] for row in found) == ["a3", "b1", "c1", "e1"]

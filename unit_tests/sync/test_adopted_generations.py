"""A connection that switches from destination-s3 in the middle of a refresh: files of that refresh are part of it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import pytest

from destination_s3_spark.errors import ConfigError, TransientError
from destination_s3_spark.storage.client import s3_client
from destination_s3_spark.storage.settings import S3Settings
from destination_s3_spark.tables.updates.resources import MergeTime
from unit_tests.lake.lake import Lake
from unit_tests.lake.messages import JsonObject, complete, records, state, status, stream
from unit_tests.lake.messages import catalog as catalog_of

ROOT = "lake/users/"
OLD = f"{ROOT}2026_01_01_1700000000000_0.parquet"
"""Of generation 4."""
ACKNOWLEDGED = [f"{ROOT}2026_01_02_1700000000000_{number}.parquet" for number in (0, 1)]
"""Of generation 5, whose refresh destination-s3 had begun."""
SCHEMA = {"type": "object", "properties": {"id": {"type": "integer"}}}


@pytest.fixture
def lake(s3_settings: S3Settings, tmp_path: Path) -> Lake:
    client = s3_client(s3_settings)
    for key, generation in [(OLD, "4"), *((key, "5") for key in ACKNOWLEDGED)]:
        client.put_object(Bucket=s3_settings.bucket, Key=key, Body=b"PAR1", Metadata={"ab-generation-id": generation})
    return Lake(s3_settings, tmp_path)


def catalog(generation: int, minimum: int, mode: str = "append") -> JsonObject:
    return catalog_of(stream(schema=SCHEMA, mode=mode, key="id", generation=generation, minimum_generation=minimum, sync_id=1))


def sync(lake: Lake, generation: int, minimum: int, ids: Sequence[int | str] = (), mode: str = "append") -> None:
    lake.sync(catalog(generation, minimum, mode), [records({"id": one} for one in ids), state(len(ids)), complete()])


def cut(lake: Lake, generation: int, minimum: int, ids: Sequence[int] = (), mode: str = "append") -> None:
    with pytest.raises(TransientError):
        lake.sync(catalog(generation, minimum, mode), [records({"id": one} for one in ids), state(len(ids)), status("INCOMPLETE")])


def keys(lake: Lake) -> list[str]:
    """The table's files that destination-s3 wrote."""
    return sorted(found.key for found in lake.store.list(ROOT) if found.key in {OLD, *ACKNOWLEDGED})


def own_rows(lake: Lake) -> int:
    listed = lake.store.get(f"{ROOT}_symlink_format_manifest/manifest").decode().split()
    names = [entry.removeprefix(f"s3://{lake.settings.bucket}/") for entry in listed]
    assert sorted(name for name in names if name in {OLD, *ACKNOWLEDGED}) == keys(lake), "what readers of the manifest see is what is there"
    return len(names) - len(keys(lake))


def test_files_of_the_refresh_stay_when_it_completes(lake: Lake) -> None:
    sync(lake, 5, 5, [1])

    assert (keys(lake), own_rows(lake)) == (ACKNOWLEDGED, 1)


@pytest.mark.parametrize("policy", ["recover", "rewrite"])
def test_a_type_does_not_change_in_place_beside_them(lake: Lake, policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sync(lake, 5, 0, [1, 2])
    lake.options = {"tables": {"schema_change": policy}}
    monkeypatch.setitem(SCHEMA, "properties", {"id": {"type": "string"}})
    if policy == "rewrite":
        with pytest.raises(ConfigError, match=r"column 'id' takes another type in place, and 3 files of an earlier connector may have"):
            sync(lake, 5, 0, ["3"])
    else:
        sync(lake, 5, 0, ["3"])  # in a column of its own
    assert (keys(lake), own_rows(lake)) == ([OLD, *ACKNOWLEDGED], 1 if policy == "rewrite" else 2)
    sync(lake, 6, 6, ["4"])
    assert (keys(lake), own_rows(lake)) == ([], 1)


def test_they_stay_when_several_syncs_complete_it(lake: Lake) -> None:
    cut(lake, 5, 5, [1])
    cut(lake, 5, 5, [2])
    assert keys(lake) == [OLD, *ACKNOWLEDGED]
    sync(lake, 5, 5)

    assert (keys(lake), own_rows(lake)) == (ACKNOWLEDGED, 2)


def test_they_stay_when_another_refresh_of_the_same_generation_follows(lake: Lake) -> None:
    sync(lake, 5, 5, [1])
    sync(lake, 5, 5, [2])

    assert (keys(lake), own_rows(lake)) == (ACKNOWLEDGED, 2)


def test_they_stay_where_an_ordinary_sync_took_the_table_over(lake: Lake) -> None:
    sync(lake, 5, 0, [1])
    assert keys(lake) == [OLD, *ACKNOWLEDGED]
    sync(lake, 5, 5, [2])

    assert (keys(lake), own_rows(lake)) == (ACKNOWLEDGED, 2)


def test_they_stay_when_the_refresh_is_cancelled_in_between(lake: Lake) -> None:
    cut(lake, 5, 5, [1])
    sync(lake, 5, 0, [2])
    assert (keys(lake), own_rows(lake)) == ([OLD, *ACKNOWLEDGED], 2)
    sync(lake, 5, 5, [3])

    assert (keys(lake), own_rows(lake)) == (ACKNOWLEDGED, 3)


def test_the_next_generation_replaces_them(lake: Lake) -> None:
    cut(lake, 5, 5, [1])
    sync(lake, 6, 6, [2])

    assert (keys(lake), own_rows(lake)) == ([], 1)


def test_a_number_that_comes_again_says_nothing_about_them(lake: Lake) -> None:
    sync(lake, 5, 0, [1])
    sync(lake, 6, 0, [2])
    sync(lake, 5, 5, [3])

    assert (keys(lake), own_rows(lake)) == ([], 1)


@pytest.mark.parametrize("mode", ["append", "append_dedup", "overwrite"])
def test_a_refresh_without_records_replaces_them_in_the_first_sync(lake: Lake, mode: str) -> None:
    with pytest.raises(TransientError):
        lake.sync(catalog(6, 6, mode), [status("INCOMPLETE")])
    assert keys(lake) == [OLD, *ACKNOWLEDGED]
    for generation in (6, 7):
        lake.sync(catalog(generation, generation, mode), [complete()])
        assert (keys(lake), own_rows(lake)) == ([], 0)
    sync(lake, 7, 0, [1], mode)

    assert own_rows(lake) == 1


def test_a_deduplicated_table_cannot_go_on_with_the_refresh(lake: Lake) -> None:
    for _ in range(2):
        with pytest.raises(ConfigError, match=rf"2 files .* \(generation 5\), from '{ACKNOWLEDGED[0]}'.*Run a new refresh"):
            sync(lake, 5, 5, [1], "append_dedup")
        assert keys(lake) == [OLD, *ACKNOWLEDGED]
    sync(lake, 6, 6, [1, 1], "append_dedup")

    assert (keys(lake), own_rows(lake), lake.ids_in_folder()) == ([], 1, [1])


@pytest.mark.parametrize("minimum", [0, 6], ids=["incremental", "refresh"])
def test_they_stay_while_a_deduplicated_refresh_waits_for_a_merge_with_time(lake: Lake, minimum: int) -> None:
    lake.merge_limits = {"time": MergeTime(timedelta())}
    sync(lake, 6, 6, [1, 1], "append_dedup")
    sync(lake, 6, minimum, [1, 2], "append_dedup")
    assert keys(lake) == [OLD, *ACKNOWLEDGED]
    assert len(lake.files(".parquet")) == 3
    lake.merge_limits = {}
    sync(lake, 6, minimum, [2, 3], "append_dedup")

    assert (keys(lake), own_rows(lake), lake.ids_in_folder()) == ([], 1, [1, 2, 3])

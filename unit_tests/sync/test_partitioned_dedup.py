"""Deduplicated tables with partitions through whole syncs: the last version of each key, in the folder of its value."""

from __future__ import annotations

import random
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from destination_s3_spark.chain.files import FileKind
from destination_s3_spark.errors import ConfigError
from destination_s3_spark.storage.settings import S3Settings
from unit_tests.lake.lake import Lake
from unit_tests.sync.partitioned_lake import (
    DAILY,
    HOURLY,
    catalog,
    check,
    day_of,
    messages,
    partitioned,
    record,
    rows_of,
)


@pytest.fixture
def lake(s3_settings: S3Settings, tmp_path: Path) -> Lake:
    return Lake(s3_settings, tmp_path, options=partitioned(DAILY))


def latest(*syncs: Iterable[dict[str, Any]]) -> dict[tuple[int, str | None], str]:
    """The rows that a deduplicated table has: the last of each key."""
    return {(row["id"], row["at"]): row["kind"] for sync in syncs for row in sync}


def moment(at: datetime | None) -> str | None:
    return None if at is None else f"{at:%Y-%m-%dT%H:%M:%SZ}"


def versions(ids: Iterable[int], kind: str, days: int = 5) -> list[dict[str, Any]]:
    at = {number: f"2026-11-{20 + number % days:02}T10:00:00Z" if number % (days + 1) else None for number in ids}
    return [{"id": number, "at": at[number], "kind": kind} for number in ids]


@pytest.mark.parametrize("format_type", ["Parquet", "Avro"])
def test_deduplicated_tables_whose_key_has_the_column(format_type: str, lake: Lake) -> None:
    lake.format = {"format_type": format_type}
    lake.merge_limits = {"least_file_bytes": 4_000}
    chance = random.Random(5)
    sent: list[list[dict[str, Any]]] = []
    for sync in range(4):
        ids = sorted(chance.sample(range(600), 300)) if sync else list(range(600))
        sent.append(versions(ids, f"of sync {sync}"))
        lake.sync(catalog("append_dedup", sync + 1, key=("id", "at")), messages(sent[-1]))
        rows = {}
        for file in lake.live(FileKind.FINAL):
            assert file.partition is not None
            assert f"/at_day={file.partition}/" in file.key
            for row in rows_of(lake, file):
                assert day_of(row["at"]) == file.partition
                assert (row["id"], moment(row["at"])) not in rows
                rows[row["id"], moment(row["at"])] = row["kind"]
        assert rows == latest(*sent)
        assert lake.verified().problems == ()
    assert len(lake.live(FileKind.FINAL)) > 6
    assert len({file.key for file in lake.live(FileKind.FINAL)}) == len(lake.live(FileKind.FINAL))


def test_a_merge_of_one_day_leaves_the_files_of_the_others(lake: Lake) -> None:
    """Small files are joined with their neighbours, but not with those of other partitions."""
    key = ("at", "id")
    lake.sync(catalog("append_dedup", 1, key=key), messages(versions(range(100), "old")))
    before = {file.key: file.partition for file in lake.live(FileKind.FINAL)}
    assert len(before) == 6
    lake.sync(catalog("append_dedup", 2, key=key), messages([{"id": 1000, "at": "2026-11-22T23:59:59Z", "kind": "new"}]))
    after = {file.key: file.partition for file in lake.live(FileKind.FINAL)}
    assert {before[key] for key in before.keys() - after.keys()} == {"2026-11-22"}
    assert sum(file.rows for file in lake.live(FileKind.FINAL)) == 101


def test_append_tables_are_deduplicated_and_back(lake: Lake) -> None:
    lake.sync(catalog(sync=1, key=("id", "at")), messages([*versions(range(40), "a"), *versions(range(20), "b")]))
    lake.sync(catalog("append_dedup", 2, key=("id", "at")), messages(versions(range(10), "c")))
    rows = {row["id"]: row["kind"] for file in lake.live(FileKind.FINAL) for row in rows_of(lake, file)}
    assert rows == {number: "c" if number < 10 else "b" if number < 20 else "a" for number in range(40)}
    assert sum(file.rows for file in lake.live(FileKind.FINAL)) == 40
    lake.sync(catalog(sync=3), messages(versions(range(10), "d")))
    check(lake, [*range(40), *range(10)])
    lake.rebuild()
    assert sum(file.rows for file in lake.live(FileKind.FINAL)) == 80  # all that came in


def test_deduplicated_tables_are_refreshed_and_rebuilt(lake: Lake) -> None:
    key = ("id", "at")
    lake.options = partitioned(HOURLY)
    lake.sync(catalog("append_dedup", 1, key=key), messages(versions(range(60), "old")))
    lake.options = partitioned(DAILY)
    lake.sync(catalog("append_dedup", 2, key=key), messages(versions(range(30), "older")))
    assert all("/hours=" in file.key for file in lake.live(FileKind.FINAL))
    lake.sync(catalog("append_dedup", 3, generation=2, minimum=2, key=key), messages(versions(range(50), "new")))
    check(lake, range(50))
    lake.rebuild()
    check(lake, range(50))
    lake.options = partitioned()
    lake.sync(catalog("append_dedup", 4, generation=3, minimum=3, key=key), messages(versions(range(50), "last")))
    assert {file.partition for file in lake.live(FileKind.FINAL)} == {None}


def test_a_key_without_the_column_is_refused_before_anything_is_written(lake: Lake) -> None:
    with pytest.raises(ConfigError, match="divides its table by 'at', which is not in its primary key"):
        lake.sync(catalog("append_dedup"), messages([record(1)]))
    assert list(lake.store.list("lake/")) == []
    lake.sync(catalog(), messages([record(1)]))
    keys = {info.key for info in lake.store.list("lake/")}
    with pytest.raises(ConfigError, match="Add the column to the key"):
        lake.sync(catalog("append_dedup", 2), messages([record(2)]))
    assert {info.key for info in lake.store.list("lake/")} == keys


@pytest.mark.parametrize(("column", "values"), [("kind", ["", None, "x" * 200, "b", "a/ü", "y" * 200]), ("id", [-1, 0, 7, 2**60])])
def test_the_partitions_of_a_merge_are_whole(column: str, values: list[Any], lake: Lake) -> None:
    """Texts that no folder can name share one with the nulls, wherever they stand in the order of texts."""
    lake.options = partitioned({"stream": "*", "column": column, "transform": "identity", "name": "part"})
    rows = [{"id": value if column == "id" else number, column: value} for number, value in enumerate(values)]
    for sync in range(2):
        lake.sync(catalog("append_dedup", sync + 1, key=("id", "kind")), messages(rows))
    assert sum(file.rows for file in lake.live(FileKind.FINAL)) == len(values)
    assert len({file.partition for file in lake.live(FileKind.FINAL)}) == len(lake.live(FileKind.FINAL)) == (3 if column == "kind" else 4)

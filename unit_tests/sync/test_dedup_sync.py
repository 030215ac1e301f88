"""Deduplicated tables through whole syncs, where it matters how their files are cut and what is in the chain."""

from __future__ import annotations

import gzip
import json
import logging

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from destination_s3_spark.chain.events import AddData
from destination_s3_spark.chain.files import FileEntry, FileKind
from destination_s3_spark.sync.batches import Limits
from unit_tests.lake.lake import Lake
from unit_tests.lake.messages import complete, state
from unit_tests.sync.dedup_lake import DELETED_AT, dedup_catalog, rows

CHAIN = "lake/airbyte_internal/_raw__stream_users/chain/"


@pytest.fixture
def small_files(lake: Lake) -> None:
    """Files of a few rows, so that small tables have many."""
    lake.merge_limits = {"least_file_bytes": 1_000}


def noise(number: int) -> str:
    """Text that does not compress, so that files get large."""
    return "".join(chr(97 + (number * 7919 + place * place * 31) % 26) for place in range(400))


def final(lake: Lake) -> dict[str, FileEntry]:
    return {file.key: file for file in lake.live(FileKind.FINAL)}


@pytest.mark.usefixtures("small_files")
def test_scattered_changes_rewrite_only_the_files_they_are_in(lake: Lake) -> None:
    lake.sync(dedup_catalog(), [rows(({"id": i, "note": noise(i)} for i in range(400)), 1), state(1), complete()])
    before = final(lake)
    assert len(before) > 10
    lake.sync(dedup_catalog(), [rows(({"id": i, "note": "changed"} for i in (3, 390)), 2), state(2), complete()])
    after = final(lake)
    assert len(before.keys() - after.keys()) <= 4
    assert lake.ids_in_folder() == list(range(400))
    assert sum(file.rows for file in after.values()) == 400


@pytest.mark.usefixtures("small_files")
def test_keys_that_only_differ_far_behind_the_recorded_bounds_are_all_kept(lake: Lake) -> None:
    lake.format = {"format_type": "JSONL"}
    prefix = "x" * 200
    sent = [{"key": f"{prefix}{i:04}", "note": noise(i)} for i in range(200)]
    catalog = dedup_catalog("key", "string")
    lake.sync(catalog, [rows(sent, 1), state(1), complete()])
    ranges = [file.keys for file in final(lake).values()]
    assert len(ranges) > 2
    assert len(set(ranges)) < len(ranges), "the bounds of these files tell them apart, so the case is not what it is meant to be"
    lake.sync(catalog, [rows([{"key": f"{prefix}0100", "note": "changed"}], 2), state(2), complete()])
    kept = [json.loads(text)["_airbyte_data"] for file in lake.files(".jsonl.gz") for text in gzip.decompress(file).splitlines()]
    assert sorted(row["key"] for row in kept) == sorted(row["key"] for row in sent)
    assert sum(row["note"] == "changed" for row in kept) == 1


def test_many_small_merges_leave_one_file_of_deletions(lake: Lake) -> None:
    lake.merge_limits = {"least_file_bytes": 1_000, "most_tombstone_files": 2}
    deletion = {"_ab_cdc_deleted_at": "2026-01-01T00:00:00Z"}
    catalog = dedup_catalog(_ab_cdc_deleted_at=DELETED_AT)
    lake.sync(catalog, [rows(({"id": i} for i in range(10)), 10), state(0), complete()])
    for number in range(5):
        lake.sync(catalog, [rows([{"id": number, **deletion}], 20), state(number + 1), complete()])
    assert lake.ids_in_folder() == [5, 6, 7, 8, 9]
    files = lake.live(FileKind.TOMBSTONE)
    assert len(files) <= 3
    assert sum(file.rows for file in files) == 5
    lake.sync(catalog, [rows([{"id": 0}, {"id": 1}], 15), state(9), complete()])
    assert lake.ids_in_folder() == [5, 6, 7, 8, 9], "an older row brought a deleted one back"


@pytest.mark.parametrize("file_format", ["Parquet", "CSV"])
@pytest.mark.parametrize(("kind", "older", "newer"), [("number", 5.5, 10.5), ("string", "05", "2")])
def test_deletions_keep_older_rows_away_when_the_type_of_the_cursor_changes(
    lake: Lake, file_format: str, kind: str, older: object, newer: object
) -> None:
    lake.format, lake.options = {"format_type": file_format}, {"tables": {"raw_tables": False}}
    before, after = (dedup_catalog(cursor="lsn", lsn={"type": one}, _ab_cdc_deleted_at=DELETED_AT) for one in ("integer", kind))
    lake.sync(before, [rows(({"id": i, "note": "first", "lsn": 1} for i in range(3)), 1), state(0), complete()])
    lake.sync(before, [rows([{"id": 1, "lsn": 10, "_ab_cdc_deleted_at": "2026-01-01T00:00:00Z"}], 2), state(1), complete()])
    lake.sync(after, [rows([{"id": 1, "note": "older", "lsn": older}], 3), state(2), complete()])
    assert sum(file.rows for file in final(lake).values()) == 2
    lake.sync(after, [rows([{"id": 1, "note": "newer", "lsn": newer}], 4), state(3), complete()])
    assert sum(file.rows for file in final(lake).values()) == 3


def test_a_changed_type_of_the_key_drops_tombstones_with_a_warning(lake: Lake, caplog: pytest.LogCaptureFixture) -> None:
    lake.options = {"tables": {"raw_tables": False}}
    catalogs = [dedup_catalog(key_type=kind, _ab_cdc_deleted_at=DELETED_AT) for kind in ("integer", "string")]
    lake.sync(catalogs[0], [rows([{"id": 1}, {"id": 2}], 1), state(0), complete()])
    lake.sync(catalogs[0], [rows([{"id": 1, "_ab_cdc_deleted_at": "2026-01-01T00:00:00Z"}], 2), state(1), complete()])
    with caplog.at_level(logging.WARNING, "airbyte"):
        lake.sync(catalogs[1], [rows([{"id": "2"}], 3), state(2), complete()])
    assert "tombstones of 1 keys are dropped, because they are of another primary key or another type of it" in caplog.text
    assert lake.live(FileKind.TOMBSTONE) == ()


def test_more_runs_than_a_task_can_hold_are_combined_first_and_arrival_still_decides(lake: Lake) -> None:
    lake.merge_budget_bytes = 1
    lake.limits = Limits(batch_bytes=100, age_s=900, spool_bytes=100)
    syncs = [[rows(({"id": i, "note": f"{version}"} for i in range(version, 20)), 1), state(version)] for version in range(9)]
    lake.sync(dedup_catalog(), [*(block for blocks in syncs for block in blocks), complete()])
    store = lake.store
    landed = [file for block in lake.own_chain().blocks() if isinstance(block.event, AddData) for file in block.event.files]
    [table] = [pq.read_table(pa.BufferReader(body)) for body in lake.files(".parquet")]

    assert len(landed) > 4, "too few runs for two rounds"
    assert dict(zip(table["id"].to_pylist(), table["note"].to_pylist(), strict=True)) == {i: f"{min(i, 8)}" for i in range(20)}
    assert [found.key for found in store.list("lake/airbyte_internal/") if "/scratch/" in found.key or "/delta/" in found.key] == []

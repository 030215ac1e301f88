"""Refreshes of tables with a change log or with soft deletions: what they lack, and what the log says of it."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from destination_s3_spark.storage.settings import S3Settings
from destination_s3_spark.tables.updates.resources import MergeTime
from unit_tests.lake.lake import Lake
from unit_tests.lake.messages import complete
from unit_tests.sync.logged_lake import CDC, COLUMNS, DATA, KEYS, Source, cdc_catalog, manifests, records_of, run, stored
from unit_tests.sync.process_ends import ends, ends_at
from unit_tests.sync.reference_changes import PLACEHOLDER, Record, Row, Table, replayed

STEP = 9
"""With each commit, one end of a process in so many is tried."""
NEVER, NO_TIME = [{"stream": "*", "when_runs_mb": 1_000_000}], {"time": MergeTime(timedelta())}
START = datetime(2026, 1, 1, tzinfo=UTC)
FORMS = [
    ("jsonl", "Parquet", "hard", ("KEY", "UPDATED")),
    ("parquet", "Parquet", "soft", ("ALL", "ALL")),
    ("jsonl", "JSONL", "soft", ("KEY", "ALL")),
    ("parquet", "JSONL", "hard", ("ALL", "UPDATED")),
    ("jsonl", "Parquet in partitions", "soft", ("ALL", "UPDATED")),
    ("replicant_csv", "Parquet", "hard", ("KEY", "UPDATED")),
]


@pytest.fixture
def make_lake(s3_settings: S3Settings, tmp_path: Path) -> Callable[..., Lake]:
    def make(file_format: str = "Parquet", tables: dict[str, Any] | None = None, **change_log: Any) -> Lake:
        options = {"change_log": {"enabled": True, "format": "jsonl", **change_log}, "tables": tables or {}}
        return Lake(s3_settings, tmp_path, options=options, format={"format_type": file_format}, started_at=START)

    return make


def refresh(lake: Lake, records: list[Record], number: int, generation: int, **catalog: Any) -> None:
    run(lake, records, number, cdc_catalog(generation, generation, **catalog))


def brief(lake: Lake) -> list[list[tuple[str, int]]]:
    return [[(record["op"], record["key"]["id"]) for record in records_of(lake, manifest)] for manifest in manifests(lake)]


def test_a_refresh_is_logged_as_its_differences(make_lake: Callable[..., Lake]) -> None:
    lake, source = make_lake(), Source()
    run(lake, [source.record(1, 9, name="a"), source.record(2, 9, name="b"), source.record(3, 9, name="c")], 1)
    refresh(lake, [source.record(1, 1, name="a"), source.record(3, 1, name="c2"), source.record(4, 1, name="d")], 2, 2)
    run(lake, [source.record(3, 2, name="c3")], 3, cdc_catalog(generation=2))

    assert brief(lake) == [[("S", 1), ("S", 2), ("S", 3)], [("D", 2), ("U", 3), ("I", 4)], [("U", 3)]]
    [gone, changed, _] = records_of(lake, manifests(lake)[1])
    assert gone["cursor"] == {"extractionTimestamp": round(START.timestamp() * 1_000), "v": 1, "inferred": True}
    assert (changed["new"], changed["cursor"]["_ab_cdc_lsn"], "inferred" in changed["cursor"]) == ({"name": "c2"}, 1, False)
    counted = manifests(lake)[-1].operation_count
    assert (counted.insert_count, counted.update_count, counted.delete_count) == (4, 2, 1)
    assert lake.verified().problems == ()


def test_an_equal_refresh_adds_nothing_to_the_log(make_lake: Callable[..., Lake]) -> None:
    lake, source = make_lake(), Source()
    run(lake, [source.record(1, 1, name="a"), source.record(2, 1, name="b"), source.record(2, 2, deleted=True)], 1)
    refresh(lake, [source.record(1, 5, extracted_at=9_000, name="a")], 2, 2)
    run(lake, [source.record(1, 6, name="b")], 3, cdc_catalog(generation=2))

    assert brief(lake) == [[("S", 1)], [("U", 1)]]


def test_without_cdc_fields_a_refresh_is_logged_as_events(make_lake: Callable[..., Lake]) -> None:
    lake, source = make_lake(), Source()
    for number, ids in enumerate(([1, 2, 3], [1, 3, 4], [3], [3]), 1):
        records = [source.record(id_, None, extracted_at=1_000 * number, name=f"{id_ if id_ != 3 else number}") for id_ in ids]
        refresh(lake, records, number, number, properties=DATA)
    run(lake, [source.record(3, None, extracted_at=9_000, name="new")], 5, cdc_catalog(4, properties=DATA))

    assert brief(lake) == [
        [("S", 1), ("S", 2), ("S", 3)], [("D", 2), ("U", 3), ("I", 4)], [("D", 1), ("D", 4), ("U", 3)], [("U", 3)], [("S", 3)],
    ]  # fmt: skip
    assert [manifest.kind.value for manifest in manifests(lake)] == ["snapshot", *["changes"] * 3, "upserts"]


@pytest.mark.parametrize("reason", ["another key", "another type", "no rows"])
def test_a_refresh_that_cannot_be_compared_begins_the_log_anew(make_lake: Callable[..., Lake], reason: str) -> None:
    lake, source = make_lake(), Source()
    run(lake, [source.record(1, 9, name="a", amount=1), source.record(2, 9, name="b")], 1)
    records = [source.record(1, 1, name="a", amount=1)]
    match reason:
        case "another key":
            refresh(lake, records, 2, 2, key="name")
        case "another type":
            refresh(lake, records, 2, 2, properties=DATA | CDC | {"amount": {"type": ["null", "string"]}})
        case _:
            lake.sync(cdc_catalog(2, 2), [complete()])

    assert [manifest.kind.value for manifest in manifests(lake)] == ["snapshot", "snapshot"]
    assert sorted(stored(lake)) == ([] if reason == "no rows" else [1])


@pytest.mark.parametrize("form", range(len(FORMS)))
def test_a_log_makes_the_table_over_random_refreshes(make_lake: Callable[..., Lake], form: int) -> None:
    log_format, file_format, deletion, images = FORMS[form]
    tables: dict[str, Any] = {"cdc_deletion_mode": deletion}
    if "partitions" in file_format:
        tables["partition_by"] = [{"stream": "users", "column": "id", "transform": "identity"}]
    lake = make_lake(file_format.split()[0], tables, format=log_format, before_image=images[0], after_image=images[1])
    lake.merge_limits = {"least_file_bytes": 6_000}
    chance, source, table = random.Random(form), Source(), Table()
    generation, rows, keys = 1, dict[int, Row](), 16 if "partition_by" in tables else KEYS
    for number in range(1, 9):
        refreshes = number > 1 and chance.random() < 0.5
        generation += refreshes
        lsn = chance.randrange(40) if refreshes else number * 5
        records = [
            replace(record, values=dict.fromkeys(record.values)) if record.deleted else record
            for record in source.random_records(chance, chance.choice((30, 200)), lsn, keys)
        ]
        at = round(START.timestamp() * 1_000)
        expected = table.refresh(records, at=at, soft=deletion == "soft") if refreshes else table.merge(records)
        before = len(manifests(lake))
        run(lake, records, number, cdc_catalog(generation, generation if refreshes else 0))

        found = [record for manifest in manifests(lake)[before:] for record in records_of(lake, manifest)]
        if number > 1:
            assert [(record["op"], record["key"]["id"]) for record in found] == [(event.op, event.id) for event in expected]
        if log_format != "replicant_csv":
            if number > 1:
                assert [(record["new"], record["old"]) for record in found] == [event.images(*images) for event in expected]
            rows = replayed(rows, found, COLUMNS)
            assert rows == table.rows
        assert stored(lake) == table.rows | (table.deleted if deletion == "soft" else {})
    assert generation > 2
    assert any(PLACEHOLDER in record.values.values() for record in records)
    assert lake.verified().problems == ()


def test_rows_under_other_column_rules_neither_stay_nor_show_up(make_lake: Callable[..., Lake]) -> None:
    lake, source = make_lake(tables={"cdc_deletion_mode": "soft"}, before_image="ALL"), Source()
    run(lake, [source.record(1, 1, name="secret"), source.record(2, 1, name="secret")], 1)
    hidden = [{"stream": "*", "column": "name", "action": "null"}]
    lake.options = {**lake.options, "tables": {"cdc_deletion_mode": "soft", "columns": hidden}}
    for generation in (2, 3):
        refresh(lake, [source.record(1, 1, name="secret")] * (generation == 2) + [source.record(3, 1)], generation, generation)

    assert brief(lake) == [[("S", 1), ("S", 2)], [("S", 1), ("S", 3)], [("D", 1)]]
    assert (sorted(stored(lake)), stored(lake)[1]["name"]) == ([1, 3], None)


@pytest.mark.parametrize("file_format", ["Parquet", "JSONL"])
def test_fresh_reads_of_a_refresh_that_waits_have_the_rows_that_it_lacks(make_lake: Callable[..., Lake], file_format: str) -> None:
    lake, source, soft = make_lake(file_format), Source(), {"cdc_deletion_mode": "soft"}
    lake.options = {"tables": soft}
    run(lake, [*(source.record(id_, 1, name="old") for id_ in range(6)), source.record(5, 2, deleted=True)], 1)
    lake.options = {"tables": {**soft, "merge": NEVER}}
    run(lake, [source.record(1, 3, name="late"), source.record(6, 3, name="late")], 2)
    lake.merge_limits = NO_TIME
    refresh(lake, [source.record(id_, 1, name="new") for id_ in (0, 2)], 3, 2)
    run(lake, [source.record(3, 9, name="back")], 4, cdc_catalog(generation=2))

    before = read_fresh(lake)
    lake.options, lake.merge_limits = {"tables": soft}, {}
    run(lake, [], 5, cdc_catalog(generation=2))

    assert {id_: row["name"] for id_, row in stored(lake).items()} == {
        0: "new", 1: "late", 2: "new", 3: "back", 4: "old", 5: "old", 6: "late",
    }  # fmt: skip
    assert before == read_fresh(lake)
    assert lake.verified().problems == ()


def read_fresh(lake: Lake) -> list[dict[str, Any]]:
    return sorted(lake.read(fresh=True).to_table().to_pylist(), key=lambda row: str(row["_airbyte_raw_id"]))


@pytest.mark.parametrize("waits", [False, True], ids=["merged at once", "merged by the next sync"])
def test_a_refresh_may_die_at_any_request(make_lake: Callable[..., Lake], waits: bool) -> None:
    lake, source, chance = make_lake(tables={"cdc_deletion_mode": "soft"}), Source(), random.Random(4)
    run(lake, [source.record(id_, 1, name="first") for id_ in range(20)], 1)
    known = set(range(20))
    for number, (call, end) in enumerate(ends(STEP), 1):
        waiting = [source.record(chance.randrange(20), number, name=f"late {number}")]
        lake.options = {**lake.options, "tables": {"cdc_deletion_mode": "soft", "merge": NEVER}}
        run(lake, waiting, 10 * number, cdc_catalog(number))
        lake.options = {**lake.options, "tables": {"cdc_deletion_mode": "soft"}}
        rows = {id_: f"{chance.randrange(3)}" for id_ in chance.sample(range(20), 12)}
        sent = [source.record(id_, 1, name=name) for id_, name in rows.items()]
        lake.merge_limits = NO_TIME if waits else {}
        with ends_at(lake, call, end) as seen:
            refresh(lake, sent, 10 * number + 1, number + 1)
        lake.merge_limits = {}
        refresh(lake, sent, 10 * number + 1, number + 1)  # the next attempt

        at = f"{end} at call {call} ({seen[-1]})"
        found: dict[int, Row] = {}
        for manifest in manifests(lake):
            found = replayed(found, records_of(lake, manifest), COLUMNS)
        assert {id_: row["name"] for id_, row in found.items()} == rows, at
        assert stored(lake).keys() == known, at
        live = sorted(row["id"] for row in lake.glob() if row["_ab_cdc_deleted_at"] is None)
        assert live == sorted(rows), at
        assert lake.memory.uploads == {}, at
        if len(seen) < call:
            break
    assert call > 12
    assert [manifest.kind.value for manifest in manifests(lake)].count("snapshot") == 1
    assert lake.verified().problems == ()

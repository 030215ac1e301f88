"""The words of a sync's story, and that its line for programs says the same."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime

import orjson
import pytest

from destination_s3_spark.protocol.catalog import parse_catalog
from destination_s3_spark.stream_id import StreamId
from destination_s3_spark.sync.story.lines import (
    MOST_COMMIT_LINES,
    MOST_STREAM_LINES,
    SUMMARY_PREFIX,
    ChangedValueCount,
    Ending,
    Pulse,
    StreamFigures,
    SyncFigures,
    commit_lines,
    heartbeat_line,
    start_line,
    summary_for_programs,
    summary_lines,
    update_lines,
)
from destination_s3_spark.sync.story.phases import Activity, Phase
from destination_s3_spark.tables.commit.batch import CommitResult
from destination_s3_spark.tables.rules import WaitingRows

USERS, ORDERS = StreamId("shop", "users"), StreamId("shop", "orders")
PULSE = Pulse(20.0, 1_204_000, 512_300_000, 60_200.4, 25_600_000.0, 800_000, spark_starting=False, activities=(), silent_s=None)
READING = Activity(Phase.READING)
STREAM = StreamFigures(
    namespace="shop",
    name="users",
    sync_mode="incremental",
    destination_sync_mode="append",
    records_read=1_200,
    bytes_read=100_000,
    records_committed=1_100,
    records_replayed=100,
    records_barred=0,
    rows_in_table=5_000,
    commits=2,
    rewrites=1,
    files_written=1,
    bytes_written=45_600,
    values_changed=(
        ChangedValueCount("age", "NULLED", "DESTINATION_SERIALIZATION_ERROR", 2),
        ChangedValueCount("name", "TRUNCATED", "TOO_LONG", 1),
    ),
    waiting=WaitingRows(1, 1, 900, datetime(2026, 1, 1, tzinfo=UTC), None, "at the next sync"),
)
FIGURES = SyncFigures(
    version="1.2.3",
    ending=Ending.SUCCEEDED,
    seconds=75.4,
    seconds_by_phase={"reading": 60.0, "landing": 30.5},
    records_read=1_200,
    bytes_read=100_000,
    records_committed=1_100,
    states_read=3,
    states_acknowledged=3,
    messages_ignored=1,
    records_of_unknown_streams=0,
    streams=(STREAM,),
    streams_without_records=("shop.orders",),
)


def catalog_of(count: int, **ids: int) -> bytes:
    described = [
        {"stream": {"name": f"s{number}", "json_schema": {}}, "sync_mode": "full_refresh", "destination_sync_mode": "append", **ids}
        for number in range(count)
    ]
    return json.dumps({"streams": described}).encode()


@pytest.mark.parametrize(
    ("count", "told"),
    [
        (1, "syncs 1 stream to s3://lake/x/: s0 (full_refresh, append). As a custom connector: "),
        (200, "s9 (full_refresh, append) and 190 more. As a custom connector: "),
    ],
)
def test_the_start_names_streams_and_modes_and_shortens_long_lists(count: int, told: str) -> None:
    assert told in start_line("1.2.3", "by hand", parse_catalog(catalog_of(count)), "local[2]", "s3://lake/x/")


@pytest.mark.parametrize(
    ("ids", "installation"),
    [
        ({}, "As a custom connector: no generations, no stream statuses"),
        (
            {"generation_id": 0, "minimum_generation_id": 0, "sync_id": 1},
            "As a connector of the registry: generations and stream statuses",
        ),
    ],
)
def test_the_start_says_how_the_connector_is_installed(ids: dict[str, int], installation: str) -> None:
    line = start_line("1.2.3", "by hand", parse_catalog(catalog_of(1, **ids)), "local[2]", "s3://lake/x/")
    assert line.endswith(f"(full_refresh, append). {installation}. Spark runs on local[2], records are typed by hand.")


@pytest.mark.parametrize(
    ("pulse", "read", "doing"),
    [
        (
            replace(PULSE, activities=(READING, Activity(Phase.LANDING, (USERS, ORDERS), 256_000_000))),
            "1,204,000 records, 512.3 MB read (60,200 records/s, 25.6 MB/s)",
            "800,000 committed; 404,000 waiting to be committed; landing shop.users, shop.orders (256.0 MB)",
        ),
        (
            replace(PULSE, records_committed=1_204_000, activities=(READING,), silent_s=12.0),
            "1,204,000 records, 512.3 MB read",
            "1,204,000 committed; waiting for the source, which has sent nothing for 12.0 s",
        ),
        (
            replace(PULSE, records_committed=1_204_000, activities=(Activity(Phase.MERGING, (ORDERS,), 0, 3, 8),), silent_s=40.0),
            "1,204,000 records, 512.3 MB read",
            "1,204,000 committed; merging shop.orders, 3 of 8 parts done; the input has ended",
        ),
        (
            replace(PULSE, records_read=1, records_committed=0, bytes_read=120, spark_starting=True, activities=(READING,), silent_s=1.0),
            "1 record, 120 B read",
            "0 committed; 1 waiting to be committed; Spark is starting; waiting for the source, which has sent nothing for 1.0 s",
        ),
    ],
    ids=["reading and landing", "a silent source", "merging", "starting"],
)
def test_a_heartbeat_says_how_far_the_sync_is_and_what_it_does(pulse: Pulse, read: str, doing: str) -> None:
    assert heartbeat_line(pulse) == f"after 20.0 s: {read}; {doing}"


def test_a_commit_is_a_line_per_table() -> None:
    place = "s3://lake/shop/users/"
    committed = (USERS, CommitResult(7, 1, 1, 8_475, replayed=1), place)
    again = (ORDERS, CommitResult(None, 0, 0, 0, replayed=30), "s3://lake/shop/orders/")
    assert list(commit_lines([committed, again], 1.7)) == [
        f"shop.users: committed 1 record to {place} (1 file, 8.5 kB, block 7, 1.7 s); 1 record already in the table left out",
        "shop.orders: nothing to commit; 30 records already in the table left out",
    ]


def test_a_commit_of_many_tables_names_the_largest() -> None:
    results = [(StreamId(None, f"s{number:03}"), CommitResult(2, 10, 2, 1_000 * number, 0)) for number in range(200)]
    told = list(update_lines(results, 3.0))
    assert len(told) == MOST_COMMIT_LINES
    assert told[0].startswith("s191: wrote 10 rows (2 files, 191.0 kB, block 2, 3.0 s)")
    assert told[-1] == "191 other streams: wrote 1,910 rows in 382 files, 18.1 MB"
    committed = list(commit_lines([(*result, "s3://lake/") for result in results], 3.0))
    assert committed[-1] == "191 other streams: committed 1,910 records in 382 files, 18.1 MB"


def test_the_summary_tells_of_the_sync_and_of_each_stream() -> None:
    whole, users, empty = summary_lines(FIGURES)
    assert whole == (
        "sync succeeded after 1 min 15 s: 1,200 records, 100.0 kB read, 1,100 committed, 3 of 3 states acknowledged, "
        "1 other message ignored. Seconds by phase: reading 1 min 00 s, landing 30.5 s"
    )
    assert users == (
        "shop.users: 1,200 records read, 1,100 committed, 100 already in the table, 5,000 rows in the table, "
        "1 row (1 run, 900 B) waits beside the table since 2026-01-01 00:00 UTC, due at the next sync, 1 file, 45.6 kB written; "
        "3 values nulled or cut: age nulled 2 times (DESTINATION_SERIALIZATION_ERROR), name truncated 1 time (TOO_LONG)"
    )
    assert empty == "1 stream had no records: shop.orders"


def test_the_line_for_programs_has_the_same_figures() -> None:
    line = summary_for_programs(FIGURES)
    said = json.loads(line.removeprefix(SUMMARY_PREFIX))
    assert said == json.loads(orjson.dumps(FIGURES))
    assert (said["ending"], said["streams"][0]["values_changed"][0]["values"]) == ("succeeded", 2)
    assert said["streams"][0]["waiting"]["rows"] == 1


def test_a_sync_of_very_many_streams_is_summed_up_in_a_bounded_number_of_lines() -> None:
    many = replace(FIGURES, streams=tuple(replace(STREAM, name=f"s{number}") for number in range(2_000)))
    lines = list(summary_lines(replace(many, streams_without_records=tuple(f"e{number}" for number in range(3_000)))))
    assert len(lines) == MOST_STREAM_LINES + 3
    assert lines[-2:] == [
        "1,500 more streams had records; the line for programs has their figures",
        "3,000 streams had no records: e0, e1, e2, e3, e4, e5, e6, e7, e8, e9 and 2,990 more",
    ]

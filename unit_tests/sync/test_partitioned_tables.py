"""Partitioned tables: appended to, joined, deduplicated, replaced; and syncs of them killed at any call."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from unit_tests.lake.chain_reader import StreamName, partition
from unit_tests.lake.contents import USERS
from unit_tests.lake.deaths import DYING, deaths
from unit_tests.lake.lake import Lake
from unit_tests.lake.memory_bucket import Fate
from unit_tests.lake.messages import catalog
from unit_tests.lake.outcome import BUCKET_PATH
from unit_tests.lake.shop import complete, record, state, stream

AT = {"type": "string", "format": "date-time", "airbyte_type": "timestamp_with_timezone"}
SCHEMA = {"type": "object", "properties": {"id": {"type": "integer"}, "at": AT, "text": {"type": "string"}}}
KEYED = ("shop", "keyed")
RULE = {"stream": "shop.*", "column": "at", "transform": "day"}
TABLES = {"target_file_mb": 1, "partition_by": [RULE]}
DAYS = ["2026-11-20", "2026-11-21", "__HIVE_DEFAULT_PARTITION__"]
FINAL_ROOT = f"{BUCKET_PATH}/shop/users/"


def streams(sync: int, generation: int = 1, minimum: int = 0) -> dict[str, Any]:
    append = stream(schema=SCHEMA, sync_id=sync, generation=generation, minimum_generation=minimum)
    dedup = stream("keyed", schema=SCHEMA, mode="append_dedup", primary_key=[["id"], ["at"]], cursor_field=[], sync_id=sync)
    return catalog(append, dedup)


def rows(number: int, size: int) -> Iterator[dict[str, Any]]:
    """Rows on two days and on none, whose texts no codec makes smaller. Those of the same place have the same key in every sync."""
    chance = random.Random(number)
    for place in range(6):
        at = None if place % 3 == 2 else f"2026-11-{20 + place % 3}T12:00:00Z"
        yield {"id": place, "at": at, "text": f"{number}:" + chance.randbytes(size // 2).hex()}


def messages(number: int, size: int = 150_000, acknowledged: Sequence[str] = ()) -> list[bytes]:
    """What the source sends of both streams, but for the rows of those that were acknowledged."""
    found: list[bytes] = []
    if "users" not in acknowledged:
        found += [record(row, "users") for row in rows(number, size)]
    if "keyed" not in acknowledged:
        found += [record(row, "keyed", emitted_at=1_700_000_000_000 + number) for row in rows(number, size)]
    return [*found, *(line for name in ("users", "keyed") for line in (state(number, name), complete(name)))]


def partitions(lake: Lake, stream_name: StreamName = USERS) -> list[str]:
    return sorted(partition(file) or "" for file in lake.chains()[stream_name].files("final"))


@pytest.fixture(scope="module")
def joined(make_lake: Callable[[], Lake]) -> Lake:
    """Three syncs: their small files are joined."""
    lake = make_lake()
    connector = lake.connector(tables=TABLES)
    for number in range(3):
        connector.write(streams(number), messages(number)).expect_success()
    return lake


def test_files_are_joined_within_their_partitions(joined: Lake) -> None:
    joined.verify_at_rest()
    assert len(joined.rows(USERS)) == 18
    assert set(partitions(joined)) == set(DAYS)
    assert len(partitions(joined)) < 9
    for file in joined.chains()[USERS].files("final"):
        assert file["inPartition"]
        assert file["key"].removeprefix(f"{FINAL_ROOT}at_day=").partition("/")[0] in DAYS


def test_the_last_version_of_each_key_stays(joined: Lake) -> None:
    assert partitions(joined, KEYED) == DAYS
    found = joined.rows(KEYED)
    assert len(found) == 6
    assert {row["text"].partition(":")[0] for row in found} == {"2"}


def test_a_refresh_replaces_the_partitions(joined: Lake) -> None:
    connector = joined.connector(tables={**TABLES, "partition_by": [{**RULE, "transform": "month"}]})
    outcome = connector.write(streams(6, 2, 2), messages(6, 1000))
    outcome.expect_success()
    joined.verify_at_rest()
    assert partitions(joined) == ["2026-11", DAYS[-1]]
    assert partitions(joined, KEYED) == DAYS
    assert len(joined.rows(USERS)) == 6
    assert len(joined.rows(KEYED)) == 6


@pytest.mark.parametrize("fate", DYING)
def test_a_kill_at_any_call_loses_and_doubles_nothing(lake: Lake, fate: Fate) -> None:
    lake.options = {"tables": TABLES}
    for call in deaths(lake, lambda: lake.sync(streams(1), messages(0, 1000)), fate):
        lake.verify()
        acknowledged = [answer["state"]["stream"]["stream_descriptor"]["name"] for answer in lake.states]
        lake.sync(streams(1), messages(0, 1000, acknowledged))
        lake.verify_at_rest()
        assert lake.ids(USERS) == list(range(6)), call
        assert lake.ids(KEYED) == list(range(6)), call
        assert partitions(lake) == DAYS, call

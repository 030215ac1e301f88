"""Partitioned tables by the installed connector: appended to, joined, deduplicated, replaced; read by Spark; and killed in a commit."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from integration_tests.lake import ProcessLake
from integration_tests.s3_proxy import Fault, S3Proxy, When, s3_proxy
from unit_tests.lake.buckets import S3Server, new_bucket
from unit_tests.lake.chain_reader import StreamName, partition
from unit_tests.lake.contents import USERS
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


def messages(number: int, size: int = 150_000) -> list[bytes]:
    found = [record(row, "users") for row in rows(number, size)]
    found += [record(row, "keyed", emitted_at=1_700_000_000_000 + number) for row in rows(number, size)]
    return [*found, *(line for name in ("users", "keyed") for line in (state(number, name), complete(name)))]


def partitions(lake: ProcessLake, stream_name: StreamName = USERS) -> list[str]:
    return sorted(partition(file) or "" for file in lake.chains()[stream_name].files("final"))


@pytest.fixture(scope="module")
def lake(moto: S3Server, tmp_path_factory: pytest.TempPathFactory) -> ProcessLake:
    """Three syncs: their small files are joined."""
    lake = ProcessLake.of(new_bucket(moto), tmp_path_factory.mktemp("lake"))
    connector = lake.connector(tables=TABLES)
    for number in range(3):
        connector.write(streams(number), messages(number)).expect_success()
    return lake


def test_files_are_joined_within_their_partitions(lake: ProcessLake) -> None:
    lake.verify_at_rest()
    assert len(lake.rows()) == 18
    assert set(partitions(lake)) == set(DAYS)
    assert len(partitions(lake)) < 9
    for file in lake.chains()[USERS].files("final"):
        assert file["inPartition"]
        assert file["key"].removeprefix(f"{FINAL_ROOT}at_day=").partition("/")[0] in DAYS


def test_the_last_version_of_each_key_stays(lake: ProcessLake) -> None:
    assert partitions(lake, KEYED) == DAYS
    found = lake.rows(KEYED)
    assert len(found) == 6
    assert {row["text"].partition(":")[0] for row in found} == {"2"}


def test_spark_reads_only_the_files_of_a_partition(lake: ProcessLake, spark_session: Any, tmp_path: Path) -> None:
    for key in lake.chains()[USERS].final_keys:
        path = tmp_path / key.removeprefix(FINAL_ROOT)
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(lake.bucket.read(key))
    table = spark_session.read.parquet(str(tmp_path))
    assert dict(table.dtypes)["at_day"] == "date"
    assert table.count() == 18
    day = table.where("at_day = DATE '2026-11-21'")
    assert day.count() == 6
    plan = day.select("id")._jdf.queryExecution().executedPlan()
    plan.executeCollect()
    read = plan.collectLeaves().apply(0).metrics().apply("numFiles").value()
    assert read == partitions(lake).count("2026-11-21") < len(partitions(lake))


def test_a_refresh_replaces_the_partitions(lake: ProcessLake) -> None:
    connector = lake.connector(tables={**TABLES, "partition_by": [{**RULE, "transform": "month"}]})
    outcome = connector.write(streams(6, 2, 2), messages(6, 1000))
    outcome.expect_success()
    lake.verify_at_rest()
    assert partitions(lake) == ["2026-11", DAYS[-1]]
    assert partitions(lake, KEYED) == DAYS
    assert len(lake.rows()) == 6
    assert len(lake.rows(KEYED)) == 6


@pytest.fixture(scope="module")
def proxy(moto: S3Server) -> Iterator[S3Proxy]:
    with s3_proxy(moto.endpoint) as found:
        yield found


def test_a_kill_between_the_files_of_partitions_loses_and_doubles_nothing(
    moto: S3Server, proxy: S3Proxy, tmp_path_factory: pytest.TempPathFactory
) -> None:
    lake = ProcessLake.of(new_bucket(moto), tmp_path_factory.mktemp("killed"))
    connector = lake.connector(proxy.endpoint, tables=TABLES)
    with connector.start(streams(1)) as sync:
        kill = Fault("CompleteMultipartUpload", FINAL_ROOT, when=When.AFTER, status=0, times=1, effect=lambda _: sync.kill())
        proxy.inject(kill)
        outcome = sync.send(*messages(0, 1000)).end_input().finish()
    assert outcome.exit_code < 0, f"the fault never came: {outcome.describe()}"
    lake.verify()
    connector.write(streams(1), messages(0, 1000)).expect_success()
    lake.verify_at_rest()
    assert lake.ids() == list(range(6))
    assert sorted(row["id"] for row in lake.rows(KEYED)) == list(range(6))
    assert partitions(lake) == DAYS

"""Partitioned tables, read by Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from unit_tests.lake import memory_s3
from unit_tests.lake.chain_reader import partition
from unit_tests.lake.lake import Lake
from unit_tests.lake.memory_client import SERVER
from unit_tests.lake.messages import catalog
from unit_tests.lake.outcome import BUCKET_PATH
from unit_tests.lake.shop import complete, record, state, stream

AT = {"type": "string", "format": "date-time", "airbyte_type": "timestamp_with_timezone"}
SCHEMA = {"type": "object", "properties": {"id": {"type": "integer"}, "at": AT}}
RULE = {"stream": "shop.*", "column": "at", "transform": "day"}
FINAL_ROOT = f"{BUCKET_PATH}/shop/users/"

memory_s3.install()


def test_spark_reads_only_the_files_of_a_partition(tmp_path: Path, spark_session: Any) -> None:
    lake = Lake(SERVER.create(), tmp_path / "lake", options={"tables": {"partition_by": [RULE], "compaction": "off"}})
    for number in range(3):
        rows = [{"id": day, "at": None if day == 22 else f"2026-11-{day}T12:00:00Z"} for day in (20, 21, 22) for _ in range(2)]
        lake.sync(catalog(stream(schema=SCHEMA)), [*map(record, rows), state(number), complete()])
    chain = lake.chain()
    for key in chain.final_keys:
        path = tmp_path / "copy" / key.removeprefix(FINAL_ROOT)
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_bytes(lake.bucket.read(key))
    table = spark_session.read.parquet(str(tmp_path / "copy"))
    assert dict(table.dtypes)["at_day"] == "date"
    assert table.count() == 18
    day = table.where("at_day = DATE '2026-11-21'")
    assert day.count() == 6
    plan = day.select("id")._jdf.queryExecution().executedPlan()
    plan.executeCollect()
    read = plan.collectLeaves().apply(0).metrics().apply("numFiles").value()
    partitions = [partition(file) for file in chain.files("final")]
    assert read == partitions.count("2026-11-21") < len(partitions)

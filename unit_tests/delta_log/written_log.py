"""Delta logs over a bucket in memory, and a local copy of them for delta-rs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa

from destination_s3_spark.delta_log.actions import Action, Add, CommitInfo, Metadata, Protocol, Transaction, delta_columns, encode_commit
from destination_s3_spark.delta_log.log import DeltaLog
from unit_tests.chain.bucket import Bucket
from unit_tests.schema.of_arrow import fields_of

ROOT = "lake/users/"
PROTOCOL = Protocol(1, 7, writer_features=["appendOnly", "invariants", "ourOwn"])
COLUMNS = pa.schema([("id", pa.int64()), ("name", pa.string())])
METADATA = Metadata(
    "5e7c42c1-0000-4000-8000-000000000000", delta_columns(fields_of(COLUMNS)).schema_string, [], {"delta.checkpointInterval": "10"}
)


def added(number: int, **more: Any) -> Add:
    stats = f'{{"numRecords":1,"minValues":{{"id":{number}}},"maxValues":{{"id":{number}}},"nullCount":{{"id":0,"name":1}}}}'
    return Add(
        more.get("path", f"{number}.parquet"),
        more.get("partition_values", {}),
        more.get("size", 10),
        1,
        more.get("data_change", True),
        more.get("stats", stats),
    )


def commit(*actions: Action, name: str = "x") -> bytes:
    return encode_commit([CommitInfo(1, "WRITE", {}, "engine", name), *actions])


def begun(store: Bucket, versions: int = 1) -> DeltaLog:
    """A log of the table `t` with one file per version."""
    log = DeltaLog(store, ROOT)
    for version in range(versions):
        header: list[Action] = [PROTOCOL, METADATA] if version == 0 else []
        log.create(version, commit(*header, Transaction("t", version, 5), added(version), name=str(version)))
    return log


def in_delta_rs(store: Bucket, directory: Path) -> deltalake.DeltaTable:
    """The log as delta-rs reads it."""
    for key, body in store.objects.items():
        path = directory / key.removeprefix(ROOT)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(body)
    return deltalake.DeltaTable(directory)


def adds_of(table: deltalake.DeltaTable) -> dict[str, dict[str, Any]]:
    rows = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    return {row["path"]: row for row in rows}

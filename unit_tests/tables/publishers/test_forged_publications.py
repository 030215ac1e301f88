"""Publications that claim a block which the chain does not have: whoever may write in a table's folder or its catalog can make one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from destination_s3_spark.storage.settings import S3Settings
from destination_s3_spark.tables.publishers.symlink import MANIFEST, OWNER_METADATA, SEQUENCE, TIME
from unit_tests.cases import each
from unit_tests.lake.fixtures import lake, make_lake
from unit_tests.lake.lake import Lake
from unit_tests.lake.messages import catalog, complete, records, state, stream
from unit_tests.tables.publishers.iceberg.lake import reader

__all__ = ["lake", "make_lake"]
ROOT = "lake/users/"
LATER = "2999-01-01T00:00:00.000000+00:00"
CATALOG = catalog(stream())


def sync(lake: Lake, *ids: int, **options: Any) -> None:
    lake.sync(CATALOG, [records({"id": number} for number in ids), state(1), complete()], **options)


def forge_manifest(lake: Lake, number: int, time: str = LATER) -> None:
    own = lake.store.head(ROOT + MANIFEST)
    assert own is not None
    forged = {SEQUENCE: str(number), TIME: time, OWNER_METADATA: own.metadata[OWNER_METADATA]}
    lake.store.put(ROOT + MANIFEST, b"s3://bucket/forged.parquet\n", forged)


def head_of(lake: Lake) -> int:
    return lake.own_chain().head.sequence_number


@each("ahead", [0, 1, 2, 3, 4, 9_999, 10**30])
@each("ids", [(2,), ()])
def test_a_symlink_manifest_of_no_block_does_not_stay(lake: Lake, ahead: int, ids: tuple[int, ...]) -> None:
    sync(lake, 1)
    before = lake.manifest()
    if ahead == 0 and not ids:
        return  # it says of itself that it shows the last data
    forge_manifest(lake, head_of(lake) + ahead)
    sync(lake, *ids)

    listed = lake.manifest() or []
    assert "forged.parquet" not in " ".join(listed)
    assert len(listed) >= len(before or [])


def test_a_delta_log_of_no_block_does_not_stay(make_lake: Callable[[], Lake]) -> None:
    for ahead in (1, 3, 9_999):
        lake = make_lake()
        lake.options = {"publish": {"delta": True}}
        sync(lake, 1)
        newest = max(info.key for info in lake.store.list(f"{ROOT}_delta_log/") if info.key.endswith(".json"))
        actions = [json.loads(line) for line in lake.store.get(newest).splitlines()]
        (txn,) = (action["txn"] for action in actions if "txn" in action)
        (added,) = (action["add"]["path"] for action in actions if "add" in action)
        forged = {"txn": {**txn, "version": head_of(lake) + ahead, "lastUpdated": txn["lastUpdated"] + 10**10}}
        removed = {"remove": {"path": added, "dataChange": True, "deletionTimestamp": 1}}
        number = int(newest.rpartition("/")[2].removesuffix(".json")) + 1
        info = {"commitInfo": actions[0].get("commitInfo", {})}
        body = "\n".join(json.dumps(action) for action in (info, forged, removed))
        lake.store.put(f"{ROOT}_delta_log/{number:020d}.json", body.encode())
        sync(lake, 2)

        last = max(info.key for info in lake.store.list(f"{ROOT}_delta_log/") if info.key.endswith(".json"))
        paths = {action["add"]["path"] for line in lake.store.get(last).splitlines() if "add" in (action := json.loads(line))}
        assert added in paths, ahead


def test_an_iceberg_table_of_no_block_does_not_stay(served_settings: S3Settings, tmp_path: Path) -> None:
    iceberg = {"type": "sql", "database_uri": f"sqlite:///{tmp_path}/catalog.db", "catalog_name": "lake"}
    lake = Lake(served_settings, tmp_path, options={"publish": {"iceberg": iceberg}})
    sync(lake, 1)
    table = reader(tmp_path, served_settings).load_table(("default", "users"))
    table.transaction().set_properties({"airbyte.block": "9999", "airbyte.block-time": LATER}).commit_transaction()
    sync(lake, 2)

    found = reader(tmp_path, served_settings).load_table(("default", "users")).scan().to_arrow()
    assert sorted(found["id"].to_pylist()) == [1, 2]

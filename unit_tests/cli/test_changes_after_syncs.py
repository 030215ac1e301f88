"""The `changes` command on logs that syncs wrote: what it prints, replayed, is the table."""

from __future__ import annotations

from typing import Any

from unit_tests.lake.lake import Lake
from unit_tests.lake.messages import JsonObject, catalog
from unit_tests.lake.shop import complete, record, state, stream
from unit_tests.lake.table_readers import without_meta

SCHEMA: JsonObject = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "name": {"type": "string"},
        "score": {"type": "number"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "_ab_cdc_lsn": {"type": "integer"},
        "_ab_cdc_updated_at": {"type": "string"},
        "_ab_cdc_deleted_at": {"type": "string"},
    },
}
CATALOG = catalog(stream(schema=SCHEMA, mode="append_dedup", primary_key=[["id"]], cursor_field=["_ab_cdc_lsn"]))
NOW = "2026-03-01T00:00:00Z"


def change(lsn: int, number: int, **data: Any) -> bytes:
    return record({"id": number, **data, "_ab_cdc_lsn": lsn, "_ab_cdc_updated_at": NOW})


def messages(*changes: bytes) -> list[bytes]:
    return [*changes, state(1), complete()]


FIRST = messages(
    change(1, 1, name="Ada", score=1.5, tags=["x", 'y"']),
    change(1, 2, name="NULL", score=10, tags=[]),
    change(1, 3, name="a,b\nc"),
)
SECOND = messages(
    change(5, 4, name="new"),
    change(6, 1, name="Ada", score=2.5, tags=["x"]),
    change(7, 1, name=None, score=2.5, tags=["x"]),
    change(8, 2, _ab_cdc_deleted_at=NOW),
    change(9, 2, name="back again", score=None),
    change(10, 4, name="gone", _ab_cdc_deleted_at=NOW),
)


def test_the_log_replayed_is_the_table_and_was_put_in_order_on_the_local_disk(lake: Lake) -> None:
    connector = lake.connector(change_log={"enabled": True})
    connector.write(CATALOG, FIRST).expect_success()
    connector.write(CATALOG, SECOND).expect_success()

    assert [call for call in lake.memory.calls if call.key.endswith(".arrows")] == []
    done = connector.run("changes", "--namespace", "shop", "--stream", "users", "--latest-snapshot")
    assert (done.exit_code, done.stderr) == (0, "")
    records = done.messages

    assert [(r["sequence"], r["op"], r["key"]["id"]) for r in records] == [
        *((n, "S", n) for n in (1, 2, 3)),
        *((4, "I", 4), (5, "U", 1), (6, "U", 1), (7, "D", 2), (8, "I", 2), (9, "D", 4)),
    ]
    rows: dict[int, dict[str, Any]] = {}
    for found in records:
        key = found["key"]["id"]
        if found["op"] == "D":
            del rows[key]
        else:
            rows[key] = {**rows.get(key, {}), **found["new"]}
    table = [{name: value for name, value in without_meta(row).items() if not name.startswith("_ab_cdc_")} for row in lake.rows()]
    assert sorted(rows.values(), key=lambda row: row["id"]) == sorted(table, key=lambda row: row["id"])

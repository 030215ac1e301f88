"""`rebuild` as an operator runs it: final tables made anew from raw tables, and the reasons why not."""

from __future__ import annotations

from typing import Any

import pytest

from unit_tests.lake.lake import Lake
from unit_tests.lake.messages import catalog
from unit_tests.lake.shop import complete, record, state, stream
from unit_tests.lake.table_readers import Row

NAMESPACE = "shop"
SCHEMA = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "name": {"type": "string"},
        "amount": {"type": "number"},
        "_ab_cdc_deleted_at": {"type": "string", "format": "date-time"},
    },
}
RETYPED = {**SCHEMA, "properties": {**SCHEMA["properties"], "amount": {"type": "string"}, "added": {"type": "boolean"}}}  # type: ignore[dict-item]


def declared(schema: dict[str, Any], sync_id: int) -> dict[str, Any]:
    shared: dict[str, Any] = {"schema": schema, "sync_id": sync_id}
    return catalog(
        stream("orders", NAMESPACE, mode="append_dedup", primary_key=[["id"]], cursor_field=[], **shared),
        stream("events", NAMESPACE, **shared),
    )


def sent(sync: int) -> list[bytes]:
    """The same records for both streams: new ids, newer versions, a deletion, a value and keys that do not fit."""
    lines = []
    for name in ("orders", "events"):
        rows: list[dict[str, Any]] = [{"id": i, "name": f"{sync}", "amount": i / 2} for i in range(sync * 5, sync * 5 + 10)]
        rows += [{"id": sync, "_ab_cdc_deleted_at": "2026-01-01T00:00:00Z"}, {"id": 100 + sync, "amount": "x", "added": True}]
        rows += [{"id": 10**19 + number, "name": f"{sync}"} for number in (-1, sync)]
        lines += [record(row, name, NAMESPACE, emitted_at=1_000 * (sync + 1) + place) for place, row in enumerate(rows)]
        lines += [state(sync, name, NAMESPACE), complete(name, NAMESPACE)]
    return lines


@pytest.fixture
def written(lake: Lake) -> Lake:
    """Two tables with three syncs each, the last of which changed a column's type."""
    connector = lake.connector()
    for sync, schema in enumerate((SCHEMA, SCHEMA, RETYPED)):
        connector.write(declared(schema, sync + 1), sent(sync)).expect_success()
    return lake


def test_rebuilt_tables_have_the_same_rows_and_a_sync_goes_on(written: Lake) -> None:
    names = ("orders", "events")
    before = {name: by_id(written.rows((NAMESPACE, name))) for name in names}
    keys = {name: set(written.chains()[NAMESPACE, name].final_keys) for name in names}
    done = written.connector().run("rebuild", "--stream", "*")

    assert (done.exit_code, done.stderr) == (0, "")
    for name in names:
        assert f"{len(before[name])} rows are as before, 0 are gone, 0 are new" in done.text
        assert by_id(written.rows((NAMESPACE, name))) == before[name]
        assert keys[name].isdisjoint(written.chains()[NAMESPACE, name].final_keys), "the files are the old ones"
    written.verify_at_rest()

    written.connector().write(declared(RETYPED, 9), sent(7)).expect_success()
    assert {row["id"] for row in written.rows((NAMESPACE, "orders"))} >= set(range(35, 45)) - {7}
    written.verify_at_rest()


def test_a_table_whose_raw_rows_were_not_all_kept_is_refused_with_the_numbers(lake: Lake) -> None:
    connector = lake.connector()
    for raw_tables in (True, False):
        connector.write(declared(SCHEMA, 1), sent(int(raw_tables)), tables={"raw_tables": raw_tables}).expect_success()
    before = by_id(lake.rows((NAMESPACE, "orders")))
    done = connector.run("rebuild", "--stream", "orders")

    assert done.exit_code == 1
    assert "which has 14 of the 28 records" in done.stderr
    assert by_id(lake.rows((NAMESPACE, "orders"))) == before


def test_a_table_in_a_shared_folder_gets_no_manifest(lake: Lake) -> None:
    """It would list the files of one of the tables, and readers of the folder would miss the others."""
    connector = lake.connector(s3_path_format="${NAMESPACE}/all/")
    streams = catalog(*(stream(name, NAMESPACE, schema=SCHEMA) for name in ("orders", "events")))
    connector.write(streams, sent(0)).expect_success()
    done = connector.run("rebuild", "--stream", "events")

    assert done.exit_code == 0, done.stderr
    assert [lake.manifest((NAMESPACE, name)) for name in ("orders", "events")] == [None, None]


def test_a_stream_without_a_table_and_no_stream_at_all_are_refused(written: Lake) -> None:
    unknown = written.connector().run("rebuild", "--stream", "nobody")
    none = written.connector().run("rebuild")

    assert (unknown.exit_code, none.exit_code) == (1, 2)
    assert "There is no table of stream nobody" in unknown.stderr
    assert "say which with --stream" in none.stderr


def by_id(rows: list[Row]) -> list[Row]:
    """The rows in the order of their ids, without nulls: a column that came later is absent in older files and null in newer ones."""
    ordered = sorted(rows, key=lambda row: str(row["_airbyte_raw_id"]))
    return [{name: value for name, value in row.items() if value is not None} for row in ordered]

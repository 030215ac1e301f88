"""`forget` as an operator runs it, after syncs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from unit_tests.lake.inline_connector import InlineConnector
from unit_tests.lake.lake import Lake
from unit_tests.lake.messages import JsonObject, catalog
from unit_tests.lake.shop import complete, record, state, stream

SCHEMA: JsonObject = {"type": "object", "properties": {"id": {"type": "integer"}, "mail": {"type": "string"}}}
LATER: JsonObject = {"raw_tables": True, "merge": [{"stream": "*", "at_least_every_hours": 1000}]}


def forget(connector: InlineConnector, *options: str, exit_code: int = 0) -> str:
    done = connector.run("forget", *options)
    assert done.exit_code == exit_code, done.describe()
    return done.text + done.stderr


def test_rows_of_two_tables_are_forgotten_while_some_wait(lake: Lake, tmp_path: Path) -> None:
    users = stream("users", schema=SCHEMA, mode="append_dedup", primary_key=[["id"]], cursor_field=[], sync_id=7)
    both: Any = catalog(users, stream("events", schema=SCHEMA))
    connector = lake.connector(tables=LATER)
    for number in (1, 2):
        sent = [record({"id": one, "mail": f"{one}@{number}"}, name) for name in ("users", "events") for one in (1, 2, 3)]
        states = [line for name in ("users", "events") for line in (state(number, name), complete(name))]
        connector.write(both, [*sent, *states]).expect_success()

    keys, done = tmp_path / "keys.jsonl", tmp_path / "done.jsonl"
    keys.write_text('{"id": 2}\n{"id": 3, "mail": "3@1"}\n')
    assert "would forget" in forget(connector, "--stream", "*", "--keys", str(keys), "--dry-run")
    assert "cannot be written" in forget(connector, "--stream", "*", "--keys", str(keys), "--record", str(tmp_path), exit_code=1)
    assert len(lake.rows(("shop", "users"))) == 3
    done.write_text('{"stream": {"name": "before"}, "rows": {}}\n')
    said = forget(connector, "--stream", "*", "--keys", str(keys), "--record", str(done))
    records = map(json.loads, done.read_text().splitlines())
    forgotten = {one["stream"]["name"]: {kind: rows for kind, rows in one["rows"].items() if rows} for one in records}

    assert forgotten == {
        "before": {},
        "users": {"final": 2, "raw": 4, "waiting": 2},
        "events": {"final": 3, "raw": 3},
    }
    assert "3@1" not in said
    assert [row["id"] for row in lake.rows(("shop", "users"))] == [1]
    assert sorted(row["mail"] for row in lake.rows(("shop", "events"))) == ["1@1", "1@2", "3@2"]
    assert not [row for row in lake.raw_rows(("shop", "users")) if '"id":1' not in row["_airbyte_data"].replace(" ", "")]
    lake.verify()
    assert "forgot 0 rows" in forget(connector, "--stream", "*", "--where", '{"id": 2}')
    assert "no column of the field" in forget(connector, "--stream", "*", "--where", '{"name": "x"}', exit_code=1)


def test_what_hangs_on_forgotten_rows_goes_with_them(lake: Lake, tmp_path: Path) -> None:
    orders: JsonObject = {"type": "object", "properties": {"id": {"type": "integer"}, "user_id": {"type": "integer"}}}
    users = stream("users", schema=SCHEMA, mode="append_dedup", primary_key=[["id"]], cursor_field=[], sync_id=7)
    sent = [record({"id": one, "mail": f"{one}@1"}, "users") for one in (1, 2)]
    sent += [record({"id": 10 * one, "user_id": one}, "orders") for one in (1, 2, 2)]
    states = [line for name in ("users", "orders") for line in (state(1, name), complete(name))]
    connector = lake.connector()
    connector.write(catalog(users, stream("orders", schema=orders)), [*sent, *states]).expect_success()

    cascade, done = tmp_path / "cascade.json", tmp_path / "done.jsonl"
    cascade.write_text('[{"stream": "orders", "column": "user_id", "references": {"stream": "users", "column": "id"}}]')
    options = ("--stream", "users", "--where", '{"mail": "2@1"}', "--cascade", str(cascade), "--record", str(done))
    assert "shop.orders: would forget 4 rows" in forget(connector, *options, "--dry-run")
    forget(connector, *options)
    assert [json.loads(one)["stream"]["name"] for one in done.read_text().splitlines()] == ["orders", "users"]
    assert [row["id"] for row in lake.rows(("shop", "users"))] == [1]
    assert [row["id"] for row in lake.rows(("shop", "orders"))] == [10]
    lake.verify()
    cascade.write_text('[{"stream": "orders"}]')
    assert "0.column: Field required" in forget(connector, *options, exit_code=1)


def test_records_of_keys_that_are_forgotten_for_good_are_counted_and_left_out(lake: Lake) -> None:
    users: Any = catalog(stream("users", schema=SCHEMA, mode="append_dedup", primary_key=[["id"]], cursor_field=[], sync_id=7))
    connector = lake.connector()
    sent = [record({"id": one, "mail": f"{one}@1"}, "users") for one in (1, 2)]
    connector.write(users, [*sent, state(1, "users"), complete("users")]).expect_success()
    said = forget(connector, "--stream", "users", "--where", '{"mail": "2@1"}', "--forever")
    assert "records with 2 keys are left out from then on" in said

    sent = [record({"id": one, "mail": f"{one}@2"}, "users") for one in (1, 2, 3, 2)]
    again = connector.write(users, [*sent, state(2, "users"), complete("users")]).expect_success()
    assert [one["destinationStats"]["recordCount"] for one in again.states] == [4]
    assert "4 records read, 2 committed, 2 with forgotten keys left out" in again.log_text
    assert [row["id"] for row in lake.rows(("shop", "users"))] == [1, 3]
    assert not [row for row in lake.raw_rows(("shop", "users")) if '"id":2' in row["_airbyte_data"].replace(" ", "")]
    assert "2 keys for good, 2 records left out since" in connector.run("inspect", "users").text
    lake.verify()

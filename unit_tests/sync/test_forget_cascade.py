"""Forgetting of rows with those of other streams that hang on them, also if the command dies at any call."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from destination_s3_spark.chain.files import FileKind
from destination_s3_spark.cli.forget_command import Request, forget, parse_cascade
from destination_s3_spark.cli.maintenance import Workshop
from destination_s3_spark.errors import ConfigError
from destination_s3_spark.protocol.catalog import Catalog, parse_catalog
from destination_s3_spark.storage.s3 import S3Store
from destination_s3_spark.tables.configured import column_rules
from destination_s3_spark.tables.forgetting.wanted import Subject
from destination_s3_spark.tables.updates.resources import Resources, TaskResources
from unit_tests.examples import one_of
from unit_tests.sync.inline_lake import InlineEngine, line
from unit_tests.sync.test_forget import MARK, NUMBER, SECRET, Lake, _Died, dying

STREAMS: dict[str, tuple[str, dict[str, Any]]] = {
    "users": ("append_dedup", {"id": {"type": "integer"}, "boss": {"type": "integer"}, "name": {"type": "string"}}),
    "orders": ("append", {"id": {"type": "integer"}, "user": {"type": "string"}, "name": {"type": "string"}}),
    "items": ("append_dedup", {"id": {"type": "integer"}, "order": {"type": "number"}, "name": {"type": "string"}}),
}
CASCADE = [
    {"stream": "items", "column": "order", "references": {"stream": "orders", "column": "id"}},
    {"stream": "shop.orders", "column": "user", "references": {"stream": "users", "column": "id"}},
]
BOSSES = [{"stream": "users", "column": "boss", "references": {"stream": "users", "column": "id"}}, *CASCADE]
ORDER = NUMBER + 1


def streams(namespace: str = "shop") -> Catalog:
    entries = [
        {
            "stream": {
                "name": name,
                "namespace": namespace,
                "json_schema": {"type": "object", "properties": properties},
                "supported_sync_modes": ["incremental"],
            },
            "sync_mode": "incremental",
            "destination_sync_mode": mode,
            "primary_key": [["id"]],
            "cursor_field": [],
            "generation_id": 1,
            "minimum_generation_id": 0,
            "sync_id": 1,
        }
        for name, (mode, properties) in STREAMS.items()
    ]
    return parse_catalog(json.dumps({"streams": entries}).encode())


def complete(name: str, namespace: str) -> bytes:
    report = {"stream_descriptor": {"name": name, "namespace": namespace}, "status": "COMPLETE"}
    return line({"type": "TRACE", "trace": {"type": "STREAM_STATUS", "emitted_at": 1, "stream_status": report}})


@dataclass
class ShopLake(Lake):
    def send(self, data: Mapping[str, Iterable[dict[str, Any]]], namespace: str = "shop") -> None:
        self.syncs += 1
        records = [
            line({"type": "RECORD", "record": {"stream": name, "namespace": namespace, "emitted_at": self.syncs, "data": one}})
            for name, rows in data.items()
            for one in rows
        ]
        end = line({"type": "STATE", "state": {"type": "GLOBAL", "global": {"shared_state": {"n": self.syncs}, "stream_states": []}}})
        self.sync(streams(namespace), [*records, end, *(complete(name, namespace) for name in STREAMS)])

    def forget_all(
        self, wanted: dict[str, Any], cascade: list[dict[str, Any]], *, dry_run: bool = False, forever: bool = False
    ) -> dict[str, dict[str, Any]]:
        """Run the command on the users, and return its records by stream."""
        factory = self.factory()
        every = factory.find()
        links = parse_cascade(json.dumps(cascade).encode(), lambda name: factory.choose(every, name, None))
        records: list[dict[str, Any]] = []
        with ThreadPoolExecutor(2) as pool:
            engine: Any = InlineEngine()
            resources = Resources(TaskResources(self.settings, 2**26), 2, None)
            tools = Workshop(replace(factory, map_files=pool.map), engine, pool, resources, factory.publishers(every))
            subjects = [Subject.parse(json.dumps(wanted).encode(), "number 1")]
            request = Request(subjects, dry_run, column_rules(self.config()), links, forever)
            forget(tools, factory.choose(every, "users", None), request, records.append)
        return {one["stream"]["name"]: one for one in records}

    def names(self, stream: str) -> list[str]:
        store = S3Store(self.settings)
        factory = self.factory()
        (found,) = factory.choose(factory.find(), stream, None)
        files = factory.read_chain(found).live_files().of(FileKind.FINAL)
        return sorted(row["name"] for file in files for row in pq.read_table(pa.BufferReader(store.get(file.key))).to_pylist())


@pytest.fixture
def lake(s3_settings: Any, tmp_path: Any) -> ShopLake:
    return ShopLake(s3_settings, tmp_path)


def filled(lake: ShopLake) -> None:
    """Syncs after which a person has orders, and these have items, beside those of others."""
    lake.versioned()
    lake.send(
        {
            "users": [{"id": NUMBER, "name": MARK}, {"id": 2, "name": "two"}],
            "orders": [{"id": 20, "user": "2", "name": "two"}, {"id": ORDER, "user": NUMBER, "name": MARK}],
            "items": [{"id": 200, "order": 20, "name": "two"}, {"id": 201, "order": ORDER, "name": MARK}],
        }
    )
    lake.send({"items": [{"id": 202, "order": f"{ORDER}", "name": MARK}, {"id": 201, "order": ORDER, "name": f"{MARK}2"}]})


def test_what_hangs_on_a_forgotten_row_goes_through_several_streams(lake: ShopLake, capsys: pytest.CaptureFixture[str]) -> None:
    filled(lake)
    before = sorted(lake.versions())
    assert lake.forget_all({"name": MARK}, CASCADE, dry_run=True) == {}
    assert sorted(lake.versions()) == before
    said = capsys.readouterr().out
    assert [line.partition(":")[0] for line in said.splitlines() if "would forget" in line] == ["shop.items", "shop.orders", "shop.users"]

    records = lake.forget_all({"name": MARK}, CASCADE)
    assert lake.holding() == []
    assert list(records) == ["items", "orders", "users"]
    assert {name: one["rows"]["raw"] for name, one in records.items()} == {"items": 3, "orders": 1, "users": 1}
    assert [one["references"] for one in records.values()] == [["shop.orders.id"], ["shop.users.id"], []]
    assert str(NUMBER) not in json.dumps(records) + said
    assert {name: lake.names(name) for name in STREAMS} == {"users": ["two"], "orders": ["two"], "items": ["two"]}


def test_what_hangs_on_a_row_that_is_forgotten_for_good_stays_out_too(lake: ShopLake) -> None:
    filled(lake)
    records = lake.forget_all({"name": MARK}, CASCADE, forever=True)
    assert {name: one["keysForever"] for name, one in records.items()} == {"items": 3, "orders": 1, "users": 2}
    lake.send(
        {
            "users": [{"id": NUMBER, "name": "other"}, {"id": 5, "name": "five"}],
            "orders": [{"id": 50, "user": NUMBER, "name": MARK}, {"id": 51, "user": "5", "name": "five"}],
            "items": [
                {"id": 202, "order": 51, "name": MARK},
                {"id": 500, "order": ORDER, "name": MARK},
                {"id": 501, "order": 51, "name": "five"},
            ],
        }
    )
    assert {name: lake.names(name) for name in STREAMS} == {name: ["five", "two"] for name in STREAMS}
    assert lake.holding() == []


def test_rows_hang_on_rows_of_their_own_table(lake: ShopLake) -> None:
    filled(lake)
    bosses = [{"id": 4, "boss": 3, "name": "four"}, {"id": 3, "boss": NUMBER, "name": "three"}]
    lake.send({"users": bosses, "orders": [{"id": 40, "user": "4", "name": "four"}]})
    records = lake.forget_all({"id": NUMBER}, BOSSES)
    assert {name: one["asked"]["objects"] for name, one in records.items()} == {"items": 2, "orders": 3, "users": 4}
    assert {name: lake.names(name) for name in STREAMS} == {"users": ["two"], "orders": ["two"], "items": ["two"]}


def test_rows_are_found_by_the_value_that_was_asked_for_though_their_parent_is_gone(lake: ShopLake) -> None:
    filled(lake)
    lake.forget_all({"id": NUMBER}, [])
    assert MARK in lake.names("orders")
    assert lake.forget_all({"name": "nobody"}, CASCADE).keys() == {"users"}
    assert MARK in lake.names("orders")
    lake.forget_all({"id": NUMBER}, CASCADE)
    assert lake.holding() == []


def test_rows_hang_on_values_that_only_the_change_log_has(lake: ShopLake) -> None:
    lake.options = {"change_log": {"enabled": True, "before_image": "ALL"}, "tables": {"raw_tables": False}}
    lake.versioned()
    lake.send({"users": [{"id": NUMBER, "name": f"{MARK} before"}, {"id": 2, "name": "two"}]})
    lake.send({"users": [{"id": NUMBER, "name": MARK}]})
    lake.send({"orders": [{"id": ORDER, "user": f"{MARK} before", "name": MARK}, {"id": 20, "user": "two", "name": "two"}]})
    by_name = [{"stream": "orders", "column": "user", "references": {"stream": "users", "column": "name"}}]
    done = lake.forget_all({"id": NUMBER}, by_name)
    assert (done["users"]["rows"]["final"], done["orders"]["rows"]["final"]) == (1, 1)
    assert lake.names("orders") == ["two"]
    assert lake.holding() == []


def test_values_are_found_as_rules_made_them(lake: ShopLake) -> None:
    rules = [{"stream": "users", "column": "id", "action": "hash"}, {"stream": "orders", "column": "user", "action": "hash"}]
    lake.options = {"tables": {"columns": rules, "hash_secret": SECRET}}
    filled(lake)
    lake.forget_all({"name": MARK}, CASCADE)
    assert (lake.names("orders"), lake.names("items")) == (["two"], ["two"])


@pytest.mark.parametrize(
    ("cascade", "said"),
    [
        ([*CASCADE, {"stream": "users", "column": "id", "references": {"stream": "items", "column": "id"}}], "is a circle: .* → "),
        ([{"stream": "nobody", "column": "id", "references": {"stream": "users", "column": "id"}}], "no table of stream nobody"),
        ([{"stream": "*", "column": "id", "references": {"stream": "users", "column": "id"}}], r"may be any of shop.items, shop.orders"),
        ([{"stream": "orders", "column": "user", "references": "users"}], r"0\.references: "),
        ([{"stream": "orders", "column": "user", "references": {"stream": "users", "column": "id"}, "deep": 1}], r"0\.deep: "),
        ({}, "JSON array of objects such as"),
        ([{"stream": "orders", "column": "buyer", "references": {"stream": "users", "column": "id"}}], "no column of the field 'buyer'"),
        ([{"stream": "orders", "column": "id", "references": {"stream": "users", "column": "name"}}], "does not fit the type"),
    ],
)
def test_a_cascade_that_cannot_be_followed_changes_nothing(lake: ShopLake, cascade: Any, said: str) -> None:
    filled(lake)
    before = sorted(lake.versions())
    with pytest.raises(ConfigError, match=said):
        lake.forget_all({"id": NUMBER}, cascade)
    assert sorted(lake.versions()) == before


@pytest.mark.parametrize("start", one_of(range(16)))
def test_a_command_that_dies_anywhere_ends_when_it_is_run_again(start: int, lake: ShopLake, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(lake)
    at = start
    while True:
        with dying(monkeypatch, at):
            try:
                lake.forget_all({"name": MARK}, CASCADE)
                break
            except _Died:
                at += 16
        left = {name for name in STREAMS if any(name in key for key in lake.holding())}
        assert left in ({"users", "orders", "items"}, {"users", "orders"}, {"users"}, set())
    assert lake.holding() == []
    assert {name: lake.names(name) for name in STREAMS} == {"users": ["two"], "orders": ["two"], "items": ["two"]}

"""Forgetting of rows with those of other streams that hang on them, also if the command dies at any call."""

from __future__ import annotations

import json
from typing import Any

import pytest

from destination_s3_spark.errors import ConfigError
from unit_tests.sampling import sample
from unit_tests.sync.forgetful_lake import MARK, NUMBER, SECRET, dying_everywhere
from unit_tests.sync.shop_lake import STREAMS, ShopLake

CASCADE = [
    {"stream": "items", "column": "order", "references": {"stream": "orders", "column": "id"}},
    {"stream": "shop.orders", "column": "user", "references": {"stream": "users", "column": "id"}},
]
BOSSES = [{"stream": "users", "column": "boss", "references": {"stream": "users", "column": "id"}}, *CASCADE]
ORDER = NUMBER + 1


@pytest.fixture
def lake(s3_settings: Any, tmp_path: Any) -> ShopLake:
    return ShopLake(s3_settings, tmp_path)


def filled(lake: ShopLake) -> None:
    """Syncs after which a person has orders, and these have items, beside those of others."""
    lake.keep_versions()
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
    assert lake.forget_all({"name": MARK}, cascade=CASCADE, dry_run=True) == {}
    assert sorted(lake.versions()) == before
    said = capsys.readouterr().out
    assert [line.partition(":")[0] for line in said.splitlines() if "would forget" in line] == ["shop.items", "shop.orders", "shop.users"]

    records = lake.forget_all({"name": MARK}, cascade=CASCADE)
    assert lake.holding() == []
    assert list(records) == ["items", "orders", "users"]
    assert {name: one["rows"]["raw"] for name, one in records.items()} == {"items": 3, "orders": 1, "users": 1}
    assert [one["references"] for one in records.values()] == [["shop.orders.id"], ["shop.users.id"], []]
    assert str(NUMBER) not in json.dumps(records) + said
    assert {name: lake.names(name) for name in STREAMS} == {"users": ["two"], "orders": ["two"], "items": ["two"]}


def test_what_hangs_on_a_row_that_is_forgotten_for_good_stays_out_too(lake: ShopLake) -> None:
    filled(lake)
    records = lake.forget_all({"name": MARK}, cascade=CASCADE, forever=True)
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
    records = lake.forget_all({"id": NUMBER}, cascade=BOSSES)
    assert {name: one["asked"]["objects"] for name, one in records.items()} == {"items": 2, "orders": 3, "users": 4}
    assert {name: lake.names(name) for name in STREAMS} == {"users": ["two"], "orders": ["two"], "items": ["two"]}


def test_rows_are_found_by_the_value_that_was_asked_for_though_their_parent_is_gone(lake: ShopLake) -> None:
    filled(lake)
    lake.forget_all({"id": NUMBER}, cascade=[])
    assert MARK in lake.names("orders")
    assert lake.forget_all({"name": "nobody"}, cascade=CASCADE).keys() == {"users"}
    assert MARK in lake.names("orders")
    lake.forget_all({"id": NUMBER}, cascade=CASCADE)
    assert lake.holding() == []


def test_rows_hang_on_values_that_only_the_change_log_has(lake: ShopLake) -> None:
    lake.options = {"change_log": {"enabled": True, "before_image": "ALL"}, "tables": {"raw_tables": False}}
    lake.keep_versions()
    lake.send({"users": [{"id": NUMBER, "name": f"{MARK} before"}, {"id": 2, "name": "two"}]})
    lake.send({"users": [{"id": NUMBER, "name": MARK}]})
    lake.send({"orders": [{"id": ORDER, "user": f"{MARK} before", "name": MARK}, {"id": 20, "user": "two", "name": "two"}]})
    by_name = [{"stream": "orders", "column": "user", "references": {"stream": "users", "column": "name"}}]
    done = lake.forget_all({"id": NUMBER}, cascade=by_name)
    assert (done["users"]["rows"]["final"], done["orders"]["rows"]["final"]) == (1, 1)
    assert lake.names("orders") == ["two"]
    assert lake.holding() == []


def test_values_are_found_as_rules_made_them(lake: ShopLake) -> None:
    rules = [{"stream": "users", "column": "id", "action": "hash"}, {"stream": "orders", "column": "user", "action": "hash"}]
    lake.options = {"tables": {"columns": rules, "hash_secret": SECRET}}
    filled(lake)
    lake.forget_all({"name": MARK}, cascade=CASCADE)
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
        lake.forget_all({"id": NUMBER}, cascade=cascade)
    assert sorted(lake.versions()) == before


@pytest.mark.parametrize("start", sample(range(16), 1))
def test_a_command_that_dies_anywhere_ends_when_it_is_run_again(start: int, lake: ShopLake) -> None:
    filled(lake)

    def check(_: int) -> None:
        left = {name for name in STREAMS if any(name in key for key in lake.holding())}
        assert left in ({"users", "orders", "items"}, {"users", "orders"}, {"users"}, set())

    dying_everywhere(lake, start, 16, lambda: lake.forget_all({"name": MARK}, cascade=CASCADE), check)
    assert lake.holding() == []
    assert {name: lake.names(name) for name in STREAMS} == {"users": ["two"], "orders": ["two"], "items": ["two"]}

"""How a table's columns follow the schema of its source: new columns, other types, and what each setting makes of those."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from unit_tests.cases import each
from unit_tests.lake.histories import without_nulls
from unit_tests.lake.lake import Lake
from unit_tests.lake.messages import JsonObject, catalog
from unit_tests.lake.outcome import Outcome
from unit_tests.lake.shop import complete, record, state, status, stream
from unit_tests.lake.table_readers import Row, without_meta

NAMESPACE = "migration"
TEXT, INTEGER, NUMBER = ({"type": name} for name in ("string", "integer", "number"))
RECOVERED = "price_recovered_2_0_0_bb894e25"
NO_RAW = {"raw_tables": False}
REWRITE = {"schema_change": "rewrite"}
Part = tuple[JsonObject, list[bytes]]
"""A stream's entry in the catalog, and its records."""


def part(name: str, schema: Mapping[str, JsonObject], *records: Row, mode: str = "append", generation: int = 1, minimum: int = 0) -> Part:
    keys: JsonObject = {"primary_key": [["id"]], "cursor_field": ["cursor"]} if mode == "append_dedup" else {}
    entry = stream(
        name,
        NAMESPACE,
        schema={"type": "object", "properties": {"id": INTEGER, **schema}},
        mode=mode,
        generation=generation,
        minimum_generation=minimum,
        **keys,
    )
    return entry, [*(record(one, name, NAMESPACE) for one in records), state(len(records), name, NAMESPACE)]


PLACE: JsonObject = {"place": {"type": "object", "properties": {"city": TEXT}}}
LARGER_PLACE: JsonObject = {"place": {"type": "object", "properties": {"city": TEXT, "zip": INTEGER}}}
FIRST = [
    part("flipping", {"price": TEXT}, {"id": 1, "price": "low"}),
    part("flipping_dedup", {"price": TEXT, "cursor": INTEGER}, {"id": 1, "price": "low"}, {"id": 2, "price": "x"}, mode="append_dedup"),
    part("growing", {"old": TEXT, **PLACE}, {"id": 1, "old": "a", "place": {"city": "Bern"}}),
    part("deciding", {"cursor": INTEGER}, {"id": 1, "cursor": 1}, {"id": 2, "cursor": 7}, mode="append_dedup"),
    part("refreshed", {"price": TEXT}, {"id": 1, "price": "old"}),
    part("refreshed_cast", {"price": TEXT}, {"id": 1, "price": "old"}),
    part("refreshed_wider", {"price": TEXT}, {"id": 1, "price": "old"}),
    part("refreshed_type", {"price": TEXT}, {"id": 1, "price": "old"}),
    part("rewritten", {"price": TEXT}, {"id": 1, "price": "7"}, {"id": 2, "price": "x"}),
    part("rewritten_dedup", {"price": TEXT, "cursor": INTEGER}, {"id": 1, "price": "7"}, {"id": 2, "price": "x"}, mode="append_dedup"),
]
INTERRUPTED_WITHOUT_RAW = [
    part("cast", {"price": TEXT}, {"id": 1, "price": "7"}),
    part("misfit", {"price": TEXT}, {"id": 1, "price": "x"}),
    part("refreshed_cast", {"price": TEXT}, {"id": 2, "price": "2"}, {"id": 3, "price": "x"}, generation=2, minimum=2),
]
INTERRUPTED = [
    part("refreshed", {"price": TEXT}, {"id": 2, "price": "2"}, {"id": 3, "price": "x"}, generation=2, minimum=2),
    part("refreshed_wider", {"price": TEXT}, {"id": 2, "price": "2"}, generation=2, minimum=2),
]
SECOND = [
    part("flipping", {"price": INTEGER}, {"id": 2, "price": 5}),
    part("flipping_dedup", {"price": INTEGER, "cursor": INTEGER}, {"id": 2, "price": 5, "cursor": 1}, mode="append_dedup"),
    part("growing", {"new": TEXT, **LARGER_PLACE}, {"id": 2, "new": "b", "place": {"city": "Chur", "zip": 7000}}),
    part("deciding", {"cursor": NUMBER}, {"id": 1, "cursor": 0.5}, {"id": 2, "cursor": 7.5}, mode="append_dedup"),
    part("refreshed", {"price": INTEGER}, {"id": 4, "price": 4}, generation=2, minimum=2),
    part("refreshed_cast", {"price": INTEGER}, {"id": 4, "price": 4}, generation=2, minimum=2),
    part("refreshed_wider", {"price": TEXT, "more": TEXT}, {"id": 4, "price": "4", "more": "m"}, generation=2, minimum=2),
    part("refreshed_type", {"price": INTEGER}, {"id": 2, "price": 2}, generation=2, minimum=2),
]
THIRD = [
    part("flipping", {"price": TEXT}, {"id": 3, "price": "high"}),
    part("flipping_dedup", {"price": TEXT, "cursor": INTEGER}, {"id": 1, "price": "high", "cursor": 1}, mode="append_dedup"),
    part("growing", {"old": TEXT, **PLACE}, {"id": 3, "old": "c"}),
]
REWRITTEN = [
    part("rewritten", {"price": INTEGER}, {"id": 3, "price": 8}),
    part("rewritten_dedup", {"price": INTEGER, "cursor": INTEGER}, {"id": 1, "price": 8, "cursor": 1}, mode="append_dedup"),
    part("cast", {"price": INTEGER}, {"id": 2, "price": 8}),
]


def name_of(one: Part) -> str:
    return str(one[0]["stream"]["name"])


def run(lake: Lake, tables: Mapping[str, Any], *parts: Part) -> Outcome:
    messages = [line for one in parts for line in (*one[1], complete(name_of(one), NAMESPACE))]
    return lake.connector(tables=tables).write(catalog(*(entry for entry, _ in parts)), messages)


def interrupted(lake: Lake, tables: Mapping[str, Any], *parts: Part) -> None:
    messages = [line for one in parts for line in (*one[1], status("INCOMPLETE", name_of(one), NAMESPACE))]
    lake.connector(tables=tables).write(catalog(*(entry for entry, _ in parts)), messages).expect_failure("transient_error")


@pytest.fixture(scope="module")
def migrated(make_lake: Callable[[], Lake]) -> tuple[Lake, dict[str, Outcome]]:
    """All tables after all of their syncs, and the syncs that were refused."""
    lake = make_lake()
    run(lake, {}, *FIRST).expect_success()
    interrupted(lake, NO_RAW, *INTERRUPTED_WITHOUT_RAW)
    interrupted(lake, {}, *INTERRUPTED)
    run(lake, {}, *SECOND).expect_success()
    run(lake, {}, *THIRD).expect_success()
    run(lake, REWRITE, *REWRITTEN).expect_success()
    before = lake.tables()
    refused = {
        "misfit": run(lake, REWRITE, part("misfit", {"price": INTEGER}, {"id": 2, "price": 8})),
        "fail": run(lake, {"schema_change": "fail"}, part("growing", {"old": NUMBER, "new": NUMBER}, {"id": 4})),
    }
    assert lake.tables() == before
    lake.verify()
    return lake, refused


@pytest.fixture(scope="module")
def tables(migrated: tuple[Lake, dict[str, Outcome]]) -> dict[str, list[Row]]:
    """The rows of each table, with their columns in order."""
    lake, _ = migrated
    return {name: sorted(rows, key=lambda row: int(row["id"])) for (_, name), rows in lake.tables().items()}


def data(rows: list[Row]) -> list[Row]:
    return [without_nulls(without_meta(row)) for row in rows]


def changes(rows: list[Row]) -> dict[int, list[Row]]:
    return {row["id"]: row["_airbyte_meta"]["changes"] for row in rows if row["_airbyte_meta"]["changes"]}


NULLED = [{"field": "price", "change": "NULLED", "reason": "DESTINATION_SERIALIZATION_ERROR"}]


def test_another_type_gets_a_column_of_its_own_and_coming_back_finds_the_first(tables: dict[str, list[Row]]) -> None:
    assert data(tables["flipping"]) == [{"id": 1, "price": "low"}, {"id": 2, RECOVERED: 5}, {"id": 3, "price": "high"}]
    assert list(without_meta(tables["flipping"][2])) == ["id", "price", RECOVERED]


def test_rows_of_a_deduplicated_table_move_between_the_columns_of_a_field(tables: dict[str, list[Row]]) -> None:
    assert data(tables["flipping_dedup"]) == [{"id": 1, "cursor": 1, "price": "high"}, {"id": 2, "cursor": 1, RECOVERED: 5}]


def test_new_columns_come_last_and_none_is_dropped(tables: dict[str, list[Row]]) -> None:
    assert [list(without_meta(row)) for row in tables["growing"]] == [["id", "old", "place"], *[["id", "old", "place", "new"]] * 2]
    assert data(tables["growing"]) == [
        {"id": 1, "old": "a", "place": {"city": "Bern"}},
        {"id": 2, "place": {"city": "Chur", "zip": 7000}, "new": "b"},
        {"id": 3, "old": "c"},
    ]


def test_a_cursor_takes_another_type_in_place_and_goes_on_deciding(tables: dict[str, list[Row]]) -> None:
    assert data(tables["deciding"]) == [{"cursor": 1.0, "id": 1}, {"cursor": 7.5, "id": 2}]
    assert "cursor" in tables["deciding"][0]


@each("name", ["refreshed", "refreshed_cast"])
def test_rows_of_an_interrupted_refresh_take_the_types_it_goes_on_with(tables: dict[str, list[Row]], name: str) -> None:
    assert data(tables[name]) == [{"id": 2, "price": 2}, {"id": 3}, {"id": 4, "price": 4}]
    assert changes(tables[name]) == {3: NULLED}


def test_a_refresh_that_goes_on_with_more_columns_keeps_the_files_it_has(tables: dict[str, list[Row]]) -> None:
    assert data(tables["refreshed_wider"]) == [{"id": 2, "price": "2"}, {"id": 4, "price": "4", "more": "m"}]


def test_a_refresh_takes_another_type_in_place(tables: dict[str, list[Row]]) -> None:
    assert [without_meta(row) for row in tables["refreshed_type"]] == [{"id": 2, "price": 2}]


def test_rewriting_types_all_rows_anew_from_the_raw_table(tables: dict[str, list[Row]]) -> None:
    assert data(tables["rewritten"]) == [{"id": 1, "price": 7}, {"id": 2}, {"id": 3, "price": 8}]
    assert changes(tables["rewritten"]) == {2: NULLED}


def test_rewriting_a_deduplicated_table_keeps_its_winners(tables: dict[str, list[Row]]) -> None:
    assert data(tables["rewritten_dedup"]) == [{"id": 1, "cursor": 1, "price": 8}, {"id": 2}]
    assert changes(tables["rewritten_dedup"]) == {2: NULLED}


def test_without_a_raw_table_rewriting_casts_the_values_there_are(tables: dict[str, list[Row]]) -> None:
    assert data(tables["cast"]) == [{"id": 1, "price": 7}, {"id": 2, "price": 8}]


def test_without_a_raw_table_a_value_that_does_not_fit_ends_the_sync(migrated: tuple[Lake, dict[str, Outcome]]) -> None:
    outcome = migrated[1]["misfit"].expect_failure("config_error")
    assert [word for word in ("migration.misfit", "price", "string", "integer", "refresh") if word not in outcome.error_message] == []
    assert outcome.states == []


def test_fail_ends_the_sync_before_it_writes_and_names_every_column(migrated: tuple[Lake, dict[str, Outcome]]) -> None:
    outcome = migrated[1]["fail"].expect_failure("config_error")
    assert [word for word in ("migration.growing", "old", "new", "string", "number") if word not in outcome.error_message] == []
    assert outcome.states == []

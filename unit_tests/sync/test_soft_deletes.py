"""Deduplicated tables with soft deletions and without raw tables; from text to columns they get without those, but not back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from unit_tests.lake.chain_reader import StreamName
from unit_tests.lake.contents import USERS
from unit_tests.lake.corpus_cases import CaseSync, comparable, load, sorted_rows
from unit_tests.lake.histories import without_nulls
from unit_tests.lake.lake import Lake
from unit_tests.lake.messages import catalog
from unit_tests.lake.shop import complete, record, state, stream
from unit_tests.lake.table_readers import Row, without_meta
from unit_tests.sync.forms.forms import Form

MOMENT = {"type": "string", "format": "date-time"}
SCHEMA = {
    "type": "object",
    "properties": {"id": {"type": "integer"}, "cursor": {"type": "integer"}, "value": {"type": "number"}, "_ab_cdc_deleted_at": MOMENT},
}
ENTRY = stream(schema=SCHEMA, mode="append_dedup", primary_key=[["id"]], cursor_field=["cursor"])
WITHOUT_RAW: dict[str, Any] = {"tables": {"cdc_deletion_mode": "soft", "raw_tables": False}}
DELETED = {"_ab_cdc_deleted_at": "1970-01-01T00:00:00Z"}
CORPUS = "testDedupWithStringKey"
KEPT_NAMES = {201: "Bob2", 202: "Charlie1"}
"""The names of the rows that the case deletes, by `id2`. It expects null, like Airbyte's own destinations."""
FIRST: list[Row] = [{"id": 1, "cursor": 1, "value": 1}, {"id": 2, "cursor": 1, "value": "2.5"}, {"id": 3, "cursor": 5, **DELETED}]
SECOND: list[Row] = [{"id": 1, "cursor": 2, **DELETED}, {"id": 3, "cursor": 4, "value": 9}, {"id": 4, "cursor": 1, "value": 4}]
SEEN = [
    {"id": 1, "cursor": 2, "value": 1.0, "_ab_cdc_deleted_at": 0},
    {"id": 2, "cursor": 1, "value": 2.5},
    {"id": 3, "cursor": 5, "value": 9.0, "_ab_cdc_deleted_at": 0},
    {"id": 4, "cursor": 1, "value": 4.0},
]


@dataclass(frozen=True, slots=True)
class Soft:
    """The tables after two syncs, the first in JSON Lines and the second in Parquet, and what was said to a third one in JSON Lines."""

    tables: dict[StreamName, list[Row]]
    refusal: str
    states: int


@pytest.fixture(scope="module")
def soft(make_lake: Callable[[], Lake]) -> Soft:
    lake = make_lake()
    for form, records, case in zip((Form.JSONL, Form.PARQUET), (FIRST, SECOND), load(CORPUS), strict=True):
        connector = lake.connector(format=form.config, **WITHOUT_RAW)
        connector.write(
            {"streams": [ENTRY, *case.catalog["streams"]]}, [*messages(records), *case.messages, *case.completions]
        ).expect_success()
        lake.verify_at_rest()
    tables = lake.tables()
    back = lake.connector(format=Form.JSONL.config, **WITHOUT_RAW).write(catalog(ENTRY), messages(FIRST)).expect_failure("config_error")
    lake.verify()
    assert lake.tables() == tables
    return Soft(tables, back.error_message, len(back.states))


def messages(records: list[Row]) -> list[bytes]:
    return [*(record(one) for one in records), state(1), complete()]


def test_a_softly_deleted_row_keeps_its_values_and_loses_only_to_a_newer_one(soft: Soft) -> None:
    rows = [without_nulls(without_meta(row)) for row in soft.tables[USERS]]
    assert sorted(rows, key=lambda row: int(row["id"])) == SEEN


def test_rows_are_those_of_the_case_for_soft_deletions_but_deleted_ones_keep_their_names(soft: Soft) -> None:
    last: CaseSync = load(CORPUS)[-1]
    ((stream_name, expected),) = last.expected_rows(("cdc_soft_delete",)).items()
    for row in expected:
        if row["data"]["id2"] in KEPT_NAMES:
            row["data"]["name"] = KEPT_NAMES[row["data"]["id2"]]
    found = [comparable(row) for row in soft.tables[stream_name]]
    assert sorted_rows(found) == sorted_rows(expected)


def test_text_cannot_be_made_of_columns_and_the_sync_says_so_before_it_takes_anything(soft: Soft) -> None:
    assert soft.states == 0
    assert "shop.users" in soft.refusal
    assert "refresh" in soft.refusal
    assert ".parquet" in soft.refusal

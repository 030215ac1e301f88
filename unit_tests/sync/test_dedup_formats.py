"""Deduplicated tables in every format, and on their way from one format to the next: values, deletions and order survive all of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from unittest.mock import patch

import pytest

from unit_tests.cases import each
from unit_tests.lake.chain_reader import Chain, StreamName
from unit_tests.lake.contents import USERS
from unit_tests.lake.lake import Lake
from unit_tests.lake.messages import JsonObject, catalog
from unit_tests.lake.shop import complete, record, state, stream
from unit_tests.lake.table_readers import Row
from unit_tests.sync.forms.forms import Form, exact_json, rows_of
from unit_tests.sync.forms.landing import cell

TEXT, INTEGER, NUMBER = ({"type": name} for name in ("string", "integer", "number"))
FIELDS: JsonObject = {
    "id": INTEGER,
    "cursor": INTEGER,
    "day": {"type": "string", "format": "date"},
    "clock": {"type": "string", "format": "time", "airbyte_type": "time_without_timezone"},
    "moment": {"type": "string", "format": "date-time"},
    "amount": NUMBER,
    "tags": {"type": "array", "items": TEXT},
    "place": {"type": "object", "properties": {"city": TEXT, "zip": INTEGER}},
    "free": {"type": "object"},
    "either": {"oneOf": [INTEGER, TEXT]},
    "_ab_cdc_deleted_at": {"type": "string", "format": "date-time"},
}
STREAM: JsonObject = {
    "schema": {"type": "object", "properties": FIELDS},
    "mode": "append_dedup",
    "primary_key": [["id"]],
    "cursor_field": ["cursor"],
}
UNTOUCHED = (5, 6, 7)
"""Keys that only the first sync sends."""
LATE = ("shop", "late")
"""A table that is appended to at first, in a format of text, and then deduplicated."""
LATE_SYNCS = {2: ("append", [(1, "a"), (1, "b"), (2, "c")]), 3: ("append_dedup", [(2, "d")])}
SYNCS = [Form.AVRO, Form.AVRO, Form.JSONL, Form.JSONL, Form.CSV_FLAT, Form.CSV_FLAT, Form.PARQUET]


def sent(key: int, cursor: int, number: int) -> Row:
    """A record whose values say which sync they are of; one field is not declared, and one has a wrong type in every third key."""
    return {
        "id": key,
        "cursor": cursor,
        "day": f"2026-01-{number + 1:02d}",
        "clock": f"0{number}:00:00",
        "moment": f"1970-01-01T0{number}:00:00Z",
        "amount": 0.5 + number,
        "tags": ["é", None, f"tag {number}"],
        "place": {"city": "Zürich", "zip": "no number" if key % 3 == 0 else 8000 + number},
        "free": {"b": 1.10, "a": [number]},
        "either": number if key % 2 else f"text {number}",
        "undeclared": 9007199254740993,
    }


def stored(form: Form, key: int, cursor: int, number: int) -> Row:
    """The same record in a row of a typed form, without nulls."""
    hour_us = 3_600_000_000
    kind, either = ("integer", number) if key % 2 else ("string", f"text {number}")
    return {
        "id": key,
        "cursor": cursor,
        "day": 20454 + number,
        "clock": number * hour_us,
        "moment": number * hour_us,
        "amount": 0.5 + number,
        "tags": ["é", None, f"tag {number}"],
        "place": {"city": "Zürich", **({} if key % 3 == 0 else {"zip": 8000 + number})},
        "free": f'{{"b":1.1,"a":[{number}]}}',
        "either": either if form is Form.AVRO else {"type": kind, kind: either},
    }


@dataclass(slots=True)
class Model:
    """What the table is to hold: by key the cursor and the sync its row came with."""

    rows: dict[int, tuple[int, int]] = field(default_factory=dict)

    def sync(self, number: int) -> list[bytes]:
        """A row that changes in every sync, one that is new, one that is deleted, and a late update of the one deleted before."""
        records = [sent(0, number + 1, number), sent(10 + number, 1, number)]
        self.rows |= {0: (number + 1, number), 10 + number: (1, number)}
        if number == 0:
            records += [sent(key, 1, number) for key in UNTOUCHED]
            self.rows |= dict.fromkeys(UNTOUCHED, (1, 0))
        if number >= 1:
            records.append({"id": 9 + number, "cursor": 5, "_ab_cdc_deleted_at": "2026-01-01T00:00:00Z"})
            del self.rows[9 + number]
        if number >= 2:
            records.append(sent(8 + number, 2, number))
        return [*(record(one, emitted_at=1000 * (number + 1)) for one in records), state(number), complete()]

    def expected(self, form: Form) -> list[Row]:
        rows = {key: (cursor, number) for key, (cursor, number) in sorted(self.rows.items())}
        if not form.is_text:
            return [stored(form, key, *row) for key, row in rows.items()]
        texts = [exact_json(record(sent(key, *row)))["record"]["data"] for key, row in rows.items()]
        return [{name: cell(text.get(name)) for name in FIELDS} for text in texts] if form is Form.CSV_FLAT else texts


def late_sync(number: int) -> tuple[list[JsonObject], list[bytes]]:
    """The other table's part in a sync, if it has one."""
    if number not in LATE_SYNCS:
        return [], []
    mode, rows = LATE_SYNCS[number]
    entry = stream("late", mode=mode, primary_key=[["id"]], schema={"type": "object", "properties": {"id": INTEGER, "value": TEXT}})
    lines = [record({"id": key, "value": value}, "late", emitted_at=1000 * number) for key, value in rows]
    return [entry], [*lines, state(number, "late"), complete("late")]


@dataclass(frozen=True, slots=True)
class Step:
    """The table after a sync: its rows by key, what they were to be, and its chain."""

    found: list[Row]
    expected: list[Row]
    chain: Chain


def rows_of_table(lake: Lake, form: Form, stream_name: StreamName) -> list[Row]:
    rows = [row for path in lake.final_files(stream_name) for row in rows_of(form, path)]
    return sorted((row["data"] for row in rows), key=lambda row: int(getattr(row["id"], "digits", row["id"])))


@contextmanager
def without_kernel() -> Iterator[None]:
    """Let Python type all records, as on a machine for which there is no kernel."""
    with patch("destination_s3_spark.protocol.routing.KERNEL", None), patch("destination_s3_spark.decoding.kernel_typer.KERNEL", None):
        yield


@pytest.fixture(scope="module")
def history(make_lake: Callable[[], Lake]) -> tuple[list[Step], list[list[tuple[str, str]]]]:
    """One table through all formats, and the rows of the other one after each of its syncs."""
    lake, model, found, late = make_lake(), Model(), [], []
    for number, form in enumerate(SYNCS):
        # Every other sync types in Python, so that each typer goes on with the other's table.
        typed = without_kernel() if number % 2 else nullcontext()
        entries, messages = late_sync(number)
        with typed:
            lake.sync(catalog(stream(sync_id=number + 1, **STREAM), *entries), [*model.sync(number), *messages], format=form.config)
        found.append(Step(rows_of_table(lake, form, USERS), model.expected(form), lake.chains()[USERS]))
        if number in LATE_SYNCS:
            late.append([(row["id"].digits, row["value"]) for row in rows_of_table(lake, form, LATE)])
        lake.verify_at_rest()
    return found, late


@pytest.fixture(scope="module")
def steps(history: tuple[list[Step], list[list[tuple[str, str]]]]) -> list[Step]:
    return history[0]


def test_rows_that_were_appended_as_text_are_deduplicated(history: tuple[list[Step], list[list[tuple[str, str]]]]) -> None:
    assert history[1] == [[("1", "a"), ("1", "b"), ("2", "c")], [("1", "b"), ("2", "d")]]


@each("number", range(len(SYNCS)))
def test_the_rows_are_right_after_each_sync(steps: list[Step], number: int) -> None:
    assert steps[number].found == steps[number].expected


def test_a_table_has_files_of_its_format_only(steps: list[Step]) -> None:
    extensions = {Form.AVRO: ".avro", Form.JSONL: ".jsonl.gz", Form.CSV_FLAT: ".csv", Form.PARQUET: ".parquet"}
    for form, step in zip(SYNCS, steps, strict=True):
        assert all(key.endswith(extensions[form]) for key in step.chain.final_keys)
        assert (len(step.chain.keys("state")) == len(step.chain.final_keys)) == (form is not Form.PARQUET)
        assert (step.chain.keys("state") == []) == (form is Form.PARQUET)

"""Deduplicated tables: which record of a key remains, whatever its type, its cursor, and the order and number of pieces it came in."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from integration_tests.connector import Outcome
from integration_tests.corpus_cases import comparable, load
from integration_tests.histories import visible
from integration_tests.lake import Lake
from integration_tests.servers import S3Server, new_bucket
from integration_tests.source import JsonObject, catalog, complete, record, state, stream
from integration_tests.table_readers import Row, without_meta

NAMESPACE = "dedup"
MB = 10**6
TEXT, INTEGER, NUMBER, BOOLEAN = ({"type": name} for name in ("string", "integer", "number", "boolean"))
MOMENT = {"type": "string", "format": "date-time", "airbyte_type": "timestamp_with_timezone"}
LOCAL = {"type": "string", "format": "date-time", "airbyte_type": "timestamp_without_timezone"}
CLOCK = {"type": "string", "format": "time", "airbyte_type": "time_without_timezone"}
DAY = {"type": "string", "format": "date"}
DELETED = {"_ab_cdc_deleted_at": "2026-01-01T00:00:00Z"}
Data = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Sync:
    """What a stream sends in a sync, and all rows its table has afterwards, without nulls. `at`: when the records were emitted."""

    sent: Sequence[Data]
    seen: Sequence[Data]
    at: int | None = None
    key: tuple[str, ...] | None = None
    cursor: str | None = None
    generation: tuple[int, int] = (1, 0)


@dataclass(frozen=True, slots=True)
class Table:
    """A stream with its key and cursor (unless a sync has its own), and its syncs."""

    fields: Mapping[str, JsonObject]
    syncs: Sequence[Sync]
    key: tuple[str, ...] = ("id",)
    cursor: str | None = "cursor"
    renamed: Mapping[str, str] = field(default_factory=dict)

    def entry(self, name: str, number: int) -> JsonObject:
        sync, schema = self.syncs[number], {"type": "object", "properties": dict(self.fields)}
        cursor = sync.cursor or self.cursor
        generation, minimum = sync.generation
        return stream(
            name,
            NAMESPACE,
            schema=schema,
            mode="append_dedup",
            generation=generation,
            minimum_generation=minimum,
            sync_id=number + 1,
            primary_key=[[one] for one in sync.key or self.key],
            cursor_field=[cursor] if cursor else [],
        )

    def messages(self, name: str, number: int) -> list[bytes]:
        sync = self.syncs[number]
        at = 1000 * (number + 1) if sync.at is None else sync.at
        return [*(record(data, name, NAMESPACE, emitted_at=at) for data in sync.sent), state(number, name, NAMESPACE), complete(name, NAMESPACE)]


def of(data: str, more: Data | None = None) -> list[Data]:
    """Records in short: `1@5a` is id 1, cursor 5, value a; without a digit behind the `@` the cursor is null."""
    records = []
    for one in data.split():
        key, _, rest = one.partition("@")
        found = {"id": int(key), "cursor": int(rest[:-1]) if rest[:-1] else None, "value": rest[-1:], **(more or {})}
        records.append({name: value for name, value in found.items() if value not in (None, "")})
    return records


def deleted(data: str) -> list[Data]:
    """Deletions; they come without a value."""
    return [{name: value for name, value in one.items() if name != "value"} for one in of(data, DELETED)]


BASIC = {"id": INTEGER, "cursor": INTEGER, "value": TEXT}
CDC = {**BASIC, "_ab_cdc_deleted_at": MOMENT}


def by_key_type(schema: JsonObject, one: Any, other: Any, same_as_one: Any, stored: Mapping[Any, Any] | None = None) -> Table:
    """The same history for keys of any type; `same_as_one` is another spelling of the key `one`."""
    as_stored = (lambda value: stored[value]) if stored else (lambda value: value)
    third = {"id": as_stored(one), "cursor": 3, "value": "c"}
    return Table(
        {"id": schema, "cursor": INTEGER, "value": TEXT},
        [
            Sync(
                [{"id": one, "cursor": 1, "value": "a"}, {"id": other, "cursor": 1, "value": "b"}, {"cursor": 1, "value": "n"}],
                [{"id": as_stored(one), "cursor": 1, "value": "a"}, {"id": as_stored(other), "cursor": 1, "value": "b"}, {"cursor": 1, "value": "n"}],
            ),
            Sync(
                [{"id": same_as_one, "cursor": 3, "value": "c"}, {"id": other, "cursor": 0, "value": "x"}, {"id": None, "cursor": 2, "value": "m"}],
                [third, {"id": as_stored(other), "cursor": 1, "value": "b"}, {"cursor": 2, "value": "m"}],
            ),
        ],
    )


HOUR_US = 3_600_000_000
TABLES = {
    "the higher cursor wins, whatever the order": Table(
        BASIC, [Sync(of("1@2b 1@1a 2@1a 2@2b"), of("1@2b 2@2b")), Sync(of("1@1x 2@3c"), of("1@2b 2@3c"))]
    ),
    "a null cursor loses": Table(
        BASIC, [Sync(of("1@a 1@1b 2@a 3@1a"), of("1@1b 2@a 3@1a")), Sync(of("1@x 2@1b 3@x"), of("1@1b 2@1b 3@1a"))]
    ),
    "with equal cursors the later extraction wins": Table(BASIC, [Sync(of("1@1a"), of("1@1a")), Sync(of("1@1b"), of("1@1b"))]),
    "a tie keeps the table's row": Table(BASIC, [Sync(of("1@1a"), of("1@1a"), at=500), Sync(of("1@1b 2@1b"), of("1@1a 2@1b"), at=500)]),
    "a tie inside of a sync goes to the later arrival": Table(BASIC, [Sync(of("1@1a 2@1b 1@1c"), of("1@1c 2@1b"))]),
    "without a cursor the later extraction wins": Table(
        BASIC, [Sync(of("1@9a 1@1b"), of("1@1b")), Sync(of("1@5c"), of("1@5c")), Sync(of("1@9x"), of("1@5c"), at=1)], cursor=None
    ),
    "another cursor": Table(
        {**BASIC, "other": INTEGER},
        [
            Sync([*of("1@9a", {"other": 1}), *of("2@9a")], [*of("1@9a", {"other": 1}), *of("2@9a")]),
            Sync(
                [*of("1@1b", {"other": 2}), *of("2@1b", {"other": 0}), *of("1@99x")],
                [*of("1@1b", {"other": 2}), *of("2@1b", {"other": 0})],
                cursor="other",
            ),
        ],
    ),
    "another key": Table(
        {**BASIC, "other": TEXT},
        [
            Sync([*of("1@1a", {"other": "p"}), *of("2@2b", {"other": "p"})], [*of("1@1a", {"other": "p"}), *of("2@2b", {"other": "p"})]),
            Sync(of("3@1c", {"other": "p"}) + of("4@1d", {"other": "q"}), [*of("2@2b", {"other": "p"}), *of("4@1d", {"other": "q"})], key=("other",)),
            Sync(of("5@9e", {"other": "q"}), [*of("2@2b", {"other": "p"}), *of("5@9e", {"other": "q"})], key=("other",)),
        ],
    ),
    "a composite key, null in any part": Table(
        {"id": INTEGER, "part": TEXT, "cursor": INTEGER, "value": TEXT},
        [
            Sync(
                [*of("1@1a", {"part": "x"}), *of("1@1b"), *of("1@2c"), {"part": "x", "cursor": 1}, {"cursor": 1}, {"cursor": 2}],
                [*of("1@1a", {"part": "x"}), *of("1@2c"), {"part": "x", "cursor": 1}, {"cursor": 2}],
            ),
            Sync(
                [*of("1@3d"), {"part": "x", "cursor": 4}, *of("1@1z", {"part": ""})],
                [*of("1@1a", {"part": "x"}), *of("1@3d"), {"part": "x", "cursor": 4}, {"cursor": 2}, {"id": 1, "cursor": 1, "value": "z", "part": ""}],
            ),
        ],
        key=("part", "id"),
    ),
    "string keys": by_key_type(TEXT, "a\u0000b", "é\U0001f6d2", "a\u0000b"),
    "integer keys": by_key_type(INTEGER, -(2**63), 9007199254740993, str(-(2**63))),
    "number keys": by_key_type(NUMBER, 1.5, -1e300, "1.50"),
    "boolean keys": by_key_type(BOOLEAN, True, False, True),
    "date keys": by_key_type(DAY, "1969-12-31", "2026-01-02", "1969-12-31", {"1969-12-31": -1, "2026-01-02": 20455}),
    "timestamp keys": by_key_type(
        MOMENT, "1970-01-01T01:00:00Z", "1969-12-31T23:00:00Z", "1970-01-01T03:00:00+02:00",
        {"1970-01-01T01:00:00Z": HOUR_US, "1969-12-31T23:00:00Z": -HOUR_US},
    ),
    "local timestamp keys": by_key_type(
        LOCAL, "1970-01-01T01:00:00", "1969-12-31T23:00:00", "1970-01-01 01:00:00",
        {"1970-01-01T01:00:00": HOUR_US, "1969-12-31T23:00:00": -HOUR_US},
    ),
    "time keys": by_key_type(CLOCK, "01:00:00", "23:00:00", "01:00", {"01:00:00": HOUR_US, "23:00:00": 23 * HOUR_US}),
    "cursors of other types": Table(
        {"id": INTEGER, "cursor": MOMENT, "value": TEXT},
        [
            Sync(
                [{"id": 1, "cursor": "1970-01-01T02:00:00+02:00", "value": "a"}, {"id": 1, "cursor": "1970-01-01T01:00:00Z", "value": "b"}],
                [{"id": 1, "cursor": HOUR_US, "value": "b"}],
            ),
            Sync([{"id": 1, "cursor": "1970-01-01T01:59:00+01:00", "value": "x"}], [{"id": 1, "cursor": HOUR_US, "value": "b"}]),
        ],
    ),
    "a deletion removes the row": Table(
        CDC, [Sync(of("1@1a 2@1a"), of("1@1a 2@1a")), Sync(deleted("1@2"), of("2@1a")), Sync(deleted("7@2"), of("2@1a"))]
    ),
    "a late update does not bring a deleted row back, a newer one does": Table(
        CDC,
        [
            Sync(of("1@1a 2@1a"), of("1@1a 2@1a")),
            Sync(deleted("1@5 2@5 3@5"), []),
            Sync(of("1@3x 2@6b 3@4x"), of("2@6b")),
            Sync(of("1@4x 3@9c"), of("2@6b 3@9c")),
        ],
    ),
    "a late deletion does not remove a newer row": Table(
        CDC, [Sync(of("1@5a 2@5a"), of("1@5a 2@5a")), Sync(deleted("1@4 2@5"), of("1@5a"))]
    ),
    "insert, update and deletion of one moment": Table(
        CDC,
        [
            Sync([*of("1@1a 1@2b"), *deleted("1@3"), *of("2@1a"), *deleted("2@2"), *of("2@3c"), *deleted("3@3"), *of("3@2b 3@1a")], of("2@3c"), at=7),
        ],
    ),
    "a refresh forgets deletions": Table(
        CDC,
        [
            Sync(of("1@1a 2@1a"), of("1@1a 2@1a")),
            Sync(deleted("1@5"), of("2@1a")),
            Sync(of("1@2b"), of("1@2b"), generation=(2, 2)),
            Sync(of("2@1a"), of("1@2b 2@1a"), generation=(2, 0)),
        ],
    ),
    "a deletion time that is none is no deletion": Table(CDC, [Sync([{**one, "_ab_cdc_deleted_at": {}} for one in of("1@1a")], of("1@1a"))]),
    "fields that are named as the connector's own": Table(
        {**BASIC, "_airbyte_meta": TEXT, "_airbyte_extracted_at": INTEGER, "_airbyte_key": TEXT, "_airbyte_cursor": INTEGER, "_airbyte_offset": INTEGER,
         "_airbyte_deleted": BOOLEAN},
        [
            Sync(
                of("1@1a", {"_airbyte_meta": "m", "_airbyte_extracted_at": 5, "_airbyte_key": "k", "_airbyte_offset": 3, "_airbyte_deleted": True}),
                of("1@1a", {"_airbyte_meta_1": "m", "_airbyte_extracted_at_1": 5, "_airbyte_key_1": "k", "_airbyte_offset_1": 3, "_airbyte_deleted_1": True}),
            ),
            Sync(of("1@2b", {"_airbyte_key": "l"}), of("1@2b", {"_airbyte_key_1": "l"})),
        ],
        key=("_airbyte_key",),
    ),
}  # fmt: skip
NAMES = {about: f"table_{number}" for number, about in enumerate(TABLES)}
ROUNDS = max(len(table.syncs) for table in TABLES.values())


def sync_together(lake: Lake, tables: Mapping[str, Table], number: int, more: tuple[list[JsonObject], list[bytes]], **options: Any) -> Outcome:
    entries, messages = [table.entry(NAMES[about], number) for about, table in tables.items()], []
    for about, table in tables.items():
        messages += table.messages(NAMES[about], number)
    return lake.connector(**options).write(catalog(*entries, *more[0]), [*messages, *more[1]], timeout_s=300).expect_success()


BIG, BIG_KEYS, BIG_RECORDS = "big", 997, 12_000


def big_sync(number: int, keys: Sequence[int], count: int) -> tuple[tuple[list[JsonObject], list[bytes]], list[Data]]:
    """A stream with few keys and many versions of each, larger than a batch; with the records it sends."""
    dice = random.Random(number)
    sent = [{"id": dice.choice(keys), "cursor": dice.choice([None, *range(40)]), "value": dice.randbytes(150).hex()} for _ in range(count)]
    lines = []
    for position, data in enumerate(sent):
        lines.append(record(data, BIG, NAMESPACE, emitted_at=1000 * number + dice.randrange(3)))
        if position % 2000 == 1999:
            lines.append(state(f"{number}.{position}", BIG, NAMESPACE))
    entry = stream(
        BIG, NAMESPACE, schema={"type": "object", "properties": BASIC}, mode="append_dedup", sync_id=number,
        primary_key=[["id"]], cursor_field=["cursor"],
    )  # fmt: skip
    return ([entry], [*lines, complete(BIG, NAMESPACE)]), sent

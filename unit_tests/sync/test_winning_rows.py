"""Deduplicated tables: which record of a key remains, whatever its type, its cursor, and the order and number of pieces it came in."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from unit_tests.cases import each
from unit_tests.lake.histories import visible, without_nulls
from unit_tests.lake.lake import Lake
from unit_tests.lake.messages import JsonObject, catalog
from unit_tests.lake.shop import complete, record, state, stream
from unit_tests.lake.table_readers import Row, without_meta

NAMESPACE = "dedup"
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
        return [
            *(record(data, name, NAMESPACE, emitted_at=at) for data in sync.sent),
            state(number, name, NAMESPACE),
            complete(name, NAMESPACE),
        ]


def of(data: str, more: Data | None = None) -> list[Data]:
    """Records in short: `1@5a` is id 1, cursor 5, value a; `1@a` has no cursor, `@5a` no id, and `1@5!` is a deletion without a value."""
    records = []
    for one in data.split():
        key, _, rest = one.partition("@")
        cursor = {"cursor": int(rest[:-1])} if rest[:-1] else {}
        records.append(
            {**({"id": int(key)} if key else {}), **cursor, **(DELETED if rest[-1] == "!" else {"value": rest[-1]}), **(more or {})}
        )
    return records


def unfit(cursor_and_value: str) -> list[Data]:
    """A row whose id was too large."""
    return of(f"@{cursor_and_value}")


def own_names(suffix: str, **values: Any) -> Data:
    """A record whose fields are named like the connector's columns."""
    return {f"_airbyte_{name}{suffix}": value for name, value in values.items()}


BASIC = {"id": INTEGER, "cursor": INTEGER, "value": TEXT}
CDC = {**BASIC, "_ab_cdc_deleted_at": MOMENT}


def by_key_type(schema: JsonObject, one: Any, other: Any, same_as_one: Any, stored: Mapping[Any, Any] | None = None) -> Table:
    """The same history for keys of any type; `same_as_one` is another spelling of the key `one`."""
    first, second = (stored[one], stored[other]) if stored else (one, other)
    return Table(
        {"id": schema, "cursor": INTEGER, "value": TEXT},
        [
            Sync(
                [{"id": one, "cursor": 1, "value": "a"}, {"id": other, "cursor": 1, "value": "b"}, {"cursor": 1, "value": "n"}],
                [{"id": first, "cursor": 1, "value": "a"}, {"id": second, "cursor": 1, "value": "b"}, {"cursor": 1, "value": "n"}],
            ),
            Sync(
                [{"id": same_as_one, "cursor": 3, "value": "c"}, {"id": other, "cursor": 0}, {"id": None, "cursor": 2, "value": "m"}],
                [{"id": first, "cursor": 3, "value": "c"}, {"id": second, "cursor": 1, "value": "b"}, {"cursor": 2, "value": "m"}],
            ),
        ],
    )


HOUR_US = 3_600_000_000
HUGE = 10**19
"""No int64."""
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
            Sync(
                [*of("3@1c", {"other": "p"}), *of("4@1d", {"other": "q"})],
                [*of("2@2b", {"other": "p"}), *of("4@1d", {"other": "q"})],
                key=("other",),
            ),
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
                [*of("1@1a", {"part": "x"}), *of("1@3d"), {"part": "x", "cursor": 4}, {"cursor": 2}, *of("1@1z", {"part": ""})],
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
    "keys that do not fit their type": Table(
        CDC,
        [
            Sync(of(f"{HUGE}@1a {HUGE + 1}@1b {HUGE}@2c @1d 1@1e"), [*unfit("2c"), *unfit("1b"), *unfit("1d"), *of("1@1e")]),
            Sync(of(f"{HUGE}@1x {HUGE + 1}@5! {HUGE + 2}@1f"), [*unfit("2c"), *unfit("1d"), *of("1@1e"), *unfit("1f")]),
            Sync(of(f"{HUGE + 1}@4x {HUGE}@3g"), [*unfit("3g"), *unfit("1d"), *of("1@1e"), *unfit("1f")]),
        ],
    ),
    "a cursor that does not fit its type loses": Table(
        BASIC,
        [
            Sync(of(f"1@1a 2@{HUGE}b"), [*of("1@1a"), {"id": 2, "value": "b"}]),
            Sync(of(f"1@{HUGE}x 2@{HUGE}c"), [*of("1@1a"), {"id": 2, "value": "c"}]),
            Sync(of("2@1d"), of("1@1a 2@1d")),
        ],
    ),
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
        CDC, [Sync(of("1@1a 2@1a"), of("1@1a 2@1a")), Sync(of("1@2!"), of("2@1a")), Sync(of("7@2!"), of("2@1a"))]
    ),
    "a late update does not bring a deleted row back, a newer one does": Table(
        CDC,
        [
            Sync(of("1@1a 2@1a"), of("1@1a 2@1a")),
            Sync(of("1@5! 2@5! 3@5!"), []),
            Sync(of("1@3x 2@6b 3@4x"), of("2@6b")),
            Sync(of("1@4x 3@9c"), of("2@6b 3@9c")),
        ],
    ),
    "a late deletion does not remove a newer row": Table(
        CDC, [Sync(of("1@5a 2@5a"), of("1@5a 2@5a")), Sync(of("1@4! 2@5!"), of("1@5a"))]
    ),
    "insert, update and deletion of one moment": Table(
        CDC,
        [
            Sync(of("1@1a 1@2b 1@3! 2@1a 2@2! 2@3c 3@3! 3@2b 3@1a"), of("2@3c"), at=7),
        ],
    ),
    "a refresh forgets deletions": Table(
        CDC,
        [
            Sync(of("1@1a 2@1a"), of("1@1a 2@1a")),
            Sync(of("1@5!"), of("2@1a")),
            Sync(of("1@2b"), of("1@2b"), generation=(2, 2)),
            Sync(of("2@1a"), of("1@2b 2@1a"), generation=(2, 0)),
        ],
    ),
    "a deletion time that is none is no deletion": Table(CDC, [Sync(of("1@1a", {"_ab_cdc_deleted_at": {}}), of("1@1a"))]),
    "fields that are named as the connector's own": Table(
        {**{f"_airbyte_{name}": TEXT for name in ("key", "meta", "deleted", "offset")}, "_airbyte_cursor": INTEGER},
        [
            Sync(
                [own_names("", key="k", cursor=2, meta="m", deleted="d"), own_names("", key="l", cursor=2, offset="o")],
                [own_names("_1", key="k", cursor=2, meta="m", deleted="d"), own_names("_1", key="l", cursor=2, offset="o")],
            ),
            Sync(
                [own_names("", key="k", cursor=1), own_names("", key="l", cursor=3, offset="p")],
                [own_names("_1", key="k", cursor=2, meta="m", deleted="d"), own_names("_1", key="l", cursor=3, offset="p")],
            ),
        ],
        key=("_airbyte_key",),
        cursor="_airbyte_cursor",
    ),
}  # fmt: skip
NAMED = {f"table_{number}": table for number, table in enumerate(TABLES.values())}
"""By the name of their stream."""
ROUNDS = max(len(table.syncs) for table in TABLES.values())


BIG = "big"
BIG_STREAM = stream(
    BIG, NAMESPACE, schema={"type": "object", "properties": BASIC}, mode="append_dedup", primary_key=[["id"]], cursor_field=["cursor"]
)  # fmt: skip
BIG_TABLE = (NAMESPACE, BIG)
BIG_SYNCS = [(range(2500), 5000), (range(2500), 5000), (range(20), 40)]
"""Keys and number of records of each sync of a table of some MB: many versions of a key over many batches, and then a narrow change."""


@dataclass(slots=True)
class BigSource:
    """Sends versions of keys in random order, and knows which one is to remain."""

    newest: dict[int, tuple[tuple[bool, int, int], Data]] = field(default_factory=dict)

    def sync(self, number: int) -> list[bytes]:
        """The lines of a sync, a STATE after each 500 records."""
        dice, lines = random.Random(number), []
        keys, count = BIG_SYNCS[number]
        for position in range(count):
            data = {"id": dice.choice(keys), "cursor": dice.choice([None, *range(40 + number)]), "value": dice.randbytes(1000).hex()}
            at = 1000 * number + dice.randrange(3)
            order = (data["cursor"] is not None, data["cursor"] or 0, at)
            if data["id"] not in self.newest or order >= self.newest[data["id"]][0]:
                self.newest[data["id"]] = order, without_nulls(data)
            lines.append(record(data, BIG, NAMESPACE, emitted_at=at))
            if position % 500 == 499:
                lines.append(state(f"{number}.{position}", BIG, NAMESPACE))
        return [*lines, complete(BIG, NAMESPACE)]


def in_order(rows: Iterable[Row]) -> list[Row]:
    return sorted(map(without_nulls, rows), key=lambda row: repr(sorted(row.items())))


@dataclass(slots=True)
class Deduplicated:
    """What the tables held after each round, and the final files of the big one."""

    seen: list[dict[str, list[Row]]] = field(default_factory=list)
    big: list[list[Data]] = field(default_factory=list)
    files: list[list[str]] = field(default_factory=list)


@pytest.fixture(scope="module")
def deduplicated(make_lake: Callable[[], Lake]) -> Deduplicated:
    """All tables together, in batches so small that the big one is landed and committed in many pieces."""
    lake = make_lake()
    connector = lake.connector(batching={"max_batch_mb": 1}, tables={"target_file_mb": 1})
    found, source = Deduplicated(), BigSource()
    for number in range(ROUNDS):
        tables = {name: table for name, table in NAMED.items() if number < len(table.syncs)}
        entries = [table.entry(name, number) for name, table in tables.items()]
        messages = [line for name, table in tables.items() for line in table.messages(name, number)]
        if number < len(BIG_SYNCS):
            entries.append(BIG_STREAM)
            messages += source.sync(number)
        connector.write(catalog(*entries), messages).expect_success()
        found.seen.append({name: [without_meta(row) for row in rows] for name, rows in visible(lake, NAMESPACE).items()})
        found.big.append([data for _, data in source.newest.values()])
        found.files.append(lake.chains()[BIG_TABLE].final_keys)
    lake.verify_at_rest()
    return found


@each("about", TABLES)
def test_the_row_that_wins_remains(deduplicated: Deduplicated, about: str) -> None:
    name = f"table_{list(TABLES).index(about)}"
    for number, sync in enumerate(TABLES[about].syncs):
        assert in_order(deduplicated.seen[number].get(name, [])) == in_order(sync.seen), f"after sync {number + 1}"


def test_versions_of_a_key_over_many_batches_and_syncs(deduplicated: Deduplicated) -> None:
    for number in range(len(BIG_SYNCS)):
        assert in_order(deduplicated.seen[number][BIG]) == in_order(deduplicated.big[number]), f"after sync {number + 1}"


def test_a_merge_leaves_files_without_a_changed_key_alone(deduplicated: Deduplicated) -> None:
    before, after = map(set, deduplicated.files[1:3])
    assert len(before) > 2
    assert len(before - after) == 1

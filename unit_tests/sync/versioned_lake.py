"""Tables with histories: changes of a source, syncs of them, the versions, and the rows that plain Python keeps of each moment."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from destination_s3_spark.tables.updates.resources import MergeTime
from unit_tests.lake import messages
from unit_tests.lake.lake import Lake
from unit_tests.lake.messages import JsonObject, complete, schema_of, state

HISTORY = {"history": [{"stream": "*"}]}
COLUMNS: dict[str, Any] = {
    "id": {"type": "integer"},
    "name": {"type": ["null", "string"]},
    "amount": {"type": ["null", "integer"]},
    "_ab_cdc_lsn": {"type": ["null", "integer"]},
    "_ab_cdc_updated_at": {"type": ["null", "string"]},
    "_ab_cdc_deleted_at": {"type": ["null", "string"]},
}
FIRST = datetime(2026, 1, 1, tzinfo=UTC)
Row = Mapping[str, Any]


def moment(at: int) -> datetime:
    return FIRST + timedelta(minutes=at)


def users(
    generation: int = 1,
    minimum: int = 0,
    columns: Mapping[str, Any] = COLUMNS,
    key: str = "id",
    cursor: str | None = None,
    mode: str = "append_dedup",
) -> JsonObject:
    """A catalog of stream `users`, with the column of log positions as its cursor if it has one."""
    chosen = cursor or ("_ab_cdc_lsn" if "_ab_cdc_lsn" in columns else ())
    ids: dict[str, Any] = {"generation": generation, "minimum_generation": minimum, "sync_id": generation}
    return messages.catalog(messages.stream(schema=schema_of(columns), mode=mode, key=key, cursor=chosen, **ids))


@dataclass(frozen=True)
class Change:
    """A change of a row in the source, at a minute that is also its cursor."""

    id: int
    at: int
    values: Row | None
    """None for a deletion."""

    @property
    def data(self) -> Row:
        time = moment(self.at).isoformat()
        deleted = time if self.values is None else None
        cdc = {"_ab_cdc_lsn": self.at, "_ab_cdc_updated_at": time, "_ab_cdc_deleted_at": deleted}
        return {"id": self.id, **(self.values or {}), **cdc}


def lines(rows: Iterable[Row], extracted: datetime = FIRST) -> bytes:
    return messages.records(rows, emitted_at=round(extracted.timestamp() * 1_000))


def sync(lake: Lake, *changes: Change, catalog: JsonObject | None = None) -> None:
    sent = lines((change.data for change in changes), moment(max(change.at for change in changes) + 1))
    lake.sync(catalog or users(), [sent, state(random.randrange(10**9)), complete()])


def history(lake: Lake, number: int = 1) -> list[dict[str, Any]]:
    """The versions in a history, as a reader of its folder sees them, by key and time."""
    rows = [
        {**row, "_current_file": "/current-" in found.key}
        for found in lake.store.list(f"lake/airbyte_history/users/{number}/")
        for row in pq.read_table(pa.BufferReader(lake.store.get(found.key))).to_pylist()
    ]
    return sorted(rows, key=lambda row: (row["id"], row["_valid_from"], row["_valid_to"] or datetime.max.replace(tzinfo=UTC)))


def brief(rows: Iterable[Row]) -> list[tuple[Any, ...]]:
    """The versions as key, name, the minutes from and to which they are valid, and a word for the end by a deletion."""

    def minute(time: datetime | None) -> int | None:
        return None if time is None else round((time - FIRST).total_seconds() / 60)

    return [
        (row["id"], row["name"], minute(row["_valid_from"]), minute(row["_valid_to"]), *(["deleted"] if row["_is_deleted"] else []))
        for row in rows
    ]


def check(lake: Lake, rows: list[dict[str, Any]]) -> None:
    """Check the rules of every history: one current version per key, no overlaps, and files of two kinds."""
    for row in rows:
        assert row["_is_current"] == row["_current_file"] == (row["_valid_to"] is None)
        assert row["_valid_to"] is None or row["_valid_from"] <= row["_valid_to"]
        assert not (row["_is_current"] and row["_is_deleted"])
    for one, other in pairwise(rows):
        assert one["id"] != other["id"] or (one["_valid_to"] is not None and one["_valid_to"] <= other["_valid_from"])
    assert lake.verified().problems == ()


def as_of(rows: Iterable[Row], at: int) -> dict[int, Row]:
    now = moment(at)
    return {
        row["id"]: {"name": row["name"], "amount": row["amount"]}
        for row in rows
        if row["_valid_from"] <= now and (row["_valid_to"] is None or now < row["_valid_to"])
    }


def kept_at(changes: Iterable[Change], at: int) -> dict[int, Row]:
    """The rows of the source at a minute."""
    newest: dict[int, Change] = {}
    for change in sorted((change for change in changes if change.at <= at), key=lambda change: change.at):
        newest[change.id] = change
    return {id_: {"name": None, "amount": None, **change.values} for id_, change in newest.items() if change.values is not None}


def ids_of_live_rows(lake: Lake) -> list[int]:
    """The keys of the table's rows that are not softly deleted."""
    return sorted(row["id"] for row in lake.glob() if row["_ab_cdc_deleted_at"] is None)


def refresh(lake: Lake, generation: int, *changes: Change, at: int, merged: bool = True) -> None:
    """Refresh with these rows in a sync that starts at a minute. Without `merged` it has no time to merge them."""
    lake.started_at = moment(at)
    lake.merge_limits = {} if merged else {"time": MergeTime(timedelta())}
    rows = (change.data for change in changes)
    lake.sync(users(generation, generation), [lines(rows, moment(at + 1)), state(generation), complete()])
    lake.merge_limits = {}


@dataclass
class Life:
    """Random changes of a source, and syncs of them."""

    lake: Lake
    chance: random.Random
    changes: list[Change] = field(default_factory=list)
    now: int = 0
    generation: int = 1
    columns: dict[str, Any] = field(default_factory=lambda: dict(COLUMNS))
    unsent: list[Change] = field(default_factory=list)
    """Deletions that only a refresh shows."""
    partitions: Sequence[dict[str, str]] = ()
    """The option tables.partition_by."""
    deletions: Sequence[str] = ("hard",)
    """The values of tables.cdc_deletion_mode that syncs take turns with, at random."""

    def new(self, count: int) -> list[Change]:
        found: list[Change] = []
        for _ in range(count):
            self.now += 1
            id_ = self.chance.randrange(8)
            # Most changes come in order. Late ones have a minute of their own, too.
            at = self.now if self.chance.random() < 0.8 else max(0, self.now - self.chance.randrange(30))
            forgotten = any(change.id == id_ and change.at > at for change in self.unsent)  # a late row is new then
            if forgotten or any(change.at == at for change in (*self.changes, *found)):
                at = self.now
            known = any(change.id == id_ and change.at < at for change in (*self.changes, *found))
            values = None if known and self.chance.random() < 0.2 else {"name": f"n{self.chance.randrange(10**6)}", "amount": self.now}
            found.append(Change(id_, at, values))
        self.changes += found
        return found

    def catalog(self, minimum: int = 0) -> JsonObject:
        return users(self.generation, minimum, self.columns)

    def step(self) -> None:
        waits = [{"stream": "*", "when_runs_mb": 1_000_000}] if self.chance.random() < 0.3 else []
        deletion = self.chance.choice(self.deletions)
        tables = {**HISTORY, "partition_by": self.partitions, "merge": waits, "cdc_deletion_mode": deletion}
        self.lake.options = {**self.lake.options, "tables": tables}
        self.lake.started_at = moment(self.now)
        match self.chance.randrange(8):
            case 0 if self.changes:
                sync(self.lake, *self.again(), catalog=self.catalog())
            case 2 if self.changes and self.lake.own_chain().head.contents.pending is None:
                self.refresh()
            case 1:
                self.columns = self.columns | {f"extra{len(self.columns)}": {"type": ["null", "string"]}}
                sync(self.lake, *self.new(3), catalog=self.catalog())
            case _:
                sync(self.lake, *self.new(self.chance.choice((1, 4, 12))), catalog=self.catalog())

    def again(self) -> list[Change]:
        """Changes that were sent before. Those of a row that a refresh lacked come with the last one, its deletion."""
        some = self.chance.sample(self.changes, min(5, len(self.changes)))
        newest = self.newest()
        whole = [newest[change.id] for change in some if change not in self.unsent]
        return [change for change in (*some, *whole) if newest[change.id] not in self.unsent] or self.new(1)

    def newest(self) -> dict[int, Change]:
        return {change.id: change for change in sorted(self.changes, key=lambda change: change.at)}

    def refresh(self) -> None:
        """Delete rows without a word, and send all rows that remain. Changes may wait for a merge, or come with the refresh."""
        self.delete_without_a_word(2)
        self.lake.started_at = moment(self.now)
        if self.chance.random() < 0.3:
            self.lake.merge_limits = {"time": MergeTime(timedelta())}  # no time to merge
        self.send_all(self.lake)
        self.lake.merge_limits = {}

    def delete_without_a_word(self, count: int) -> None:
        """Delete rows that only the next refresh shows to be gone."""
        live = [change for change in self.newest().values() if change.values is not None]
        self.now += 1
        self.generation += 1
        gone = [Change(change.id, self.now, None) for change in self.chance.sample(live, min(count, len(live)))]
        self.changes += gone
        self.unsent += gone

    def send_all(self, lake: Lake) -> None:
        rows = [change.data for change in self.newest().values() if change.values is not None]
        lake.sync(self.catalog(self.generation), [lines(rows, moment(self.now + 1)), state(self.now), complete()])

    def missing(self, rows: Iterable[Row]) -> Iterator[int]:
        """Yield the minutes at which the history differs from the source, as `as_of` and `kept_at` would."""
        shown = [dict[int, Row]() for _ in range(self.now + 1)]
        for row in rows:
            end = self.now + 1 if row["_valid_to"] is None else _first_minute(row["_valid_to"])
            for at in range(_first_minute(row["_valid_from"]), min(end, self.now + 1)):
                shown[at][row["id"]] = {"name": row["name"], "amount": row["amount"]}
        kept, changes = dict[int, Row](), deque(sorted(self.changes, key=lambda change: change.at))
        for at, found in enumerate(shown):
            while changes and changes[0].at <= at:
                change = changes.popleft()
                kept.pop(change.id, None)
                kept |= {} if change.values is None else {change.id: {"name": None, "amount": None, **change.values}}
            if found != kept:
                yield at


def _first_minute(time: datetime) -> int:
    """The first minute that is not before a time."""
    return max(0, -((FIRST - time) // timedelta(minutes=1)))

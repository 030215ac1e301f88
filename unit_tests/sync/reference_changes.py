"""What a change log says, in plain Python: every record of a key in its turn, against the row there is."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

PLACEHOLDER = "__debezium_unavailable_value"
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Record:
    """A record of the key `id`; `lsn` is its cursor. `offset` counts the records of the stream from its beginning."""

    id: int
    values: Mapping[str, Any]
    lsn: int | None
    deleted: bool
    extracted_at: int
    offset: int

    @property
    def age(self) -> tuple[int, int, int]:
        return (-1 if self.lsn is None else self.lsn), self.extracted_at, self.offset

    @property
    def given(self) -> frozenset[str]:
        """The columns the record has values for."""
        return frozenset({"id", *(name for name, value in self.values.items() if value != PLACEHOLDER)})

    def over(self, before: Row) -> Row:
        """The row that the record makes of the one before it."""
        return {"id": self.id} | {name: value if name in self.given else before.get(name) for name, value in self.values.items()}


@dataclass(frozen=True, slots=True)
class Event:
    """`given` are the columns the record had values for."""

    op: str
    id: int
    new: Row
    old: Row
    given: frozenset[str]
    position: int

    def images(self, before: str, after: str) -> tuple[Row, Row]:
        """The new and the old image."""
        changed = {name for name in self.new if name != "id" and self.new[name] != self.old.get(name)}
        new = {
            name: value for name, value in self.new.items() if name in self.given and (self.op == "I" or after == "ALL" or name in changed)
        }
        old = {name: value for name, value in self.old.items() if name == "id" or before == "ALL"}
        return ({} if self.op == "D" else new), ({} if self.op == "I" else old)


@dataclass
class Table:
    """The rows there are, and how old the newest version of each key is, a deletion included.

    `deleted` are the rows that a table with soft deletions has besides them, and `origins` how old the values of each row are.
    """

    rows: dict[int, Row] = field(default_factory=dict)
    ages: dict[int, tuple[int, int]] = field(default_factory=dict)
    deleted: dict[int, Row] = field(default_factory=dict)
    origins: dict[int, tuple[float, ...]] = field(default_factory=dict)

    def merge(self, records: Iterable[Record]) -> list[Event]:
        """Take the records of a sync; returns the events in the order of the log."""
        by_key: dict[int, list[Record]] = {}
        for record in records:
            by_key.setdefault(record.id, []).append(record)
        found: list[Event] = []
        for id_, of_key in by_key.items():
            position = -1
            for record in sorted(of_key, key=lambda record: record.age):
                if id_ in self.ages and record.age[:2] <= self.ages[id_]:
                    self._apply_late(record)
                    continue  # what the table has is newer, or as old
                event = self._apply(record)
                if event is not None:
                    position = max(position, record.offset)
                    found.append(Event(*event, position))
            newest = max(of_key, key=lambda record: record.age).age[:2]
            self.ages[id_] = max(self.ages.get(id_, newest), newest)
        self.origins = {id_: (*age[:2], math.inf) for id_, age in self.origins.items()}
        return sorted(found, key=lambda event: event.position)

    def refresh(self, records: Iterable[Record], *, at: int, soft: bool) -> list[Event]:
        """Take the records of a refresh that began at a time in milliseconds; returns the events in the order of the log."""
        by_key: dict[int, list[Record]] = {}
        for record in records:
            by_key.setdefault(record.id, []).append(record)
        old = replace(self)
        self.rows, self.ages, self.deleted, self.origins = {}, {}, {}, {}
        found = [Event("D", id_, {}, old.rows[id_], frozenset(), -1) for id_ in sorted(old.rows.keys() - by_key.keys())]
        for id_, of_key in by_key.items():
            position, row = -1, old.rows.get(id_)
            for number, record in enumerate(sorted(of_key, key=lambda record: record.age)):
                before, given = row, record.given if number or row is None else frozenset(row)
                self._apply(record)
                row = self.rows.get(id_)
                if before != row:
                    position = max(position, record.offset)
                    op = "D" if row is None else "I" if before is None else "U"
                    found.append(Event(op, id_, row or {}, before or {}, given, position))
            self.ages[id_] = max(of_key, key=lambda record: record.age).age[:2]
        for id_ in (old.rows.keys() | old.deleted.keys()) - by_key.keys() if soft else ():
            lsn, extracted = old.ages[id_]
            self.ages[id_] = old.ages[id_] if id_ in old.deleted else (lsn, max(extracted, at))
            self.deleted[id_] = old.rows.get(id_) or old.deleted[id_]
            self.origins |= {id_: old.origins[id_]} if id_ in old.origins else {}
        self.origins = {id_: (*age[:2], math.inf) for id_, age in self.origins.items()}
        return sorted(found, key=lambda event: event.position)

    def _apply(self, record: Record) -> tuple[str, int, Row, Row, frozenset[str]] | None:
        before = self.rows.get(record.id)
        if record.deleted:
            self.rows.pop(record.id, None)
            self.deleted[record.id] = before or self.deleted.get(record.id) or {"id": record.id, **dict.fromkeys(record.values)}
            return None if before is None else ("D", record.id, {}, before, frozenset())
        row = record.over(before or {})
        self.rows[record.id] = row
        self.deleted.pop(record.id, None)
        self.origins[record.id] = record.age
        if before == row:
            return None
        return ("I" if before is None else "U"), record.id, row, before or {}, record.given

    def _apply_late(self, record: Record) -> None:
        """A row that arrives after its deletion gives it its values, unless it has those of a newer one."""
        if not record.deleted and record.id in self.deleted and record.age > self.origins.get(record.id, ()):
            self.deleted[record.id] = record.over(self.deleted[record.id])
            self.origins[record.id] = record.age


def replayed(rows: dict[int, Row], log: Iterable[Mapping[str, Any]], columns: Iterable[str]) -> dict[int, Row]:
    """The rows after the log's records, as `changes` prints them."""
    for record in log:
        id_ = record["key"]["id"]
        match record["op"]:
            case "S" | "I":
                rows[id_] = dict.fromkeys(columns) | record["new"]
            case "U":
                rows[id_] = rows[id_] | record["new"]
            case "D":
                del rows[id_]
    return rows

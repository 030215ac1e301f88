"""Columns that never land as they were sent: the user's rules, what they mean for one stream, and what its chain records of them.

A rule is for the member of a record at a path of JSON keys. Items of an array have the path of the array. The first rule that matches
applies, and it is for the whole value, whatever it is.
"""

from __future__ import annotations

import hmac
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, NamedTuple

from destination_s3_spark.errors import ConfigError
from destination_s3_spark.schema.airbyte_type import (
    AirbyteType,
    Array,
    Decimal,
    Field,
    Object,
    Scalar,
    SchemalessArray,
    SchemalessObject,
    Union,
)
from destination_s3_spark.schema.json_schema import StreamFields
from destination_s3_spark.stream_id import StreamId, matches

COLUMNS_OPTION = "tables.columns"
KeyPath = tuple[str, ...]

_WILDCARD = re.compile(r"[*?]")
_SECRET_LABEL, _RULES_LABEL = b"destination-s3-spark: tables.hash_secret\n", b"destination-s3-spark: tables.columns\n"


class Action(Enum):
    """What happens to a value before it lands. The value is the configuration's."""

    DROP = "drop"
    """The member is removed, and the table has no column for it."""
    NULL = "null"
    HASH = "hash"
    """The HMAC-SHA-256 of the value's text, in hexadecimal digits."""
    TRUNCATE = "truncate"
    """The first characters of the value's text."""


@dataclass(frozen=True, slots=True)
class ColumnRule:
    """An action for the columns whose path, joined by dots, matches a pattern, in streams that match another. `length`: of TRUNCATE."""

    stream: str
    column: str
    action: Action
    length: int = 0

    def names(self, path: KeyPath) -> bool:
        """Tell whether the member at this path is meant."""
        return matches(".".join(path), self.column)

    def spells(self, path: KeyPath) -> bool:
        """Tell whether the pattern begins with this path and a dot, so that it is about members below it and hardly about others."""
        return self._head.startswith(_below(path))

    def may_name_below(self, path: KeyPath) -> bool:
        """Tell whether the pattern may match a member below this path."""
        return self.spells(path) or (self._head != self.column and _below(path).startswith(self._head))

    @property
    def _head(self) -> str:
        return _WILDCARD.split(self.column, maxsplit=1)[0]

    def __str__(self) -> str:
        return self.action.value if self.action is not Action.TRUNCATE else f"{self.action.value} to {self.length}"


def _below(path: KeyPath) -> str:
    return ".".join(path) + "."


class Decision(NamedTuple):
    """What to do with a member: an action, or None to keep it. `inside`: whether members below a kept one may have to be treated."""

    rule: ColumnRule | None
    inside: bool = False


ITEM = Decision(None, inside=True)
"""The decision on an item of an array that is not kept unseen."""
DROPPED = ColumnRule("*", "*", Action.DROP)
"""The rule for members that no schema declares, if only declared ones are kept."""


@dataclass(frozen=True, slots=True)
class Treatment:
    """The rules for one stream. It is picklable, so that Spark tasks can carry it, and does not show its secret.

    `around`: paths of objects, or arrays of them, that have a treated member by their schema. Another value there could hold the member's.
    `declared`: the declared paths. `closed`: the paths of objects of which only the declared members are kept; none if all members are.
    """

    rules: tuple[ColumnRule, ...] = ()
    secret: bytes = field(default=b"", repr=False)
    around: frozenset[KeyPath] = frozenset()
    declared: frozenset[KeyPath] = frozenset()
    closed: frozenset[KeyPath] = frozenset()
    columns: Mapping[str, str] = field(default_factory=dict)
    """The columns that are treated, and how: declared ones by path, others by the pattern of the rule."""

    @property
    def idle(self) -> bool:
        """Whether every line lands as it was sent."""
        return not self.rules and not self.closed

    def rule_of(self, path: KeyPath) -> ColumnRule | None:
        return next((rule for rule in self.rules if rule.names(path)), None)

    def of_members(self) -> dict[str, ColumnRule] | None:
        """Return the rules by the key of a record's own member, or None if some may be for members of objects, or for any name."""
        if self.closed or any("." in rule.column or _WILDCARD.search(rule.column) for rule in self.rules):
            return None
        return {rule.column: rule for rule in reversed(self.rules)}

    def decide(self, path: KeyPath) -> Decision:
        rule = self.rule_of(path)
        if rule is None and path[:-1] in self.closed and path not in self.declared:
            rule = DROPPED
        if rule is not None:
            return Decision(rule)
        inside = path in self.around or path in self.closed
        return Decision(None, inside or any(rule.may_name_below(path) for rule in self.rules))

    def fields(self, sent: StreamFields) -> StreamFields:
        """Return the columns that land of those that the source declares."""
        kept = tuple(self._fields(sent.fields, ()))
        return StreamFields(kept, sent.required & {column.source for column in kept})

    def _fields(self, sent: tuple[Field, ...], parent: KeyPath) -> Iterator[Field]:
        for column in sent:
            path = (*parent, column.source)
            rule = self.rule_of(path)
            if rule is None:
                yield replace(column, type=self._type(column.type, path))
            elif rule.action is not Action.DROP:
                yield column if rule.action is Action.NULL else replace(column, type=Scalar.STRING)

    def _type(self, of: AirbyteType, path: KeyPath) -> AirbyteType:
        match of:
            case Object(members):
                kept = tuple(self._fields(members, path))
                return Object(kept) if kept else SchemalessObject()
            case Array(items):
                return Array(self._type(items, path))
            case Union(options):
                return Union(tuple(self._type(option, path) for option in options))
            case Scalar() | Decimal() | SchemalessObject() | SchemalessArray():
                return of

    def recorded(self) -> dict[str, Any] | None:
        """Return what the chain records, or None if every line lands as it was sent. Nobody can tell the secret from it.

        `digest` changes with the rules and with the secret, `secret` with the secret alone.
        """
        if self.idle:
            return None
        uses_secret = any(rule.action is Action.HASH for rule in self.rules)
        key = self.secret if uses_secret else b""
        rules = [[rule.column, rule.action.value, rule.length] for rule in self.rules]
        raw_fields = "declared" if self.closed else "all"
        text = json.dumps([raw_fields, rules], ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
        found: dict[str, Any] = {"digest": hmac.digest(key, _RULES_LABEL + text, "sha256").hex(), "rawFields": raw_fields}
        if uses_secret:
            found["secret"] = hmac.digest(key, _SECRET_LABEL, "sha256").hex()
        return {**found, "columns": dict(self.columns)}


@dataclass(frozen=True, slots=True)
class ColumnRules:
    """The user's rules for all streams. `declared_only`: whether members that no schema declares are dropped."""

    rules: tuple[ColumnRule, ...] = ()
    declared_only: bool = False
    secret: bytes = field(default=b"", repr=False)

    def of_stream(self, stream: StreamId, sent: StreamFields) -> Treatment:
        """Return the rules for a stream that declares these columns. Raises ConfigError if a rule cannot be kept."""
        rules = tuple(rule for rule in self.rules if stream.matches(rule.stream))
        treatment = Treatment(rules, self.secret)
        places = dict(_places(sent.fields, ()))
        columns: dict[str, str] = {}
        around: set[KeyPath] = set()
        for path, of in places.items():
            if any(treatment.rule_of(path[:length]) is not None for length in range(1, len(path))):
                continue  # a rule for the whole of it comes first
            rule = treatment.rule_of(path)
            if rule is not None:
                columns[".".join(path)] = str(rule)
                around |= {path[:length] for length in range(1, len(path))}
            elif _is_open(of) and (inside := [rule for rule in rules if rule.spells(path)]):
                columns.update({rule.column: str(rule) for rule in reversed(inside)})
                around |= {path[:length] for length in range(1, len(path) + 1)}
        for path in sorted(around):
            _require_containers(stream, path, places[path])
        closed = {(), *(path for path, of in places.items() if _members(of) and not _is_open(of))} if self.declared_only else ()
        return Treatment(rules, self.secret, frozenset(around), frozenset(places), frozenset(closed), columns)

    def require_matches(self, declared: Mapping[StreamId, StreamFields]) -> None:
        """Raise ConfigError for a rule that matches no stream, or none of the declared columns of those that it matches."""
        for number, rule in enumerate(self.rules):
            streams = [stream for stream in declared if stream.matches(rule.stream)]
            where = f"{COLUMNS_OPTION}, entry {number + 1}: "
            if not streams:
                raise ConfigError(
                    f"{where}no stream of the connection has the name '{rule.stream}', so nothing would be treated. Correct the name, or "
                    "remove the entry."
                )
            if not any(_matches(rule, declared[stream]) for stream in streams):
                raise ConfigError(
                    f"{where}no stream that '{rule.stream}' matches declares a column '{rule.column}', so nothing would be treated. "
                    "Correct the name, which is that of the JSON field, refresh the source's schema, or remove the entry."
                )


def _matches(rule: ColumnRule, sent: StreamFields) -> bool:
    return any(rule.names(path) or (_is_open(of) and rule.spells(path)) for path, of in _places(sent.fields, ()))


def _places(fields: tuple[Field, ...], parent: KeyPath) -> Iterator[tuple[KeyPath, AirbyteType]]:
    for column in fields:
        path = (*parent, column.source)
        yield path, column.type
        yield from _places(_members(column.type), path)


def _alternatives(of: AirbyteType) -> Iterator[AirbyteType]:
    """Yield the types that values at a place of this type may have: those of the items of an array, and all options of a union."""
    match of:
        case Array(items):
            yield from _alternatives(items)
        case Union(options):
            for option in options:
                yield from _alternatives(option)
        case _:
            yield of


def _members(of: AirbyteType) -> tuple[Field, ...]:
    return tuple(member for one in _alternatives(of) if isinstance(one, Object) for member in one.fields)


def _is_open(of: AirbyteType) -> bool:
    """Tell whether objects without declared members may be at a place of this type."""
    return any(isinstance(one, SchemalessObject | SchemalessArray) for one in _alternatives(of))


def _require_containers(stream: StreamId, path: KeyPath, of: AirbyteType) -> None:
    """Raise ConfigError if a place around a treated member may hold other values than objects, in which the member could not be found."""
    if any(isinstance(one, Scalar | Decimal | SchemalessArray) for one in _alternatives(of)):
        name = ".".join(path)
        raise ConfigError(
            f"Stream '{stream}': {COLUMNS_OPTION} has an entry for a part of '{name}', which by its schema may also be a text, a number or "
            f"a list of any values, and these could hold the same. Add an entry for the whole of '{name}' before it.",
            stream=stream,
        )

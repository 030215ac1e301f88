"""The cascade of `forget`: which rows of other streams hang on forgotten ones, as a file of the user says."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter

from pydantic import TypeAdapter, ValidationError

from destination_s3_spark.config.settings_model import Settings
from destination_s3_spark.errors import ConfigError
from destination_s3_spark.stream_id import StreamId
from destination_s3_spark.tables.found import FoundTable


class ReferencedColumn(Settings):
    """A column of a stream, which is named with or without its namespace."""

    stream: str
    column: str


class ReferencingColumn(ReferencedColumn):
    """A column whose values are those of a column of another stream, as a foreign key."""

    references: ReferencedColumn


@dataclass(frozen=True, slots=True)
class Link:
    """A column of `child` with values of the column `references` of `parent`. The columns are JSON keys."""

    child: FoundTable
    column: str
    parent: FoundTable
    references: str


Choose = Callable[[str], Sequence[FoundTable]]
"""Returns the tables of a stream's name. Raises ConfigError if there are none."""


@dataclass(frozen=True, slots=True)
class Cascade:
    """Links between tables. A table may refer to itself, but not to one that refers to it."""

    links: tuple[Link, ...] = ()

    @classmethod
    def parse(cls, text: bytes, choose: Choose) -> Cascade:
        """Parse a JSON array of `ReferencingColumn`. Raises ConfigError."""
        try:
            columns = TypeAdapter(list[ReferencingColumn]).validate_json(text)
        except ValidationError as error:
            problems = [f"{'.'.join(map(str, one['loc'])) or 'the file'}: {one['msg']}" for one in error.errors(include_input=False)]
            raise ConfigError(
                f"The file of the cascade cannot be used: {'; '.join(problems)}. It has to be a JSON array of objects such as "
                '{"stream": "orders", "column": "user_id", "references": {"stream": "users", "column": "id"}}.'
            ) from None
        cascade = cls(
            tuple(Link(_one(choose, one.stream), one.column, _one(choose, one.references.stream), one.references.column) for one in columns)
        )
        cascade.tables({link.parent.stream: link.parent for link in cascade.links}.values())
        return cascade

    def of(self, parent: FoundTable) -> list[Link]:
        """Return the links to a table."""
        return [link for link in self.links if link.parent.stream == parent.stream]

    def to(self, child: FoundTable) -> list[Link]:
        """Return the links of a table."""
        return [link for link in self.links if link.child.stream == child.stream]

    def tables(self, roots: Iterable[FoundTable]) -> list[FoundTable]:
        """Return these tables and all that hang on them, each after those on which it hangs. Raises ConfigError for a circle."""
        known = {table.stream: table for table in roots}
        waiting = list(known.values())
        order: TopologicalSorter[StreamId] = TopologicalSorter()
        while waiting:
            parent = waiting.pop()
            order.add(parent.stream)
            for link in self.of(parent):
                if link.child.stream != parent.stream:
                    order.add(link.child.stream, parent.stream)
                if link.child.stream not in known:
                    known[link.child.stream] = link.child
                    waiting.append(link.child)
        try:
            return [known[stream] for stream in order.static_order()]
        except CycleError as error:
            circle = " → ".join(map(str, error.args[1]))
            raise ConfigError(
                f"The cascade is a circle: {circle}. If the command died, rows in it could not be found again. Leave one of these "
                "references out, and forget its rows by a command of their own."
            ) from None


def _one(choose: Choose, name: str) -> FoundTable:
    found = choose(name)
    if len(found) > 1:
        names = ", ".join(sorted(str(table.stream) for table in found))
        raise ConfigError(f"The stream '{name}' of the cascade may be any of {names}. Name one, with its namespace.")
    return found[0]

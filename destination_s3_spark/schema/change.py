"""What can happen to a table's columns from one schema to the next, and the label the new schema gets for it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from destination_s3_spark.schema.airbyte_type import AirbyteType

ITEMS = "[]"
"""Stands for the items of an array in the path of a change."""


class ChangeKind(Enum):
    """Kinds of change; the values are Snowplow's names where it has one (schema-ddl, `parquet/Migrations.scala`)."""

    KEY_ADDITION = "KeyAddition"
    """A column or member that was not there before."""
    KEY_REMOVAL = "KeyRemoval"
    """A column the source no longer declares. It stays where it is."""
    KEY_RETURN = "KeyReturn"
    """A removed column the source declares again."""
    TYPE_WIDENING = "TypeWidening"
    """A union with further options."""
    RECOVERY = "Recovery"
    """The values of a key go to another of its columns, added for it or there from an earlier time, since the type asks for it."""
    RETYPE = "Retype"
    """A column or member takes another type in place, or a column takes in the values of one that was recovered from it."""


@dataclass(frozen=True, slots=True)
class Change:
    """One change. `path` leads to the column or member by its JSON keys; `old` and `new` are its types, None where there is none."""

    kind: ChangeKind
    path: tuple[str, ...]
    old: AirbyteType | None
    new: AirbyteType | None


class SchemaVer(NamedTuple):
    """Snowplow's version of a schema. A label for people: the order of schemas is the order of their ids."""

    model: int
    revision: int
    addition: int

    def __str__(self) -> str:
        return f"{self.model}-{self.revision}-{self.addition}"

    @classmethod
    def parse(cls, text: str) -> SchemaVer:
        """The inverse of `str`; ValueError when it is not of the form `1-0-0`."""
        model, revision, addition = (int(part) for part in text.split("-"))
        return cls(model, revision, addition)

    def after(self, changes: tuple[Change, ...]) -> SchemaVer:
        """The label of the schema these changes lead to."""
        kinds = {change.kind for change in changes}
        if kinds & {ChangeKind.RECOVERY, ChangeKind.RETYPE}:
            return SchemaVer(self.model + 1, 0, 0)
        if ChangeKind.TYPE_WIDENING in kinds:
            return SchemaVer(self.model, self.revision + 1, 0)
        return SchemaVer(self.model, self.revision, self.addition + 1) if changes else self


FIRST_VERSION = SchemaVer(1, 0, 0)

"""Changes of a table's columns from one schema to the next, and the version label of the new schema."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from destination_s3_spark.schema.airbyte_type import AirbyteType

ITEMS = "[]"
"""Placeholder for the items of an array in the path of a change."""


class ChangeKind(Enum):
    """The kinds of change. The values are Snowplow's names where these exist (schema-ddl, `parquet/Migrations.scala`)."""

    KEY_ADDITION = "KeyAddition"
    """A column or member that was not there before."""
    KEY_REMOVAL = "KeyRemoval"
    """A column the source no longer declares. It stays where it is."""
    KEY_RETURN = "KeyReturn"
    """A removed column the source declares again."""
    TYPE_WIDENING = "TypeWidening"
    """A union gained options."""
    RECOVERY = "Recovery"
    """The declared type sends the values of a key to another of its columns, which is new or was added earlier."""
    RETYPE = "Retype"
    """A column or member took another type in place, or a base column took over the values of a recovered column."""


@dataclass(frozen=True, slots=True)
class Change:
    """One change. `path`: JSON keys down to the column or member. `old` and `new`: its types, None where there is none."""

    kind: ChangeKind
    path: tuple[str, ...]
    old: AirbyteType | None
    new: AirbyteType | None


class SchemaVer(NamedTuple):
    """Snowplow's version number of a schema. Only a label for people; schemas are ordered by their ids."""

    model: int
    revision: int
    addition: int

    def __str__(self) -> str:
        return f"{self.model}-{self.revision}-{self.addition}"

    @classmethod
    def parse(cls, text: str) -> SchemaVer:
        """Parse the text of a version. Raises ValueError unless it has the form `1-0-0`."""
        model, revision, addition = (int(part) for part in text.split("-"))
        return cls(model, revision, addition)

    def after(self, changes: tuple[Change, ...]) -> SchemaVer:
        """Return the label of the schema that these changes lead to."""
        kinds = {change.kind for change in changes}
        if kinds & {ChangeKind.RECOVERY, ChangeKind.RETYPE}:
            return SchemaVer(self.model + 1, 0, 0)
        if ChangeKind.TYPE_WIDENING in kinds:
            return SchemaVer(self.model, self.revision + 1, 0)
        return SchemaVer(self.model, self.revision, self.addition + 1) if changes else self


FIRST_VERSION = SchemaVer(1, 0, 0)

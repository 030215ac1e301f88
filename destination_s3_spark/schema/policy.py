"""Policy for columns with a declared type that differs from the table's type."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class SchemaChange(Enum):
    """The effect on the table of a type that does not merge into its column. RECOVER, REWRITE and FAIL have the configuration's values."""

    RECOVER = "recover"
    """The column stays, and an additional column takes the values of the new type."""
    REWRITE = "rewrite"
    """The column takes the new type in place, and the table must be rewritten."""
    FAIL = "fail"
    """The sync ends before it writes anything."""
    KEEP = "keep"
    """The column keeps its type and takes the values too. Meant for text files, where types have no effect."""


@dataclass(frozen=True, slots=True)
class SchemaPolicy:
    """The policy by which a table follows its source.

    `fixed`: JSON keys of the columns that deduplication compares (primary key, cursor, `_ab_cdc_deleted_at`). A second column would split
    their values, so they take a new type in place. `replace`: a new generation will replace all stored rows, so every column takes a new
    type in place, regardless of `change`.
    """

    change: SchemaChange = SchemaChange.RECOVER
    fixed: frozenset[str] = frozenset()
    replace: bool = False

    def in_place(self, source: str) -> bool:
        """Return whether the column of this key takes another type in place."""
        if self.replace or self.change is SchemaChange.REWRITE:
            return True
        return source in self.fixed and self.change is not SchemaChange.FAIL

"""What a table does about columns whose declared type is another one than its own."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class SchemaChange(Enum):
    """What a type that does not merge into its column does to the table; the values of RECOVER, REWRITE and FAIL are the config's."""

    RECOVER = "recover"
    """The column stays, and a further one beside it takes the values of the new type."""
    REWRITE = "rewrite"
    """The column takes the new type in place; the table has to be rewritten."""
    FAIL = "fail"
    """The sync ends before it has written anything."""
    KEEP = "keep"
    """The column stays as it is and takes the values too: for files of text, where a type decides nothing."""


@dataclass(frozen=True, slots=True)
class SchemaPolicy:
    """How a table follows its source.

    `fixed` are the JSON keys of the columns rows are told apart by (primary key, cursor, `_ab_cdc_deleted_at`): a second column beside one
    would tear its values apart, so it takes a new type in place. `replace`: a new generation is on its way, so nothing stored stays and
    every column takes a new type in place, whatever `change` says.
    """

    change: SchemaChange = SchemaChange.RECOVER
    fixed: frozenset[str] = frozenset()
    replace: bool = False

    def in_place(self, source: str) -> bool:
        """Whether the column of this key takes another type in place."""
        if self.replace or self.change is SchemaChange.REWRITE:
            return True
        return source in self.fixed and self.change is not SchemaChange.FAIL

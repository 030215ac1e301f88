"""A column: an object per (nested) column of a table, which says how msgspec decodes its values and builds an Arrow array of them.

A slot is what a decoded row holds for a column. `annotation` is what msgspec fills slots with; `settle` makes a slot from a value's
exact text, for the values msgspec refuses; `mend` does so for values that are refused for nothing but a NaN or an Infinity, and keeps
what it can of the slot they have without; `array` turns the slots of many rows into one Arrow array. All ways into a slot give the same
column. Slots: the Python scalar, the text of a temporal, a Struct for an object, a list for an array, and for columns whose
annotation is Raw the text itself. None is null.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import msgspec
import pyarrow as pa

from destination_s3_spark.typing.changes import Changes, Places, Spot
from destination_s3_spark.typing.exact import Text
from destination_s3_spark.typing.json_text import unmarked

Slot = Any


class Column(Protocol):
    """See the module docstring."""

    annotation: Any

    def settle(self, text: Text, spot: Spot, changes: Changes) -> Slot:
        """The slot of a value that stands in a record as this text."""

    def mend(self, slot: Slot, marked: bytes, spot: Spot, changes: Changes) -> Slot:  # noqa: ARG002 - what has no children is settled
        """The slot of a value that stands in a record as this `json_text.marked` text, given the one it has with nulls for the marks."""
        return self.settle(unmarked(marked), spot, changes)

    def array(self, slots: Sequence[Slot], places: Places, changes: Changes) -> pa.Array[Any]:
        """The Arrow array of these slots; values that cannot be kept become null and are recorded in `changes`."""


class RawColumn(Column, Protocol):
    """A column whose slots are the texts of its values as they stand in the record; `array` settles them."""

    annotation: Any = msgspec.Raw

    def settle(self, text: Text, spot: Spot, changes: Changes) -> Slot:  # noqa: ARG002 - nothing is looked at yet
        """The text itself."""
        return text


class TextColumn(RawColumn):
    """A column of another kind whose values all go the exact way."""

    def __init__(self, inner: Column) -> None:
        self.inner = inner

    def array(self, slots: Sequence[Slot], places: Places, changes: Changes) -> pa.Array[Any]:
        """Every value settled from its text, then the inner column's array."""
        settle = self.inner.settle
        settled = [None if slot is None else settle(slot, (places, position), changes) for position, slot in enumerate(slots)]
        return self.inner.array(settled, places, changes)

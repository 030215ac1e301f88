"""A column: an object per (nested) column of a table, which says how msgspec decodes its values and builds an Arrow array of them.

A slot is what a decoded row holds for a column. `annotation` is what msgspec fills slots with; `from_text` makes a slot from a value's
exact text, for the values msgspec refuses; `unmark` brings slots from marked texts (`decoding.marks`) into what they are without marks;
`array` turns the slots of many rows into one Arrow array. All ways into a slot give the same column. Slots: the Python scalar, the text
of a temporal, a Struct for an object, a list for an array, and for columns whose annotation is Raw the text itself. None is null.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import msgspec
import pyarrow as pa

from destination_s3_spark.decoding.changes import Changes, Places, Spot
from destination_s3_spark.exact_json.marks import unmarked_texts
from destination_s3_spark.exact_json.values import Text

Slot = Any


class Column(Protocol):
    """See the module docstring."""

    annotation: Any

    def from_text(self, text: Text, spot: Spot, changes: Changes) -> Slot:
        """The slot of a value that stands in a record as this text."""

    def unmark(self, slots: Sequence[Slot], places: Places, changes: Changes) -> Sequence[Slot]:
        """Slots from marked texts without the marks; Structs and lists are changed where they are. What was no number is recorded."""

    def array(self, slots: Sequence[Slot], places: Places, changes: Changes) -> pa.Array[Any]:
        """The Arrow array of these slots; values that cannot be kept become null and are recorded in `changes`."""


class RawColumn(Column, Protocol):
    """A column whose slots are the texts of its values as they stand in the record; `array` settles them."""

    annotation: Any = msgspec.Raw

    def from_text(self, text: Text, spot: Spot, changes: Changes) -> Slot:  # noqa: ARG002 - nothing is looked at yet
        """The text itself."""
        return text

    def unmark(self, slots: Sequence[Slot], places: Places, changes: Changes) -> Sequence[Slot]:  # noqa: ARG002 - nothing is looked at yet
        """The texts as they stand in the records."""
        return unmarked_texts(slots)


class TextColumn(RawColumn):
    """A column of another kind whose values all go the exact way."""

    def __init__(self, inner: Column) -> None:
        self.inner = inner

    def array(self, slots: Sequence[Slot], places: Places, changes: Changes) -> pa.Array[Any]:
        """Every value settled from its text, then the inner column's array."""
        from_text = self.inner.from_text
        settled = [None if slot is None else from_text(slot, (places, position), changes) for position, slot in enumerate(slots)]
        return self.inner.array(settled, places, changes)

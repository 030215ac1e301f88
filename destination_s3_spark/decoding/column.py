"""The column interface: how msgspec decodes the values of a (nested) column, and how they become an Arrow array.

A slot holds the decoded value of one row in one column. A slot is filled in one of two ways, and both lead to the same Arrow array:

 - msgspec decodes the record and fills the slot by the type in `annotation`. If the record's text carries marks in place of NaN and
   Infinity (`exact_json.marks`), `unmark` then removes the marks from the slot.
 - `from_text` makes the slot from the exact text of the value. It is for records that msgspec refuses.

`array` converts the slots of many rows to one Arrow array. A slot is a Python scalar, the text of a temporal value, a Struct for an object
or a list for an array. If the annotation is Raw, the slot is the text of the value. None is null.
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
    """Decoder and Arrow builder of one (nested) column. See the module docstring."""

    annotation: Any

    def from_text(self, text: Text, spot: Spot, changes: Changes) -> Slot:
        """Return the slot for a value given as its JSON text. Record in `changes` what cannot be kept."""

    def unmark(self, slots: Sequence[Slot], places: Places, changes: Changes) -> Sequence[Slot]:
        """Remove the marks from slots that were decoded from marked texts. Structs and lists are changed in place.

        A NaN or Infinity in a number column becomes null and is recorded in `changes`.
        """

    def array(self, slots: Sequence[Slot], places: Places, changes: Changes) -> pa.Array[Any]:
        """Build the Arrow array of these slots. A value that cannot be kept becomes null and is recorded in `changes`."""


class RawColumn(Column, Protocol):
    """Column whose slots are the JSON texts of the values as received. `array` converts them."""

    annotation: Any = msgspec.Raw

    def from_text(self, text: Text, spot: Spot, changes: Changes) -> Slot:  # noqa: ARG002 - not converted yet
        """Return the text unchanged."""
        return text

    def unmark(self, slots: Sequence[Slot], places: Places, changes: Changes) -> Sequence[Slot]:  # noqa: ARG002 - not converted yet
        """Restore the texts as received."""
        return unmarked_texts(slots)


class TextColumn(RawColumn):
    """Column that wraps another one and converts every value from its exact text."""

    def __init__(self, inner: Column) -> None:
        self.inner = inner

    def array(self, slots: Sequence[Slot], places: Places, changes: Changes) -> pa.Array[Any]:
        """Convert every text to a slot of the inner column, then build the inner column's array."""
        from_text = self.inner.from_text
        settled = [None if slot is None else from_text(slot, (places, position), changes) for position, slot in enumerate(slots)]
        return self.inner.array(settled, places, changes)

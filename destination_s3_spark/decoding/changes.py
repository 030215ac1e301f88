"""Record of the changes that typing makes to values: the entries of `_airbyte_meta.changes`.

A spot is a cheap description of a place in a record. It is turned into text only if a change has to be reported there. A spot is either
`(Places, position)`, a position in a column, or `(spot, ordinal, name)`, a member or item below another spot. An item has no name (None).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence, Set
from enum import Enum
from typing import Any, NamedTuple, Protocol

import numpy as np

Spot = tuple[Any, ...]
"""A place in a record, see the module docstring. A recursive tuple type would not be clearer."""


class Reason(Enum):
    """Reason why a value could not be kept as it is (airbyte_protocol.yaml). Coercions return it in place of a value."""

    SERIALIZATION = "DESTINATION_SERIALIZATION_ERROR"
    SIZE = "DESTINATION_FIELD_SIZE_LIMITATION"


class Location(NamedTuple):
    """A resolved spot.

    `row` is the row in the block. `order` holds the ordinals that sort a row's changes in the order in which its fields are declared.
    `path` is the path as text.
    """

    row: int
    order: tuple[int, ...]
    path: str


class Change(NamedTuple):
    """One entry of a row's `_airbyte_meta.changes`. An entry from the source has an empty `order`, so that it sorts first."""

    row: int
    order: tuple[int, ...]
    field: str | None
    change: str | None
    reason: str | None


class Places(Protocol):
    """The places in the records of the values of a (child) column."""

    def locate(self, positions: Sequence[int]) -> list[Location]:
        """Return the locations of the values at these positions of the column."""


class ColumnPlaces(Places):
    """Places of a top-level column. Position 0 is row `first_row` of the block."""

    __slots__ = ("_first_row", "_ordinal", "_source")

    def __init__(self, ordinal: int, source: str, first_row: int) -> None:
        self._ordinal = ordinal
        self._source = source
        self._first_row = first_row

    def locate(self, positions: Sequence[int]) -> list[Location]:
        """Return the column's location in the rows at these positions."""
        order, path = (self._ordinal,), self._source
        return [Location(self._first_row + position, order, path) for position in positions]


class SomePlaces(Places):
    """Places of a column that holds some values of a parent column. The value at position i is at `positions[i]` in the parent."""

    __slots__ = ("_parent", "_positions")

    def __init__(self, parent: Places, positions: Sequence[int]) -> None:
        self._parent = parent
        self._positions = positions

    def locate(self, positions: Sequence[int]) -> list[Location]:
        """Return the locations of the values in the parent column."""
        return self._parent.locate([self._positions[position] for position in positions])


class MemberPlaces(Places):
    """Places of an object's member. Its positions are those of the object."""

    __slots__ = ("_name", "_ordinal", "_parent")

    def __init__(self, parent: Places, ordinal: int, name: str) -> None:
        self._parent = parent
        self._ordinal = ordinal
        self._name = name

    def locate(self, positions: Sequence[int]) -> list[Location]:
        """Return the member's locations below the objects at these positions."""
        return [_member(location, self._ordinal, self._name) for location in self._parent.locate(positions)]


class ItemPlaces(Places):
    """Places of the items of arrays, laid end to end. `offsets[i]` is the position of the first item of the array at position i."""

    __slots__ = ("_offsets", "_parent")

    def __init__(self, parent: Places, offsets: np.ndarray[Any, Any]) -> None:
        self._parent = parent
        self._offsets = offsets

    def locate(self, positions: Sequence[int]) -> list[Location]:
        """Return the items' locations below their arrays, which are found by bisection."""
        arrays = self._offsets.searchsorted(positions, side="right") - 1
        indexes = (np.asarray(positions) - self._offsets[arrays]).tolist()
        return list(map(_item, self._parent.locate(arrays.tolist()), indexes))


class Changes:
    """The changes of one block, in any order."""

    def __init__(self) -> None:
        self.entries: list[Change] = []

    def nulled(self, spot: Spot, reason: Reason) -> None:
        """Record that the value at this spot became null."""
        row, order, path = _resolve(spot)
        self.entries.append(Change(row, order, path, "NULLED", reason.value))

    def nulled_all(self, places: Places, positions: Sequence[int], reason: Reason) -> None:
        """Record that the values at these positions of a column became null."""
        why = reason.value
        self.entries.extend(Change(row, order, path, "NULLED", why) for row, order, path in places.locate(positions))

    def truncated(self, spot: Spot, reason: Reason) -> None:
        """Record that the value at this spot lost a part: lone surrogates, which no UTF-8 column can hold, or digits."""
        row, order, path = _resolve(spot)
        self.entries.append(Change(row, order, path, "TRUNCATED", reason.value))

    def in_order(self) -> Sequence[Change]:
        """Return all entries sorted by row. Within a row, the source's entries come first, then ours in column order."""
        return sorted(self.entries, key=_row_then_order)

    def of_fields(self) -> Counter[tuple[int, str | None]]:
        """Count the changes of whole fields by the ordinal of the field and the kind of change."""
        return Counter((entry.order[0], entry.change) for entry in self.entries if len(entry.order) == 1)

    def rows_of(self, ordinals: Set[int]) -> list[int]:
        """Return the rows in which one of these fields was changed as a whole, in ascending order."""
        return sorted({entry.row for entry in self.entries if len(entry.order) == 1 and entry.order[0] in ordinals})


def _row_then_order(change: Change) -> tuple[int, tuple[int, ...]]:
    return change.row, change.order


def _resolve(spot: Spot) -> Location:
    steps = []
    while len(spot) == 3:
        spot, ordinal, name = spot
        steps.append((ordinal, name))
    places, position = spot
    location: Location = places.locate((position,))[0]
    for ordinal, name in reversed(steps):
        location = _item(location, ordinal) if name is None else _member(location, ordinal, name)
    return location


def _member(parent: Location, ordinal: int, name: str) -> Location:
    return Location(parent.row, (*parent.order, ordinal), f"{parent.path}.{name}")


def _item(parent: Location, index: int) -> Location:
    return Location(parent.row, (*parent.order, index), f"{parent.path}.[{index}]")

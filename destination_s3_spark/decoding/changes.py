"""What typing changed in values, and where: the entries of `_airbyte_meta.changes`.

A spot is a cheap description of a place in a record that is turned into text only when something has to be reported there. It starts
at a position in a column (`(Places, position)`) and goes down by members and items (`(spot, ordinal, name)`, name None for an item).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence, Set
from enum import Enum
from typing import Any, NamedTuple, Protocol

import numpy as np

Spot = tuple[Any, ...]
"""See the module docstring; a recursive tuple type would say no more."""


class Reason(Enum):
    """Why a value could not be kept as it is (airbyte_protocol.yaml); coercions return it in place of a value."""

    SERIALIZATION = "DESTINATION_SERIALIZATION_ERROR"
    SIZE = "DESTINATION_FIELD_SIZE_LIMITATION"


class Location(NamedTuple):
    """A resolved spot: the row in the block, the ordinals that sort a row's changes as its fields are declared, and the path as text."""

    row: int
    order: tuple[int, ...]
    path: str


class Change(NamedTuple):
    """One entry of a row's `_airbyte_meta.changes`; the source's own have an empty `order` and so come first."""

    row: int
    order: tuple[int, ...]
    field: str | None
    change: str | None
    reason: str | None


class Places(Protocol):
    """Where the values of a (child) column stand."""

    def locate(self, positions: Sequence[int]) -> list[Location]:
        """The locations of the values at these positions of the column."""


class ColumnPlaces(Places):
    """Positions of a top-level column: position 0 is row `first_row` of the block."""

    __slots__ = ("_first_row", "_ordinal", "_source")

    def __init__(self, ordinal: int, source: str, first_row: int) -> None:
        self._ordinal = ordinal
        self._source = source
        self._first_row = first_row

    def locate(self, positions: Sequence[int]) -> list[Location]:
        """The rows at these positions, and the column."""
        order, path = (self._ordinal,), self._source
        return [Location(self._first_row + position, order, path) for position in positions]


class SomePlaces(Places):
    """Positions of a column that holds some values of another: the one at position i is at `positions[i]` there."""

    __slots__ = ("_parent", "_positions")

    def __init__(self, parent: Places, positions: Sequence[int]) -> None:
        self._parent = parent
        self._positions = positions

    def locate(self, positions: Sequence[int]) -> list[Location]:
        """Where the values are in the other column."""
        return self._parent.locate([self._positions[position] for position in positions])


class MemberPlaces(Places):
    """Positions of an object's member: the same as the object's."""

    __slots__ = ("_name", "_ordinal", "_parent")

    def __init__(self, parent: Places, ordinal: int, name: str) -> None:
        self._parent = parent
        self._ordinal = ordinal
        self._name = name

    def locate(self, positions: Sequence[int]) -> list[Location]:
        """Below the objects at these positions."""
        return [_member(location, self._ordinal, self._name) for location in self._parent.locate(positions)]


class ItemPlaces(Places):
    """Positions of arrays' items laid end to end: `offsets[i]` is where the items of the array at position i begin."""

    __slots__ = ("_offsets", "_parent")

    def __init__(self, parent: Places, offsets: np.ndarray[Any, Any]) -> None:
        self._parent = parent
        self._offsets = offsets

    def locate(self, positions: Sequence[int]) -> list[Location]:
        """Below the arrays that hold the items at these positions, found by bisection."""
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
        """All entries by row; inside a row the source's first, then ours in column order."""
        return sorted(self.entries, key=_row_then_order)

    def of_fields(self) -> Counter[tuple[int, str | None]]:
        """How many changes of fields as a whole there are, by the ordinal of the field and by what was done to it."""
        return Counter((entry.order[0], entry.change) for entry in self.entries if len(entry.order) == 1)

    def rows_of(self, ordinals: Set[int]) -> list[int]:
        """The rows in which one of these fields was changed as a whole, ascending."""
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

"""Columns of arrays and of objects with declared members."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from msgspec.structs import astuple

from destination_s3_spark.decoding.changes import Changes, ItemPlaces, MemberPlaces, Places, Reason, Spot
from destination_s3_spark.decoding.column import Column, Slot
from destination_s3_spark.decoding.scalars import NumberColumn, StringColumn
from destination_s3_spark.exact_json.non_numbers import speaks_of_non_numbers
from destination_s3_spark.exact_json.values import ARRAY, NULL, OBJECT, Text, split_array, split_object
from destination_s3_spark.schema.airbyte_type import AirbyteType, Array, Field, Object


class Members:
    """The declared members of an object, with a msgspec Struct type whose attributes are their slots.

    msgspec can decode into the Struct only if `encodable`. It accepts no key with a quote, a backslash, a control character or a lone
    surrogate.
    """

    def __init__(self, fields: Sequence[Field], columns: Sequence[Column]) -> None:
        names = [f"f{ordinal}" for ordinal in range(len(fields))]
        self.sources = [field.source for field in fields]
        self.columns = list(columns)
        self.encodable = all(_encodable(source) for source in self.sources)
        self.struct = msgspec.defstruct(
            "Members",
            [(name, column.annotation, None) for name, column in zip(names, self.columns, strict=True)],
            rename=dict(zip(names, self.sources, strict=True)) if self.encodable else None,
            gc=False,
        )

    def slots(self, rows: Sequence[Any]) -> list[Sequence[Slot]]:
        """Return the slots of each member, given the Structs of many rows."""
        return list(zip(*map(astuple, rows), strict=True)) if rows else [()] * len(self.columns)

    def from_text(self, text: Text, spots: Iterable[Spot], changes: Changes) -> Slot:
        """Return the Struct of an object given as its JSON text. Raises ValueError if the text is not an object."""
        values = split_object(text)
        slots = []
        for source, member, spot in zip(self.sources, self.columns, spots, strict=True):
            value = values.get(source)
            slots.append(None if value is None else member.from_text(value, spot, changes))
        return self.struct(*slots)

    def unmark(self, structs: Sequence[Any], places: Sequence[Places], changes: Changes) -> None:
        """Remove the marks from Structs that were decoded from marked texts. `places` holds one entry per member."""
        for ordinal, (column, slots) in enumerate(zip(self.columns, self.slots(structs), strict=True)):
            without = column.unmark(slots, places[ordinal], changes)
            if without is not slots:
                name = self.struct.__struct_fields__[ordinal]
                for struct, slot in zip(structs, without, strict=True):
                    setattr(struct, name, slot)


def _encodable(key: str) -> bool:
    return not any(character in '"\\' or character < " " or "\ud800" <= character <= "\udfff" for character in key)


class ObjectColumn(Column):
    """Column of objects with declared members. Slots are Structs. `annotation` is None if msgspec cannot decode into the Struct."""

    def __init__(self, fields: Sequence[Field], columns: Sequence[Column], arrow_type: pa.DataType) -> None:
        self._members = Members(fields, columns)
        self._arrow_fields = [arrow_type.field(field.name) for field in fields]
        self._absent = self._members.struct()
        self.annotation: Any = self._members.struct | None if self._members.encodable else None

    def from_text(self, text: Text, spot: Spot, changes: Changes) -> Slot:
        """Return a Struct of the converted members. A value that is not an object becomes null and is recorded."""
        text = bytes(text)
        if text[0] == OBJECT:
            spots = [(spot, ordinal, source) for ordinal, source in enumerate(self._members.sources)]
            return self._members.from_text(text, spots, changes)
        if text != NULL:
            changes.nulled(spot, Reason.SERIALIZATION)
        return None

    def unmark(self, slots: Sequence[Slot], places: Places, changes: Changes) -> Sequence[Slot]:
        """Remove the marks from the members of each Struct, in place."""
        structs = [self._absent if slot is None else slot for slot in slots]
        self._members.unmark(structs, self._places_of_members(places), changes)
        return slots

    def array(self, slots: Sequence[Slot], places: Places, changes: Changes) -> pa.Array[Any]:
        """Build a struct array of the members' arrays, in the order of the fields."""
        nulls = [slot is None for slot in slots]
        mask = pa.array(nulls, pa.bool_()) if any(nulls) else None
        present = slots if mask is None else [self._absent if slot is None else slot for slot in slots]
        members = zip(self._members.columns, self._members.slots(present), self._places_of_members(places), strict=True)
        children = [member.array(values, inside, changes) for member, values, inside in members]
        return pa.StructArray.from_arrays(children, fields=self._arrow_fields, mask=mask)

    def _places_of_members(self, places: Places) -> list[Places]:
        return [MemberPlaces(places, ordinal, source) for ordinal, source in enumerate(self._members.sources)]


class ArrayColumn(Column):
    """Column of arrays with one item type. Slots are lists of the items' slots."""

    def __init__(self, items: Column, arrow_type: pa.DataType) -> None:
        self._items = items
        self._arrow_type = arrow_type
        self.annotation = list[self._items.annotation] | None  # type: ignore[name-defined]

    def from_text(self, text: Text, spot: Spot, changes: Changes) -> Slot:
        """Return a list of the converted items. A value that is not an array becomes null and is recorded."""
        text = bytes(text)
        if text[0] == ARRAY:
            from_text = self._items.from_text
            return [from_text(item, (spot, index, None), changes) for index, item in enumerate(split_array(text))]
        if text != NULL:
            changes.nulled(spot, Reason.SERIALIZATION)
        return None

    def unmark(self, slots: Sequence[Slot], places: Places, changes: Changes) -> Sequence[Slot]:
        """Remove the marks from the items of each list, in place."""
        present = [() if slot is None else slot for slot in slots]
        offsets = _offsets(present)
        items = list(chain.from_iterable(present))
        without = self._items.unmark(items, ItemPlaces(places, offsets), changes)
        if without is not items:
            for slot, start in zip(slots, offsets.tolist(), strict=False):
                if slot:
                    slot[:] = without[start : start + len(slot)]
        return slots

    def array(self, slots: Sequence[Slot], places: Places, changes: Changes) -> pa.Array[Any]:
        """Build a list array over the items of all rows, laid end to end."""
        if isinstance(self._items, StringColumn | NumberColumn):
            return pa.array(slots, self._arrow_type)  # no item can fail to convert, and Arrow is faster
        nulls = [slot is None for slot in slots]
        mask = pa.array(nulls, pa.bool_()) if any(nulls) else None
        present = slots if mask is None else [() if slot is None else slot for slot in slots]
        offsets = _offsets(present)
        items = self._items.array(list(chain.from_iterable(present)), ItemPlaces(places, offsets), changes)
        return pa.ListArray.from_arrays(pa.array(offsets), items, type=self._arrow_type, mask=mask)


def _offsets(lists: Sequence[Sequence[Slot]]) -> np.ndarray[Any, np.dtype[np.int32]]:
    """Return the position of each list's first item when all items are laid end to end, and the end of the last list."""
    offsets = np.zeros(len(lists) + 1, np.int32)
    np.cumsum(np.fromiter(map(len, lists), np.int32, len(lists)), out=offsets[1:])
    return offsets


def markable(fields: Iterable[Field]) -> bool:
    """Return whether marking a record's text leaves every declared key unchanged, at any depth."""
    return all(not speaks_of_non_numbers(field.source.encode("utf-8", "replace")) and _markable(field.type) for field in fields)


def _markable(of: AirbyteType) -> bool:
    match of:
        case Object(fields):
            return markable(fields)
        case Array(items):
            return _markable(items)
        case _:
            return True

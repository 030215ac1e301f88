"""Columns of objects with declared members and of arrays."""

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
    """The declared members of an object: a msgspec Struct whose attributes are their slots.

    msgspec can decode into it only if `encodable`: it takes no keys with a quote, a backslash, a control character or a lone surrogate.
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
        """The slots of each member in these Structs."""
        return list(zip(*map(astuple, rows), strict=True)) if rows else [()] * len(self.columns)

    def from_text(self, text: Text, spots: Iterable[Spot], changes: Changes) -> Slot:
        """The Struct of an object that stands in a record as this text. ValueError when it is no object."""
        values = split_object(text)
        slots = []
        for source, member, spot in zip(self.sources, self.columns, spots, strict=True):
            value = values.get(source)
            slots.append(None if value is None else member.from_text(value, spot, changes))
        return self.struct(*slots)

    def unmark(self, structs: Sequence[Any], places: Sequence[Places], changes: Changes) -> None:
        """Take the marks out of Structs from marked texts; `places` are those of each member."""
        for ordinal, (column, slots) in enumerate(zip(self.columns, self.slots(structs), strict=True)):
            without = column.unmark(slots, places[ordinal], changes)
            if without is not slots:
                name = self.struct.__struct_fields__[ordinal]
                for struct, slot in zip(structs, without, strict=True):
                    setattr(struct, name, slot)


def _encodable(key: str) -> bool:
    return not any(character in '"\\' or character < " " or "\ud800" <= character <= "\udfff" for character in key)


class ObjectColumn(Column):
    """Objects with declared members; slots are Structs. `annotation` is None when msgspec cannot decode into the Struct."""

    def __init__(self, fields: Sequence[Field], columns: Sequence[Column], arrow_type: pa.DataType) -> None:
        self._members = Members(fields, columns)
        self._arrow_fields = [arrow_type.field(field.name) for field in fields]
        self._absent = self._members.struct()
        self.annotation: Any = self._members.struct | None if self._members.encodable else None

    def from_text(self, text: Text, spot: Spot, changes: Changes) -> Slot:
        """The Struct of its settled members; null for what is no object."""
        text = bytes(text)
        if text[0] == OBJECT:
            spots = [(spot, ordinal, source) for ordinal, source in enumerate(self._members.sources)]
            return self._members.from_text(text, spots, changes)
        if text != NULL:
            changes.nulled(spot, Reason.SERIALIZATION)
        return None

    def unmark(self, slots: Sequence[Slot], places: Places, changes: Changes) -> Sequence[Slot]:
        """The same Structs, their members unmarked."""
        structs = [self._absent if slot is None else slot for slot in slots]
        self._members.unmark(structs, self._places_of_members(places), changes)
        return slots

    def array(self, slots: Sequence[Slot], places: Places, changes: Changes) -> pa.Array[Any]:
        """A struct array of the members' arrays, in the order of the fields."""
        nulls = [slot is None for slot in slots]
        mask = pa.array(nulls, pa.bool_()) if any(nulls) else None
        present = slots if mask is None else [self._absent if slot is None else slot for slot in slots]
        members = zip(self._members.columns, self._members.slots(present), self._places_of_members(places), strict=True)
        children = [member.array(values, inside, changes) for member, values, inside in members]
        return pa.StructArray.from_arrays(children, fields=self._arrow_fields, mask=mask)

    def _places_of_members(self, places: Places) -> list[Places]:
        return [MemberPlaces(places, ordinal, source) for ordinal, source in enumerate(self._members.sources)]


class ArrayColumn(Column):
    """Arrays of one item type; slots are lists of the items' slots."""

    def __init__(self, items: Column, arrow_type: pa.DataType) -> None:
        self._items = items
        self._arrow_type = arrow_type
        self.annotation = list[self._items.annotation] | None  # type: ignore[name-defined]

    def from_text(self, text: Text, spot: Spot, changes: Changes) -> Slot:
        """The list of its settled items; null for what is no array."""
        text = bytes(text)
        if text[0] == ARRAY:
            from_text = self._items.from_text
            return [from_text(item, (spot, index, None), changes) for index, item in enumerate(split_array(text))]
        if text != NULL:
            changes.nulled(spot, Reason.SERIALIZATION)
        return None

    def unmark(self, slots: Sequence[Slot], places: Places, changes: Changes) -> Sequence[Slot]:
        """The same lists, their items unmarked."""
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
        """A list array over the items of all rows laid end to end."""
        if isinstance(self._items, StringColumn | NumberColumn):
            return pa.array(slots, self._arrow_type)  # nothing can go wrong in the items, and Arrow is faster at this
        nulls = [slot is None for slot in slots]
        mask = pa.array(nulls, pa.bool_()) if any(nulls) else None
        present = slots if mask is None else [() if slot is None else slot for slot in slots]
        offsets = _offsets(present)
        items = self._items.array(list(chain.from_iterable(present)), ItemPlaces(places, offsets), changes)
        return pa.ListArray.from_arrays(pa.array(offsets), items, type=self._arrow_type, mask=mask)


def _offsets(lists: Sequence[Sequence[Slot]]) -> np.ndarray[Any, np.dtype[np.int32]]:
    """Where the items of each list begin when all are laid end to end, and where the last ones end."""
    offsets = np.zeros(len(lists) + 1, np.int32)
    np.cumsum(np.fromiter(map(len, lists), np.int32, len(lists)), out=offsets[1:])
    return offsets


def markable(fields: Iterable[Field]) -> bool:
    """Whether records with these members have no declared key, at any depth, that would become another one in a marked text."""
    return all(not speaks_of_non_numbers(field.source.encode("utf-8", "replace")) and _markable(field.type) for field in fields)


def _markable(of: AirbyteType) -> bool:
    match of:
        case Object(fields):
            return markable(fields)
        case Array(items):
            return _markable(items)
        case _:
            return True

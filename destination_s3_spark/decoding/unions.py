"""Union columns, stored as `{type: <option>, <option>: value}` with every other member null, as Airbyte's migration guide describes.

The JSON kind of a value decides which option accepts it. No option accepts a value of another kind:

    boolean, object, array    the option of that kind
    string                    the first string-like option in schema order that can parse it; a plain string accepts every text
    integer literal           the integer option if the value fits int64, else the number option
    other number              the number option (a double or a decimal), else the integer option if the fraction is zero

A value that no option accepts becomes null and is recorded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from destination_s3_spark.decoding import coercions
from destination_s3_spark.decoding.changes import Changes, Places, Reason, Spot
from destination_s3_spark.decoding.column import Column, RawColumn, Slot
from destination_s3_spark.decoding.temporal import TEMPORAL, temporal
from destination_s3_spark.exact_json import values as json_values
from destination_s3_spark.exact_json.values import NULL, string, without_lone_surrogates
from destination_s3_spark.schema.airbyte_type import (
    AirbyteType,
    Array,
    Decimal,
    Object,
    Scalar,
    SchemalessArray,
    SchemalessObject,
    option_name,
)

Chosen = tuple[int, Slot]
"""The ordinal of the option that accepts a value, and the value's slot in that option's column."""


class UnionColumn(RawColumn):
    """Column of values of several types."""

    def __init__(self, options: Sequence[AirbyteType], columns: Sequence[Column], arrow_type: pa.DataType) -> None:
        self._options = tuple(options)
        self._names = [option_name(option) for option in options]
        self._columns = list(columns)
        self._arrow_fields = list(arrow_type)
        self._strings = [at for at, option in enumerate(options) if option is Scalar.STRING or option in TEMPORAL]
        self._integer = self._first(Scalar.INTEGER)
        self._decimal = next((option for option in options if isinstance(option, Decimal)), None)
        self._number = self._first(self._decimal or Scalar.NUMBER)
        self._boolean = self._first(Scalar.BOOLEAN)
        self._object = self._first_of(Object, SchemalessObject)
        self._array = self._first_of(Array, SchemalessArray)

    def array(self, slots: Sequence[Slot], places: Places, changes: Changes) -> pa.Array[Any]:
        """Build a struct array in which each row sets `type` and the member it names. A row is null if no option accepts its value."""
        types: list[str | None] = [None] * len(slots)
        members: list[list[Slot]] = [[None] * len(slots) for _ in self._options]
        for position, slot in enumerate(slots):
            text = NULL if slot is None else bytes(slot)
            if text == NULL:
                continue
            chosen = self._choose(text, (places, position), changes)
            if isinstance(chosen, Reason):
                changes.nulled((places, position), chosen)
            else:
                option, members[option][position] = chosen[0], chosen[1]
                types[position] = self._names[option]
        children = {name: of.array(values, places, changes) for name, of, values in zip(self._names, self._columns, members, strict=True)}
        children["type"] = pa.array(types, pa.string())
        mask = pa.array([name is None for name in types], pa.bool_())
        return pa.StructArray.from_arrays([children[field.name] for field in self._arrow_fields], fields=self._arrow_fields, mask=mask)

    def _choose(self, text: bytes, spot: Spot, changes: Changes) -> Chosen | Reason:
        match text[0]:
            case json_values.QUOTE:
                return self._string(text, spot, changes)
            case json_values.OBJECT:
                option = self._object
            case json_values.ARRAY:
                option = self._array
            case _ if text in (b"true", b"false"):
                option = self._boolean
            case _:
                return self._numeric(text)
        return Reason.SERIALIZATION if option is None else (option, self._columns[option].from_text(text, spot, changes))

    def _string(self, text: bytes, spot: Spot, changes: Changes) -> Chosen | Reason:
        reason = Reason.SERIALIZATION
        for option in self._strings:
            of = self._options[option]
            if isinstance(of, Scalar) and of in TEMPORAL:
                slot = without_lone_surrogates(string(text))
                parsed = temporal(of, slot)
                if not isinstance(parsed, Reason):
                    return option, slot
                reason = Reason.SIZE if Reason.SIZE in (reason, parsed) else reason
            else:
                return option, self._columns[option].from_text(text, spot, changes)
        return reason

    def _numeric(self, text: bytes) -> Chosen | Reason:
        tries = [(self._integer, coercions.integer(text)), (self._number, self._fractional(text))]
        if not text.lstrip(b"-").isdigit():
            tries.reverse()
        reason = Reason.SERIALIZATION
        for option, value in tries:
            if option is None:
                continue
            if not isinstance(value, Reason):
                return option, value
            reason = Reason.SIZE if Reason.SIZE in (reason, value) else reason
        return reason

    def _fractional(self, text: bytes) -> Slot | Reason:
        """Return the slot of the number option."""
        if self._decimal is None:
            return coercions.number(text)
        value = coercions.decimal(text, self._decimal.precision, self._decimal.scale)
        return value if isinstance(value, Reason) else text

    def _first(self, of: AirbyteType) -> int | None:
        return self._options.index(of) if of in self._options else None

    def _first_of(self, *kinds: type) -> int | None:
        return next((at for at, option in enumerate(self._options) if isinstance(option, kinds)), None)

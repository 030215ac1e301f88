"""Columns without children: scalars, and containers stored as JSON text."""

from __future__ import annotations

import decimal
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Annotated, Any, Protocol

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from destination_s3_spark.decoding import coercions
from destination_s3_spark.decoding.changes import Changes, Places, Reason, Spot
from destination_s3_spark.decoding.column import Column, RawColumn, Slot
from destination_s3_spark.decoding.plain_temporal import plain_temporals
from destination_s3_spark.decoding.temporal import BEYOND_DATE, BEYOND_MICROSECONDS, TEMPORAL, temporal
from destination_s3_spark.exact_json.marks import MARKS, unmarked_strings
from destination_s3_spark.exact_json.values import ARRAY, NULL, OBJECT, QUOTE, Text, compact, string, without_lone_surrogates
from destination_s3_spark.schema.airbyte_type import Decimal, Scalar

_ANNOTATIONS: dict[Scalar, Any] = {
    Scalar.STRING: str | None,
    Scalar.BOOLEAN: bool | None,
    Scalar.INTEGER: Annotated[int, msgspec.Meta(ge=coercions.INT64_MIN, le=coercions.INT64_MAX)] | None,
    # The largest double itself is refused, because msgspec also rounds larger numbers down to it.
    Scalar.NUMBER: Annotated[float, msgspec.Meta(gt=-coercions.DOUBLE_MAX, lt=coercions.DOUBLE_MAX)] | None,
    **dict.fromkeys(TEMPORAL, str | None),
}
_first: Callable[[bytes], int] = itemgetter(0)
_COERCIONS: dict[Scalar, Callable[[bytes], Any]] = {
    Scalar.BOOLEAN: coercions.boolean,
    Scalar.INTEGER: coercions.integer,
    Scalar.NUMBER: coercions.number,
}


class NumberColumn(Column):
    """Column of booleans, integers or numbers. Slots are the stored values."""

    def __init__(self, of: Scalar, arrow_type: pa.DataType) -> None:
        self._of = of
        self.annotation = _ANNOTATIONS[of]
        self._coerce = _COERCIONS[of]
        self._arrow_type = arrow_type

    def from_text(self, text: Text, spot: Spot, changes: Changes) -> Slot:
        """Return the stored value. A value that the type's coercion refuses becomes null and is recorded."""
        text = bytes(text)
        if text == NULL:
            return None
        value = self._coerce(text)
        if isinstance(value, Reason):
            changes.nulled(spot, value)
            return None
        return value

    def unmark(self, slots: Sequence[Slot], places: Places, changes: Changes) -> Sequence[Slot]:
        """Replace marks with null and record them."""
        if self._of is not Scalar.NUMBER or MARKS.isdisjoint(slots):
            return slots
        changes.nulled_all(places, [position for position, slot in enumerate(slots) if slot in MARKS], Reason.SERIALIZATION)
        return [None if slot in MARKS else slot for slot in slots]

    def array(self, slots: Sequence[Slot], places: Places, changes: Changes) -> pa.Array[Any]:  # noqa: ARG002
        """Build the array. Slots are already the stored values, so that no change can arise."""
        return pa.array(slots, self._arrow_type)


class _StringSlots(Column, Protocol):
    """Column whose slots are strings."""

    def unmark(self, slots: Sequence[Slot], places: Places, changes: Changes) -> Sequence[Slot]:  # noqa: ARG002 - nothing is lost
        """Restore the strings as received."""
        return unmarked_strings(slots)


class StringColumn(_StringSlots):
    """Column of strings. Any other value is stored as its JSON text."""

    annotation = _ANNOTATIONS[Scalar.STRING]

    def from_text(self, text: Text, spot: Spot, changes: Changes) -> Slot:
        """Return the string, or the compact JSON text of any other value. Lone surrogates become U+FFFD and are recorded."""
        text = bytes(text)
        first = text[0]
        if first == QUOTE:
            value = string(text)
            whole = without_lone_surrogates(value)
            if whole is not value:
                changes.truncated(spot, Reason.SERIALIZATION)
            return whole
        if text == NULL:
            return None
        return (compact(text) if first in (OBJECT, ARRAY) else text).decode()

    def array(self, slots: Sequence[Slot], places: Places, changes: Changes) -> pa.Array[Any]:  # noqa: ARG002
        """Build the array. Slots are already the stored values, so that no change can arise."""
        return pa.array(slots, pa.string())


class TemporalColumn(_StringSlots):
    """Column of dates, times or timestamps. Slots are their texts; `array` parses them column by column."""

    def __init__(self, of: Scalar, arrow_type: pa.DataType) -> None:
        self.annotation = _ANNOTATIONS[of]
        self._of = of
        self._arrow_type = arrow_type

    def from_text(self, text: Text, spot: Spot, changes: Changes) -> Slot:
        """Return the text without parsing it. A value that is not a string becomes null and is recorded."""
        text = bytes(text)
        if text[0] == QUOTE:
            return without_lone_surrogates(string(text))
        if text != NULL:
            changes.nulled(spot, Reason.SERIALIZATION)
        return None

    def array(self, slots: Sequence[Slot], places: Places, changes: Changes) -> pa.Array[Any]:
        """Build the array. Plain forms are parsed as a whole column, all others one by one."""
        values, read = plain_temporals(self._of, pa.array(slots, pa.string()))
        if not read.all():
            for position in np.flatnonzero(~read).tolist():
                text = slots[position]
                if text is None:
                    continue
                value = temporal(self._of, text)
                if isinstance(value, Reason):
                    changes.nulled((places, position), value)
                else:
                    values[position] = value
                    read[position] = True
        stored = values.astype(np.int32) if self._of is Scalar.DATE else values
        return pa.array(stored, mask=None if read.all() else ~read).view(self._arrow_type)


class TemporalKeyColumn(TemporalColumn):
    """Column of dates, times or timestamps in a primary key.

    Text that the type cannot hold, such as nanoseconds or the time of day in a date, is recorded as a change. Otherwise two different keys
    could be taken for one.
    """

    def array(self, slots: Sequence[Slot], places: Places, changes: Changes) -> pa.Array[Any]:
        """Build the array. A text of which the type cannot hold all is recorded."""
        column = super().array(slots, places, changes)
        beyond = pc.match_substring_regex(pa.array(slots, pa.string()), BEYOND_DATE if self._of is Scalar.DATE else BEYOND_MICROSECONDS)
        for position in pc.indices_nonzero(pc.and_(beyond, column.is_valid())).to_pylist():
            changes.truncated((places, position), Reason.SIZE)
        return column


class DecimalColumn(RawColumn):
    """Column of decimals. Arrow reads the plain numbers of a whole column from their texts, without a binary float."""

    def __init__(self, of: Decimal, arrow_type: pa.DataType) -> None:
        self._of = of
        self._arrow_type = arrow_type
        whole = of.precision - of.scale
        fraction = rf"(?:\.\d{{1,{of.scale}}})?" if of.scale else ""
        number = f"-?(?:0|[1-9]\\d{{0,{whole - 1}}}){fraction}" if whole else f"-?0{fraction}"
        self._plain = f'^(?:{number}|"{number}")$'

    def array(self, slots: Sequence[Slot], places: Places, changes: Changes) -> pa.Array[Any]:
        """Build the array. Numbers that are not plain are read one by one."""
        given = pa.array(_texts(slots), pa.string())
        plain = pc.match_substring_regex(given, self._plain)
        numbers = given if plain.false_count == 0 else pc.if_else(plain, given, None)
        values = pc.replace_substring(numbers, '"', "").cast(self._arrow_type)
        if plain.false_count == 0:
            return values
        mask = pc.and_(pc.invert(plain), pc.not_equal(given, NULL.decode()))
        positions = pc.indices_nonzero(mask).to_pylist()
        read = [self._read(bytes(slots[position]), (places, position), changes) for position in positions]
        return pc.replace_with_mask(values, mask, pa.array(read, self._arrow_type))

    def _read(self, text: bytes, spot: Spot, changes: Changes) -> decimal.Decimal | None:
        value = coercions.decimal(text, self._of.precision, self._of.scale)
        if isinstance(value, Reason):
            changes.nulled(spot, value)
            return None
        if isinstance(value, coercions.Rounded):
            changes.truncated(spot, Reason.SIZE)
            return value.value
        return value


class JsonTextColumn(RawColumn):
    """Column of schemaless objects or arrays, stored as compact JSON text. `opening` is the first byte of its values."""

    def __init__(self, opening: int) -> None:
        self._opening = opening

    def array(self, slots: Sequence[Slot], places: Places, changes: Changes) -> pa.Array[Any]:
        """Build an array of the compact texts. A value of another JSON kind becomes null and is recorded."""
        texts = _texts(slots)
        firsts = bytes(map(_first, texts))
        joined = b"".join(texts)
        if any(blank in joined for blank in (b" ", b"\n", b"\t", b"\r")):
            texts = list(map(compact, texts))
        if firsts.count(self._opening) == len(firsts):
            return pa.array(texts, pa.string())
        fitting: list[bytes | None] = list(texts)
        for position, first in enumerate(firsts):
            if first != self._opening:
                if texts[position] != NULL:
                    changes.nulled((places, position), Reason.SERIALIZATION)
                fitting[position] = None
        return pa.array(fitting, pa.string())


def _texts(slots: Sequence[Slot]) -> list[bytes]:
    """Return the texts of Raw slots. Joining and splitting them takes a quarter of the time of converting each Raw to bytes."""
    given = [NULL if slot is None else slot for slot in slots]
    texts = b"\n".join(given).split(b"\n")
    # A text holds no newline unless it comes from a raw row that another program wrote.
    return texts if len(texts) == len(given) else list(map(bytes, given))

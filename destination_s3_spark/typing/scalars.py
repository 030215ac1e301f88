"""Columns without children: scalars, and containers that are kept as JSON text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Annotated, Any

import msgspec
import numpy as np
import pyarrow as pa

from destination_s3_spark.schema.airbyte_type import Scalar
from destination_s3_spark.typing import exact
from destination_s3_spark.typing.changes import Changes, Places, Reason, Spot
from destination_s3_spark.typing.column import Slot
from destination_s3_spark.typing.exact import Text
from destination_s3_spark.typing.plain_temporal import plain_temporals
from destination_s3_spark.typing.temporal import TEMPORAL, temporal

_ANNOTATIONS: dict[Scalar, Any] = {
    Scalar.STRING: str | None,
    Scalar.BOOLEAN: bool | None,
    Scalar.INTEGER: Annotated[int, msgspec.Meta(ge=exact.INT64_MIN, le=exact.INT64_MAX)] | None,
    # The largest double itself is refused, because what msgspec rounds down to it may be beyond it.
    Scalar.NUMBER: Annotated[float, msgspec.Meta(gt=-exact.DOUBLE_MAX, lt=exact.DOUBLE_MAX)] | None,
    **dict.fromkeys(TEMPORAL, str | None),
}
_first = itemgetter(0)
_COERCIONS: dict[Scalar, Callable[[bytes], Any]] = {
    Scalar.BOOLEAN: exact.boolean,
    Scalar.INTEGER: exact.integer,
    Scalar.NUMBER: exact.number,
}


class NumberColumn:
    """Booleans, integers and numbers; slots are the stored values."""

    def __init__(self, of: Scalar, arrow_type: pa.DataType) -> None:
        self.annotation = _ANNOTATIONS[of]
        self._coerce = _COERCIONS[of]
        self._arrow_type = arrow_type

    def settle(self, text: Text, spot: Spot, changes: Changes) -> Slot:
        text = bytes(text)
        if text == exact.NULL:
            return None
        value = self._coerce(text)
        if isinstance(value, Reason):
            changes.nulled(spot, value)
            return None
        return value

    def array(self, slots: Sequence[Slot], places: Places, changes: Changes) -> pa.Array[Any]:  # noqa: ARG002 - nothing is left to go wrong
        return pa.array(slots, self._arrow_type)


class StringColumn:
    """Texts; any other value as its JSON text."""

    annotation = _ANNOTATIONS[Scalar.STRING]

    def settle(self, text: Text, spot: Spot, changes: Changes) -> Slot:
        text = bytes(text)
        first = text[0]
        if first == exact.QUOTE:
            value = exact.string(text)
            whole = exact.without_lone_surrogates(value)
            if whole is not value:
                changes.truncated(spot)
            return whole
        if text == exact.NULL:
            return None
        return (exact.compact(text) if first in (exact.OBJECT, exact.ARRAY) else text).decode()

    def array(self, slots: Sequence[Slot], places: Places, changes: Changes) -> pa.Array[Any]:  # noqa: ARG002 - nothing is left to go wrong
        return pa.array(slots, pa.string())


class TemporalColumn:
    """Dates, times and timestamps; slots are their texts, parsed by the column."""

    def __init__(self, of: Scalar, arrow_type: pa.DataType) -> None:
        self.annotation = _ANNOTATIONS[of]
        self._of = of
        self._arrow_type = arrow_type

    def settle(self, text: Text, spot: Spot, changes: Changes) -> Slot:
        text = bytes(text)
        if text[0] == exact.QUOTE:
            return exact.without_lone_surrogates(exact.string(text))
        if text != exact.NULL:
            changes.nulled(spot, Reason.SERIALIZATION)
        return None

    def array(self, slots: Sequence[Slot], places: Places, changes: Changes) -> pa.Array[Any]:
        texts = pa.array(slots, pa.string())
        values, read = plain_temporals(self._of, texts)
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


class JsonTextColumn:
    """Objects or arrays without a schema, as compact JSON text; slots are the texts as they stand in the record."""

    annotation = msgspec.Raw

    def __init__(self, opening: int) -> None:
        self._opening = opening

    def settle(self, text: Text, spot: Spot, changes: Changes) -> Slot:  # noqa: ARG002 - read by `array`
        return text

    def array(self, slots: Sequence[Slot], places: Places, changes: Changes) -> pa.Array[Any]:
        texts: list[bytes | None] = [exact.NULL if slot is None else bytes(slot) for slot in slots]
        joined = b"".join(texts)  # type: ignore[arg-type] - none is None yet
        if any(blank in joined for blank in (b" ", b"\n", b"\t", b"\r")):
            texts = list(map(exact.compact, texts))  # type: ignore[arg-type]
        firsts = bytes(map(_first, texts))
        if firsts.count(self._opening) < len(firsts):
            for position, first in enumerate(firsts):
                if first != self._opening:
                    if texts[position] != exact.NULL:
                        changes.nulled((places, position), Reason.SERIALIZATION)
                    texts[position] = None
        return pa.array(texts, pa.string())

"""Typers that keep values as their JSON text, for formats that accept values of any type (JSON Lines, CSV), and the choice of a typer.

Values that such a file cannot hold are changed and recorded, as in all formats: NaN and Infinity, which are not valid JSON, become null.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from destination_s3_spark.decoding.changes import Changes, ColumnPlaces, Places, Reason, Spot
from destination_s3_spark.decoding.column import Column, RawColumn, Slot
from destination_s3_spark.decoding.metadata import META_COLUMNS
from destination_s3_spark.decoding.native_record_typer import NativeRecordTyper, Node, Spec, text_node
from destination_s3_spark.decoding.plan import RowPlan, Values
from destination_s3_spark.decoding.record_typer import UNIT_BYTES, RecordTyper
from destination_s3_spark.decoding.texts import text_array
from destination_s3_spark.exact_json.non_numbers import Step, non_numbers, to_rewrite, without
from destination_s3_spark.exact_json.values import NULL, QUOTE, compact, string, without_lone_surrogates
from destination_s3_spark.kernel import KERNEL

_SURROGATES = (rb"\ud", rb"\uD")
"""Beginnings of every escaped surrogate."""


class RecordTextTyper(RecordTyper):
    """Typer for final rows of the four `_airbyte_*` columns and `_airbyte_data`, the JSON text of the whole record.

    The plan has no fields.
    """

    def __init__(self, plan: RowPlan, unit_bytes: int = UNIT_BYTES) -> None:
        super().__init__(plan, unit_bytes)
        self._sources = [(META_COLUMNS, "")]

    def _arrays(self, texts: Sequence[bytes], first: int, changes: Changes) -> list[pa.Array[Any]]:
        self._rows(texts, first, changes)  # decodes no field, but raises unless each text is an object
        data = text_array(texts)
        if len(texts) == 0 or len(rows := to_rewrite(data)) == 0:
            return [data]
        rewritten = [_record_json(texts[row], first + row, changes) for row in rows.tolist()]
        return [_replaced(data, rows, rewritten)]


class RecordColumn(RawColumn):
    """Column of the JSON texts of whole records. NaN and Infinity inside become null and are recorded."""

    def array(self, slots: Sequence[Slot], places: Places, changes: Changes) -> pa.Array[Any]:
        """Build a string array of valid and compact texts."""
        locations = places.locate(range(len(slots)))
        texts = [_record_json(bytes(slot), location.row, changes) for slot, location in zip(slots, locations, strict=True)]
        return pa.array(texts, pa.string())


class CellTyper(RecordTyper):
    """Typer for final rows with one column of JSON text per field of the plan. A null or absent value is null."""

    def _columns_of_fields(self) -> list[Column]:
        return [CellColumn() for _ in self._plan.fields]


class CellColumn(RawColumn):
    """Column of JSON texts whose strings can be decoded to UTF-8. Lone surrogates become U+FFFD and are recorded."""

    def array(self, slots: Sequence[Slot], places: Places, changes: Changes) -> pa.Array[Any]:
        """Build a string array. NaN and Infinity become null and are recorded."""
        texts = pa.array([None if slot is None else bytes(slot) for slot in slots], pa.string())
        texts = pc.if_else(pc.equal(texts, "null"), None, texts)
        if texts.null_count == len(texts) or len(rows := to_rewrite(texts, *_SURROGATES)) == 0:
            return texts
        return _replaced(texts, rows, [_cell_json(bytes(slots[row]), (places, row), changes) for row in rows.tolist()])


class NativeRecordTextTyper(NativeRecordTyper, RecordTextTyper):
    """`RecordTextTyper` with the native kernel."""

    def _nodes_of_fields(self) -> list[Node]:
        return [text_node("json_object", 0, RecordColumn())]

    def _specs(self) -> list[tuple[bytes, Spec]] | None:
        return None


class NativeCellTyper(NativeRecordTyper, CellTyper):
    """`CellTyper` with the native kernel."""

    def _nodes_of_fields(self) -> list[Node]:
        return [text_node("cell", number, CellColumn()) for number in range(len(self._plan.fields))]


TYPERS: Mapping[Values, tuple[type[RecordTyper], type[NativeRecordTyper]]] = MappingProxyType(
    {
        Values.TYPED: (RecordTyper, NativeRecordTyper),
        Values.CELLS: (CellTyper, NativeCellTyper),
        Values.RECORD: (RecordTextTyper, NativeRecordTextTyper),
    }
)
"""The typer in Python and the native one for each kind of values."""


def record_typer(plan: RowPlan) -> RecordTyper:
    """Return the typer for a plan. It uses the native kernel if there is one and it supports the plan."""
    in_python, native = TYPERS[plan.values]
    if KERNEL is not None:
        with suppress(ValueError):
            return native(plan, KERNEL)
    return in_python(plan)


def _record_json(text: bytes, row: int, changes: Changes) -> bytes:
    found = list(non_numbers(text))
    for place in found:
        (ordinal, key), *steps = place.steps
        changes.nulled(_below((ColumnPlaces(ordinal, key or "", 0), row), steps), Reason.SERIALIZATION)
    return compact(without(found, text))


def _cell_json(text: bytes, spot: Spot, changes: Changes) -> bytes | None:
    if text[0] == QUOTE:
        given = string(text)
        whole = without_lone_surrogates(given)
        if whole is given:
            return text
        changes.truncated(spot, Reason.SERIALIZATION)
        return msgspec.json.encode(whole)
    found = list(non_numbers(text))
    for place in found:
        changes.nulled(_below(spot, place.steps), Reason.SERIALIZATION)
    valid = compact(without(found, text))
    return None if valid == NULL else valid


def _below(spot: Spot, steps: Sequence[Step]) -> Spot:
    for step in steps:
        spot = (spot, *step)
    return spot


def _replaced(texts: pa.Array[Any], rows: np.ndarray[Any, Any], by: Sequence[bytes | None]) -> pa.Array[Any]:
    mask = np.zeros(len(texts), np.bool_)
    mask[rows] = True
    return pc.replace_with_mask(texts, pa.array(mask), pa.array(by, pa.string()))

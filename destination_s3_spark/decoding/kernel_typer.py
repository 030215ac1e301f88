"""Typing of record lines by the native kernel, with the reference for the lines and values that the kernel leaves.

The kernel decodes plain forms only. All other lines and values are called odd, and the kernel returns their places. A block with a line
that is not a valid record goes to the reference as a whole, which raises the error.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from destination_s3_spark.decoding.changes import Changes, Ints, Trail, stored_changes
from destination_s3_spark.decoding.line_rules import LineRules, NativeLineRules, rules_of_members
from destination_s3_spark.decoding.plan import RowPlan, Values
from destination_s3_spark.decoding.raw_ids import ID_BYTES
from destination_s3_spark.decoding.record_line import RecordLine, UnreadableRecord, source_changes
from destination_s3_spark.decoding.record_typer import RecordTyper, TypedBlock, TypedRows
from destination_s3_spark.decoding.reference import Converter, converter_of, typed_array
from destination_s3_spark.errors import REPORT
from destination_s3_spark.kernel import KERNEL
from destination_s3_spark.schema.airbyte_type import AirbyteType, Array, Decimal, Object, Scalar, SchemalessArray, SchemalessObject
from destination_s3_spark.schema.column_rules import Treatment

_LAYOUTS: Mapping[Scalar, pa.DataType] = {
    Scalar.BOOLEAN: pa.bool_(),
    Scalar.INTEGER: pa.int64(),
    Scalar.NUMBER: pa.float64(),
    Scalar.DATE: pa.date32(),
    Scalar.TIME_WITH_TIMEZONE: pa.time64("us"),
    Scalar.TIME_WITHOUT_TIMEZONE: pa.time64("us"),
    Scalar.TIMESTAMP_WITH_TIMEZONE: pa.timestamp("us", "UTC"),
    Scalar.TIMESTAMP_WITHOUT_TIMEZONE: pa.timestamp("us", "UTC"),
}
"""Arrow type of the kernel's array for each kind of scalar; all other kinds are strings.

Arrow does not verify the type, so a wrong entry would make it read memory outside the kernel's buffers.
"""


class _Spec(NamedTuple):
    """Description of a column for the kernel: its kind, and its children with their JSON keys. The only child of an array is its items.

    In a `whole` column, the kernel treats a date, a time or a number as odd if the column's type might not hold all of it. `digits` are the
    precision and the scale of a decimal.
    """

    kind: str
    whole: bool = False
    children: list[tuple[bytes, _Spec]] = []  # noqa: RUF012 - never changed
    digits: tuple[int, int] = (0, 0)


class _Odd(NamedTuple):
    """Odd values of a column: their positions in it, and the starts and ends of their texts in the lines.

    `nulled` holds the positions of the values that the kernel set to null because their type never fits.
    """

    positions: Ints
    starts: Ints
    ends: Ints
    nulled: Ints


@dataclass(frozen=True, slots=True)
class _TypedNode:
    """A (nested) column. `number` is its ordinal in a pre-order walk of all columns, and `end` is the number after its last descendant.

    `stored` is the type of the kernel's array, which is null for a type that the kernel does not support. `final` is the table's type.
    `convert` converts odd values. It is None for a node with children, whose odd values are those of the children.
    """

    number: int
    end: int
    sources: tuple[str, ...]
    children: tuple[_TypedNode, ...]
    convert: Converter | None
    final: pa.DataType
    stored: pa.DataType
    spec: _Spec


class _Exported:
    """An array of the kernel together with its type, for import through Arrow's C data interface."""

    def __init__(self, of: pa.DataType, capsule: object) -> None:
        self._of = of
        self._capsule = capsule

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        return self._of.__arrow_c_schema__(), self._capsule


class KernelTyper(RecordTyper):
    """Typer that uses the kernel. Its rows equal the reference's to the byte, except for the random raw ids."""

    def __init__(self, plan: RowPlan, kernel: ModuleType) -> None:
        """Raise ValueError for a name that cannot be encoded in UTF-8 and for a column whose stored type differs from the kernel's."""
        self._module = kernel
        super().__init__(plan)
        self._nodes = list(self._nodes_of_columns())
        specs = [(source.encode(), node.spec) for source, node in zip(self._sources, self._nodes, strict=True)]
        fields = None if plan.values is Values.RECORD else specs  # without fields, the only column takes whole records
        self._rules_of_members = None if fields is None or plan.treatment is None else rules_of_members(plan.treatment)
        self._kernel = kernel.Kernel(plan.stream.name.encode(), (plan.stream.namespace or "").encode(), fields, self._rules_of_members)
        self._stored = pa.struct([pa.field(str(at), of) for at, of in enumerate([pa.int64(), *(node.stored for node in self._nodes)])])

    def _nodes_of_columns(self) -> Iterator[_TypedNode]:
        number = 0
        for at, convert in enumerate(self._converters):
            if self._plan.values is Values.TYPED:
                field = self._plan.fields[at]
                node = _node(field.type, self._stored_type(field.name), number, of_key=field.source in self._plan.key)
            else:
                spec = _Spec("json_object" if self._plan.values is Values.RECORD else "cell")
                node = _TypedNode(number, number + 1, (), (), convert, pa.string(), pa.string(), spec)
            number = node.end
            yield node

    def type_block(self, lines: bytes) -> TypedBlock:
        given = lines if self._rules_of_members is not None else self._treated(lines)
        block = self._read(self._kernel.read, given)
        if block is None:
            return super().type_block(lines)
        changes = Changes()
        odd = block.odd_lines
        try:
            for row, start, end in block.metas:
                self._add_source_changes(source_changes(given[start:end]), row, changes)
            records = self._read_lines(self._odd_lines(given, odd))
            rows = self._completed(block, given, [row for row, _, _ in odd], records, changes)
        except (UnreadableRecord, ValueError):
            return super().type_block(lines)  # finds the faulty line and raises the error
        return self._new_block(rows, changes)

    def _odd_lines(self, lines: bytes, odd: Iterable[tuple[int, int, int]]) -> Iterator[tuple[int, bytes]]:
        """Yield the lines that the kernel leaves, after the rules, each with the ordinal of its row."""
        for row, start, end in odd:
            line = lines[start:end]
            yield row, line if self._rules is None or self._rules_of_members is None else self._rules.line(row, line)

    def retype(self, raw: pa.RecordBatch) -> TypedBlock:
        texts: list[bytes] = raw["_airbyte_data"].cast(pa.binary()).fill_null(b"").to_pylist()
        lines = b"".join(text + b"\n" for text in texts)
        block = self._read(self._kernel.read_data, lines)
        if block is None or block.rows != len(raw):  # a text with a newline comes from another program
            return super().retype(raw)
        changes = Changes()
        changes.entries.extend(stored_changes(raw["_airbyte_meta"]))
        odd = [row for row, _, _ in block.odd_lines]
        try:
            rows = self._completed(block, lines, odd, self._read_raw(raw, odd), changes)
        except (UnreadableRecord, ValueError):
            return super().retype(raw)  # finds the faulty row and raises the error
        return self._block_of_raw(raw, rows, changes)

    def _read(self, read: Callable[[bytes], Any], lines: bytes) -> Any | None:
        """Return the kernel's block of these lines, or None if the kernel cannot read them."""
        try:
            return read(lines)
        except ValueError:  # longer than the kernel's 32-bit offsets allow
            return None
        except RuntimeError:
            # The process may be a worker, which has no other way to say it. Nothing of the records is in it.
            sys.stderr.write(f"The native kernel failed on a block of stream {self._plan.stream}; Python typed it. {REPORT}\n")
            return None

    def _completed(
        self, block: Any, lines: bytes, odd: Sequence[int], records: Iterable[tuple[int, RecordLine]], changes: Changes
    ) -> TypedRows:
        """Return the rows of a block, completed with its odd values and with its odd lines, whose `records` are typed alone."""
        odd_values = {number: _Odd(*(np.frombuffer(part, np.int64) for part in parts)) for number, *parts in block.odd_columns()}
        given = pa.array(_Exported(self._stored, block.columns()))
        columns = [
            _completed(given.field(at + 1), node, Trail(None, at, source), lines, odd_values, changes)
            for at, (node, source) in enumerate(zip(self._nodes, self._sources, strict=True))
        ]
        # A copy, because any array of the kernel keeps all columns in memory, and raw rows, which have the times, are kept longer.
        emitted_at = pa.array(given.field(0).to_numpy().copy())
        low, high = block.multiset
        texts = cache(lambda: pa.array(_Exported(pa.string(), block.texts(lines))))  # the kernel gives them once
        rows = TypedRows(emitted_at, columns, low + (high << 64), texts)
        return _with_odd_lines(rows, odd, self._typed(records, changes)) if odd else rows

    def _line_rules(self, treatment: Treatment) -> LineRules:
        return NativeLineRules(treatment, self._module)

    def _new_ids(self, count: int) -> pa.Array[Any]:
        random = os.urandom(count * ID_BYTES)
        return pa.array(_Exported(pa.string(), self._module.row_ids(time.time_ns() // 1_000_000, random)))


def record_typer(plan: RowPlan) -> RecordTyper:
    """Return the typer for a plan. It uses the kernel if there is one and it supports the plan."""
    if KERNEL is not None:
        with suppress(ValueError):
            return KernelTyper(plan, KERNEL)
    return RecordTyper(plan)


def _with_odd_lines(rows: TypedRows, odd: Sequence[int], alone: TypedRows) -> TypedRows:
    """Return the rows of a block with those of its odd lines in their places."""
    count = len(rows.emitted_at)
    order = np.arange(count)
    order[odd] = np.arange(count, count + len(odd))

    def placed(array: pa.Array[Any], of_odd: pa.Array[Any]) -> pa.Array[Any]:
        return pa.concat_arrays([array, of_odd]).take(pa.array(order))

    columns = [placed(column, of_odd) for column, of_odd in zip(rows.columns, alone.columns, strict=True)]
    texts = rows.texts
    return TypedRows(
        placed(rows.emitted_at, alone.emitted_at), columns, rows.multiset + alone.multiset, lambda: placed(texts(), alone.texts())
    )


def _node(of: AirbyteType, final: pa.DataType, number: int, *, of_key: bool = False) -> _TypedNode:
    """Return the node of a column and its descendants. Raises ValueError if a stored type differs from the kernel's."""
    match of:
        case Object(fields) if fields:
            _require([field.name for field in fields] == [field.name for field in final])
            children: list[_TypedNode] = []
            for field in fields:
                children.append(_node(field.type, final.field(field.name).type, children[-1].end if children else number + 1))
            sources = tuple(field.source for field in fields)
            spec = _Spec("object", children=[(source.encode(), child.spec) for source, child in zip(sources, children, strict=True)])
            stored = pa.struct([field.with_type(child.stored) for field, child in zip(final, children, strict=True)])
            return _TypedNode(number, children[-1].end, sources, tuple(children), None, final, stored, spec)
        case Array(items):
            _require(pa.types.is_list(final))
            child = _node(items, final.value_type, number + 1)
            spec = _Spec("array", children=[(b"", child.spec)])
            stored = pa.list_(final.value_field.with_type(child.stored))
            return _TypedNode(number, child.end, (), (child,), None, final, stored, spec)
    convert = converter_of(of, of_key=of_key)
    match of:
        case Scalar():
            kind, stored = of.value, _LAYOUTS.get(of, pa.string())
        case Decimal(precision, scale):
            _require(final == pa.decimal128(precision, scale))
            return _TypedNode(number, number + 1, (), (), convert, final, final, _Spec("decimal", digits=(precision, scale)))
        case SchemalessObject():
            kind, stored = "json_object", pa.string()
        case SchemalessArray():
            kind, stored = "json_array", pa.string()
        case _:
            return _TypedNode(number, number + 1, (), (), convert, final, pa.null(), _Spec("other"))
    _require(final == stored)
    return _TypedNode(number, number + 1, (), (), convert, final, stored, _Spec(kind, of_key))


def _require(known: bool) -> None:
    if not known:
        raise ValueError("a column in another layout than the kernel's")


def _completed(
    array: pa.Array[Any], node: _TypedNode, trail: Trail, lines: bytes, odd_values: Mapping[int, _Odd], changes: Changes
) -> pa.Array[Any]:
    """Return the kernel's column, completed with the converted odd values of the column and its descendants.

    `odd_values` are those of all columns of the block by the column's number, and `lines` its lines.
    """
    odd = odd_values.get(node.number)
    if odd is not None and len(odd.nulled):
        changes.nulled_all(trail.located(odd.nulled))
    if node.convert is not None:
        if odd is None or not len(odd.positions):
            return array if array.type == node.final else pa.nulls(len(array), node.final)
        texts = (lines[start:end] for start, end in zip(odd.starts.tolist(), odd.ends.tolist(), strict=True))
        values = typed_array(texts, trail.located(odd.positions).places(), node.convert, node.final, changes)
        return _replaced(array, odd.positions, values)
    if array.type == node.final and not any(node.number < number < node.end for number in odd_values):
        return array
    if pa.types.is_list(node.final):
        buffers = array.buffers()[:2]
        trails = [Trail(trail, 0, None, np.frombuffer(buffers[1], np.int32, len(array) + 1))]
        below = [array.values]
    else:
        buffers = array.buffers()[:1]
        trails = [Trail(trail, ordinal, source) for ordinal, source in enumerate(node.sources)]
        below = [array.field(ordinal) for ordinal in range(len(node.children))]
    children = [_completed(child, of, way, lines, odd_values, changes) for child, of, way in zip(below, node.children, trails, strict=True)]
    return pa.Array.from_buffers(node.final, len(array), buffers, array.null_count, children=children)


def _replaced(array: pa.Array[Any], positions: Ints, values: pa.Array[Any]) -> pa.Array[Any]:
    """Return the kernel's column, which is of nulls if it does not support the type, with these values at these positions."""
    if array.type != values.type:
        order = np.full(len(array), -1)
        order[positions] = np.arange(len(values))
        return values.take(pa.array(order, mask=order < 0))
    mask = np.zeros(len(array), np.bool_)
    mask[positions] = True
    return pc.replace_with_mask(array, pa.array(mask), values)

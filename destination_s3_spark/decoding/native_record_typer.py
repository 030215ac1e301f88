"""Typing of record lines by the native kernel, with the Python typer for the lines and values that the kernel leaves.

The kernel decodes plain forms only. All other lines and values are called odd, and the kernel returns their places. The code of the
Python typer converts them: an odd value through its column, an odd line through all columns. A block with a line that is not a valid record
goes to the Python typer as a whole, which raises the error.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType, ModuleType
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from destination_s3_spark.decoding.bulk_changes import BulkChanges, Trail
from destination_s3_spark.decoding.changes import Changes, SomePlaces
from destination_s3_spark.decoding.column import Column, TextColumn
from destination_s3_spark.decoding.columns import column_of, key_column_of
from destination_s3_spark.decoding.envelope import REFUSED, Meta, MisroutedRecord, UnreadableRecord
from destination_s3_spark.decoding.metadata import ID_BYTES
from destination_s3_spark.decoding.plan import RowPlan
from destination_s3_spark.decoding.raw_rows import records_of, stored_changes
from destination_s3_spark.decoding.record_typer import (
    UNIT_BYTES,
    RecordTyper,
    TypedBlock,
    Unit,
    collector_paused,
    parts_of,
    take_source_changes,
)
from destination_s3_spark.decoding.texts import Texts, joined, text_array
from destination_s3_spark.errors import REPORT
from destination_s3_spark.schema.airbyte_type import AirbyteType, Array, Decimal, Object, Scalar, SchemalessArray, SchemalessObject

_MOST_ODD_LINES = 1 / 2
"""Share of odd lines above which a whole block goes to the Python typer, which is faster then."""

_LAYOUTS: Mapping[Scalar, pa.DataType] = MappingProxyType(
    {
        Scalar.BOOLEAN: pa.bool_(),
        Scalar.INTEGER: pa.int64(),
        Scalar.NUMBER: pa.float64(),
        Scalar.DATE: pa.date32(),
        Scalar.TIME_WITH_TIMEZONE: pa.time64("us"),
        Scalar.TIME_WITHOUT_TIMEZONE: pa.time64("us"),
        Scalar.TIMESTAMP_WITH_TIMEZONE: pa.timestamp("us", "UTC"),
        Scalar.TIMESTAMP_WITHOUT_TIMEZONE: pa.timestamp("us", "UTC"),
    }
)
"""Arrow type of the kernel's array for each kind of scalar; all other kinds are strings.

Arrow does not verify the type, so a wrong entry would make it read memory outside the kernel's buffers.
"""

Ints = np.ndarray[Any, np.dtype[np.int64]]


class Spec(NamedTuple):
    """Description of a column for the kernel: its kind, and its children with their JSON keys. The only child of an array is its items.

    In a `whole` column, the kernel treats a date or time as odd if the column's type might not hold all of it. `digits` are the precision
    and the scale of a decimal.
    """

    kind: str
    whole: bool = False
    children: list[tuple[bytes, Spec]] = []  # noqa: RUF012 - never changed
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
class Node:
    """A (nested) column. `number` is its ordinal in a pre-order walk of all columns, and `end` is the number after its last descendant.

    `stored` is the type of the kernel's array, which is null for a type that the kernel does not support. `final` is the table's type.
    `column` converts odd values. It is None for a node with children, whose odd values are those of the children.
    """

    number: int
    end: int
    sources: tuple[str, ...]
    children: tuple[Node, ...]
    column: Column | None
    final: pa.DataType
    stored: pa.DataType
    spec: Spec


class _Exported:
    """An array of the kernel together with its type, for import through Arrow's C data interface."""

    def __init__(self, of: pa.DataType, capsule: object) -> None:
        self._of = of
        self._capsule = capsule

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        return self._of.__arrow_c_schema__(), self._capsule


class _BlockTexts(Texts):
    """The `data` texts of a block that the kernel has read.

    `alone` holds the texts of the odd lines. They are appended to the kernel's texts, and `order` then says which text belongs to each row.
    """

    def __init__(self, block: Any, lines: bytes, alone: Sequence[Sequence[bytes]], order: pa.Array[Any] | None) -> None:
        self._block = block
        self._lines = lines
        self._alone = alone
        self._order = order

    def array(self) -> pa.Array[Any]:
        """Return the texts of all rows as a string array."""
        plain = pa.array(_Exported(pa.string(), self._block.texts(self._lines)))
        return plain if self._order is None else joined([plain, *map(text_array, self._alone)], pa.string()).take(self._order)

    def of_rows(self, rows: Sequence[int]) -> Sequence[bytes]:
        """Return the texts of the given rows."""
        texts: list[bytes] = self.array().take(pa.array(rows, pa.int64())).cast(pa.binary()).to_pylist()
        return texts


class NativeRecordTyper(RecordTyper):
    """Typer that uses the native kernel where possible. Its rows equal the Python typer's to the byte, except for the random raw ids."""

    def __init__(self, plan: RowPlan, kernel: ModuleType, unit_bytes: int = UNIT_BYTES, most_odd_lines: float = _MOST_ODD_LINES) -> None:
        """Raise ValueError for a name that cannot be encoded in UTF-8 and for a column whose stored type differs from the kernel's."""
        super().__init__(plan, unit_bytes)
        self._module = kernel
        self._most_odd_lines = most_odd_lines
        self._nodes = self._nodes_of_fields()
        self._kernel = kernel.Kernel(plan.stream.name.encode(), (plan.stream.namespace or "").encode(), self._specs())
        self._stored = pa.struct([pa.field(str(at), of) for at, of in enumerate([pa.int64(), *(node.stored for node in self._nodes)])])
        self._decode_meta = msgspec.json.Decoder(Meta).decode

    def _nodes_of_fields(self) -> list[Node]:
        nodes: list[Node] = []
        for field in self._plan.fields:
            number = nodes[-1].end if nodes else 0
            nodes.append(_node(field.type, self._stored_type(field.name), number, of_key=field.source in self._plan.key))
        return nodes

    def _stored_type(self, name: str) -> pa.DataType:
        return self._plan.table_schema.field(name).type

    def _specs(self) -> list[tuple[bytes, Spec]] | None:
        """Return the keys and specs of the fields, or None to read whole records into the only column."""
        return [(field.source.encode(), node.spec) for field, node in zip(self._plan.fields, self._nodes, strict=True)]

    def type_block(self, lines: bytes) -> TypedBlock:
        """See `RecordTyper.type_block`."""
        block = self._read(self._kernel.read, lines)
        if block is None:
            return super().type_block(lines)
        odd_lines = block.odd_lines
        try:
            with collector_paused():
                return self._typed(block, lines, odd_lines)
        except (UnreadableRecord, MisroutedRecord, *REFUSED):
            return super().type_block(lines)  # finds the faulty line and raises the error

    def _read(self, read: Callable[[bytes], Any], lines: bytes) -> Any | None:
        """Return the kernel's block of these lines, or None if Python types it as fast or the kernel cannot read it."""
        try:
            block = read(lines)
        except ValueError:  # longer than the kernel's 32-bit offsets allow
            return None
        except RuntimeError:
            # The process may be a worker, which has no other way to say it. Nothing of the records is in it.
            sys.stderr.write(f"The native kernel failed on a block of stream {self._plan.stream}; Python typed it. {REPORT}\n")
            return None
        return block if len(block.odd_lines) <= block.rows * self._most_odd_lines else None

    def retype(self, raw: pa.RecordBatch) -> TypedBlock:
        """See `RecordTyper.retype`."""
        texts: list[bytes] = raw["_airbyte_data"].cast(pa.binary()).fill_null(b"").to_pylist()
        lines = b"".join(text + b"\n" for text in texts)
        block = self._read(self._kernel.read_data, lines)
        if block is None or block.rows != len(raw):  # a text with a newline comes from another program
            return super().retype(raw)
        odd = [row for row, _, _ in block.odd_lines]
        changes = BulkChanges()
        changes.entries.extend(stored_changes(raw["_airbyte_meta"]))
        try:
            with collector_paused():
                units = self._retyped_alone(raw, odd, changes)
                unit, left = self._columns(block, lines, odd, units, changes)
        except UnreadableRecord:
            return super().retype(raw)  # finds the faulty row and raises the error
        own = self._own_fields()
        columns = [
            self._keyed(raw["_airbyte_raw_id"], left, changes),
            raw["_airbyte_extracted_at"],
            changes.meta(raw["_airbyte_meta"].field("sync_id"), own[2].type),
            raw["_airbyte_generation_id"],
        ]
        final = self._final([*columns, *self._data_columns([unit], len(raw))])
        return TypedBlock(len(raw), final, unit.multiset % 2**128, changes.reasons(), self._misfits(changes), lambda: raw)

    def _typed(self, block: Any, lines: bytes, odd_lines: Sequence[tuple[int, int, int]]) -> TypedBlock:
        changes = BulkChanges()
        for row, start, end in block.metas:
            take_source_changes(self._decode_meta(lines[start:end]), row, changes)
        units = self._typed_alone(lines, odd_lines, changes)
        rows = block.rows
        unit, texts = self._columns(block, lines, [row for row, _, _ in odd_lines], units, changes)
        return self._block_of_runs(unit, rows, changes, texts) if changes.in_bulk else self._block([unit], rows, changes, texts)

    def _columns(
        self, block: Any, lines: bytes, odd_rows: Sequence[int], units: Sequence[Unit], changes: BulkChanges
    ) -> tuple[Unit, _BlockTexts]:
        """Return the rows of a block, given those of its odd lines, and the texts of its rows."""
        low, high = block.multiset
        multiset = low + (high << 64) + sum(unit.multiset for unit in units)
        odd = {number: _Odd(*(np.frombuffer(part, np.int64) for part in parts)) for number, *parts in block.odd_columns()}
        given = pa.array(_Exported(self._stored, block.columns()))
        columns = [
            _completed(given.field(at + 1), node, Trail(None, at, source), _Left(lines, odd, changes))
            for at, (node, (_, source)) in enumerate(zip(self._nodes, self._sources, strict=True))
        ]
        for at in self._key_numbers:
            self._record_rounded(at, columns[at], _BlockTexts(block, lines, (), None), 0, changes)
        # A copy, because any array of the kernel keeps all columns in memory, and raw rows, which have the times, are kept longer.
        emitted_at = pa.array(given.field(0).to_numpy().copy())
        order = _order(block.rows, odd_rows)
        if order is not None:
            emitted_at = joined([emitted_at, *(unit.emitted_at for unit in units)], pa.int64()).take(order)
            columns = [
                joined([column, *(unit.columns[at] for unit in units)], column.type).take(order) for at, column in enumerate(columns)
            ]
        return Unit(emitted_at, (), columns, multiset), _BlockTexts(block, lines, [unit.texts for unit in units], order)

    def _block_of_runs(self, unit: Unit, records: int, changes: BulkChanges, texts: Texts) -> TypedBlock:
        of_source = [entry for entry in changes.in_order() if not entry.order]
        own = self._own_columns([unit], records, of_source)
        own[0] = self._keyed(own[0], texts, changes)
        ids, extracted_at, meta, generation = own
        final = self._final(
            [ids, extracted_at, changes.meta(meta.field("sync_id"), meta.type), generation, *self._data_columns([unit], records)]
        )
        misfits = self._misfits(changes)
        return TypedBlock(
            records, final, unit.multiset % 2**128, changes.reasons(), misfits, lambda: self._raw(own, texts.array(), of_source)
        )

    def _raw_ids(self, count: int) -> pa.Array[Any]:
        random = os.urandom(count * ID_BYTES)
        return pa.array(_Exported(pa.string(), self._module.row_ids(time.time_ns() // 1_000_000, random)))

    def _typed_alone(self, lines: bytes, places: Sequence[tuple[int, int, int]], changes: Changes) -> list[Unit]:
        """Type single lines in Python. Their changes are recorded under their rows in the block."""
        own = Changes()
        units: list[Unit] = []
        count = 0
        for part in parts_of(b"".join(lines[start:end] + b"\n" for _, start, end in places), self._unit_bytes):
            units.append(self._type_unit(part, count, own))
            count += len(units[-1].texts)
        _take(own, [row for row, _, _ in places], changes)
        return units

    def _retyped_alone(self, raw: pa.RecordBatch, rows: Sequence[int], changes: Changes) -> list[Unit]:
        """Type the `data` of single raw rows in Python. Their changes are recorded under their rows, those of the source excepted."""
        if not rows:
            return []
        own = Changes()
        records = records_of(raw.take(pa.array(rows)), 0)._replace(metas=[])
        units = [self._typed_unit(records, 0, own)]
        _take(own, rows, changes)
        return units


def _take(own: Changes, rows: Sequence[int], changes: Changes) -> None:
    """Add changes that were recorded under the ordinals of `rows`."""
    changes.entries.extend(entry._replace(row=rows[entry.row]) for entry in own.entries)


def text_node(kind: str, number: int, column: Column) -> Node:
    """Return the node of a column that the kernel fills with JSON texts of this kind."""
    return Node(number, number + 1, (), (), column, pa.string(), pa.string(), Spec(kind))


def _order(rows: int, odd: Sequence[int]) -> pa.Array[Any] | None:
    """Return the position of each row after the odd rows were appended behind all rows, or None if there are none."""
    if not odd:
        return None
    order = np.arange(rows)
    order[odd] = np.arange(rows, rows + len(odd))
    return pa.array(order)


def _node(of: AirbyteType, final: pa.DataType, number: int, *, of_key: bool = False) -> Node:
    """Return the node of a column and its descendants. Raises ValueError if a stored type differs from the kernel's."""
    match of:
        case Object(fields) if fields:
            _require([field.name for field in fields] == [field.name for field in final])
            children: list[Node] = []
            for field in fields:
                children.append(_node(field.type, final.field(field.name).type, children[-1].end if children else number + 1))
            sources = tuple(field.source for field in fields)
            spec = Spec("object", children=[(source.encode(), child.spec) for source, child in zip(sources, children, strict=True)])
            stored = pa.struct([field.with_type(child.stored) for field, child in zip(final, children, strict=True)])
            return Node(number, children[-1].end, sources, tuple(children), None, final, stored, spec)
        case Array(items):
            _require(pa.types.is_list(final))
            child = _node(items, final.value_type, number + 1)
            spec = Spec("array", children=[(b"", child.spec)])
            stored = pa.list_(final.value_field.with_type(child.stored))
            return Node(number, child.end, (), (child,), None, final, stored, spec)
    column = key_column_of(of, final) if of_key else column_of(of, final)
    match of:
        case Scalar():
            kind, stored = of.value, _LAYOUTS.get(of, pa.string())
        case Decimal(precision, scale):
            _require(final == pa.decimal128(precision, scale))
            return Node(number, number + 1, (), (), column, final, final, Spec("decimal", digits=(precision, scale)))
        case SchemalessObject():
            kind, stored = "json_object", pa.string()
        case SchemalessArray():
            kind, stored = "json_array", pa.string()
        case _:
            return Node(number, number + 1, (), (), column, final, pa.null(), Spec("other"))
    _require(final == stored)
    return Node(number, number + 1, (), (), column, final, stored, Spec(kind, of_key))


def _require(known: bool) -> None:
    if not known:
        raise ValueError("a column in another layout than the kernel's")


class _Left(NamedTuple):
    """The odd values of a block by column number, and the changes in which to record what happens to them."""

    lines: bytes
    odd: Mapping[int, _Odd]
    changes: BulkChanges


def _completed(array: pa.Array[Any], node: Node, trail: Trail, left: _Left) -> pa.Array[Any]:
    """Return the kernel's column, completed with the converted odd values of the column and its descendants."""
    odd = left.odd.get(node.number)
    if odd is not None and len(odd.nulled):
        left.changes.nulled_run(trail, odd.nulled)
    if node.column is not None:
        return _with_values(array, node, node.column, trail, left)
    if array.type == node.final and not any(node.number < number < node.end for number in left.odd):
        return array
    if pa.types.is_list(node.final):
        buffers = array.buffers()[:2]
        trails = [Trail(trail, 0, None, np.frombuffer(buffers[1], np.int32, len(array) + 1))]
        below = [array.values]
    else:
        buffers = array.buffers()[:1]
        trails = [Trail(trail, ordinal, source) for ordinal, source in enumerate(node.sources)]
        below = [array.field(ordinal) for ordinal in range(len(node.children))]
    children = [_completed(child, of, way, left) for child, of, way in zip(below, node.children, trails, strict=True)]
    return pa.Array.from_buffers(node.final, len(array), buffers, array.null_count, children=children)


def _with_values(array: pa.Array[Any], node: Node, column: Column, trail: Trail, left: _Left) -> pa.Array[Any]:
    """Return a column without children, completed with its odd values, which are converted from their texts."""
    odd = left.odd.get(node.number)
    if odd is None or not len(odd.positions):
        return array if array.type == node.final else pa.nulls(len(array), node.final)
    texts = [left.lines[start:end] for start, end in zip(odd.starts.tolist(), odd.ends.tolist(), strict=True)]
    values = TextColumn(column).array(texts, SomePlaces(trail.places(), odd.positions.tolist()), left.changes)
    if array.type != node.final:
        order = np.full(len(array), -1)
        order[odd.positions] = np.arange(len(values))
        return values.take(pa.array(order, mask=order < 0))
    mask = np.zeros(len(array), np.bool_)
    mask[odd.positions] = True
    return pc.replace_with_mask(array, pa.array(mask), values)

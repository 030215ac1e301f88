"""Typing of one stream's record lines to Arrow rows of its raw and its final table, on the hot path of a sync.

A block is typed in units of a few thousand lines, which bounds the number of live Python objects. A unit takes three steps: read the
envelopes, decode each record's `data` to a row of slots, and build one Arrow array per column. A record that msgspec refuses does not slow
down the others: it alone is converted from its exact text. A column that often causes refusals is decoded as text from then on, and
converted as a whole column.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from xxhash import xxh3_128_intdigest

from destination_s3_spark.decoding import coercions
from destination_s3_spark.decoding.changes import Change, Changes, ColumnPlaces, Reason, SomePlaces
from destination_s3_spark.decoding.column import Column, TextColumn
from destination_s3_spark.decoding.columns import column_of, key_column_of
from destination_s3_spark.decoding.containers import Members, markable
from destination_s3_spark.decoding.envelope import REFUSED, Envelopes, Meta, MisroutedRecord, UnreadableRecord, Unwrapped
from destination_s3_spark.decoding.keyed_ids import key_text, keyed_id
from destination_s3_spark.decoding.metadata import META_COLUMNS, meta_array, raw_ids
from destination_s3_spark.decoding.plan import RowPlan
from destination_s3_spark.decoding.raw_rows import records_of, row_runs
from destination_s3_spark.decoding.texts import Texts, UnitTexts, is_utf8, joined
from destination_s3_spark.exact_json.marks import marked
from destination_s3_spark.exact_json.non_numbers import speaks_of_non_numbers
from destination_s3_spark.exact_json.values import Text, split_object
from destination_s3_spark.schema.airbyte_type import Scalar

__all__ = ["MisroutedRecord", "RecordTyper", "TypedBlock", "UnreadableRecord"]

UNIT_BYTES = 2**21
"""Size of the units. Smaller units cost more per call, larger ones keep more Python objects alive. Sizes around 2 MiB measured best."""
_COMMON = 1 / 16
"""Share of a unit's rows with an unexpected value in a column above which that column is decoded as text."""
_SAMPLE = 64
"""Number of refused rows of a unit that are examined to find the columns at fault."""
_EXACT_INTEGERS = 2**53
"""Below this, every integer is exact as a double."""
_HASHES = 2**128
_DATA_COLUMN = "_airbyte_data"


@dataclass(frozen=True)
class TypedBlock:
    """The rows of a block of record lines, in the order of the lines.

    `final` has the plan's table schema. `multiset` is the sum of the 128-bit XXH3 hashes of the `data` texts, modulo 2**128. `changes`
    counts the entries of `_airbyte_meta.changes` in `final` by reason, including the source's. If the plan has a key, `misfits` counts by
    JSON key the field values that became null, and the values of key fields that were changed in any way; otherwise it is empty.
    """

    records: int
    final: pa.RecordBatch
    multiset: int
    changes: Counter[str]
    misfits: Counter[str]
    make_raw: Callable[[], pa.RecordBatch]

    @cached_property
    def raw(self) -> pa.RecordBatch:
        """The rows of the raw table: the four `_airbyte_*` columns and `_airbyte_data`, the exact text of `data`.

        They have the raw ids of `final`. Their `_airbyte_meta.changes` are those of the source only. The rows are made on demand, because
        not every table has raw rows.
        """
        return self.make_raw()


@dataclass(frozen=True, slots=True)
class Unit:
    """A typed part of a block. `texts` are the `data` texts, `columns` the arrays of the plan's fields, `multiset` the sum of hashes."""

    emitted_at: pa.Array[Any]
    texts: Sequence[bytes]
    columns: list[pa.Array[Any]]
    multiset: int


class RecordTyper:
    """Typer for the blocks of one stream by a plan. It keeps no rows between blocks.

    It only remembers which columns are decoded as text.
    """

    def __init__(self, plan: RowPlan, unit_bytes: int = UNIT_BYTES) -> None:
        self._plan = plan
        self._unit_bytes = unit_bytes
        self._envelopes = Envelopes(plan.stream)
        self._sources = [(plan.table_schema.get_field_index(field.name), field.source) for field in plan.fields]
        # A row's changes are in the order in which the source declares its fields, as in destination-s3.
        self._places = [ColumnPlaces(declared, source, 0) for declared, (_, source) in enumerate(self._sources)]
        self._key_numbers = [at for at, field in enumerate(plan.fields) if field.type is Scalar.NUMBER and field.source in plan.key]
        self._decode_as(self._columns_of_fields())
        self._markable = markable(plan.fields)

    def _columns_of_fields(self) -> list[Column]:
        schema, key = self._plan.table_schema, self._plan.key
        makers = [key_column_of if field.source in key else column_of for field in self._plan.fields]
        return [make(field.type, schema.field(field.name).type) for make, field in zip(makers, self._plan.fields, strict=True)]

    def _decode_as(self, columns: Sequence[Column]) -> None:
        self._members = Members(self._plan.fields, columns)
        self._decode = msgspec.json.Decoder(self._members.struct).decode if self._members.encodable else None
        self._probes = [msgspec.json.Decoder(column.annotation).decode for column in columns]

    def type_block(self, lines: bytes) -> TypedBlock:
        """Type whole record lines, each ending in a newline.

        Raises UnreadableRecord or MisroutedRecord with the ordinal of the line that is not a record of the stream. Neither carries content.
        """
        changes = Changes()
        units: list[Unit] = []
        records = 0
        with collector_paused():
            for part in parts_of(lines, self._unit_bytes):
                unit = self._type_unit(part, records, changes)
                units.append(unit)
                records += len(unit.texts)
        return self._block(units, records, changes, UnitTexts([unit.texts for unit in units]))

    def _block(self, units: Sequence[Unit], records: int, changes: Changes, texts: Texts) -> TypedBlock:
        """Return the rows of all units."""
        entries = changes.in_order()
        own = self._own_columns(units, records, entries)
        own[0] = self._keyed(own[0], texts, changes)
        final = self._final([*own, *self._data_columns(units, records)])
        return TypedBlock(
            records, final, _multiset(units), _reasons(entries), self._misfits(changes), lambda: self._raw(own, texts.array(), entries)
        )

    def retype(self, raw: pa.RecordBatch) -> TypedBlock:
        """Type rows of a raw table (`schema.arrow.RAW_SCHEMA`) again. The result is the block that their lines would give.

        Times, generations, sync ids and the source's changes are those of the rows. So are the raw ids, except for rows whose key does not
        fit its type. Raises UnreadableRecord with the ordinal of a row whose `_airbyte_data` is not a JSON object.
        """
        changes = Changes()
        units: list[Unit] = []
        with collector_paused():
            for first, count in row_runs(raw["_airbyte_data"], self._unit_bytes):
                units.append(self._typed_unit(records_of(raw.slice(first, count), first), first, changes))
        entries = changes.in_order()
        own = self._own_fields()
        sync_ids = raw["_airbyte_meta"].field("sync_id")
        columns = [
            self._keyed(raw["_airbyte_raw_id"], UnitTexts([unit.texts for unit in units]), changes),
            raw["_airbyte_extracted_at"],
            meta_array(sync_ids, entries, own[2].type),
            raw["_airbyte_generation_id"],
        ]
        final = self._final([*columns, *self._data_columns(units, len(raw))])
        return TypedBlock(len(raw), final, _multiset(units), _reasons(entries), self._misfits(changes), lambda: raw)

    def _type_unit(self, lines: bytes, first: int, changes: Changes) -> Unit:
        return self._typed_unit(self._envelopes.read(lines, first), first, changes)

    def _typed_unit(self, records: Unwrapped, first: int, changes: Changes) -> Unit:
        _require_utf8(records, first)
        for row, meta in records.metas:
            take_source_changes(meta, row, changes)
        columns = self._arrays(records.texts, first, changes)
        return Unit(pa.array(records.emitted_at), records.texts, columns, sum(map(xxh3_128_intdigest, records.texts)))

    def _arrays(self, texts: Sequence[bytes], first: int, changes: Changes) -> list[pa.Array[Any]]:
        """Return the columns of a unit, given the text of each record's `data`."""
        rows, refused = self._rows(texts, first, changes)
        slots = self._members.slots(rows)
        count = len(rows)
        del rows  # freeing objects while they are still in the processor's cache is faster
        columns = []
        for declared, ((_, source), column) in enumerate(zip(self._sources, self._members.columns, strict=True)):
            columns.append(column.array(slots[declared], ColumnPlaces(declared, source, first), changes))
            slots[declared] = ()
        if len(refused) > count * _COMMON:
            self._loosen(refused, count)
        for declared in self._key_numbers:
            self._record_rounded(declared, columns[declared], UnitTexts([texts]), first, changes)
        return columns

    def _record_rounded(self, declared: int, column: pa.Array[Any], texts: Texts, first: int, changes: Changes) -> None:
        """Record the numbers of a key that were rounded to a double, so that neighbouring keys are not taken for one."""
        _, source = self._sources[declared]
        places = ColumnPlaces(declared, source, first)
        positions = np.flatnonzero(np.abs(np.asarray(column.fill_null(0.0))) >= _EXACT_INTEGERS).tolist()
        for position, text in zip(positions, texts.of_rows(positions) if positions else (), strict=True):
            if coercions.is_rounded(bytes(split_object(text)[source])):
                changes.truncated((places, position), Reason.SIZE)

    def _rows(self, texts: Sequence[bytes], first: int, changes: Changes) -> tuple[list[Any], list[bytes]]:
        """Return a Struct of slots per record, and the texts that msgspec refused for more than a NaN or an Infinity."""
        if self._decode is None:
            return [self._from_text(text, row, changes) for row, text in enumerate(texts, first)], []
        rows: list[Any] = []
        refused: list[bytes] = []
        with_marks: list[int] = []
        left = iter(texts)
        while len(rows) < len(texts):
            try:
                # On a refusal, the rows decoded so far stay in the list, and `left` continues after the refused text.
                rows.extend(map(self._decode, left))
            except REFUSED:
                if self._take_marked(texts, left, rows, with_marks):
                    continue
                text = texts[len(rows)]
                refused.append(text)
                rows.append(self._from_text(text, first + len(rows), changes))
        if with_marks:
            places = [SomePlaces(ColumnPlaces(at, source, first), with_marks) for at, (_, source) in enumerate(self._sources)]
            self._members.unmark([rows[position] for position in with_marks], places, changes)
        return rows, refused

    def _take_marked(self, texts: Sequence[bytes], left: Iterator[bytes], rows: list[Any], with_marks: list[int]) -> bool:
        """Decode the refused text from its marked form, and the texts after it for as long as they contain a NaN or an Infinity.

        The positions of these texts are added to `with_marks`. Return False if the next text must be converted exactly because marks do not
        help; `left` then continues after that text.
        """
        speaks = self._markable and speaks_of_non_numbers(texts[len(rows)])
        while speaks:
            slots = self._marked_slots(texts[len(rows)])
            if slots is None:
                break
            with_marks.append(len(rows))
            rows.append(slots)
            speaks = len(rows) < len(texts) and speaks_of_non_numbers(texts[len(rows)])
            if not speaks:
                return True
            next(left)
        return False

    def _marked_slots(self, text: bytes) -> Any:
        """Return the Struct, with marks, of a record. Return None if msgspec refuses more than its NaN and Infinity."""
        readable = marked(text)
        try:
            return None if readable is None or self._decode is None else self._decode(readable)
        except REFUSED:
            return None

    def _from_text(self, text: bytes, row: int, changes: Changes) -> Any:
        try:
            return self._members.from_text(text, [(places, row) for places in self._places], changes)
        except ValueError:
            raise UnreadableRecord(row) from None

    def _loosen(self, refused: Sequence[bytes], rows: int) -> None:
        """Decode as text, from now on, the columns that caused many rows of a unit to be refused."""
        sample = refused[:_SAMPLE]
        at_fault: Counter[int] = Counter()
        for text in sample:
            values = split_object(text)
            for ordinal, (field, probe) in enumerate(zip(self._plan.fields, self._probes, strict=True)):
                if field.source in values and not _decodes(probe, values[field.source]):
                    at_fault[ordinal] += 1
        share = len(refused) / rows / len(sample)
        columns = self._members.columns
        # A column that is already decoded as text can be at fault too, because of a NaN. Wrapping it again would gain nothing.
        typed = {ordinal for ordinal, column in enumerate(columns) if column.annotation is not msgspec.Raw}
        common = {ordinal for ordinal in typed if at_fault[ordinal] * share > _COMMON}
        if common:
            self._decode_as([TextColumn(column) if ordinal in common else column for ordinal, column in enumerate(columns)])

    def _own_columns(self, units: Sequence[Unit], records: int, entries: Sequence[Change]) -> list[pa.Array[Any]]:
        own = self._own_fields()
        sync_ids = pa.array(np.full(records, self._plan.sync_id, np.int64))
        extracted_at = joined([unit.emitted_at for unit in units], pa.int64()).view(own[1].type)
        generation = pa.array(np.full(records, self._plan.generation_id, np.int64))
        return [self._raw_ids(records), extracted_at, meta_array(sync_ids, entries, own[2].type), generation]

    def _raw_ids(self, count: int) -> pa.Array[Any]:
        return raw_ids(count)

    def _keyed(self, ids: pa.Array[Any], texts: Texts, changes: Changes) -> pa.Array[Any]:
        """Return the raw ids, with a keyed id in each row whose key does not fit its type."""
        key = self._plan.key
        rows = changes.rows_of({declared for declared, (_, source) in enumerate(self._sources) if source in key}) if key else []
        if not rows:
            return ids
        with_keys: list[str] = ids.to_pylist()
        for row, text in zip(rows, texts.of_rows(rows), strict=True):
            with_keys[row] = keyed_id(with_keys[row], key_text(text, key))
        return pa.array(with_keys, ids.type)

    def _misfits(self, changes: Changes) -> Counter[str]:
        key = self._plan.key
        misfits: Counter[str] = Counter()
        for (declared, change), count in changes.of_fields().items() if key else ():
            source = self._sources[declared][1]
            if source in key or change == "NULLED":
                misfits[source] += count
        return misfits

    def _raw(self, own: Sequence[pa.Array[Any]], data: pa.Array[Any], entries: Sequence[Change]) -> pa.RecordBatch:
        """Return the raw rows of a block, given its `_airbyte_*` columns and its `data` texts."""
        ids, extracted_at, meta, generation = own
        # A raw row holds the record as received. Only the source's changes apply to it, not those made by typing.
        of_source = [entry for entry in entries if not entry.order]
        if len(of_source) < len(entries):
            meta = meta_array(meta.field("sync_id"), of_source, meta.type)
        schema = pa.schema([*self._own_fields(), pa.field(_DATA_COLUMN, pa.string())])
        return pa.RecordBatch.from_arrays([ids, extracted_at, meta, generation, data], schema=schema)

    def _own_fields(self) -> list[pa.Field[Any]]:
        return [self._plan.table_schema.field(ordinal) for ordinal in range(META_COLUMNS)]

    def _final(self, columns: list[pa.Array[Any]]) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays(columns, schema=self._plan.table_schema)

    def _data_columns(self, units: Sequence[Unit], records: int) -> list[pa.Array[Any]]:
        schema = self._plan.table_schema
        declared = {ordinal: at for at, (ordinal, _) in enumerate(self._sources)}
        return [
            joined([unit.columns[declared[ordinal]] for unit in units], schema.field(ordinal).type)
            if ordinal in declared
            else pa.nulls(records, schema.field(ordinal).type)
            for ordinal in range(META_COLUMNS, len(schema))
        ]


@contextmanager
def collector_paused() -> Iterator[None]:
    """Pause cyclic garbage collection. Decoding creates many objects but no cycles, and the collector takes a tenth of its time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def parts_of(lines: bytes, unit_bytes: int) -> Iterator[bytes]:
    """Split the lines into parts of whole lines and about `unit_bytes`. A part ends with the line that exceeds this size."""
    start = 0
    while start < len(lines):
        end = lines.find(b"\n", start + unit_bytes) + 1 or len(lines)
        yield lines[start:end]
        start = end


def _require_utf8(records: Unwrapped, first: int) -> None:
    """Raise UnreadableRecord for the first text that is not UTF-8. msgspec does not check it in every part of a text."""
    if is_utf8(records.source):
        return
    for row, text in enumerate(records.texts, first):
        if not is_utf8(text):
            raise UnreadableRecord(row)


def _multiset(units: Sequence[Unit]) -> int:
    return sum(unit.multiset for unit in units) % _HASHES


def _reasons(entries: Sequence[Change]) -> Counter[str]:
    return Counter(entry.reason for entry in entries if entry.reason is not None)


def take_source_changes(meta: Meta, row: int, changes: Changes) -> None:
    """Add the source's own changes of a row."""
    changes.entries.extend(Change(row, (), change.field, change.change, change.reason) for change in meta.changes or ())


def _decodes(decode: Callable[[Text], Any], value: Text) -> bool:
    try:
        decode(value)
    except REFUSED:
        return False
    return True

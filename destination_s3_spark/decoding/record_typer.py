"""Typing of one stream's record lines to Arrow rows of its raw and its final table, one value at a time.

This is the reference: the kernel's rows must equal its rows, and it types the lines and values that the kernel leaves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import repeat
from typing import Any

import numpy as np
import pyarrow as pa
from xxhash import xxh3_128_intdigest

from destination_s3_spark.decoding.changes import ChangedField, Changes, Place, ValueChange, stored_changes
from destination_s3_spark.decoding.line_rules import LineRules
from destination_s3_spark.decoding.plan import RowPlan, Values
from destination_s3_spark.decoding.raw_ids import key_text, keyed_id, raw_ids
from destination_s3_spark.decoding.record_line import MisroutedRecord, RecordLine, UnreadableRecord, read_line
from destination_s3_spark.decoding.reference import Converter, arrow_array, cell, converter_of, whole_record
from destination_s3_spark.exact_json.values import NULL, split_object
from destination_s3_spark.schema.column_rules import Treatment

META_COLUMNS = 4
"""Number of `_airbyte_*` columns at the start of every table: raw id, extracted at, meta, generation id."""
_HASHES = 2**128
_DATA_COLUMN = "_airbyte_data"


@dataclass(frozen=True)
class TypedBlock:
    """The rows of a block of record lines, in the order of the lines.

    `final` has the plan's table schema. `multiset` is the sum of the 128-bit XXH3 hashes of the `data` texts, modulo 2**128. If
    the plan has a key, `unfit` counts by JSON key the field values that did not fit their type: those that became null, and those of key
    fields that were changed in any way. Otherwise it is empty.
    """

    records: int
    final: pa.RecordBatch
    multiset: int
    unfit: Counter[str]
    make_raw: Callable[[], pa.RecordBatch]

    @cached_property
    def raw(self) -> pa.RecordBatch:
        """The rows of the raw table: the four `_airbyte_*` columns and `_airbyte_data`, the exact text of `data`.

        They have the raw ids of `final`. Their `_airbyte_meta.changes` are those of the source only. The rows are made on demand, because
        not every table has raw rows.
        """
        return self.make_raw()


@dataclass(frozen=True, slots=True)
class TypedRows:
    """Typed records. `emitted_at` is in ms (int64), `columns` are those of the plan, `texts` makes the array of the `data` texts."""

    emitted_at: pa.Array[Any]
    columns: list[pa.Array[Any]]
    multiset: int
    texts: Callable[[], pa.Array[Any]]


class RecordTyper:
    """Typer for the blocks of one stream by a plan. It keeps nothing between blocks."""

    def __init__(self, plan: RowPlan) -> None:
        self._plan = plan
        self._rules = self._line_rules(plan.treatment) if plan.treatment is not None and not plan.treatment.idle else None
        # A row's changes are in the order in which the source declares its fields, as in destination-s3.
        self._sources = [""] if plan.values is Values.RECORD else [field.source for field in plan.fields]
        self._places: list[Place] = [(None, ordinal, source) for ordinal, source in enumerate(self._sources)]
        self._converters = list(_converters(plan))
        names = [_DATA_COLUMN] if plan.values is Values.RECORD else [field.name for field in plan.fields]
        self._at = {name: at for at, name in enumerate(names)}

    def type_block(self, lines: bytes) -> TypedBlock:
        """Type whole record lines, each ending in a newline, once the stream's column rules are applied to them.

        Raises UnreadableRecord with the ordinal of the line that is not a record of the stream. It never carries content.
        """
        lines = self._treated(lines)
        changes = Changes()
        texts = lines.removesuffix(b"\n").split(b"\n") if lines else ()
        return self._new_block(self._typed(self._read_lines(enumerate(texts)), changes), changes)

    def retype(self, raw: pa.RecordBatch) -> TypedBlock:
        """Type rows of a raw table (`schema.arrow.RAW_SCHEMA`) again. The result is the block that their lines would give.

        Times, generations, sync ids and the source's changes are those of the rows. So are the raw ids, except for rows whose key does not
        fit its type. Raises UnreadableRecord with the ordinal of a row whose `_airbyte_data` is not a JSON object.
        """
        changes = Changes()
        changes.entries.extend(stored_changes(raw["_airbyte_meta"]))
        return self._block_of_raw(raw, self._typed(self._read_raw(raw, range(len(raw))), changes), changes)

    def _read_lines(self, lines: Iterable[tuple[int, bytes]]) -> Iterator[tuple[int, RecordLine]]:
        """Read lines, each with the ordinal of its row in the block."""
        for row, line in lines:
            try:
                record = read_line(line)
            except ValueError:
                raise UnreadableRecord(row) from None
            if record.stream != self._plan.stream:
                raise MisroutedRecord(row)
            yield row, record

    def _read_raw(self, raw: pa.RecordBatch, rows: Iterable[int]) -> Iterator[tuple[int, RecordLine]]:
        """Read rows of a raw table as records whose changes are recorded already."""
        times, texts = raw["_airbyte_extracted_at"].cast(pa.int64()), raw["_airbyte_data"]
        for row in rows:
            yield row, RecordLine(self._plan.stream, times[row].as_py(), (texts[row].as_py() or "").encode(), [])

    def _typed(self, records: Iterable[tuple[int, RecordLine]], changes: Changes) -> TypedRows:
        emitted_at: list[int] = []
        texts: list[bytes] = []
        typed: list[list[Any]] = []
        multiset = 0
        for row, record in records:
            self._add_source_changes(record.changes, row, changes)
            changes.row = row
            try:
                typed.append(self._values(record.data, changes))
            except ValueError:
                raise UnreadableRecord(row) from None
            emitted_at.append(record.emitted_at)
            texts.append(record.data)
            multiset += xxh3_128_intdigest(record.data)
        columns = zip(*typed, strict=True) if typed else repeat((), len(self._at))
        arrays = [arrow_array(column, self._stored_type(name)) for name, column in zip(self._at, columns, strict=True)]
        return TypedRows(pa.array(emitted_at, pa.int64()), arrays, multiset, lambda: pa.array(texts, pa.string()))

    def _values(self, data: bytes, changes: Changes) -> list[Any]:
        """Return a record's value in each column. Raises ValueError unless `data` is an object in UTF-8."""
        data.decode()
        members = split_object(data)
        texts = [data] if self._plan.values is Values.RECORD else map(members.get, self._sources)
        columns = zip(texts, self._converters, self._places, strict=True)
        return [None if text is None or text == NULL else convert(text, place, changes) for text, convert, place in columns]

    def _new_block(self, rows: TypedRows, changes: Changes) -> TypedBlock:
        records = len(rows.emitted_at)
        own = self._plan.table_schema
        sync_ids = pa.array(np.full(records, self._plan.sync_id, np.int64))
        generation = pa.array(np.full(records, self._plan.generation_id, np.int64))
        ids = self._keyed(self._new_ids(records), rows, changes)
        extracted_at = rows.emitted_at.view(own.field(1).type)
        final = self._final([ids, extracted_at, changes.meta(sync_ids, own.field(2).type), generation], rows)
        of_source = changes.of_source()

        def raw() -> pa.RecordBatch:
            # A raw row holds the record as received. Only the source's changes apply to it, not those made by typing.
            columns = [ids, extracted_at, of_source.meta(sync_ids, own.field(2).type), generation, rows.texts()]
            schema = pa.schema([*(own.field(at) for at in range(META_COLUMNS)), pa.field(_DATA_COLUMN, pa.string())])
            return pa.RecordBatch.from_arrays(columns, schema=schema)

        return TypedBlock(records, final, rows.multiset % _HASHES, self._unfit(changes), raw)

    def _block_of_raw(self, raw: pa.RecordBatch, rows: TypedRows, changes: Changes) -> TypedBlock:
        ids, extracted_at, meta, generation, _ = raw.columns
        meta = changes.meta(meta.field("sync_id"), self._plan.table_schema.field(2).type)
        final = self._final([self._keyed(ids, rows, changes), extracted_at, meta, generation], rows)
        return TypedBlock(len(raw), final, rows.multiset % _HASHES, self._unfit(changes), lambda: raw)

    def _treated(self, lines: bytes) -> bytes:
        return lines if self._rules is None else self._rules.applied(lines)

    def _line_rules(self, treatment: Treatment) -> LineRules:
        return LineRules(treatment)

    def _add_source_changes(self, found: Sequence[ChangedField], row: int, changes: Changes) -> None:
        kept = found if self._rules is None else self._rules.changes(found)
        changes.entries.extend(ValueChange(row, (), *change) for change in kept)

    def _new_ids(self, count: int) -> pa.Array[Any]:
        return raw_ids(count)

    def _keyed(self, ids: pa.Array[Any], rows: TypedRows, changes: Changes) -> pa.Array[Any]:
        """Return the raw ids, with a keyed id in each row whose key does not fit its type."""
        key = self._plan.key
        changed = changes.rows_of({declared for declared, source in enumerate(self._sources) if source in key}) if key else []
        if not changed:
            return ids
        with_keys: list[str] = ids.to_pylist()
        texts = rows.texts()
        for row in changed:
            with_keys[row] = keyed_id(with_keys[row], key_text(texts[row].as_py().encode(), key))
        return pa.array(with_keys, ids.type)

    def _unfit(self, changes: Changes) -> Counter[str]:
        key = self._plan.key
        unfit: Counter[str] = Counter()
        for (declared, change), count in changes.of_fields().items() if key else ():
            source = self._sources[declared]
            if source in key or change == "NULLED":
                unfit[source] += count
        return unfit

    def _final(self, own: list[pa.Array[Any]], rows: TypedRows) -> pa.RecordBatch:
        """Return the rows of the final table. A column without a field is null."""
        schema = self._plan.table_schema
        data = [
            rows.columns[self._at[field.name]] if field.name in self._at else pa.nulls(len(rows.emitted_at), field.type)
            for field in list(schema)[META_COLUMNS:]
        ]
        return pa.RecordBatch.from_arrays([*own, *data], schema=schema)

    def _stored_type(self, name: str) -> pa.DataType:
        return self._plan.table_schema.field(name).type


def _converters(plan: RowPlan) -> Iterator[Converter]:
    match plan.values:
        case Values.TYPED:
            yield from (converter_of(field.type, of_key=field.source in plan.key) for field in plan.fields)
        case Values.CELLS:
            yield from (cell for _ in plan.fields)
        case Values.RECORD:
            yield whole_record

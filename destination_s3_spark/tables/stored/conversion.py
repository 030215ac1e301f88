"""Conversion of stored rows to the table's current schema.

`project` is for schemas that only gained columns or members. If a column's type changed in place, the rows are typed again. From the raw
table this gives the same rows as landing (`retyped_rows`). Without a raw table the stored values are cast (`cast_rows`).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from enum import Enum
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from destination_s3_spark.decoding.changes import Changes, Place, stored_changes
from destination_s3_spark.decoding.declared_texts import DeclaredTexts
from destination_s3_spark.decoding.kernel_typer import record_typer
from destination_s3_spark.decoding.plan import RowPlan
from destination_s3_spark.decoding.record_line import UnreadableRecord
from destination_s3_spark.decoding.reference import converter_of, typed_array
from destination_s3_spark.decoding.temporal import DAY_US
from destination_s3_spark.decoding.value_text import Texts, value_texts
from destination_s3_spark.errors import ConfigError, DataError
from destination_s3_spark.schema.airbyte_type import AirbyteType, Decimal, Scalar, readable
from destination_s3_spark.schema.arrow import META_FIELDS, MICROS, RAW_SCHEMA, arrow_type, contiguous, with_columns
from destination_s3_spark.schema.placement import TableField
from destination_s3_spark.schema.table_schema import TableSchema, column_of
from destination_s3_spark.schema.type_merge import takes
from destination_s3_spark.stream_id import StreamId

_DATA = RAW_SCHEMA.names[-1]
_MILLIS = pa.timestamp("ms", tz="UTC")

TYPED_BYTES = 4 * 2**20
"""Size of the lines or texts typed at once: large enough for columnar processing, small enough for the CPU caches and to bound memory."""


class NeedsCast(Exception):
    """A stored column with a type other than the schema's. `path`: the column and the place inside it. Both types are Arrow's."""

    def __init__(self, path: tuple[str, ...], stored: pa.DataType, wanted: pa.DataType) -> None:
        super().__init__(f'column "{path[0]}" is stored as {stored} at {".".join(path)}, the schema has {wanted}')


class UnfitValues(Enum):
    """The treatment of stored values that the new type of their column cannot hold."""

    REFUSE = "refuse"
    """Raise DoesNotFit."""
    NULL = "null"
    """Replace the value by null and record that in the row's `_airbyte_meta.changes`."""


class DoesNotFit(Exception):
    """A failed cast: values stored in the column of this JSON key do not fit its new type. The error never contains a value."""

    def __init__(self, source: str, stored: AirbyteType, wanted: AirbyteType) -> None:
        super().__init__(f'column "{source}": {readable(stored)} to {readable(wanted)}')
        self.source = source
        self.stored = stored
        self.wanted = wanted

    def config_error(self, stream: StreamId) -> ConfigError:
        return ConfigError(
            f'Stream "{stream}": the source declares "{self.source}" as {readable(self.wanted)}, and some of the values stored as '
            f"{readable(self.stored)} do not fit that type. Undo the change in the source, or run a refresh that removes the "
            "stream's records.",
            stream=stream,
        )


def project(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the schema's columns, matched by name like the members of structs. Missing columns are null, and extra ones are left out.

    The rows must be of a schema to which columns or members were only added. Values in another encoding come back in the schema's type: a
    time of day stored as int64, an extraction time in microseconds, large text or dictionary-encoded text. Raises NeedsCast for any other
    type and for a struct member that the schema lacks. Raises DataError when a non-nullable column is missing.
    """
    return pa.Table.from_arrays([_projected(table, field) for field in schema], schema=schema)


class ColumnsTyper:
    """Typer of records by several plans, each to other columns of one table: a field whose type has changed has more than one.

    Everything else of its rows is that of the first plan.
    """

    def __init__(self, plans: Sequence[RowPlan]) -> None:
        self._plans = plans
        self._typers = [record_typer(plan) for plan in plans]

    def type_block(self, lines: bytes) -> pa.RecordBatch:
        return self._joined([typer.type_block(lines).final for typer in self._typers])

    def retype(self, raw: pa.RecordBatch) -> pa.RecordBatch:
        return self._joined([typer.retype(raw).final for typer in self._typers])

    def _joined(self, typed: Sequence[pa.RecordBatch]) -> Any:
        others = zip(self._plans[1:], typed[1:], strict=True)
        return with_columns(typed[0], {field.name: rows[field.name] for plan, rows in others for field in plan.fields})


def retyped_rows(raw: Iterable[pa.RecordBatch], *plans: RowPlan) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch]]:
    """Yield rows of a raw table together with the same rows typed by the plans, in batches of a few MiB of JSON text.

    The typed rows equal those that landing makes of the original lines by one plan, for any of its values (TYPED, CELLS, RECORD). Only
    ids, times, generations, sync ids and the source's changes are taken from the raw rows. `raw` are batches of any size, as read from a
    raw file. Raises DataError when a row's `_airbyte_data` is not a JSON object.
    """
    typer, stream = ColumnsTyper(plans), plans[0].stream
    for batch in raw:
        rows = _raw_rows(batch)
        for first, count in _blocks(rows["_airbyte_data"]):
            part = rows.slice(first, count)
            try:
                yield part, typer.retype(part)
            except UnreadableRecord:
                raise DataError(
                    f'Stream "{stream}": a row of its raw table holds no JSON object in _airbyte_data, so the table cannot be rebuilt '
                    "from it: the raw file was changed or damaged. Restore it from a backup of the bucket, or run a refresh.",
                    stream=stream,
                ) from None


def with_declared(raw: pa.RecordBatch, declared: Collection[str]) -> pa.RecordBatch:
    """Return raw rows whose texts have only the fields with these JSON keys."""
    return with_columns(raw, {_DATA: DeclaredTexts(declared).of(raw[_DATA])})


def typed_rows(rows: pa.Table, plan: RowPlan) -> pa.Table:
    """Return rows with the columns of a raw table typed by the plan. Tombstones of the table, which have no text, become null."""
    has_text = np.asarray(contiguous(rows["_airbyte_data"]).is_valid())
    batches = rows.select(RAW_SCHEMA.names).filter(pa.array(has_text)).cast(RAW_SCHEMA).to_batches()
    typed = pa.Table.from_batches([found for _, found in retyped_rows(batches, plan)], plan.table_schema)
    return typed if has_text.all() else typed.take(pa.array(np.cumsum(has_text) - 1, mask=~has_text))


def cast_rows(table: pa.Table, stored: TableSchema, wanted: TableSchema, unfit: UnfitValues = UnfitValues.REFUSE) -> pa.Table:
    """Cast rows written under the schema `stored` to `wanted`, a later schema of the same table.

    If a column has another type in `wanted`, its values are written as JSON text and typed again. A base column also receives the values
    of columns once recovered from it that are marked as emptied in `wanted`. Columns of neither schema, such as encoded keys, are left out.
    If unfit values are refused, raises DoesNotFit for values that the type cannot hold, for integers with more digits than a double, and
    for timestamps that would lose their time of day as dates.
    """
    batches = project(table, stored.columns).to_batches()
    return pa.Table.from_batches([_cast_batch(batch, stored, wanted, unfit) for batch in batches], wanted.columns)


def cast_values(values: pa.ChunkedArray[Any], stored: AirbyteType, wanted: AirbyteType) -> pa.ChunkedArray[Any]:
    """Cast the values of one column as `cast_rows` does. Those that the new type cannot hold become null."""
    if stored == wanted:
        return values
    chunks = [_typed_from(value_texts(chunk, stored), wanted, (None, 0, ""), Changes()) for chunk in values.chunks]
    return pa.chunked_array(chunks, arrow_type(wanted))


def _cast_batch(batch: pa.RecordBatch, stored: TableSchema, wanted: TableSchema, unfit: UnfitValues) -> pa.RecordBatch:
    changes = Changes()
    columns = []
    for ordinal, field in enumerate(wanted.fields):
        origins = [] if field.emptied else [column for column in stored.fields if _flows(column, field, wanted)]
        columns.append(_cast_column(batch, origins, field, (None, ordinal, field.source), changes))
        if unfit is UnfitValues.REFUSE and (changes.entries or _loses(batch, origins, field, columns[-1])):
            other = next((origin.type for origin in origins if origin.type != field.type), field.type)
            raise DoesNotFit(field.source, other, field.type)
    own = [batch.column(field.name) for field in META_FIELDS]
    if changes.entries:
        changes.entries.extend(stored_changes(own[2]))
        own[2] = changes.meta(own[2].field("sync_id"), own[2].type)
    return pa.RecordBatch.from_arrays([*own, *columns], schema=wanted.columns)


def _flows(origin: TableField, column: TableField, wanted: TableSchema) -> bool:
    """Tell whether stored values of `origin` go to this column of the wanted schema."""
    return column_of(origin, wanted).id == column.id and not (origin.emptied and origin.id != column.id)


def _cast_column(batch: pa.RecordBatch, origins: list[TableField], column: TableField, place: Place, changes: Changes) -> pa.Array[Any]:
    """Return the column's values in the batch. In each row at most one of the origins has a value."""
    wanted = arrow_type(column.type)
    filled = [origin for origin in origins if batch[origin.name].null_count < len(batch)]
    if not filled:
        return pa.nulls(len(batch), wanted)
    if len(filled) == 1 and takes(column.type, filled[0].type):
        values = batch[filled[0].name]
        _require_alike(values.type, wanted, (column.name,))
        return values.cast(wanted)
    rows = zip(*(value_texts(batch[origin.name], origin.type) for origin in filled), strict=True)
    texts = [next((text for text in row if text is not None), None) for row in rows]
    return _typed_from(texts, column.type, place, changes)


def _typed_from(texts: Texts, of: AirbyteType, place: Place, changes: Changes) -> pa.Array[Any]:
    return typed_array(texts, ((row, place) for row in range(len(texts))), converter_of(of), arrow_type(of), changes)


_TIMESTAMPS = (Scalar.TIMESTAMP_WITH_TIMEZONE, Scalar.TIMESTAMP_WITHOUT_TIMEZONE)


def _loses(batch: pa.RecordBatch, origins: list[TableField], column: TableField, cast: pa.Array[Any]) -> bool:
    """Tell whether typing silently dropped a part of a value.

    Digits of an integer or decimal cast to a number, the time of a timestamp, also in a text, or members of an object that the column does
    not have.
    """
    for origin in origins:
        pair = origin.type, column.type
        if pair == (Scalar.STRING, Scalar.DATE):
            times = _typed_from(value_texts(batch[origin.name], origin.type), _TIMESTAMPS[1], (None, 0, ""), Changes())
            if (times.filter(cast.is_valid()).drop_null().cast(pa.int64()).to_numpy() % DAY_US).any():
                return True
        if not isinstance(origin.type, Scalar | Decimal) and not takes(column.type, origin.type):
            texts = zip(value_texts(batch[origin.name], origin.type), value_texts(cast, column.type), strict=True)
            if any(text is not None and kept is not None and _lacks_members(_parsed(kept), _parsed(text)) for text, kept in texts):
                return True
        if isinstance(origin.type, Decimal) and column.type is Scalar.NUMBER and _differs(batch[origin.name], origin.type, cast):
            return True
        if pair == (Scalar.INTEGER, Scalar.NUMBER) or (pair[0] in _TIMESTAMPS and pair[1] is Scalar.DATE):
            values = batch[origin.name]
            try:
                back = cast.cast(values.type)
            except pa.ArrowInvalid:  # a double close to the end of int64, rounded up beyond it
                return True
            if pc.any(pc.not_equal(values, back)).as_py():
                return True
    return False


def _parsed(text: bytes) -> Any:
    return json.loads(text, parse_int=str, parse_float=str)  # a number may have more digits than Python takes


def _lacks_members(kept: Any, value: Any) -> bool:
    """Tell whether a JSON value lacks a member that another one has at the same place."""
    if isinstance(value, dict) and isinstance(kept, dict):
        there = {name: one for name, one in value.items() if one is not None}
        return any(kept.get(name) is None or _lacks_members(kept[name], one) for name, one in there.items())
    if isinstance(value, list) and isinstance(kept, list):
        return any(map(_lacks_members, kept, value))
    return False


def _differs(decimals: pa.Array[Any], of: Decimal, numbers: pa.Array[Any]) -> bool:
    """Tell whether some of the doubles have other digits than the decimals that they were cast from."""
    changes = Changes()
    back = _typed_from(value_texts(numbers, Scalar.NUMBER), of, (None, 0, ""), changes)
    return bool(changes.entries) or bool(pc.any(pc.not_equal(back, decimals)).as_py())


def _blocks(texts: pa.StringArray) -> Iterator[tuple[int, int]]:
    """Split rows into blocks of about TYPED_BYTES of text and yield each as (first row, count). A text longer than that ends its block."""
    ends = np.cumsum(pc.fill_null(pc.binary_length(texts), 0).to_numpy().astype(np.int64))
    first = 0
    while first < len(texts):
        before = int(ends[first - 1]) if first else 0
        stop = min(int(np.searchsorted(ends, before + TYPED_BYTES)) + 1, len(texts))
        yield first, stop - first
        first = stop


def _raw_rows(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the batch with exactly the columns and types of a raw table."""
    table = project(pa.Table.from_batches([batch]), RAW_SCHEMA)
    return pa.RecordBatch.from_arrays([column.combine_chunks() for column in table.columns], schema=RAW_SCHEMA)


def _projected(table: pa.Table, field: pa.Field[Any]) -> pa.ChunkedArray[Any]:
    index = table.schema.get_field_index(field.name)
    if index < 0:
        if not field.nullable:
            raise DataError(f"A file of the table has no column {field.name}: it was changed or damaged. Restore it, or run a refresh.")
        return pa.chunked_array([pa.nulls(table.num_rows, field.type)])
    column = table.column(index)
    if column.type == field.type:
        return column
    _require_alike(column.type, field.type, (field.name,))
    return column.cast(field.type)


def _require_alike(stored: pa.DataType, wanted: pa.DataType, path: tuple[str, ...]) -> None:
    """Raise NeedsCast for values that a cast to another type would change, beyond members that are added."""
    if pa.types.is_struct(stored) and pa.types.is_struct(wanted) and {field.name for field in stored} <= {field.name for field in wanted}:
        for field in stored:
            _require_alike(field.type, wanted.field(field.name).type, (*path, field.name))
    elif (pa.types.is_list(stored) or pa.types.is_large_list(stored)) and pa.types.is_list(wanted):
        _require_alike(stored.value_type, wanted.value_type, (*path, "[]"))
    elif pa.types.is_dictionary(stored):
        _require_alike(stored.value_type, wanted, path)
    elif not (stored == wanted or pa.types.is_null(stored) or _is_encoded(stored, wanted)):
        raise NeedsCast(path, stored, wanted)


def _is_encoded(stored: pa.DataType, wanted: pa.DataType) -> bool:
    """Tell whether files may have values of a type in another one: times as numbers, finer timestamps, or text of other layouts."""
    is_time = (pa.types.is_int64(stored) and pa.types.is_time64(wanted)) or (stored == MICROS and wanted == _MILLIS)
    is_text = pa.types.is_string(stored) or pa.types.is_large_string(stored) or pa.types.is_string_view(stored)
    return bool(is_time or (is_text and pa.types.is_string(wanted)))

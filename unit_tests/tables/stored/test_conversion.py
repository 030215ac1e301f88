"""Rows already stored, as rows of a later schema."""

from __future__ import annotations

import decimal as exact
import io
import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from destination_s3_spark.decoding.kernel_typer import record_typer
from destination_s3_spark.decoding.plan import RowPlan, Values
from destination_s3_spark.decoding.record_typer import TypedBlock
from destination_s3_spark.decoding.value_text import value_texts
from destination_s3_spark.errors import ConfigError, DataError
from destination_s3_spark.formats.parquet import ParquetFile, ParquetOptions
from destination_s3_spark.schema.airbyte_type import (
    AirbyteType,
    Array,
    Decimal,
    Field,
    Object,
    Scalar,
    SchemalessArray,
    SchemalessObject,
    Union,
)
from destination_s3_spark.schema.arrow import META_FIELDS, RAW_SCHEMA, arrow_field
from destination_s3_spark.schema.encodings import Encodings, TimeEncoding
from destination_s3_spark.schema.json_schema import StreamFields
from destination_s3_spark.schema.placement import SchemaChange, SchemaPolicy
from destination_s3_spark.schema.table_schema import TableSchema, evolve, plan_fields
from destination_s3_spark.stream_id import StreamId
from destination_s3_spark.tables.stored.conversion import TYPED_BYTES, DoesNotFit, NeedsCast, UnfitValues, cast_rows, project, retyped_rows
from unit_tests.cases import each

STREAM = StreamId("shop", "users")
RECOVER, REWRITE = SchemaPolicy(), SchemaPolicy(SchemaChange.REWRITE)
SOURCE_CHANGE = {"field": "x", "change": "NULLED", "reason": "SOURCE_RETRIEVAL_ERROR"}


def line(number: int, data: str) -> str:
    changes = f',"meta":{{"changes":[{json.dumps(SOURCE_CHANGE)}]}}' if number % 3 == 0 else ""
    record = f'"stream":"users","namespace":"shop","emitted_at":{1_700_000_000_000 + number},"data":{data}{changes}'
    return f'{{"type":"RECORD","record":{{{record}}}}}\n'


def landed(plan: RowPlan, data: Iterable[str]) -> TypedBlock:
    return record_typer(plan).type_block("".join(line(number, text) for number, text in enumerate(data)).encode())


def typed_plan(fields: Sequence[Field], schema: pa.Schema | None = None, *, sync_id: int = 7, generation: int = 3) -> RowPlan:
    arrow = schema if schema is not None else pa.schema([*META_FIELDS, *map(arrow_field, fields)])
    return RowPlan(STREAM, sync_id, generation, tuple(fields), arrow)


def through_parquet(table: pa.Table, options: ParquetOptions | None = None) -> pa.Table:
    sink = io.BytesIO()
    file = ParquetFile(sink, table.schema, options or ParquetOptions())
    for batch in table.to_batches():
        file.write(batch)
    file.close()
    return pq.read_table(pa.BufferReader(sink.getvalue()))


def versions(policy: SchemaPolicy, *types: AirbyteType) -> list[TableSchema]:
    """The schemas of a table whose column `x` is declared with these types, one after the other."""
    schemas: list[TableSchema] = []
    for of in types:
        previous = schemas[-1] if schemas else None
        schemas.append(evolve(previous, StreamFields((Field("x", "x", of),), frozenset()), STREAM, policy).schema)
    return schemas


def rows_of(schema: TableSchema, *values: str) -> pa.Table:
    """Rows whose `x` is one of these JSON texts, as they land under the schema."""
    fields = plan_fields(schema, [Field("x", "x", Scalar.STRING)])
    return pa.Table.from_batches([landed(typed_plan(fields, schema.arrow), [f'{{"x":{value}}}' for value in values]).final])


def cast(stored: AirbyteType, wanted: AirbyteType, *values: str, unfit: UnfitValues = UnfitValues.REFUSE) -> pa.Table:
    old, new = versions(REWRITE, stored, wanted)
    table = cast_rows(rows_of(old, *values), old, new, unfit)
    table.validate(full=True)
    assert table.schema == new.arrow
    return table


def test_missing_columns_are_null_and_others_are_left_out() -> None:
    table = pa.table({"b": [1, 2], "a": ["x", "y"], "_airbyte_key": [b"k", b"l"]})
    wanted = pa.schema([pa.field("a", pa.string()), pa.field("new", pa.list_(pa.int64())), pa.field("b", pa.int64())])
    assert project(table, wanted).equals(pa.table({"a": ["x", "y"], "new": [None, None], "b": [1, 2]}, schema=wanted))


def test_a_file_without_a_column_that_is_never_null_is_damaged() -> None:
    with pytest.raises(DataError, match="_airbyte_raw_id"):
        project(pa.table({"a": [1]}), pa.schema([*META_FIELDS, pa.field("a", pa.int64())]))


def test_members_are_matched_by_name_also_inside_lists_and_unions() -> None:
    old = pa.struct([("b", pa.string()), ("u", pa.struct([("type", pa.string()), ("string", pa.string())]))])
    new = pa.struct(
        [
            ("new", pa.int64()),
            ("u", pa.struct([("type", pa.string()), ("boolean", pa.bool_()), ("string", pa.string())])),
            ("b", pa.string()),
        ]
    )
    rows: list[Any] = [
        [{"b": "x", "u": {"type": "string", "string": "s"}}, None],
        None,
        [],
        [{"b": None, "u": None}, {"b": "y", "u": {"type": "string", "string": None}}],
    ]
    table = pa.table({"l": pa.array([[], *rows], pa.list_(old))}).slice(1)
    union = {"type": "string", "boolean": None, "string": "s"}
    assert project(table, pa.schema([pa.field("l", pa.list_(new))])).column("l").to_pylist() == [
        [{"new": None, "u": union, "b": "x"}, None],
        None,
        [],
        [{"new": None, "u": None, "b": None}, {"new": None, "u": {**union, "string": None}, "b": "y"}],
    ]


def test_records_with_a_mask_keep_it_in_a_slice() -> None:
    old, new = pa.struct([("a", pa.int64())]), pa.struct([("a", pa.int64()), ("b", pa.string())])
    array = pa.array([{"a": 1}, None, {"a": None}, {"a": 4}], old)
    projected = project(pa.table({"s": array}).slice(1, 2), pa.schema([pa.field("s", new)])).column("s")
    projected.validate(full=True)
    assert projected.to_pylist() == [None, {"a": None, "b": None}]


def test_what_a_file_encodes_differently_comes_back_as_declared() -> None:
    time = pa.time64("us")
    schema = pa.schema([pa.field("t", time), pa.field("n", pa.struct([("l", pa.list_(time))])), pa.field("s", pa.string())])
    table = pa.table({"t": pa.array([1, None], time), "n": [{"l": [2, None]}, None], "s": ["a", "b"]}, schema=schema)
    assert project(through_parquet(table, ParquetOptions(encodings=Encodings(time=TimeEncoding.INT64))), schema).equals(table)
    for kind in (pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())):
        assert project(pa.table({"s": pa.array(["a", None], kind)}), schema.empty_table().select(["s"]).schema).column("s").to_pylist() == [
            "a",
            None,
        ]


@each(
    ("stored", "wanted", "path"),
    [
        (pa.int64(), pa.string(), ("c",)),
        (pa.int64(), pa.float64(), ("c",)),
        (pa.struct([("a", pa.int64())]), pa.struct([("a", pa.string())]), ("c", "a")),
        (pa.list_(pa.struct([("a", pa.int64())])), pa.list_(pa.struct([("b", pa.int64())])), ("c", "[]")),
        (pa.list_(pa.string()), pa.string(), ("c",)),
    ],
)
def test_another_type_is_not_projected(stored: pa.DataType, wanted: pa.DataType, path: tuple[str, ...]) -> None:
    with pytest.raises(NeedsCast) as raised:
        project(pa.table({"c": pa.array([None], stored)}), pa.schema([pa.field("c", wanted)]))
    assert str(raised.value).startswith('column "c" is stored as ')
    assert f" at {'.'.join(path)}, the schema has " in str(raised.value)


DATA = [
    '{"id": 1, "o": {"a": "1", "t": "12:34Z"}, "u": [1.50, "x"], "s": "a\\ud800b"}',
    '{"id":"2","o":{"a":2},"u":"2021-01-02","x":"12345678901234567890"}',
    '{ "id": 3.5, "o": [], "u": NaN, "x": -1 }',
    '{"id":null,"o":null,"s":{"b" : [1, 2]},"x":"42"}',
    "{}",
    '{"id":4,"id":5,"x":"2021-01-02T03:04:05Z","o":{"t":"01:02:03.4+01:00"}}',
]
OLD = typed_plan([Field("id", "id", Scalar.INTEGER), Field("x", "x", Scalar.STRING)])
NEW_FIELDS = (
    Field("u", "u", Union((Scalar.DATE, Scalar.NUMBER, Array(Scalar.STRING)))),
    Field("o", "o", Object((Field("a", "a", Scalar.STRING), Field("t", "t", Scalar.TIME_WITH_TIMEZONE)))),
    Field("x", "x", Scalar.INTEGER),
    Field("id", "id", Scalar.STRING),
    Field("s", "s", SchemalessObject()),
)
CELLS = [Field(source, source, Scalar.STRING) for source in ("x", "o", "s")]
PLANS = [
    typed_plan(NEW_FIELDS, sync_id=9, generation=4),
    RowPlan(STREAM, 9, 4, (), RAW_SCHEMA, Values.RECORD),
    RowPlan(STREAM, 9, 4, tuple(CELLS), pa.schema([*META_FIELDS, *map(arrow_field, reversed(CELLS))]), Values.CELLS),
]


@each("plan", PLANS, ids=lambda plan: plan.values.value)
@each("batch_rows", [100_000, 250])
def test_raw_rows_are_retyped_as_their_lines_would_land(plan: RowPlan, batch_rows: int) -> None:
    long = json.dumps({"s": {"text": "x" * (TYPED_BYTES // 2)}})
    data = [*DATA * 100, long, *DATA, long, long, *DATA * 100]
    raw = through_parquet(pa.Table.from_batches([landed(OLD, data).raw]))
    pairs = list(retyped_rows(raw.to_batches(max_chunksize=batch_rows), plan))
    assert len(pairs) > 1
    assert all(before.num_rows == after.num_rows for before, after in pairs)
    stored = pa.Table.from_batches([before for before, _ in pairs])
    assert stored.equals(raw)

    again = pa.Table.from_batches([after for _, after in pairs], plan.table_schema).combine_chunks()
    # The rows keep the sync and the generation they came with, so the lines land under these to be compared.
    anew = landed(RowPlan(STREAM, 7, 3, plan.fields, plan.table_schema, plan.values), data).final
    assert again.column("_airbyte_raw_id").equals(raw.column("_airbyte_raw_id"))
    assert again.drop_columns("_airbyte_raw_id").equals(pa.Table.from_batches([anew]).drop_columns("_airbyte_raw_id"))
    own = [change for meta in again.column("_airbyte_meta").to_pylist() for change in meta["changes"] if change != SOURCE_CHANGE]
    assert own


def test_slices_and_empty_batches_of_raw_rows_are_retyped() -> None:
    raw = landed(OLD, DATA).raw
    parts = [raw.slice(0, 0), raw.slice(2, 3), raw.slice(5)]
    pairs = list(retyped_rows(parts, PLANS[0]))
    assert [before.num_rows for before, _ in pairs] == [3, 1]
    whole = next(retyped_rows([raw], PLANS[0]))[1]
    assert pa.Table.from_batches([after for _, after in pairs]).equals(pa.Table.from_batches([whole.slice(2)]))


@each("text", ["[]", "{", "", None])
@each("plan", PLANS, ids=lambda plan: plan.values.value)
def test_a_raw_row_that_is_no_object_stops_the_rewrite_without_its_content(text: str | None, plan: RowPlan) -> None:
    raw = landed(OLD, ["{}"]).raw
    damaged = raw.set_column(4, RAW_SCHEMA.field("_airbyte_data"), pa.array([text], pa.string()))
    with pytest.raises(DataError, match=r'Stream "shop\.users": a row of its raw table holds no JSON object'):
        list(retyped_rows([damaged], plan))


@each(
    ("stored", "wanted", "value", "expected"),
    [
        (Scalar.INTEGER, Scalar.STRING, "42", "42"),
        (Scalar.STRING, Scalar.INTEGER, '"42"', 42),
        (Scalar.STRING, Scalar.NUMBER, '"4.5"', 4.5),
        (Scalar.INTEGER, Scalar.NUMBER, "9007199254740992", 9007199254740992.0),
        (Scalar.NUMBER, Scalar.INTEGER, "5.0", 5),
        (Scalar.BOOLEAN, Scalar.STRING, "true", "true"),
        (Scalar.STRING, Scalar.DATE, '"2021 Jan 02"', datetime(2021, 1, 2, tzinfo=UTC).date()),
        (
            Scalar.STRING,
            Scalar.TIMESTAMP_WITH_TIMEZONE,
            '"2021-01-02 03:04:05.5 PST"',
            datetime(2021, 1, 2, 11, 4, 5, 500_000, tzinfo=UTC),
        ),
        (Scalar.TIMESTAMP_WITH_TIMEZONE, Scalar.STRING, '"2021-01-02T03:04:05+01:00"', "2021-01-02T02:04:05Z"),
        (Scalar.TIMESTAMP_WITH_TIMEZONE, Scalar.DATE, '"2021-01-02T00:00:00Z"', datetime(2021, 1, 2, tzinfo=UTC).date()),
        (Scalar.NUMBER, Decimal(12, 2), "0.1", exact.Decimal("0.10")),
        (Scalar.INTEGER, Decimal(38, 9), "9223372036854775807", exact.Decimal(9223372036854775807)),
        (Scalar.STRING, Decimal(12, 2), '"12.50"', exact.Decimal("12.50")),
        (Decimal(10, 2), Decimal(12, 2), "99999999.99", exact.Decimal("99999999.99")),
        (Decimal(12, 2), Decimal(10, 4), "999999.25", exact.Decimal("999999.25")),
        (Decimal(12, 2), Scalar.NUMBER, "0.1", 0.1),
        (Decimal(12, 2), Scalar.INTEGER, "5.00", 5),
        (Decimal(38, 9), Scalar.STRING, "1e-9", "0.000000001"),
        (SchemalessObject(), Scalar.STRING, '{"a": 1.50}', '{"a":1.50}'),
        (Array(Scalar.INTEGER), Scalar.STRING, "[1,null]", "[1,null]"),
        (Scalar.INTEGER, Union((Scalar.STRING, Scalar.INTEGER)), "1", {"type": "integer", "string": None, "integer": 1}),
        (Object((Field("a", "a", Scalar.INTEGER),)), Object((Field("a", "a", Scalar.STRING),)), '{"a":1}', {"a": "1"}),
        (Object((Field("a", "a", Scalar.INTEGER),)), SchemalessObject(), '{"a":1}', '{"a":1}'),
    ],
)
def test_a_stored_value_becomes_what_typing_makes_of_it(stored: AirbyteType, wanted: AirbyteType, value: str, expected: object) -> None:
    table = cast(stored, wanted, value, "null")
    assert table.column("x").to_pylist() == [expected, None]
    assert [meta["changes"] for meta in table.column("_airbyte_meta").to_pylist()] == [[SOURCE_CHANGE], []]


MISFITS = [
    (Scalar.STRING, Scalar.INTEGER, '"many"'),
    (Scalar.NUMBER, Scalar.INTEGER, "1.5"),
    (Scalar.STRING, Scalar.TIMESTAMP_WITH_TIMEZONE, '"tomorrow"'),
    (Scalar.BOOLEAN, Scalar.INTEGER, "true"),
    (Decimal(12, 2), Decimal(10, 2), "100000000"),
    (Decimal(12, 2), Scalar.INTEGER, "1.01"),
    (Scalar.DATE, Scalar.TIMESTAMP_WITH_TIMEZONE, '"2021-01-02"'),
    (Array(Scalar.STRING), Array(Scalar.INTEGER), '["1","x"]'),
]


NAMED = Object((Field("name", "name", Scalar.STRING),))


@each(("stored", "wanted", "value"), MISFITS)
def test_a_value_the_new_type_cannot_hold_is_refused(stored: AirbyteType, wanted: AirbyteType, value: str) -> None:
    with pytest.raises(DoesNotFit) as raised:
        cast(stored, wanted, "null", value)
    assert (raised.value.source, raised.value.stored, raised.value.wanted) == ("x", stored, wanted)
    error = raised.value.config_error(STREAM)
    assert isinstance(error, ConfigError)
    assert error.stream == STREAM
    assert 'Stream "shop.users"' in error.message
    assert '"x"' in error.message
    assert "run a refresh" in error.message
    assert value.strip('"') not in error.message


@each(
    ("stored", "wanted", "value"),
    [
        (Scalar.INTEGER, Scalar.NUMBER, "9007199254740993"),
        (Scalar.INTEGER, Scalar.NUMBER, "9223372036854775807"),
        (Scalar.NUMBER, Decimal(12, 2), "0.123"),
        (Decimal(12, 3), Decimal(12, 2), "0.123"),
        (Decimal(38, 2), Scalar.NUMBER, "123456789012345678.01"),
        (Scalar.TIMESTAMP_WITHOUT_TIMEZONE, Scalar.DATE, '"2021-01-02T00:00:01"'),
        (Scalar.STRING, Scalar.DATE, '"2021-01-02T00:00:01"'),
        (Scalar.STRING, Scalar.DATE, '"2021-01-02 05:30:00Z"'),
        (SchemalessObject(), NAMED, '{"name":"a","born":1}'),
        (SchemalessObject(), Union((Scalar.STRING, NAMED)), '{"name":null,"born":{}}'),
        (SchemalessArray(), Array(NAMED), '[null,{"name":"a"},{"born":1}]'),
    ],
)
def test_a_value_that_would_lose_a_part_is_refused(stored: AirbyteType, wanted: AirbyteType, value: str) -> None:
    with pytest.raises(DoesNotFit):
        cast(stored, wanted, value)


@each("value", ["+500000-01-01", "+5874897-12-31", "4713-01-01 BC"])
def test_a_day_whose_midnight_has_no_number_of_microseconds_is_no_loss(value: str) -> None:
    days = cast(Scalar.STRING, Scalar.DATE, f'"{value}"').column("x").combine_chunks()
    assert value_texts(days, Scalar.DATE) == [f'"{value}"'.encode()]


@each("value", ['{"name":"a","born":null}', '{"name":{"born":1}}', "{}", f'{{"name":{"9" * 5_000}}}'])
def test_an_object_whose_members_are_declared_loses_nothing(value: str) -> None:
    assert cast(SchemalessObject(), NAMED, value).num_rows == 1


def test_unfit_values_may_become_null_and_are_recorded_behind_what_the_source_changed() -> None:
    table = cast(Scalar.STRING, Scalar.INTEGER, '"x"', '"1"', '"1e99"', '"99999999999999999999"', unfit=UnfitValues.NULL)
    unfit = {"field": "x", "change": "NULLED", "reason": "DESTINATION_SERIALIZATION_ERROR"}
    too_large = {**unfit, "reason": "DESTINATION_FIELD_SIZE_LIMITATION"}
    assert table.column("x").to_pylist() == [None, 1, None, None]
    assert table.column("_airbyte_meta").to_pylist() == [
        {"sync_id": 7, "changes": [SOURCE_CHANGE, unfit]},
        {"sync_id": 7, "changes": []},
        {"sync_id": 7, "changes": [unfit]},
        {"sync_id": 7, "changes": [SOURCE_CHANGE, too_large]},
    ]


def test_an_unfit_item_is_recorded_at_its_place() -> None:
    table = cast(Array(Scalar.STRING), Array(Scalar.INTEGER), "null", '["1","x"]', unfit=UnfitValues.NULL)
    assert table.column("x").to_pylist() == [None, [1, None]]
    assert [change["field"] for change in table.column("_airbyte_meta").to_pylist()[1]["changes"]] == ["x.[1]"]


def test_rows_of_several_chunks_and_slices_are_cast() -> None:
    old, new = versions(REWRITE, Scalar.INTEGER, Scalar.STRING)
    table = pa.concat_tables([rows_of(old, "0", "1", "2").slice(1), rows_of(old, "3")])
    assert cast_rows(table, old, new).column("x").to_pylist() == ["1", "2", "3"]
    assert cast_rows(table.slice(0, 0), old, new).equals(new.arrow.empty_table())


def test_a_base_column_takes_back_what_was_recovered() -> None:
    first, second = versions(RECOVER, Scalar.STRING, Scalar.INTEGER)
    merged = evolve(second, StreamFields((Field("x", "x", Scalar.INTEGER),), frozenset()), STREAM, REWRITE).schema
    recovered = second.fields[1].name
    both = pa.concat_tables([project(rows_of(first, '"1"', "null"), second.arrow), rows_of(second, "2", "null")])
    table = cast_rows(both, second, merged)
    assert table.column("x").to_pylist() == [1, None, 2, None]
    assert table.column(recovered).null_count == 4
    assert cast_rows(rows_of(first, '"1"'), first, merged).column("x").to_pylist() == [1]


def test_a_recovered_column_in_use_keeps_its_values() -> None:
    second = versions(RECOVER, Scalar.STRING, Scalar.INTEGER)[-1]
    flipped = evolve(second, StreamFields((Field("x", "x", Scalar.STRING),), frozenset()), STREAM, RECOVER).schema
    table = cast_rows(rows_of(second, "2"), second, flipped)
    assert table.column(second.fields[1].name).to_pylist() == [2]
    assert table.column("x").to_pylist() == [None]


def test_columns_that_only_grew_are_not_cast() -> None:
    a, b = Field("a", "a", Scalar.STRING), Field("b", "b", Scalar.STRING)
    old, new = versions(RECOVER, Object((a,)), Object((a, b)))
    assert cast_rows(rows_of(old, '{"a":"1"}'), old, new).column("x").to_pylist() == [{"a": "1", "b": None}]

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

import fastavro
import polars as pl
import pyarrow as pa
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from destination_s3_spark.errors import ConfigError
from destination_s3_spark.formats.avro import AVRO_BLOCK_BYTES, AvroCodec, AvroFile, AvroOptions, row_type
from destination_s3_spark.schema.airbyte_type import AirbyteType, Field, Union, option_name
from destination_s3_spark.schema.arrow import META_FIELDS, arrow_type
from destination_s3_spark.stream_id import StreamId
from unit_tests.cases import each
from unit_tests.sampling import examples
from unit_tests.schema.every_type import EVERYWHERE

OPTIONS = AvroOptions()
OWN = ["_airbyte_raw_id", "_airbyte_extracted_at", "_airbyte_meta", "_airbyte_generation_id"]

STRING, BOOLEAN, INTEGER, NUMBER = ({"type": name} for name in ("string", "boolean", "integer", "number"))
MONEY, WHOLE = {"type": "number", "multipleOf": 0.01}, {"type": "number", "multipleOf": 1}
DATE = {"type": "string", "format": "date"}
TIME = {"type": "string", "format": "time"}
TIME_NTZ = {**TIME, "airbyte_type": "time_without_timezone"}
TIMESTAMP = {"type": "string", "format": "date-time"}
TIMESTAMP_NTZ = {**TIMESTAMP, "airbyte_type": "timestamp_without_timezone"}


def obj(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def array(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


def one_of(*options: Any) -> dict[str, Any]:
    return {"oneOf": list(options)}


def schema_of(file: bytes) -> dict[str, Any]:
    return json.loads(fastavro.reader(io.BytesIO(file)).metadata["avro.schema"])


def fields_of(file: bytes) -> dict[str, Any]:
    return {member["name"]: member["type"] for member in schema_of(file)["fields"]}


def stored(file: bytes) -> list[dict[str, Any]]:
    """The rows, temporals as the integers that are stored, since Python has no year 10000. Blocks hold nothing but their rows."""
    schema = fastavro.parse_schema(without_logical_types(schema_of(file)))
    rows = []
    for block in fastavro.block_reader(io.BytesIO(file)):
        rows += [fastavro.schemaless_reader(block.bytes_, schema) for _ in range(block.num_records)]
        assert block.bytes_.read() == b""
    return rows


def without_logical_types(schema: Any) -> Any:
    if isinstance(schema, list):
        return [without_logical_types(branch) for branch in schema]
    if isinstance(schema, dict):
        if schema.get("logicalType") == "decimal":
            return schema
        bare = {key: without_logical_types(value) for key, value in schema.items() if key != "logicalType"}
        return bare["type"] if list(bare) == ["type"] else bare
    return schema


def test_every_type_has_the_schema_of_destination_s3(landing: Callable[..., Any]) -> None:
    types = {
        "a": STRING, "b": BOOLEAN, "c": INTEGER, "d": NUMBER, "e": DATE, "f": TIME, "g": TIME_NTZ, "h": TIMESTAMP, "i": TIMESTAMP_NTZ,
        "j": {"type": "object"}, "k": {"type": "array"}, "l": array(INTEGER),
    }  # fmt: skip
    time_micros, timestamp_micros = ({"type": "long", "logicalType": f"{name}-micros"} for name in ("time", "timestamp"))
    expected = [
        "string", "boolean", "long", "double", {"type": "int", "logicalType": "date"}, time_micros, time_micros, timestamp_micros,
        timestamp_micros, "string", "string", {"type": "array", "items": ["null", "long"]},
    ]  # fmt: skip
    schema = schema_of(landing(OPTIONS, types).file(["{}"]))
    assert schema["fields"][4:] == [{"name": name, "type": ["null", of], "default": None} for name, of in zip(types, expected, strict=True)]


def test_the_meta_columns_are_not_nullable(landing: Callable[..., Any]) -> None:
    schema = schema_of(landing(OPTIONS).file(["{}"]))
    parts = [{"name": part, "type": ["null", "string"], "default": None} for part in ("field", "change", "reason")]
    change = {"type": "record", "name": "items", "namespace": "changes._airbyte_meta.users.shop", "fields": parts}
    meta = [{"name": "sync_id", "type": "long"}, {"name": "changes", "type": {"type": "array", "items": change}}]
    assert schema == {
        "type": "record",
        "name": "users",
        "namespace": "shop",
        "fields": [
            {"name": "_airbyte_raw_id", "type": {"type": "string", "logicalType": "uuid"}},
            {"name": "_airbyte_extracted_at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
            {"name": "_airbyte_meta", "type": {"type": "record", "name": "_airbyte_meta", "namespace": "users.shop", "fields": meta}},
            {"name": "_airbyte_generation_id", "type": "long"},
        ],
    }


def test_nested_records_are_named_by_their_path(landing: Callable[..., Any]) -> None:
    properties = {"1 é": obj(lines=array(obj(x=INTEGER)), inner=obj(y=array(array(obj(z=STRING)))))}
    schema = fields_of(landing(OPTIONS, properties, StreamId("99ns.Ä b", "my users")).file(["{}"]))["_1_e"][1]
    assert (schema["namespace"], schema["name"]) == ("my_users._99ns.A_b", "_1_e")
    members = {member["name"]: member["type"][1] for member in schema["fields"]}
    line = members["lines"]["items"][1]
    assert (line["namespace"], line["name"]) == ("lines._1_e.my_users._99ns.A_b", "items")
    deep = members["inner"]["fields"][0]["type"][1]["items"][1]["items"][1]
    assert (deep["namespace"], deep["name"]) == ("items.y.inner._1_e.my_users._99ns.A_b", "items")


def test_a_stream_without_namespace_is_in_the_default_one(landing: Callable[..., Any]) -> None:
    land = landing(OPTIONS, stream=StreamId(None, "users"))
    sink = io.BytesIO()
    AvroFile(sink, land.columns, OPTIONS).close()
    assert schema_of(sink.getvalue())["namespace"] == "default"


def test_values_are_read_back(landing: Callable[..., Any]) -> None:
    properties = {
        "text": STRING, "flag": BOOLEAN, "whole": INTEGER, "real": NUMBER, "day": DATE, "clock": TIME, "moment": TIMESTAMP,
        "json": {"type": "object"}, "list": array(INTEGER), "record": obj(a=INTEGER, b=obj(c=array(STRING))),
    }  # fmt: skip
    full = (
        '{"text":"é\\u0000","flag":true,"whole":-9223372036854775808,"real":-0.1,"day":"2021-01-02","clock":"12:00:00.5+01:00",'
        '"moment":"2021-01-02T03:04:05.000006Z","json":{"x": 1.0},"list":[1,null,300],"record":{"a":1,"b":{"c":["", null, "x"]}}}'
    )
    rows = list(fastavro.reader(io.BytesIO(landing(OPTIONS, properties).file([full, "{}", '{"record":{},"list":[]}', '{"text":1}']))))
    assert isinstance(rows[0]["_airbyte_raw_id"], UUID)
    assert rows[0]["_airbyte_extracted_at"] == datetime.fromtimestamp(1700000000.123, UTC)
    assert (rows[0]["_airbyte_meta"], rows[0]["_airbyte_generation_id"]) == ({"sync_id": 7, "changes": []}, 3)
    values = {
        "text": "é\0", "flag": True, "whole": -(2**63), "real": -0.1, "day": date(2021, 1, 2), "clock": time(11, 0, 0, 500000),
        "moment": datetime(2021, 1, 2, 3, 4, 5, 6, UTC), "json": '{"x":1.0}', "list": [1, None, 300],
        "record": {"a": 1, "b": {"c": ["", None, "x"]}},
    }  # fmt: skip
    nothing = dict.fromkeys(properties)
    assert [{name: row[name] for name in properties} for row in rows] == [
        values,
        nothing,
        nothing | {"record": {"a": None, "b": None}, "list": []},
        nothing | {"text": "1"},
    ]


def test_decimals_are_stored_in_as_few_bytes_as_they_take(landing: Callable[..., Any]) -> None:
    sizes = {"0": 1, "1": 1, "-1": 1, "127": 1, "128": 2, "-128": 1, "-129": 2, "255": 2, "256": 2, "32767": 2, "32768": 3, "-32769": 3}
    sizes |= {str(sign * (2**127 - 1) // 10): 16 for sign in (1, -1)} | {str(2**63): 9, str(-(2**63)): 8, str(10**37): 16}
    texts = ["{}", '{"a":null}', *(f'{{"a":{digits}}}' for digits in sizes)]
    file = landing(OPTIONS, {"a": WHOLE}).file(texts)
    schema = {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 0}
    assert fields_of(file)["a"] == ["null", schema]
    assert [row["a"] for row in fastavro.reader(io.BytesIO(file))] == [None, None, *map(Decimal, sizes)]
    del schema["logicalType"]
    without = json.loads(json.dumps(schema_of(file)).replace('"logicalType": "decimal", ', ""))
    rows = [row for block in fastavro.block_reader(io.BytesIO(file)) for row in rows_of(block, without)]
    assert [len(row["a"]) for row in rows[2:]] == list(sizes.values())


def test_decimals_have_the_scale_of_their_column_also_inside_of_others(landing: Callable[..., Any]) -> None:
    properties = {"a": MONEY, "b": array(MONEY), "c": one_of(INTEGER, STRING, MONEY), "d": obj(e=MONEY)}
    file = landing(OPTIONS, properties).file(
        ['{"a":1.5,"b":[0.1,null,-12345678901234567890.12],"c":2.5,"d":{"e":1e-2}}', '{"a":-0.004,"c":"x"}', '{"c":3}']
    )
    rows = [{name: row[name] for name in "abcd"} for row in fastavro.reader(io.BytesIO(file))]
    assert [repr(row) for row in rows] == [
        repr(row)
        for row in (
            {"a": Decimal("1.50"), "b": [Decimal("0.10"), None, Decimal("-12345678901234567890.12")], "c": Decimal("2.50"),
             "d": {"e": Decimal("0.01")}},
            {"a": Decimal("0.00"), "b": None, "c": "x", "d": None},
            {"a": None, "b": None, "c": 3, "d": None},
        )
    ]  # fmt: skip


def rows_of(block: Any, schema: Any) -> Iterator[dict[str, Any]]:
    parsed = fastavro.parse_schema(schema)
    for _ in range(block.num_records):
        yield fastavro.schemaless_reader(block.bytes_, parsed)


def test_years_beyond_those_of_python_are_stored(landing: Callable[..., Any]) -> None:
    file = landing(OPTIONS, {"day": DATE, "moment": TIMESTAMP}).file(
        ['{"day":"0044-03-15 BC","moment":"0001-01-01T00:00:00Z BC"}', '{"day":"+12000-01-01","moment":"+12000-01-01T00:00:00Z"}']
    )
    assert [(row["day"], row["moment"]) for row in stored(file)] == [
        (-735160, -62167219200 * 10**6),
        (3663382, 3663382 * 86400 * 10**6),
    ]


def test_values_that_do_not_fit_are_null_with_a_change_and_a_source_s_own_may_lack_parts(landing: Callable[..., Any]) -> None:
    meta = ',"meta":{"changes":[{"field":"b"}]}'
    row = stored(landing(OPTIONS, {"a": INTEGER, "b": STRING}).file(['{"a":"x"}'], meta))[0]
    assert (row["a"], row["b"]) == (None, None)
    assert row["_airbyte_meta"]["changes"] == [
        {"field": "b", "change": None, "reason": None},
        {"field": "a", "change": "NULLED", "reason": "DESTINATION_SERIALIZATION_ERROR"},
    ]


def test_unions_are_native_in_schema_order(landing: Callable[..., Any]) -> None:
    union = one_of(STRING, INTEGER, BOOLEAN, {"type": "null"}, obj(a=INTEGER), array(NUMBER), DATE)
    values = ["1", 1, True, {"a": 5}, [1.5, None], None]
    file = landing(OPTIONS, {"u": union, "list": array(one_of(BOOLEAN, STRING))}).file(
        [json.dumps({"u": value, "list": [True, "x", None, 1]}) for value in values]
    )
    branches = fields_of(file)["u"]
    assert branches[:4] == ["null", "string", "long", "boolean"]
    assert [branch["type"] for branch in branches[4:]] == ["record", "array", "int"]
    rows = stored(file)
    assert [row["u"] for row in rows] == values
    assert rows[0]["list"] == [True, "x", None, None]
    assert rows[0]["_airbyte_meta"]["changes"][0]["field"] == "list.[3]"


def test_a_union_keeps_the_kind_of_its_value(landing: Callable[..., Any]) -> None:
    file = landing(OPTIONS, {"u": one_of(DATE, STRING, INTEGER, NUMBER)}).file(['{"u":"2021-01-02"}', '{"u":"x"}', '{"u":1}', '{"u":1.5}'])
    rows = [row["u"] for row in fastavro.reader(io.BytesIO(file))]
    assert rows == [date(2021, 1, 2), "x", 1, 1.5]
    assert [type(value) for value in rows] == [date, str, int, float]


def test_options_of_one_avro_type_share_a_branch(landing: Callable[..., Any]) -> None:
    union = one_of({"type": "object"}, INTEGER, STRING, {"type": "array"})
    times = one_of(TIME, TIME_NTZ)
    file = landing(OPTIONS, {"u": union, "t": times}).file(['{"u":{"a": 1},"t":"01:00:00"}', '{"u":"x"}', '{"u":[1]}', '{"u":7}', "{}"])
    assert fields_of(file)["u"] == ["null", "string", "long"]
    assert fields_of(file)["t"] == ["null", {"type": "long", "logicalType": "time-micros"}]
    assert [row["u"] for row in stored(file)] == ['{"a":1}', "x", "[1]", 7, None]
    assert stored(file)[0]["t"] == 3600 * 10**6


@each("options", [(INTEGER, TIMESTAMP), (TIME, TIMESTAMP), (INTEGER, TIME_NTZ)])
def test_a_union_of_two_kinds_of_long_is_refused_naming_the_field(landing: Callable[..., Any], options: tuple[Any, ...]) -> None:
    with pytest.raises(ConfigError, match=r'Stream "shop\.users", field "a\.items\.b": a union of .* cannot be written to Avro') as raised:
        landing(OPTIONS, {"a": array(obj(b=one_of(*options)))}).file(["{}"])
    assert raised.value.stream == StreamId("shop", "users")


def test_records_that_meet_in_a_name_stay_apart(landing: Callable[..., Any]) -> None:
    union = one_of(obj(items=obj(a=INTEGER)), array(obj(b=STRING)))
    rows = stored(landing(OPTIONS, {"u": union}).file(['{"u":{"items":{"a":1}}}', '{"u":[{"b":"x"}]}']))
    assert [row["u"] for row in rows] == [{"items": {"a": 1}}, [{"b": "x"}]]


TEXTS = [json.dumps({"id": number, "text": "the same words again and again" * 3, "list": [number]}) for number in range(3000)]
WIDE = {"id": INTEGER, "text": STRING, "list": array(INTEGER)}


@each("codec", AvroCodec)
def test_every_codec_is_read_back_block_by_block(landing: Callable[..., Any], codec: AvroCodec) -> None:
    file = landing(AvroOptions(codec, 3), WIDE).file(TEXTS)
    blocks = list(fastavro.block_reader(io.BytesIO(file)))
    assert blocks[0].codec == codec.value
    assert len(blocks) > 3
    assert [row["id"] for block in blocks for row in block] == list(range(3000))


def test_blocks_are_cut_before_they_are_too_large_and_a_larger_row_has_its_own(landing: Callable[..., Any]) -> None:
    large = json.dumps({"text": "x" * (2 * AVRO_BLOCK_BYTES)})
    file = landing(OPTIONS, WIDE).file([*TEXTS, large, *TEXTS[:1]])
    sizes = [(block.num_records, len(block.bytes_.getvalue())) for block in fastavro.block_reader(io.BytesIO(file))]
    assert sizes[-2][0] == sizes[-1][0] == 1
    assert all(size <= AVRO_BLOCK_BYTES for _, size in sizes[:-2])
    assert all(size > AVRO_BLOCK_BYTES * 0.9 for _, size in sizes[:-3])


@each("codec", [AvroCodec.DEFLATE, AvroCodec.XZ, AvroCodec.ZSTANDARD])
def test_the_level_is_the_codec_s(landing: Callable[..., Any], codec: AvroCodec) -> None:
    land = landing(OPTIONS, WIDE)
    block = land.typed(TEXTS)
    sizes = []
    for level in (0, 9) if codec is not AvroCodec.ZSTANDARD else (-5, 22):
        sink = io.BytesIO()
        file = AvroFile(sink, land.columns, AvroOptions(codec, level))
        file.write(block.final)
        file.close()
        sizes.append(len(sink.getvalue()))
    assert sizes[1] < sizes[0]


@each("checksum", [False, True])
def test_a_checksum_is_in_each_zstandard_block_when_asked_for(landing: Callable[..., Any], checksum: bool) -> None:
    file = landing(AvroOptions(AvroCodec.ZSTANDARD, 3, checksum), WIDE).file(TEXTS)
    frames = [match.start() for match in re.finditer(rb"\x28\xb5\x2f\xfd", file)]
    assert frames
    assert {zstandard.get_frame_parameters(file[at : at + 18]).has_checksum for at in frames} == {checksum}


def test_polars_reads_the_file(landing: Callable[..., Any]) -> None:
    file = landing(AvroOptions(AvroCodec.DEFLATE, 6), WIDE).file(TEXTS[:3])
    assert pl.read_avro(io.BytesIO(file), columns=["id", "list"]).rows() == [(0, [0]), (1, [1]), (2, [2])]


def test_parts_of_batches_are_written_like_whole_ones(landing: Callable[..., Any]) -> None:
    land = landing(OPTIONS, WIDE | {"record": obj(a=array(obj(b=one_of(INTEGER, STRING))))})
    texts = [*TEXTS[:20], '{"record":{"a":[{"b":1},{"b":"x"},null,{}]}}', '{"record":{"a":[]}}', "{}"]
    block = land.typed(texts)
    sink = io.BytesIO()
    file = AvroFile(sink, land.columns, OPTIONS)
    for start in range(0, len(texts), 3):
        file.write(block.final.slice(start, 3))
    file.write(block.final.slice(0, 0))
    assert file.close().rows == len(texts)
    assert stored(sink.getvalue())[-3:] == stored(landing_of(land, block))[-3:]


def landing_of(land: Any, block: Any) -> bytes:
    sink = io.BytesIO()
    file = AvroFile(sink, land.columns, OPTIONS)
    file.write(block.final)
    file.close()
    return sink.getvalue()


def test_an_abandoned_file_leaves_the_sink_alone(landing: Callable[..., Any]) -> None:
    land = landing(OPTIONS, WIDE)
    sink = io.BytesIO()
    file = AvroFile(sink, land.columns, OPTIONS)
    header = sink.getvalue()
    file.abandon()
    file.write(land.typed(TEXTS).final)
    assert sink.getvalue() == header


def test_rows_with_other_columns_are_refused(landing: Callable[..., Any]) -> None:
    file = AvroFile(io.BytesIO(), landing(OPTIONS, WIDE).columns, OPTIONS)
    with pytest.raises(pa.ArrowInvalid):
        file.write(landing(OPTIONS, {"id": INTEGER}).typed(["{}"]).final)


KEYS = st.sampled_from(["a", "A", "a b", "a_b", "1", "é", "日本", "", "items", "type", "string", "_airbyte_meta"]) | st.text(max_size=4)
SCALARS = st.sampled_from(
    [
        STRING,
        BOOLEAN,
        INTEGER,
        NUMBER,
        MONEY,
        WHOLE,
        DATE,
        TIME,
        TIMESTAMP,
        TIMESTAMP_NTZ,
        {"type": "object"},
        {"type": "array"},
        {"type": "null"},
    ]
)
UNIONS = st.lists(st.sampled_from([STRING, BOOLEAN, INTEGER, NUMBER, DATE]), min_size=1, max_size=3, unique_by=json.dumps).map(
    lambda options: one_of(*options, obj(items=obj(items=INTEGER)), array(obj(items=STRING)))
)
SCHEMAS = st.recursive(
    SCALARS | UNIONS,
    lambda inner: inner.map(array) | st.dictionaries(KEYS, inner, min_size=1, max_size=3).map(lambda p: obj() | {"properties": p}),
    max_leaves=6,
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**65), 2**65) | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=3)
    | st.sampled_from(["2021-01-02", "2021-01-02T03:04:05Z", "04:05:06", "0001-01-01 BC"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=6,
)  # fmt: skip


def conforming(schema: Any) -> st.SearchStrategy[Any]:
    """Values of a schema's shape, and now and then any other."""
    if "oneOf" in schema:
        return st.one_of(VALUES, *map(conforming, schema["oneOf"]))
    if "properties" in schema:
        members = {key: conforming(of) for key, of in schema["properties"].items()}
        return st.fixed_dictionaries({}, optional=members) | VALUES
    return st.lists(conforming(schema["items"]), max_size=3) | VALUES if "items" in schema else VALUES


def names_of(schema: Any) -> Iterator[str]:
    """The full name of every record in a schema."""
    if isinstance(schema, list):
        for branch in schema:
            yield from names_of(branch)
    elif isinstance(schema, dict):
        if schema["type"] == "record":
            yield f"{schema['namespace']}.{schema['name']}"
        for inner in (schema.get("items"), *(member["type"] for member in schema.get("fields", ()))):
            yield from names_of(inner)


def as_avro(value: Any, of: Any) -> Any:
    """A value as Arrow has it, typed disjoint records as what is set in them."""
    if value is None:
        return None
    match of:
        case Union(options):
            name = value["type"]
            return as_avro(value[name], next(option for option in options if option_name(option) == name))
        case _ if hasattr(of, "fields"):
            return {field.name: as_avro(value[field.name], field.type) for field in of.fields}
        case _ if hasattr(of, "items"):
            return [as_avro(item, of.items) for item in value]
    return value


@examples(80)
@given(st.data())
def test_any_typed_rows_come_back_from_an_avro_reader(
    landing: Callable[..., Any], as_integers: Callable[..., Any], data: st.DataObject
) -> None:
    properties = data.draw(st.dictionaries(KEYS, SCHEMAS, max_size=4))
    land = landing(OPTIONS, properties)
    records = data.draw(st.lists(st.fixed_dictionaries({}, optional={k: conforming(of) for k, of in properties.items()}), max_size=4))
    block = land.typed(map(json.dumps, records))
    sink = io.BytesIO()
    file = AvroFile(sink, land.columns, OPTIONS)
    file.write(block.final)
    file.close()
    schema = schema_of(sink.getvalue())
    names = list(names_of(schema))
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*", name) for name in names)
    columns = {field.name: block.final[field.name] for field in land.columns.fields}
    expected = {
        field.name: [as_avro(value, field.type) for value in columns[field.name].cast(as_integers(columns[field.name].type)).to_pylist()]
        for field in land.columns.fields
    }
    rows = stored(sink.getvalue())
    assert [row["_airbyte_meta"] for row in rows] == block.final["_airbyte_meta"].to_pylist()
    assert {name: [repr(row[name]) for row in rows] for name in expected} == {n: list(map(repr, v)) for n, v in expected.items()}


@each("of", EVERYWHERE.values())
def test_every_type_in_every_place_has_a_type_and_its_nulls_are_read_back(of: AirbyteType) -> None:
    record = row_type(StreamId("shop", "users"), [Field("c", "c", of)])
    own = {"_airbyte_raw_id": str(UUID(int=1)), "_airbyte_extracted_at": 0, "_airbyte_meta": {"sync_id": 1, "changes": []}}
    row = {**own, "_airbyte_generation_id": 0, "c": None}
    rows = pa.Table.from_pylist([row], pa.schema([*META_FIELDS, ("c", arrow_type(of))]))
    (encoded,) = record.rows([column.combine_chunks() for column in rows.columns])

    schema = fastavro.parse_schema(without_logical_types(record.schema))
    assert fastavro.schemaless_reader(io.BytesIO(encoded.as_py()), schema) == row

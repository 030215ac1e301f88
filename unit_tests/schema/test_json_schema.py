from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pytest

from destination_s3_spark.errors import ConfigError
from destination_s3_spark.schema.airbyte_type import AirbyteType, Array, Field, Object, Scalar, SchemalessArray, SchemalessObject, Union
from destination_s3_spark.schema.draft import UnionConflicts
from destination_s3_spark.schema.json_schema import MOST_LEVELS, StreamFields, stream_fields
from destination_s3_spark.stream_id import StreamId
from unit_tests.cases import each
from unit_tests.cpu_limit import cpu_limit

STREAM = StreamId("shop", "users")
WELL_KNOWN = "WellKnownTypes.json#/definitions/"
STRING, INTEGER, NUMBER, BOOLEAN = {"type": "string"}, {"type": "integer"}, {"type": "number"}, {"type": "boolean"}


def airbyte_type(schema: object, conflicts: UnionConflicts = UnionConflicts.FAIL) -> AirbyteType:
    """The type of a property."""
    (field,) = stream_fields({"properties": {"here": schema}}, StreamId(None, "users"), conflicts=conflicts).fields
    return field.type


def obj(**properties: AirbyteType) -> Object:
    return Object(tuple(Field(name, name, type_) for name, type_ in properties.items()))


def one_of(*options: Any) -> dict[str, Any]:
    return {"oneOf": list(options)}


def properties(**schemas: Any) -> dict[str, Any]:
    return {"type": "object", "properties": schemas}


@each(
    ("schema", "expected"),
    [
        (STRING, Scalar.STRING),
        (BOOLEAN, Scalar.BOOLEAN),
        (INTEGER, Scalar.INTEGER),
        ({"type": "int"}, Scalar.INTEGER),
        (NUMBER, Scalar.NUMBER),
        ({"type": "number", "airbyte_type": "integer"}, Scalar.INTEGER),
        ({"type": "string", "format": "date"}, Scalar.DATE),
        ({"type": "string", "format": "date-time"}, Scalar.TIMESTAMP_WITH_TIMEZONE),
        ({"type": "string", "format": "date-time", "airbyte_type": "timestamp_with_timezone"}, Scalar.TIMESTAMP_WITH_TIMEZONE),
        ({"type": "string", "format": "date-time", "airbyte_type": "timestamp_without_timezone"}, Scalar.TIMESTAMP_WITHOUT_TIMEZONE),
        ({"type": "string", "format": "time"}, Scalar.TIME_WITH_TIMEZONE),
        ({"type": "string", "format": "time", "airbyte_type": "time_with_timezone"}, Scalar.TIME_WITH_TIMEZONE),
        ({"type": "string", "format": "time", "airbyte_type": "time_without_timezone"}, Scalar.TIME_WITHOUT_TIMEZONE),
        ({"type": "string", "format": "uuid"}, Scalar.STRING),
        ("string", Scalar.STRING),
        ({"type": ["null", "string"], "format": "date"}, Scalar.DATE),
        ({"type": ["string"]}, Scalar.STRING),
        ({"type": ["null", {"type": "integer"}]}, Scalar.INTEGER),
    ],
)
def test_scalars(schema: Any, expected: AirbyteType) -> None:
    assert airbyte_type(schema) == expected


@each(
    ("definition", "expected"),
    [
        ("String", Scalar.STRING),
        ("BinaryData", Scalar.STRING),
        ("Boolean", Scalar.BOOLEAN),
        ("Integer", Scalar.INTEGER),
        ("Number", Scalar.NUMBER),
        ("Date", Scalar.DATE),
        ("TimeWithTimezone", Scalar.TIME_WITH_TIMEZONE),
        ("TimeWithoutTimezone", Scalar.TIME_WITHOUT_TIMEZONE),
        ("TimestampWithTimezone", Scalar.TIMESTAMP_WITH_TIMEZONE),
        ("TimestampWithoutTimezone", Scalar.TIMESTAMP_WITHOUT_TIMEZONE),
    ],
)
def test_well_known_types(definition: str, expected: AirbyteType) -> None:
    assert airbyte_type({"$ref": WELL_KNOWN + definition}) == expected


@each(
    ("schema", "expected"),
    [
        ({"type": "object"}, SchemalessObject()),
        ({"type": "object", "properties": {}}, SchemalessObject()),
        ({"type": "object", "properties": None}, SchemalessObject()),
        ({"type": "array"}, SchemalessArray()),
        ({"type": "array", "items": []}, SchemalessArray()),
        ({"type": "array", "items": None}, SchemalessArray()),
        ({"type": "array", "items": INTEGER}, Array(Scalar.INTEGER)),
        ({"type": "array", "items": "integer"}, Array(Scalar.INTEGER)),
        ({"type": "array", "items": [INTEGER]}, Array(Scalar.INTEGER)),
        ({"type": "array", "items": [INTEGER, STRING, INTEGER]}, Array(Union((Scalar.INTEGER, Scalar.STRING)))),
        ({"type": "array", "items": {"type": ["null", "string"]}}, Array(Scalar.STRING)),
        ({"type": "array", "items": {"type": "array", "items": NUMBER}}, Array(Array(Scalar.NUMBER))),
        (properties(b=INTEGER, a=STRING), obj(b=Scalar.INTEGER, a=Scalar.STRING)),
        ({"type": ["null", "object"], "properties": {"a": STRING}}, obj(a=Scalar.STRING)),
        (properties(inner=properties(deep={"type": "array"})), obj(inner=obj(deep=SchemalessArray()))),
    ],
)
def test_containers(schema: Any, expected: AirbyteType) -> None:
    assert airbyte_type(schema) == expected


@each(
    ("schema", "expected"),
    [
        ({}, Scalar.STRING),
        ({"description": "anything"}, Scalar.STRING),
        ({"properties": {"a": STRING}}, obj(a=Scalar.STRING)),
        ({"items": INTEGER}, Array(Scalar.INTEGER)),
        ({"type": "null"}, Scalar.STRING),
        ({"type": ["null", "null"]}, Scalar.STRING),
        ({"type": []}, Scalar.STRING),
        (one_of(), Scalar.STRING),
        ({"type": "array", "items": {}}, Array(Scalar.STRING)),
        ({"type": "array", "items": [{"type": "null"}]}, Array(Scalar.STRING)),
    ],
)
def test_a_schema_that_says_nothing_is_a_string(schema: Any, expected: AirbyteType) -> None:
    assert airbyte_type(schema) == expected


@each(
    ("schema", "expected"),
    [
        (one_of(INTEGER, STRING), Union((Scalar.INTEGER, Scalar.STRING))),
        ({"anyOf": [INTEGER, STRING]}, Union((Scalar.INTEGER, Scalar.STRING))),
        ({"allOf": [INTEGER, STRING]}, Union((Scalar.INTEGER, Scalar.STRING))),
        ({"oneOf": INTEGER}, Scalar.INTEGER),
        ({"type": ["string", "integer"]}, Union((Scalar.STRING, Scalar.INTEGER))),
        (one_of(INTEGER, INTEGER), Scalar.INTEGER),
        (one_of(INTEGER, STRING, INTEGER), Union((Scalar.INTEGER, Scalar.STRING))),
        (one_of({"type": "null"}, STRING), Scalar.STRING),
        (one_of(STRING, one_of(INTEGER, STRING)), Union((Scalar.STRING, Scalar.INTEGER))),
        (one_of({"type": "object"}, INTEGER), Union((SchemalessObject(), Scalar.INTEGER))),
        ({"type": ["object", "array"]}, Union((SchemalessObject(), SchemalessArray()))),
        ({"type": ["object", "array"], "items": STRING}, Union((SchemalessObject(), Array(Scalar.STRING)))),
        ({"type": ["object", "integer"], "properties": {"a": STRING}}, Union((obj(a=Scalar.STRING), Scalar.INTEGER))),
        (one_of(BOOLEAN, properties(id=INTEGER, name=STRING)), Union((Scalar.BOOLEAN, obj(id=Scalar.INTEGER, name=Scalar.STRING)))),
        (
            {"type": "array", "items": [one_of(INTEGER, {"type": "array"})]},
            Array(Union((Scalar.INTEGER, SchemalessArray()))),
        ),
    ],
)
def test_unions_collapse_like_options(schema: Any, expected: AirbyteType) -> None:
    assert airbyte_type(schema) == expected


@each(
    ("schema", "expected"),
    [
        (one_of(properties(id=INTEGER), properties(name=STRING)), obj(id=Scalar.INTEGER, name=Scalar.STRING)),
        (
            one_of(properties(id=INTEGER, name=STRING), properties(id=INTEGER, birthday={"type": "string", "format": "date"})),
            obj(id=Scalar.INTEGER, name=Scalar.STRING, birthday=Scalar.DATE),
        ),
        (one_of(properties(id=INTEGER), properties(id=INTEGER)), obj(id=Scalar.INTEGER)),
        (one_of(properties(id={"type": "null"}), properties(id=INTEGER)), obj(id=Scalar.INTEGER)),
        (one_of(properties(id=INTEGER), properties(id={"type": ["null"]})), obj(id=Scalar.INTEGER)),
        (
            one_of(properties(id=one_of(INTEGER, STRING)), properties(id=one_of(STRING, INTEGER))),
            obj(id=Union((Scalar.INTEGER, Scalar.STRING))),
        ),
        (
            one_of(properties(to=properties(zip=STRING)), STRING, properties(to=properties(city=STRING))),
            Union((obj(to=obj(zip=Scalar.STRING, city=Scalar.STRING)), Scalar.STRING)),
        ),
    ],
)
def test_the_object_options_of_a_union_become_one_object(schema: Any, expected: AirbyteType) -> None:
    assert airbyte_type(schema) == expected


@each(
    ("schema", "field", "reason"),
    [
        ({"type": "potato"}, "f", 'unknown type "potato"'),
        ({"type": None}, "f", "unknown type None"),
        (True, "f", "must be an object"),
        ({"type": "array", "items": {"type": "potato"}}, "f", 'unknown type "potato"'),
        (properties(a=properties(b={"type": "potato"})), "f.a.b", 'unknown type "potato"'),
        ({"$ref": "#/definitions/Customer"}, "f", 'unknown reference "#/definitions/Customer"'),
        ({"$ref": WELL_KNOWN + "Potato"}, "f", "unknown reference"),
        ({"type": "object", "properties": ["a"]}, "f", "`properties` of its JSON schema is not an object"),
        (properties(**{"\ud800": INTEGER}), "f", r"the name '\ud800' of a property has half of a surrogate pair"),
        (one_of(properties(id=INTEGER), properties(id=STRING)), "f.id", "as integer and as string"),
        (one_of(properties(id=INTEGER), properties(id=one_of(INTEGER, STRING))), "f.id", "as integer and as union"),
        (one_of(properties(a=properties(b=INTEGER)), properties(a=properties(b=STRING))), "f.a.b", "as integer and as string"),
        (one_of({"type": "object"}, properties(id=INTEGER)), "f", "both called object"),
        (one_of({"type": "array", "items": INTEGER}, {"type": "array", "items": STRING}), "f", "both called array"),
        (one_of({"type": "array"}, {"type": "array", "items": STRING}), "f", "both called array"),
    ],
)
def test_what_no_type_fits_names_stream_field_and_reason(schema: Any, field: str, reason: str) -> None:
    with pytest.raises(ConfigError) as raised:
        stream_fields(properties(id=INTEGER, f=schema), STREAM)
    assert f'Stream "shop.users", field "{field}": ' in raised.value.message
    assert reason in raised.value.message
    assert raised.value.stream == STREAM


def test_a_column_whose_name_is_no_text_is_refused_whatever_the_format() -> None:
    with pytest.raises(ConfigError, match=r"the name 'a\\udfff' of a property has half of a surrogate pair"):
        stream_fields(properties(**{"a\udfff": INTEGER}), STREAM, unfit_as_text=True)


@each(
    ("schema", "as_union", "as_text"),
    [
        (
            one_of(properties(id=INTEGER, n=STRING), properties(id=STRING)),
            obj(id=Union((Scalar.INTEGER, Scalar.STRING)), n=Scalar.STRING),
            obj(id=Scalar.STRING, n=Scalar.STRING),
        ),
        (
            one_of(properties(id=INTEGER), STRING, properties(id={"type": "boolean"}), properties(id=one_of(INTEGER, STRING))),
            Union((obj(id=Union((Scalar.INTEGER, Scalar.BOOLEAN, Scalar.STRING))), Scalar.STRING)),
            Union((obj(id=Scalar.STRING), Scalar.STRING)),
        ),
        (
            one_of(properties(a=properties(b=INTEGER)), properties(a=properties(b=STRING)), properties(a=INTEGER)),
            obj(a=Union((obj(b=Union((Scalar.INTEGER, Scalar.STRING))), Scalar.INTEGER))),
            obj(a=Scalar.STRING),
        ),
        (
            one_of(properties(a={"type": "array", "items": INTEGER}), properties(a={"type": "array", "items": STRING})),
            obj(a=SchemalessArray()),
            obj(a=Scalar.STRING),
        ),
        (one_of({"type": "object"}, properties(id=INTEGER), STRING), *[Union((SchemalessObject(), Scalar.STRING))] * 2),
        (one_of({"type": "array", "items": INTEGER}, {"type": "array"}), *[SchemalessArray()] * 2),
    ],
)
def test_contradicting_options_become_a_union_or_text_where_that_is_chosen(
    schema: Any, as_union: AirbyteType, as_text: AirbyteType
) -> None:
    assert airbyte_type(schema, UnionConflicts.UNION) == as_union
    assert airbyte_type(schema, UnionConflicts.TEXT) == as_text
    with pytest.raises(ConfigError, match=r"set tables\.union_conflicts to union or text"):
        airbyte_type(schema)


def test_only_a_contradiction_is_advised_to_be_solved_by_the_option() -> None:
    with pytest.raises(ConfigError, match=r"Correct the schema in the source, or deselect the field in the connection\.$"):
        airbyte_type({"type": "potato"})


def test_a_single_type_says_where_it_stands() -> None:
    with pytest.raises(ConfigError, match=r'^Stream "users", field "here": its JSON schema has the unknown type "potato"'):
        airbyte_type({"type": "potato"})


def test_a_column_no_type_fits_is_a_string_where_values_pass_as_they_are() -> None:
    schema = properties(id=INTEGER, odd=properties(a={"type": "potato"}), clash=one_of(properties(id=INTEGER), properties(id=STRING)))
    fields = stream_fields(schema, STREAM, unfit_as_text=True).fields
    assert [field.type for field in fields] == [Scalar.INTEGER, Scalar.STRING, Scalar.STRING]


def test_columns_come_in_schema_order_with_safe_names() -> None:
    schema = properties(
        **{"z": STRING, "field_with_spécial_character": STRING, "_airbyte_meta": STRING, "Foo.Bar": properties(**{"1st": NUMBER})}
    )
    assert stream_fields(schema, STREAM).fields == (
        Field("z", "z", Scalar.STRING),
        Field("field_with_spécial_character", "field_with_special_character", Scalar.STRING),
        Field("_airbyte_meta", "_airbyte_meta_1", Scalar.STRING),
        Field("Foo.Bar", "Foo_Bar", Object((Field("1st", "_1st", Scalar.NUMBER),))),
    )


def test_members_that_meet_in_a_merged_object_get_different_names() -> None:
    merged = airbyte_type(one_of(properties(Id=INTEGER), properties(id=STRING)))
    assert merged == Object((Field("Id", "Id", Scalar.INTEGER), Field("id", "id_1", Scalar.STRING)))


@each("schema", [{}, {"type": "object"}, {"properties": {}}, {"type": "object", "properties": None}])
def test_a_stream_may_declare_no_columns(schema: dict[str, Any]) -> None:
    assert stream_fields(schema, STREAM) == StreamFields((), frozenset())


@each("schema", [{"type": "array"}, {"type": ["string", "null"]}, {"properties": ["a"]}])
def test_a_stream_that_is_no_object_is_refused(schema: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r'^Stream "shop\.users": '):
        stream_fields(schema, STREAM)


def test_required_are_listed_columns_that_are_never_null() -> None:
    schema = {
        "type": ["null", "object"],
        "properties": {
            "plain": STRING,
            "listed_null": {"type": ["null", "string"]},
            "enum_null": {"type": "string", "enum": ["a", None]},
            "option_null": one_of(STRING, {"type": "null"}),
            "free": STRING,
        },
        "required": ["plain", "listed_null", "enum_null", "option_null", "undeclared", 7],
    }
    assert stream_fields(schema, STREAM).required == {"plain"}


@each("required", [None, True, "id"])
def test_other_forms_of_required_mean_nothing(required: object) -> None:
    assert stream_fields({"properties": {"id": STRING}, "required": required}, STREAM).required == frozenset()


def objects(levels: int) -> dict[str, Any]:
    """That many objects in each other, and a string inside."""
    nested: dict[str, Any] = STRING
    for _ in range(levels):
        nested = properties(inner=nested)
    return nested


def arrays(levels: int) -> dict[str, Any]:
    nested: dict[str, Any] = STRING
    for _ in range(levels):
        nested = {"type": "array", "items": nested}
    return nested


def nullable(levels: int) -> dict[str, Any]:
    nested: dict[str, Any] = STRING
    for _ in range(levels):
        nested = {"type": ["null", "object"], "properties": {"inner": nested}}
    return nested


def unions(levels: int) -> dict[str, Any]:
    """Unions of text and the next object, which are two levels each."""
    nested: dict[str, Any] = STRING
    for _ in range(levels // 2):
        nested = {"type": ["object", "string"], "properties": {"inner": nested}}
    return nested


def options(levels: int) -> dict[str, Any]:
    nested: dict[str, Any] = STRING
    for _ in range(levels // 2):
        nested = one_of(properties(inner=nested), STRING)
    return nested


DEEP = [objects, arrays, nullable, unions, options]


@each("deep", DEEP)
def test_types_nest_up_to_a_limit(deep: Callable[[int], dict[str, Any]]) -> None:
    within = deep(MOST_LEVELS - 1)
    (field,) = stream_fields(properties(tree=within), STREAM).fields
    assert pickle.loads(pickle.dumps(field)) == field
    for levels in (MOST_LEVELS + 1, 200, 400):
        with pytest.raises(ConfigError, match=rf'^Stream "shop\.users", field "tree": .* deeper than the {MOST_LEVELS} levels'):
            stream_fields(properties(tree=deep(levels)), STREAM)
        (text,) = stream_fields({**properties(tree=deep(levels)), "required": ["tree"]}, STREAM, unfit_as_text=True).fields
        assert text.type is Scalar.STRING


def test_a_type_listed_twice_is_read_once() -> None:
    nested: dict[str, Any] = INTEGER
    for _ in range(MOST_LEVELS - 1):
        nested = {"type": ["object", "object"], "properties": {"inner": nested}}
    with cpu_limit(10):
        stream_fields(properties(tree=nested), STREAM)

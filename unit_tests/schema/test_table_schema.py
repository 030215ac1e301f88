from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from destination_s3_spark.errors import Bug, ConfigError
from destination_s3_spark.schema.airbyte_type import AirbyteType, Array, Field, Object, Scalar, Union
from destination_s3_spark.schema.json_schema import StreamFields, stream_fields
from destination_s3_spark.schema.names import safe_name
from destination_s3_spark.schema.placement import SchemaChange, SchemaPolicy
from destination_s3_spark.schema.schema_event import from_event, to_event
from destination_s3_spark.schema.table_schema import Evolution, TableField, TableSchema, evolve, plan_fields
from destination_s3_spark.schema.type_merge import Change, ChangeKind
from destination_s3_spark.stream_id import StreamId
from unit_tests.cases import each
from unit_tests.sampling import examples

STREAM = StreamId("shop", "users")
FAIL = SchemaPolicy(SchemaChange.FAIL)
ORDER_CASES = json.loads((Path(__file__).parent / "data" / "column_order.json").read_text())["cases"]


def declared(properties: dict[str, Any], required: tuple[str, ...] = ()) -> StreamFields:
    schemas = {name: {"type": schema} if isinstance(schema, str) else schema for name, schema in properties.items()}
    return stream_fields({"type": "object", "properties": schemas, "required": list(required)}, STREAM)


def history(*versions: StreamFields) -> Evolution:
    evolution = evolve(None, versions[0], STREAM, FAIL)
    for version in versions[1:]:
        evolution = evolve(evolution.schema, version, STREAM, FAIL)
    return evolution


def names(schema: TableSchema) -> list[str]:
    return [field.name for field in schema.fields]


def members(schema: TableSchema, source: str) -> list[str]:
    column = schema.column(source)
    assert column is not None
    assert isinstance(column.type, Object)
    return [member.name for member in column.type.fields]


def nested(**properties: str) -> dict[str, Any]:
    return {"type": "object", "properties": {name: {"type": kind} for name, kind in properties.items()}}


@each("case", ORDER_CASES)
def test_columns_are_ordered_as_snowplow_orders_them(case: dict[str, Any]) -> None:
    versions = [stream_fields(schema, STREAM) for schema in case["versions"]]
    # Snowplow flattens objects into columns; here an object is one column, at the place of its first leaf.
    expected = list(dict.fromkeys(path[0] for path in case["columns"]))
    if "became union" in case["id"]:
        with pytest.raises(ConfigError, match='"foo" was'):
            history(*versions)
    else:
        assert [field.source for field in history(*versions).schema.fields] == expected


def test_the_first_schema_puts_required_columns_first_and_sorts_by_name() -> None:
    schema = history(declared({"b": "string", "Z": "string", "_c": "string", "a": "string", "m": "string"}, required=("m", "b"))).schema
    assert names(schema) == ["b", "m", "Z", "_c", "a"]
    assert [field.id for field in schema.fields] == [1, 2, 3, 4, 5]
    assert [field.required for field in schema.fields] == [True, True, False, False, False]
    assert (schema.schema_id, str(schema.version)) == (0, "1-0-0")


def test_the_first_schema_has_no_changes() -> None:
    evolution = history(declared({"id": "integer"}))
    assert (evolution.changes, str(evolution.schema.version)) == ((), "1-0-0")


def test_additions_are_appended_required_first_then_by_name() -> None:
    evolution = history(declared({"m": "string"}), declared({"m": "string", "a": "string", "z": "integer", "b": "string"}, required=("z",)))
    assert names(evolution.schema) == ["m", "z", "a", "b"]
    assert [field.added_in for field in evolution.schema.fields] == [0, 1, 1, 1]
    assert evolution.changes == tuple(
        Change(ChangeKind.KEY_ADDITION, (name,), None, Scalar.INTEGER if name == "z" else Scalar.STRING) for name in ("z", "a", "b")
    )
    assert str(evolution.schema.version) == "1-0-1"


def test_an_identical_declaration_changes_nothing_whatever_its_order() -> None:
    first = history(declared({"a": "string", "o": nested(x="string", y="number"), "u": {"type": ["string", "integer"]}})).schema
    again = evolve(
        first, declared({"u": {"type": ["integer", "string"]}, "o": nested(y="number", x="string"), "a": "string"}), STREAM, FAIL
    )
    assert again.schema is first
    assert again.changes == ()


def test_becoming_required_changes_nothing() -> None:
    first = history(declared({"a": "string"})).schema
    assert evolve(first, declared({"a": "string"}, required=("a",)), STREAM, FAIL).schema is first


def test_a_removed_column_stays_and_is_recorded_once() -> None:
    both, one = declared({"a": "string", "b": "string"}), declared({"b": "string"})
    removed = history(both, one)
    assert names(removed.schema) == ["a", "b"]
    assert [field.present for field in removed.schema.fields] == [False, True]
    assert removed.changes == (Change(ChangeKind.KEY_REMOVAL, ("a",), Scalar.STRING, None),)
    assert str(removed.schema.version) == "1-0-1"
    assert evolve(removed.schema, one, STREAM, FAIL).schema is removed.schema


def test_a_column_that_returns_is_where_it_was() -> None:
    both = declared({"a": "string", "b": "string"})
    returned = history(both, declared({"b": "string"}), both)
    assert names(returned.schema) == ["a", "b"]
    assert [field.id for field in returned.schema.fields] == [1, 2]
    assert all(field.present for field in returned.schema.fields)
    assert returned.changes == (Change(ChangeKind.KEY_RETURN, ("a",), None, Scalar.STRING),)


def test_a_new_column_never_renames_an_old_one() -> None:
    evolution = history(declared({"a b": "string"}), declared({"a b": "string", "a_b": "string", "A_B": "string"}))
    assert {field.source: field.name for field in evolution.schema.fields} == {"a b": "a_b", "a_b": "a_b_1", "A_B": "A_B_2"}


def test_of_columns_that_differ_in_case_the_first_declared_keeps_its_name_and_a_later_order_changes_nothing() -> None:
    evolution = history(declared({"id": "integer", "ID": "string"}), declared({"ID": "string", "Id": "string", "id": "integer"}))
    assert {field.source: field.name for field in evolution.schema.fields} == {"id": "id", "ID": "ID_1", "Id": "Id_2"}


def test_members_that_differ_in_case_are_named_alike_and_keep_their_names_in_another_column() -> None:
    cased = nested(id="string", ID="string", Id="string")
    text = evolve(None, declared({"o": "string"}), STREAM, FAIL)
    beside = evolve(text.schema, declared({"o": cased}), STREAM, SchemaPolicy())
    moved = evolve(beside.schema, declared({"o": cased}), STREAM, SchemaPolicy(SchemaChange.REWRITE))
    for evolution, place in ((beside, 1), (moved, 0)):
        column = evolution.schema.fields[place].type
        assert isinstance(column, Object)
        assert {member.source: member.name for member in column.fields} == {"id": "id", "ID": "ID_1", "Id": "Id_2"}


def test_a_table_whose_columns_were_named_by_an_earlier_rule_keeps_their_names() -> None:
    members = Object((Field("ID", "ID", Scalar.STRING), Field("id", "id_1", Scalar.STRING)))
    columns: list[tuple[str, str, AirbyteType]] = [("ID", "ID", Scalar.STRING), ("id_1", "id", Scalar.STRING), ("o", "o", members)]
    earlier = TableSchema(0, tuple(TableField(number, *column, 0) for number, column in enumerate(columns, 1)))
    now = declared({"id": "string", "ID": "string", "o": nested(id="string", ID="string", iD="string")})
    evolution = evolve(earlier, now, STREAM, FAIL)
    assert names(evolution.schema) == ["ID", "id_1", "o"]
    column = evolution.schema.fields[2].type
    assert isinstance(column, Object)
    assert {member.source: member.name for member in column.fields} == {"ID": "ID", "id": "id_1", "iD": "iD_2"}


def test_members_of_objects_keep_their_place_and_new_ones_are_appended() -> None:
    evolution = history(
        declared({"o": nested(mb="string", da="string")}),
        declared({"o": nested(mb="string", za="string", az="string")}),
    )
    assert members(evolution.schema, "o") == ["da", "mb", "az", "za"]
    assert [change.path for change in evolution.changes] == [("o", "az"), ("o", "za")]
    assert evolution.schema.fields[0].added_in == 0


def test_members_inside_of_arrays_and_unions_are_merged_too() -> None:
    def items(**properties: str) -> StreamFields:
        choice = {"oneOf": [nested(**properties), {"type": "string"}]}
        return declared({"l": {"type": "array", "items": nested(**properties)}, "u": choice})

    evolution = history(items(b="string"), items(a="integer"))
    both = Object((Field("b", "b", Scalar.STRING), Field("a", "a", Scalar.INTEGER)))
    assert [field.type for field in evolution.schema.fields] == [Array(both), Union((both, Scalar.STRING))]
    assert [change.path for change in evolution.changes] == [("l", "[]", "a"), ("u", "a")]


def test_a_union_takes_further_options_at_its_end_as_a_revision() -> None:
    evolution = history(
        declared({"a": "string", "u": {"type": ["string", "integer"]}}),
        declared({"u": {"type": ["boolean", "integer", "string"]}, "b": "string"}),
    )
    union = Union((Scalar.STRING, Scalar.INTEGER, Scalar.BOOLEAN))
    assert evolution.schema.fields[1].type == union
    assert Change(ChangeKind.TYPE_WIDENING, ("u",), Union((Scalar.STRING, Scalar.INTEGER)), union) in evolution.changes
    assert str(evolution.schema.version) == "1-1-0"


def test_labels_count_additions_within_a_revision() -> None:
    union: Any = {"type": ["string", "integer"]}
    wider: Any = {"type": ["string", "integer", "boolean"]}
    letters = dict.fromkeys("abc", "string")
    versions = [{"u": union}, {"u": union, "a": "string"}, {"u": wider, "a": "string"}, {"u": wider, "a": "string", "b": "string"}]
    versions.append({"u": wider, **letters})
    evolutions = [history(*(declared(version) for version in versions[:count])) for count in range(1, 6)]
    assert [str(evolution.schema.version) for evolution in evolutions] == ["1-0-0", "1-0-1", "1-1-0", "1-1-1", "1-1-2"]


def test_a_union_takes_one_of_its_options_declared_alone() -> None:
    first = history(declared({"u": {"type": ["string", "integer"]}})).schema
    assert evolve(first, declared({"u": "integer"}), STREAM, FAIL).schema is first


@each(
    ("before", "after", "said"),
    [
        ({"c": "integer"}, {"c": "string"}, '"c" was integer and is now string'),
        ({"c": "integer"}, {"c": "number"}, '"c" was integer and is now number'),
        ({"c": "string"}, {"c": "object"}, '"c" was string and is now schemaless_object'),
        ({"c": "object"}, {"c": nested(a="string")}, '"c" was schemaless_object and is now object<'),
        ({"c": {"type": "array", "items": {"type": "string"}}}, {"c": {"type": "array"}}, "and is now schemaless_array"),
        ({"o": nested(a="string")}, {"o": nested(a="integer")}, '"o.a" was string and is now integer'),
        ({"c": "string"}, {"c": {"type": ["string", "integer"]}}, "is now union<"),
    ],
)
def test_another_type_is_refused_with_stream_column_and_both_types(before: dict[str, Any], after: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as raised:
        history(declared(before), declared(after))
    assert raised.value.message.startswith('Stream "shop.users": ')
    assert said in raised.value.message
    assert "set tables.schema_change to recover" in raised.value.message
    assert "run a refresh" in raised.value.message
    assert raised.value.stream == STREAM


def test_all_columns_of_another_type_are_named_at_once() -> None:
    with pytest.raises(ConfigError, match='"a" was integer and is now string; "b" was string and is now boolean'):
        history(declared({"a": "integer", "b": "string", "c": "string"}), declared({"a": "string", "b": "boolean", "c": "string"}))


def test_the_arrow_schema_has_the_meta_columns_then_the_data_columns() -> None:
    schema = history(declared({"b": "integer", "a": {"type": "string", "format": "date"}})).schema.arrow
    assert schema.names == ["_airbyte_raw_id", "_airbyte_extracted_at", "_airbyte_meta", "_airbyte_generation_id", "a", "b"]
    assert schema.field("a") == pa.field("a", pa.date32())
    assert [field.nullable for field in schema] == [False] * 4 + [True] * 2


def test_planned_fields_have_the_names_and_types_of_the_table() -> None:
    first = declared({"x y": "string", "gone": "string", "o": nested(b="string")})
    second = declared({"o": nested(a="string"), "x_y": "integer"})
    schema = history(first, second).schema
    assert plan_fields(schema, second.fields) == (
        Field("o", "o", Object((Field("b", "b", Scalar.STRING), Field("a", "a", Scalar.STRING)))),
        Field("x_y", "x_y_1", Scalar.INTEGER),
    )


def test_planning_a_column_the_table_lacks_is_a_bug() -> None:
    with pytest.raises(Bug):
        plan_fields(history(declared({"a": "string"})).schema, declared({"b": "string"}).fields)


def test_a_table_without_columns_may_get_some() -> None:
    evolution = history(declared({}), declared({"a": "string"}))
    assert names(evolution.schema) == ["a"]
    assert evolution.schema.fields[0].id == 1


SOURCES = ["", "a", "A", "a_1", "a b", "a_b", "ä", "_airbyte_meta", "_AIRBYTE_META_1", "z", "é", "1"]
SCALARS = ["string", "integer", "boolean"]


def random_properties(depth: int) -> st.SearchStrategy[dict[str, Any]]:
    """Properties whose kind depends on their name alone, so that a history of them never gives a column another type."""

    def schema_of(source: str) -> st.SearchStrategy[Any]:
        kind = SOURCES.index(source) % 4
        if kind == 0 or depth == 0:
            return st.just({"type": "string"})
        if kind == 1:
            return st.lists(st.sampled_from(SCALARS), min_size=2, unique=True).map(lambda types: {"type": types})
        inner = random_properties(depth - 1).filter(bool).map(lambda properties: {"type": "object", "properties": properties})
        return inner if kind == 2 else inner.map(lambda items: {"type": "array", "items": items})

    sources = st.lists(st.sampled_from(SOURCES), unique=True, max_size=6)
    return sources.flatmap(lambda chosen: st.fixed_dictionaries({source: schema_of(source) for source in chosen}))


VERSIONS = st.lists(st.tuples(random_properties(2), st.lists(st.sampled_from(SOURCES), max_size=3)), min_size=1, max_size=5)


def assert_nothing_moved(old: AirbyteType, new: AirbyteType) -> None:
    match old, new:
        case Object(before), Object(after):
            assert [(member.source, member.name) for member in after[: len(before)]] == [(member.source, member.name) for member in before]
            assert len({member.name.casefold() for member in after}) == len(after)
            for earlier, later in zip(before, after, strict=False):
                assert_nothing_moved(earlier.type, later.type)
        case Array(before), Array(after):
            assert_nothing_moved(before, after)
        case Union(before), Union(after):
            assert after[: len(before)] == before
        case _:
            assert old == new


def as_object(schema: TableSchema) -> Object:
    return Object(tuple(Field(field.source, field.name, field.type) for field in schema.fields))


@examples(150)
@given(VERSIONS)
def test_over_any_history_no_column_ever_moves(versions: list[tuple[dict[str, Any], list[str]]]) -> None:
    schema: TableSchema | None = None
    for properties, required in versions:
        incoming = declared(properties, tuple(required))
        evolution = evolve(schema, incoming, STREAM, FAIL)
        if schema is not None:
            assert_nothing_moved(as_object(schema), as_object(evolution.schema))
            assert evolution.schema.schema_id == schema.schema_id + bool(evolution.changes)
        schema = evolution.schema
        assert [field.id for field in schema.fields] == list(range(1, len(schema.fields) + 1))
        assert len({name.casefold() for name in schema.arrow.names}) == len(schema.arrow.names)
        assert evolve(schema, incoming, STREAM, FAIL).schema is schema
        assert {field.source for field in plan_fields(schema, incoming.fields)} == set(properties)
        assert from_event(to_event(evolution, "append", [], [])) == schema


@examples(50)
@given(random_properties(2), st.randoms(use_true_random=False))
def test_the_order_of_properties_in_a_catalog_does_not_matter_but_for_names_that_clash(
    properties: dict[str, Any], chance: random.Random
) -> None:
    assume(len({safe_name(source).casefold() for source in properties}) == len(properties))
    shuffled = list(properties)
    chance.shuffle(shuffled)
    other = declared({source: properties[source] for source in shuffled})
    assert history(other).schema == history(declared(properties)).schema

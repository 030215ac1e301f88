"""What holds over any history of declared schemas, whatever the policies were on the way."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from destination_s3_spark.schema.airbyte_type import AirbyteType, Array, Object, Union, option_name, type_to_text
from destination_s3_spark.schema.arrow import schema_from_text
from destination_s3_spark.schema.field_ids import FIELD_ID
from destination_s3_spark.schema.json_schema import StreamFields, stream_fields
from destination_s3_spark.schema.placement import SchemaChange, SchemaPolicy
from destination_s3_spark.schema.schema_event import from_event, to_event
from destination_s3_spark.schema.table_schema import Evolution, TableField, TableSchema, evolve, plan_fields
from destination_s3_spark.schema.type_merge import ChangeKind, TypeConflictError, merge_types
from destination_s3_spark.stream_id import StreamId
from unit_tests.sampling import examples

STREAM = StreamId("shop", "users")
SOURCES = ["a", "A", "a b", "_airbyte_meta", "id"]
SCALARS = ["string", "integer", "boolean", "number"]


def schemas(depth: int) -> st.SearchStrategy[dict[str, Any]]:
    scalar = st.sampled_from(SCALARS).map(lambda kind: {"type": kind})
    unions = st.lists(st.sampled_from(SCALARS), min_size=2, max_size=3, unique=True).map(lambda kinds: {"type": kinds})
    if depth == 0:
        return scalar | unions
    objects = st.dictionaries(st.sampled_from(SOURCES[:3]), schemas(depth - 1), min_size=1, max_size=3)
    records = objects.map(lambda properties: {"type": "object", "properties": properties})
    return scalar | unions | records | records.map(lambda items: {"type": "array", "items": items}) | st.just({"type": "object"})


def declaration(properties: dict[str, Any], required: list[str]) -> StreamFields:
    return stream_fields({"type": "object", "properties": properties, "required": required}, STREAM)


DECLARATIONS = st.builds(
    declaration, st.dictionaries(st.sampled_from(SOURCES), schemas(2), max_size=4), st.lists(st.sampled_from(SOURCES), max_size=2)
)
TOLERANT = [SchemaChange.RECOVER, SchemaChange.REWRITE, SchemaChange.KEEP]
POLICIES = st.builds(
    SchemaPolicy, st.sampled_from(TOLERANT), st.sampled_from([frozenset[str](), frozenset({"id"}), frozenset({"a", "id"})]), st.booleans()
)


def steps(policies: st.SearchStrategy[SchemaPolicy]) -> st.SearchStrategy[list[tuple[StreamFields, SchemaPolicy]]]:
    return st.lists(st.tuples(DECLARATIONS, policies), min_size=1, max_size=7)


def recorded(evolution: Evolution) -> dict[str, Any]:
    event: dict[str, Any] = json.loads(json.dumps(to_event(evolution, "append", (), ())))
    return event


def assert_in_order(schema: TableSchema) -> None:
    assert [field.id for field in schema.fields] == list(range(1, len(schema.fields) + 1))
    assert len({name.casefold() for name in schema.arrow.names}) == len(schema.arrow.names)
    bases = {field.id: field.source for field in schema.fields if field.recovered_from is None}
    assert len(set(bases.values())) == len(bases)
    for field in schema.fields:
        assert field.recovered_from is None or (bases[field.recovered_from] == field.source and field.recovered_from < field.id)
    assert max(Counter(field.source for field in schema.fields if field.present).values(), default=0) <= 1


def assert_ids_are_new(before: TableSchema | None, after: TableSchema) -> None:
    """Each column, member and element has an id of its own: its earlier one while its type only grows, else one that never was."""
    assert len(set(after.field_ids)) == len(after.field_ids)
    assert after.last_field_id >= max(after.field_ids)
    if before is None:
        return
    new = set(after.field_ids) - set(before.field_ids)
    assert all(number > before.last_field_id for number in new)
    old, now = ({field.name: (field.metadata or {})[FIELD_ID] for field in schema.arrow} for schema in (before, after))
    types = {field.name: field.type for field in before.columns}
    for field in after.columns:
        if field.type == types.get(field.name):
            assert now[field.name] == old[field.name]


def assert_nothing_moved(before: TableSchema, evolution: Evolution) -> None:
    after = evolution.schema
    assert after.schema_id == before.schema_id + bool(evolution.changes)
    assert (after is before) == (not evolution.changes)
    for old, new in zip(before.fields, after.fields, strict=False):
        kept = (old.id, old.name, old.source, old.added_in, old.required, old.recovered_from)
        assert (new.id, new.name, new.source, new.added_in, new.required, new.recovered_from) == kept
        if old.source not in evolution.retyped:
            assert_only_grown(old.type, new.type)
    assert set(evolution.retyped) <= {field.source for field in before.fields}


def assert_only_grown(old: AirbyteType, new: AirbyteType) -> None:
    match old, new:
        case Object(), Object():
            assert [(m.source, m.name) for m in new.fields[: len(old.fields)]] == [(m.source, m.name) for m in old.fields]
            for before, after in zip(old.fields, new.fields, strict=False):
                assert_only_grown(before.type, after.type)
        case Array(), Array():
            assert_only_grown(old.items, new.items)
        case Union(), Union():
            assert [option_name(option) for option in new.options[: len(old.options)]] == [option_name(option) for option in old.options]
            for option, option_after in zip(old.options, new.options, strict=False):
                assert_only_grown(option, option_after)
        case _:
            assert old == new


def takes(column: AirbyteType, declared: AirbyteType) -> bool:
    try:
        return not merge_types(column, declared, ()).changes
    except TypeConflictError:
        return False


def assert_follows(evolution: Evolution, declared: StreamFields, policy: SchemaPolicy) -> None:
    """Every declared field has one column, of its type unless the policy says that types do not matter."""
    schema = evolution.schema
    assert {field.source for field in schema.fields if field.present} == {field.source for field in declared.fields}
    for field, planned in zip(declared.fields, plan_fields(schema, declared.fields), strict=True):
        column = schema.column(field.source)
        assert column is not None
        assert (planned.source, planned.name, planned.type) == (field.source, column.name, column.type)
        if policy.change is not SchemaChange.KEEP or policy.in_place(field.source):
            assert takes(column.type, field.type)
        if policy.in_place(field.source):
            assert column.recovered_from is None
            assert all(other.emptied for other in schema.fields if other.recovered_from == column.id)
    assert evolve(schema, declared, STREAM, policy).schema is schema


@examples(250)
@given(steps(POLICIES))
def test_over_any_history_and_any_policies_no_column_moves(history: list[tuple[StreamFields, SchemaPolicy]]) -> None:
    schema: TableSchema | None = None
    for declared, policy in history:
        evolution = evolve(schema, declared, STREAM, policy)
        if schema is not None:
            assert_nothing_moved(schema, evolution)
        assert_ids_are_new(schema, evolution.schema)
        assert_in_order(evolution.schema)
        assert_follows(evolution, declared, policy)
        event = recorded(evolution)
        assert schema_from_text(event["arrowSchema"]).equals(evolution.schema.arrow, check_metadata=True)
        if schema is None or evolution.changes:
            assert from_event(event) == evolution.schema
        schema = from_event(event) if evolution.changes or schema is None else evolution.schema


@examples(150)
@given(DECLARATIONS, DECLARATIONS, st.integers(2, 5))
def test_flipping_between_two_schemas_adds_columns_only_once(first: StreamFields, second: StreamFields, times: int) -> None:
    policy = SchemaPolicy()
    start = evolve(None, first, STREAM, policy).schema
    once = evolve(evolve(start, second, STREAM, policy).schema, first, STREAM, policy).schema
    schema = once
    for _ in range(times):
        flipped = evolve(schema, second, STREAM, policy).schema
        schema = evolve(flipped, first, STREAM, policy).schema
    assert shape(schema) == shape(once)
    added = Counter(field.source for field in schema.fields if field.recovered_from is not None)
    assert max(added.values(), default=0) <= 1
    assert [field for field in schema.fields if field.present] == [
        field for field in schema.fields if field.recovered_from is None and field.source in {declared.source for declared in first.fields}
    ]


def shape(schema: TableSchema) -> list[tuple[str, str]]:
    return [(field.name, type_to_text(field.type)) for field in schema.fields]


@given(steps(st.just(SchemaPolicy())))
def test_without_rewriting_every_stored_value_stays_where_it_is(history: list[tuple[StreamFields, SchemaPolicy]]) -> None:
    schema: TableSchema | None = None
    landed: dict[int, TableField] = {}
    for declared, policy in history:
        evolution = evolve(schema, declared, STREAM, policy)
        assert evolution.retyped == ()
        assert all(change.kind is not ChangeKind.RETYPE for change in evolution.changes)
        schema = evolution.schema
        for number, column in landed.items():
            assert_only_grown(column.type, schema.fields[number - 1].type)
        landed.update({field.id: field for field in schema.fields if field.present})

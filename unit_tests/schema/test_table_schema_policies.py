"""What each policy makes of columns whose declared type is another one than the table's."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest

from destination_s3_spark.errors import ConfigError
from destination_s3_spark.schema.airbyte_type import Array, Field, Object, Scalar, Union
from destination_s3_spark.schema.draft import UnionConflicts
from destination_s3_spark.schema.json_schema import StreamFields, stream_fields
from destination_s3_spark.schema.placement import SchemaChange, SchemaPolicy
from destination_s3_spark.schema.schema_event import from_event, to_event
from destination_s3_spark.schema.table_schema import Evolution, TableField, TableSchema, evolve, plan_fields, replayed_fields
from destination_s3_spark.schema.type_merge import Change, ChangeKind
from destination_s3_spark.stream_id import StreamId
from unit_tests.cases import each

STREAM = StreamId("shop", "users")
RECOVER, REWRITE, FAIL, KEEP = (SchemaPolicy(change) for change in SchemaChange)
REPLACE = SchemaPolicy(SchemaChange.FAIL, replace=True)


def fixed(source: str, change: SchemaChange = SchemaChange.RECOVER) -> SchemaPolicy:
    return SchemaPolicy(change, frozenset({source}))


def declared(**properties: Any) -> StreamFields:
    schemas = {name: {"type": schema} if isinstance(schema, str) else schema for name, schema in properties.items()}
    return stream_fields({"type": "object", "properties": schemas}, STREAM)


def nested(**properties: str) -> dict[str, Any]:
    return {"type": "object", "properties": {name: {"type": kind} for name, kind in properties.items()}}


def contradicting(conflicts: UnionConflicts, **ids: str) -> StreamFields:
    options = {"oneOf": [nested(id=kind) for kind in ids.values()]}
    return stream_fields({"type": "object", "properties": {"o": options}}, STREAM, conflicts=conflicts)


def history(policy: SchemaPolicy, *versions: StreamFields) -> Evolution:
    return after(evolve(None, versions[0], STREAM, policy).schema, policy, *versions[1:])


def after(schema: TableSchema, policy: SchemaPolicy, *versions: StreamFields) -> Evolution:
    evolution = Evolution(schema, ())
    for version in versions:
        evolution = evolve(evolution.schema, version, STREAM, policy)
    return evolution


def hash_of(kind: Any) -> str:
    return hashlib.sha256(json.dumps(kind, separators=(",", ":"), sort_keys=True).encode()).hexdigest()[:8]


def names(schema: TableSchema) -> list[str]:
    return [field.name for field in schema.fields]


def present(schema: TableSchema) -> list[str]:
    return [field.name for field in schema.fields if field.present]


STRING, INTEGER, BOTH = declared(c="string"), declared(c="integer"), declared(c={"type": ["string", "integer"]})
RECOVERED_INTEGER = f"c_recovered_2_0_0_{hash_of('integer')}"


def test_recovery_keeps_the_column_and_adds_one_named_by_version_and_type() -> None:
    evolution = history(RECOVER, STRING, INTEGER)
    base, recovered = evolution.schema.fields
    assert base == TableField(1, "c", "c", Scalar.STRING, 0, present=False)
    assert recovered == TableField(2, RECOVERED_INTEGER, "c", Scalar.INTEGER, 1, recovered_from=1)
    assert evolution.changes == (Change(ChangeKind.RECOVERY, ("c",), Scalar.STRING, Scalar.INTEGER),)
    assert (str(evolution.schema.version), evolution.retyped) == ("2-0-0", ())
    assert plan_fields(evolution.schema, INTEGER.fields) == (Field("c", RECOVERED_INTEGER, Scalar.INTEGER),)


def test_a_recovered_column_keeps_being_required_only_for_its_place() -> None:
    both = {"c": {"type": "integer"}, "a": {"type": "string"}}
    second = stream_fields({"type": "object", "properties": both, "required": ["c"]}, STREAM)
    assert names(history(RECOVER, STRING, second).schema) == ["c", RECOVERED_INTEGER, "a"]


def test_a_type_that_comes_back_finds_its_column_and_flipping_adds_one_column_in_total() -> None:
    schema = history(RECOVER, STRING).schema
    for number, (version, name) in enumerate([(INTEGER, RECOVERED_INTEGER), (STRING, "c")] * 4, start=2):
        evolution = evolve(schema, version, STREAM, RECOVER)
        schema = evolution.schema
        assert names(schema) == ["c", RECOVERED_INTEGER]
        assert present(schema) == [name]
        assert [change.kind for change in evolution.changes] == [ChangeKind.RECOVERY]
        assert str(evolution.schema.version) == f"{number}-0-0"


def test_every_further_type_has_a_column_of_its_own() -> None:
    evolution = history(RECOVER, STRING, INTEGER, declared(c="boolean"), INTEGER)
    assert names(evolution.schema) == ["c", RECOVERED_INTEGER, f"c_recovered_3_0_0_{hash_of('boolean')}"]
    assert present(evolution.schema) == [RECOVERED_INTEGER]
    assert [field.recovered_from for field in evolution.schema.fields] == [None, 1, 1]


def test_a_recovered_object_takes_further_members_instead_of_yet_another_column() -> None:
    first, second = declared(c=nested(a="string")), declared(c=nested(a="integer"))
    schema = history(RECOVER, first, second, declared(c=nested(a="integer", b="string"))).schema
    assert [field.type for field in schema.fields] == [
        Object((Field("a", "a", Scalar.STRING),)),
        Object((Field("a", "a", Scalar.INTEGER), Field("b", "b", Scalar.STRING))),
    ]


def test_a_string_that_was_a_union_for_a_while_goes_back_to_the_string() -> None:
    schema = history(RECOVER, STRING, BOTH, STRING).schema
    assert len(schema.fields) == 2
    assert present(schema) == ["c"]


def test_a_removed_key_comes_back_to_the_column_that_takes_its_type() -> None:
    without = declared(other="string")
    removed = history(RECOVER, declared(c="string", other="string"), declared(c="integer", other="string"), without)
    assert present(removed.schema) == ["other"]
    assert removed.changes == (Change(ChangeKind.KEY_REMOVAL, ("c",), Scalar.INTEGER, None),)
    back = after(removed.schema, RECOVER, declared(c="string", other="string"))
    assert present(back.schema) == ["c", "other"]
    assert back.changes == (Change(ChangeKind.KEY_RETURN, ("c",), None, Scalar.STRING),)


def test_a_recovered_column_never_takes_the_name_of_another() -> None:
    evolution = history(RECOVER, STRING, declared(c="integer", **{RECOVERED_INTEGER.upper(): "string", RECOVERED_INTEGER: "string"}))
    found = {field.name: (field.source, field.recovered_from) for field in evolution.schema.fields}
    assert found.pop("c") == ("c", None)
    assert found.pop(RECOVERED_INTEGER) == ("c", 1)
    assert {source for source, _ in found.values()} == {RECOVERED_INTEGER, RECOVERED_INTEGER.upper()}
    assert len({name.casefold() for name in names(evolution.schema)}) == 4


def test_the_column_of_a_key_is_where_its_values_go() -> None:
    schema = history(RECOVER, STRING, INTEGER).schema
    column = schema.column("c")
    assert column is not None
    assert column.name == RECOVERED_INTEGER
    base = after(schema, RECOVER, declared(d="string")).schema.column("c")
    assert base is not None
    assert base.name == "c"
    assert schema.column("nothing") is None


def test_rewriting_gives_the_column_the_new_type_in_place() -> None:
    evolution = history(REWRITE, declared(c="string", d="string"), declared(c="integer", d="string"))
    assert evolution.schema.fields[0] == TableField(1, "c", "c", Scalar.INTEGER, 0)
    assert evolution.changes == (Change(ChangeKind.RETYPE, ("c",), Scalar.STRING, Scalar.INTEGER),)
    assert (str(evolution.schema.version), evolution.retyped) == ("2-0-0", ("c",))


def test_a_retyped_column_is_listed_once() -> None:
    evolution = history(REWRITE, STRING, INTEGER)
    again = evolve(evolution.schema, INTEGER, STREAM, REWRITE)
    assert again.schema is evolution.schema
    assert again.retyped == ()


def test_rewriting_an_object_keeps_the_place_of_its_members_and_those_no_longer_declared() -> None:
    evolution = history(REWRITE, declared(c=nested(a="string", b="string")), declared(c=nested(z="string", b="integer")))
    assert evolution.schema.fields[0].type == Object(
        (Field("a", "a", Scalar.STRING), Field("b", "b", Scalar.INTEGER), Field("z", "z", Scalar.STRING))
    )
    assert evolution.changes == (
        Change(ChangeKind.RETYPE, ("c", "b"), Scalar.STRING, Scalar.INTEGER),
        Change(ChangeKind.KEY_ADDITION, ("c", "z"), None, Scalar.STRING),
    )
    assert evolution.retyped == ("c",)


def test_rewriting_an_object_or_array_to_a_union_keeps_members_no_longer_declared() -> None:
    text, a, b = {"type": "string"}, nested(a="string", b="integer"), nested(b="string")
    for old, new in ((a, b), ({"type": "array", "items": a}, {"type": "array", "items": b})):
        evolution = history(REWRITE, declared(c=old), declared(c={"oneOf": [text, new]}))
        taken = Object((Field("a", "a", Scalar.STRING), Field("b", "b", Scalar.STRING)))
        assert evolution.schema.fields[0].type == Union((Scalar.STRING, taken if old is a else Array(taken)))
        assert not evolve(evolution.schema, declared(c={"oneOf": [text, new]}), STREAM, REWRITE).changes


def test_rewriting_takes_recovered_columns_back_into_the_base_column_once() -> None:
    recovered = history(RECOVER, STRING, INTEGER).schema
    evolution = evolve(recovered, INTEGER, STREAM, REWRITE)
    assert [(field.type, field.present, field.emptied) for field in evolution.schema.fields] == [
        (Scalar.INTEGER, True, False),
        (Scalar.INTEGER, False, True),
    ]
    assert evolution.retyped == ("c",)
    assert evolve(evolution.schema, INTEGER, STREAM, REWRITE).schema is evolution.schema


def test_members_only_a_recovered_column_has_find_their_place_in_the_base_column() -> None:
    recovered = history(RECOVER, STRING, declared(c=nested(a="string", b="string"))).schema
    evolution = evolve(recovered, declared(c=nested(b="integer", z="string")), STREAM, REWRITE)
    base = evolution.schema.fields[0].type
    assert isinstance(base, Object)
    assert {member.source: member.type for member in base.fields} == {"a": Scalar.STRING, "b": Scalar.INTEGER, "z": Scalar.STRING}


def test_a_base_column_that_fits_again_still_takes_its_recovered_columns_back() -> None:
    flipped = history(RECOVER, STRING, INTEGER, STRING).schema
    evolution = evolve(flipped, STRING, STREAM, fixed("c"))
    assert evolution.retyped == ("c",)
    assert evolution.changes == (Change(ChangeKind.RETYPE, ("c",), Scalar.INTEGER, Scalar.STRING),)


def test_a_recovered_column_that_was_emptied_is_used_again() -> None:
    emptied = after(history(RECOVER, STRING, INTEGER).schema, REWRITE, STRING).schema
    again = evolve(emptied, INTEGER, STREAM, RECOVER).schema
    assert present(again) == [RECOVERED_INTEGER]
    assert [field.emptied for field in again.fields] == [False, False]


@each("change", [SchemaChange.RECOVER, SchemaChange.REWRITE, SchemaChange.KEEP])
def test_a_fixed_column_is_never_recovered(change: SchemaChange) -> None:
    evolution = history(fixed("c", change), STRING, INTEGER)
    assert [field.type for field in evolution.schema.fields] == [Scalar.INTEGER]
    assert evolution.retyped == ("c",)


def test_a_column_that_becomes_a_key_is_one_column_again() -> None:
    recovered = history(RECOVER, STRING, INTEGER).schema
    evolution = evolve(recovered, INTEGER, STREAM, fixed("c"))
    assert present(evolution.schema) == ["c"]
    assert evolution.retyped == ("c",)
    assert str(evolution.schema.version) == "3-0-0"


def test_a_key_that_was_one_of_several_types_is_of_one_type_again() -> None:
    evolution = history(fixed("c"), BOTH, INTEGER)
    assert evolution.schema.fields[0].type is Scalar.INTEGER
    assert evolution.retyped == ("c",)
    assert history(RECOVER, BOTH, INTEGER).schema.fields[0].type == Union((Scalar.STRING, Scalar.INTEGER))


def test_other_columns_beside_a_fixed_one_are_recovered() -> None:
    evolution = history(fixed("id"), declared(id="integer", c="string"), declared(id="string", c="integer"))
    assert evolution.retyped == ("id",)
    assert present(evolution.schema) == ["id", RECOVERED_INTEGER]


@each(
    "versions",
    [
        (STRING, INTEGER),  # another type
        (BOTH, INTEGER),  # one option of a union
    ],
)
def test_a_fixed_column_of_another_type_fails_where_the_policy_is_to_fail(versions: tuple[StreamFields, ...]) -> None:
    with pytest.raises(ConfigError, match=r'"c" was .* and is now integer'):
        history(fixed("c", SchemaChange.FAIL), *versions)


def test_a_fixed_column_whose_values_are_in_two_columns_fails_where_the_policy_is_to_fail() -> None:
    recovered = history(RECOVER, STRING, INTEGER).schema
    with pytest.raises(ConfigError, match='"c" was string and is now integer'):
        evolve(recovered, INTEGER, STREAM, fixed("c", SchemaChange.FAIL))


def test_failing_goes_by_the_column_the_values_went_to_last() -> None:
    recovered = history(RECOVER, STRING, INTEGER).schema
    assert evolve(recovered, INTEGER, STREAM, FAIL).schema is recovered
    with pytest.raises(ConfigError, match='"c" was integer and is now string'):
        evolve(recovered, STRING, STREAM, FAIL)
    removed = after(recovered, FAIL, declared(d="string")).schema
    assert present(after(removed, FAIL, STRING).schema) == ["c"]
    with pytest.raises(ConfigError, match='"c" was string and is now boolean'):
        after(removed, FAIL, declared(c="boolean"))


def test_a_new_generation_replaces_types_in_place_whatever_the_policy() -> None:
    evolution = history(REPLACE, declared(a="string", c="string", gone="string"), declared(c="integer", a="string", new="string"))
    assert [(field.name, field.type, field.present) for field in evolution.schema.fields] == [
        ("a", Scalar.STRING, True),
        ("c", Scalar.INTEGER, True),
        ("gone", Scalar.STRING, False),
        ("new", Scalar.STRING, True),
    ]
    assert evolution.retyped == ("c",)


def test_a_new_generation_brings_values_back_under_the_column_s_own_name() -> None:
    evolution = evolve(history(RECOVER, STRING, INTEGER).schema, INTEGER, STREAM, REPLACE)
    assert present(evolution.schema) == ["c"]
    assert names(evolution.schema) == ["c", RECOVERED_INTEGER]


def test_text_takes_values_of_any_type_without_a_change() -> None:
    schema = history(KEEP, declared(c="string", o=nested(a="string"))).schema
    other = declared(c="integer", o=nested(a="integer", b="string"))
    assert evolve(schema, other, STREAM, KEEP).schema is schema
    assert [field.name for field in plan_fields(schema, other.fields)] == ["c", "o"]
    returned = history(KEEP, STRING, declared(), INTEGER)
    assert returned.changes == (Change(ChangeKind.KEY_RETURN, ("c",), None, Scalar.STRING),)


def test_a_table_that_was_text_recovers_a_type_that_changed_meanwhile() -> None:
    schema = history(KEEP, STRING, INTEGER).schema
    assert names(evolve(schema, INTEGER, STREAM, RECOVER).schema) == ["c", RECOVERED_INTEGER]


def test_the_event_says_what_was_recovered_and_what_was_retyped() -> None:
    recovered = history(RECOVER, declared(c="string", d="string"), declared(c="integer", d="string"))
    event = to_event(recovered, "append", (), ())
    assert [field.get("recoveredFrom") for field in event["fields"]] == [None, None, 1]
    assert event["changes"] == [{"kind": "Recovery", "path": "/c", "old": "string", "new": "integer"}]
    assert "retyped" not in event

    retyped = evolve(recovered.schema, declared(c="integer", d="boolean"), STREAM, REWRITE)
    event = json.loads(json.dumps(to_event(retyped, "append", (), ())))
    assert event["retyped"] == ["c", "d"]
    assert [field.get("emptied") for field in event["fields"]] == [None, None, True]
    assert from_event(event) == retyped.schema


def test_the_same_columns_recorded_once_more_retype_nothing() -> None:
    retyped = history(REWRITE, STRING, INTEGER).schema
    assert "retyped" not in to_event(Evolution(retyped, ()), "append", (), ())


def test_records_are_replayed_into_the_columns_they_landed_in() -> None:
    first = history(RECOVER, declared(c="string", gone="string")).schema
    second = evolve(first, declared(c="integer", new="string"), STREAM, RECOVER).schema
    assert replayed_fields(first, second) == (Field("c", "c", Scalar.STRING), Field("gone", "gone", Scalar.STRING))
    integer, new = Field("c", RECOVERED_INTEGER, Scalar.INTEGER), Field("new", "new", Scalar.STRING)
    assert replayed_fields(second, second) == (integer, new)
    assert set(replayed_fields(second, second, and_before=True)) == {integer, new, Field("gone", "gone", Scalar.STRING)}


def test_records_of_a_column_that_was_taken_back_are_replayed_into_its_base() -> None:
    recovered = history(RECOVER, STRING, INTEGER).schema
    taken_back = evolve(recovered, INTEGER, STREAM, fixed("c")).schema
    assert replayed_fields(recovered, taken_back) == (Field("c", "c", Scalar.INTEGER),)


def member_types(schema: TableSchema) -> list[Any]:
    return [field.type.fields[0].type for field in schema.fields if isinstance(field.type, Object)]


@each(
    ("conflicts", "member"),
    [(UnionConflicts.UNION, Union((Scalar.INTEGER, Scalar.STRING))), (UnionConflicts.TEXT, Scalar.STRING)],
)
def test_a_union_that_begins_to_contradict_itself_is_a_changed_type(conflicts: UnionConflicts, member: Any) -> None:
    before, now = contradicting(conflicts, a="integer"), contradicting(conflicts, a="integer", b="string")
    recovered = history(RECOVER, before, now)
    assert member_types(recovered.schema) == [Scalar.INTEGER, member]
    assert present(recovered.schema) == names(recovered.schema)[1:]
    assert present(after(recovered.schema, RECOVER, before).schema) == ["o"]
    assert member_types(history(REWRITE, before, now).schema) == [member]
    with pytest.raises(ConfigError, match=r'"o\.id" was integer'):
        history(FAIL, before, now)


def test_another_choice_for_contradicting_unions_finds_its_column_again() -> None:
    text, union = (contradicting(conflicts, a="integer", b="string") for conflicts in (UnionConflicts.TEXT, UnionConflicts.UNION))
    both = history(RECOVER, text, union)
    assert len(both.schema.fields) == 2
    assert present(after(both.schema, RECOVER, text).schema) == ["o"]
    further = after(both.schema, RECOVER, contradicting(UnionConflicts.UNION, a="string", b="boolean", c="integer"))
    assert member_types(further.schema)[1] == Union((Scalar.INTEGER, Scalar.STRING, Scalar.BOOLEAN)), "a union only grew"

"""What column rules mean for a stream: its columns, the members they reach, what the chain records, and rules that cannot be kept."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from destination_s3_spark.errors import ConfigError
from destination_s3_spark.schema.airbyte_type import Array, Object, Scalar, SchemalessObject, Union
from destination_s3_spark.schema.column_rules import Action, ColumnRule, ColumnRules, Treatment
from destination_s3_spark.schema.json_schema import StreamFields, stream_fields
from destination_s3_spark.stream_id import StreamId
from unit_tests.cases import each

USERS = StreamId("shop", "users")
TEXT = {"type": "string"}
POINT = {"type": "object", "properties": {"lat": {"type": "number"}, "lon": {"type": "number"}}}
PROPERTIES: dict[str, Any] = {
    "id": {"type": "integer"},
    "mail": TEXT,
    "home": POINT,
    "trips": {"type": "array", "items": {"type": "object", "properties": {"from": POINT, "day": {"type": "string", "format": "date"}}}},
    "either": {"oneOf": [POINT, {"type": "integer"}]},
    "lists": {"oneOf": [POINT, {"type": "array", "items": POINT}]},
    "any": {"type": "object"},
    "anys": {"type": "array"},
}
SENT = stream_fields({"type": "object", "properties": PROPERTIES, "required": ["id", "mail"]}, USERS)
SECRET = b"s" * 32


def treatment(*rules: tuple[str, Action], only: bool = False, secret: bytes = SECRET, sent: StreamFields = SENT) -> Treatment:
    return ColumnRules(tuple(ColumnRule("*.users", column, action, 2) for column, action in rules), only, secret).of_stream(USERS, sent)


def test_columns_follow_the_rules() -> None:
    rules = treatment(
        *(("id", Action.HASH), ("mail", Action.DROP), ("home.*", Action.DROP), ("trips.from.lat", Action.TRUNCATE)),
        *(("trips.day", Action.NULL), ("lists.lon", Action.DROP)),
    )
    landing = rules.fields(SENT)
    types = {field.source: field.type for field in landing.fields}

    assert landing.required == {"id"}
    assert types["id"] is Scalar.STRING
    assert "mail" not in types
    assert types["home"] == SchemalessObject()
    assert isinstance(types["trips"], Array)
    assert isinstance(types["trips"].items, Object)
    trip = {field.source: field.type for field in types["trips"].items.fields}
    assert trip["day"] is Scalar.DATE
    assert isinstance(trip["from"], Object)
    assert {field.source: field.type for field in trip["from"].fields} == {"lat": Scalar.STRING, "lon": Scalar.NUMBER}
    assert isinstance(types["lists"], Union)
    assert all("lon" not in repr(option) for option in types["lists"].options)
    untouched = [field for field in landing.fields if field.source in {"either", "any", "anys"}]
    assert untouched == [field for field in SENT.fields if field.source in {"either", "any", "anys"}]


def test_the_first_rule_that_matches_applies_to_the_whole_value() -> None:
    rules = treatment(("h*", Action.HASH), ("home.lat", Action.DROP), ("*", Action.DROP))
    assert [(field.source, field.type) for field in rules.fields(SENT).fields] == [("home", Scalar.STRING)]
    assert rules.columns["home"] == "hash"
    assert "home.lat" not in rules.columns
    assert not rules.around


@each(
    ("rule", "path", "inside"),
    [
        ("home.lat", ("home",), True),
        ("home.lat", ("home", "lat"), None),
        ("home.lat", ("home.lat",), None),
        ("home.lat", ("hom",), False),
        ("trips.from.*", ("trips", "from"), True),
        ("trips.from.*", ("trips", "day"), False),
        ("trips.from.*", ("trips", "from", "alt"), None),
        ("any.a.b", ("any", "a"), True),
        ("*lat", ("any", "x"), True),
        ("h*lat", ("any",), False),
        ("[!x]ome.lat", ("home",), False),
        ("tags[0].*", ("tags[0]",), True),
        ("tags[0]", ("tags[0]",), None),
        ("tags[0]", ("tags0",), False),
    ],
)
def test_members_are_looked_for_where_a_pattern_may_match(rule: str, path: tuple[str, ...], inside: bool | None) -> None:
    rules = treatment(("either", Action.NULL), ("lists", Action.NULL), (rule, Action.DROP))
    decision = rules.decide(path)
    assert decision.inside is (inside is True)
    assert (decision.rule is not None) is (inside is None)


def test_only_declared_members_are_kept_of_objects_that_declare_all() -> None:
    rules = treatment(only=True)
    kept = [("id",), ("home",), ("home", "lat"), ("trips", "from", "lon"), ("any", "x"), ("either", "lat")]
    gone = [("more",), ("home", "more"), ("trips", "from", "more"), ("either", "more"), ("home.lat",)]
    assert [path for path in kept + gone if rules.decide(path).rule is None] == kept
    assert (rules.idle, treatment().idle, treatment(("id", Action.NULL)).idle) == (False, True, False)


def test_the_record_changes_with_the_rules_and_the_secret_and_tells_neither_value_nor_secret() -> None:
    rules = (("mail", Action.HASH), ("any.a", Action.DROP))
    variants = [
        treatment(*rules).recorded(),
        treatment(*rules[::-1]).recorded(),
        treatment(*rules, only=True).recorded(),
        treatment(*rules, secret=SECRET + b"s").recorded(),
        treatment(rules[1]).recorded(),
    ]
    digests = {of["digest"] for of in variants if of is not None}
    assert len(digests) == len(variants)
    assert variants[0] == treatment(*rules).recorded()
    assert variants[0] is not None
    assert variants[3] is not None
    assert variants[0]["columns"] == {"mail": "hash", "any.a": "drop"}
    assert variants[0]["secret"] != variants[3]["secret"]
    assert variants[4] is not None
    assert "secret" not in variants[4]
    assert treatment(rules[1], secret=b"").recorded() == variants[4]
    assert treatment().recorded() is None
    assert "sssss" not in repr((variants, treatment(*rules), ColumnRules((), secret=SECRET)))
    assert pickle.loads(pickle.dumps(treatment(*rules))) == treatment(*rules)


@each("column", ["either.lat", "anys.lat", "*.lat"])
def test_a_member_of_what_may_be_no_object_is_refused(column: str) -> None:
    with pytest.raises(ConfigError, match=r"has an entry for a part of '(either|anys)'.*Add an entry for the whole"):
        treatment((column, Action.DROP))


def test_rules_that_match_nothing_are_refused() -> None:
    for stream, column, said in (
        ("user", "id", "no stream of the connection has the name 'user'"),
        ("users", "Id", "declares a column 'Id'"),
        ("users", "mail.x", "declares a column 'mail.x'"),
        ("*", "home.l??", None),
        ("shop.*", "any.undeclared.thing", None),
    ):
        rules = ColumnRules((ColumnRule("*", "id", Action.HASH), ColumnRule(stream, column, Action.DROP)))
        if said is None:
            rules.require_matches({USERS: SENT})
        else:
            with pytest.raises(ConfigError, match="entry 2") as refused:
                rules.require_matches({USERS: SENT})
            assert said in str(refused.value)

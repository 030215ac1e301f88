"""Column rules on record lines: what they remove and replace is gone, and every other byte stays."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Callable
from typing import Any

import pytest

from destination_s3_spark.decoding.changes import ChangedField
from destination_s3_spark.decoding.line_rules import LineRules, NativeLineRules, number_text
from destination_s3_spark.decoding.record_line import UnreadableRecord
from destination_s3_spark.kernel import KERNEL
from destination_s3_spark.schema.airbyte_type import Array, Field, Object, Scalar, SchemalessObject
from destination_s3_spark.schema.column_rules import Action, ColumnRule, ColumnRules
from destination_s3_spark.schema.json_schema import StreamFields
from destination_s3_spark.stream_id import StreamId
from unit_tests.cases import each

SECRET = b"0123456789abcdef0123456789abcdef"
_PERSON = Object((Field("mail", "mail", Scalar.STRING), Field("age", "age", Scalar.INTEGER)))
FIELDS = (
    *(Field(name, name, Scalar.STRING) for name in ("id", "cut", "gone", "empty", "other")),
    Field("boss", "boss", _PERSON),
    Field("team", "team", Array(_PERSON)),
    Field("loose", "loose", SchemalessObject()),
)
RULES = (
    *(("id", Action.HASH), ("cut", Action.TRUNCATE), ("gone", Action.DROP), ("empty", Action.NULL)),
    *(("boss.mail", Action.DROP), ("team.mail", Action.HASH), ("loose.p*", Action.DROP)),
)
Applied = Callable[..., str]


def h(text: str) -> str:
    """The hash as a JSON string."""
    return f'"{hmac.new(SECRET, text.encode(), hashlib.sha256).hexdigest()}"'


def line(data: str, envelope: str = '{{"type":"RECORD","record":{{"stream":"s","emitted_at":1,"data":{}}}}}') -> bytes:
    return envelope.format(data).encode("utf-8", "surrogatepass") + b"\n"


def line_rules(kind: str, *, declared_only: bool = False) -> LineRules:
    chosen = tuple(ColumnRule("*", column, action, 3) for column, action in RULES)
    treatment = ColumnRules(chosen, declared_only, SECRET).of_stream(StreamId(None, "s"), StreamFields(FIELDS, frozenset()))
    return LineRules(treatment) if kind == "python" else NativeLineRules(treatment, KERNEL)  # type: ignore[arg-type]


@pytest.fixture(params=["python", "native"])
def kind(request: pytest.FixtureRequest) -> Any:
    if request.param == "native" and KERNEL is None:
        pytest.skip("without the native kernel")
    return request.param


@pytest.fixture
def applied(kind: str) -> Applied:
    def of(data: str, *, declared_only: bool = False) -> str:
        rules = line_rules(kind, declared_only=declared_only)
        before, _, behind = line("?").partition(b"?")
        for _ in range(2):  # what the kernel learnt changes nothing
            treated = rules.applied(line(data))
            assert treated.startswith(before)
            assert treated.endswith(behind)
        return treated[len(before) : -len(behind)].decode()

    return of


@each(
    ("sent", "landing"),
    [
        ('{"other":1.50 , "n\\u0061me" : [ 1e0,{}] }', '{"other":1.50 , "n\\u0061me" : [ 1e0,{}] }'),
        ("{ }", "{ }"),
        ('{"gone":1}', "{}"),
        ('{ "gone" : [1,{"gone":"}"}] , "other":2 }', '{ "other":2 }'),
        ('{"other":1 , "gone":2 , "g\\u006fne":3}', '{"other":1 }'),
        ('{"gone":1,"gone":2,"other":3,"gone":4,"more":5}', '{"other":3,"more":5}'),
        ('{"id":"é","id":"\\u00e9","id" : null}', f'{{"id":{h("é")},"id":{h("é")},"id" : null}}'),
        ('{"id":42,"more":"42"}', f'{{"id":{h("42")},"more":"42"}}'),
        ('{"id":42.0}{}', None),
        ('{"id":"\\ud800x"}', f'{{"id":{h("�x")}}}'),
        ('{"id":{"b" : [1.0, "x y"]},"other":NaN}', f'{{"id":{h("""{"b":[1.0,"x y"]}""")},"other":NaN}}'),
        ('{"id":-Infinity,"id":true}', f'{{"id":{h("-Infinity")},"id":{h("true")}}}'),
        ('{"empty":{"a":1},"empty":"x","Empty":"x"}', '{"empty":null,"empty":null,"Empty":"x"}'),
        ('{"cut":"abcd","cut":"abc","cut":"\\u00e9\\ud83d\\ude00\\n\\"x"}', '{"cut":"abc","cut":"abc","cut":"\\u00e9\\ud83d\\ude00\\n"}'),
        ('{"cut":"日本語版","cut":""}', '{"cut":"日本語","cut":""}'),
        ('{"cut":12345e1,"cut":["a"],"cut":false}', '{"cut":"123","cut":"[\\"a","cut":"fal"}'),
        ('{"boss":{"mail":1,"age":2,"mail":3},"mail":4}', '{"boss":{"age":2},"mail":4}'),
        ('{"boss":"text","boss":null,"boss":[{"mail":1},"x",[{"mail":1,"age":2}]]}', '{"boss":"","boss":null,"boss":[{},"",[{"age":2}]]}'),
        ('{"team":[ {"mail":"a"} , {"age":1} ],"team":7}', f'{{"team":[ {{"mail":{h("a")}}} , {{"age":1}} ],"team":""}}'),
        ('{"loose":{"phone":1,"q":{"phone":2}}}', '{"loose":{"q":{"phone":2}}}'),
        ('{"loose":{"p":' + "[" * 600 + "]" * 600 + "}}", '{"loose":{}}'),
    ],
)  # fmt: skip
def test_only_what_a_rule_is_for_changes(applied: Applied, sent: str, landing: str | None) -> None:
    if landing is None:
        with pytest.raises(UnreadableRecord):
            applied(sent)
    else:
        assert applied(sent) == landing


def test_undeclared_members_go_where_only_declared_ones_are_kept(applied: Applied) -> None:
    sent = '{"more":1,"other":{"kept":1},"boss":{"more":2,"age":3},"team":[{"more":4}],"loose":{"kept":5},"boss.age":6}'
    kept = '{"other":{"kept":1},"boss":{"age":3},"team":[{}],"loose":{"kept":5}}'
    assert applied(sent, declared_only=True) == kept


def test_a_pattern_reaches_members_at_any_depth(kind: str) -> None:
    rule = ColumnRules((ColumnRule("s", "*mail", Action.DROP),)).of_stream(StreamId("a", "s"), StreamFields(FIELDS[6:], frozenset()))
    rules = LineRules(rule) if kind == "python" else NativeLineRules(rule, KERNEL)  # type: ignore[arg-type]
    deep = '{"mail":1,"a":' * 3000 + "1" + "}" * 3000
    for sent in ('{"a":[[{"x":{"e-mail":1,"mails":2},"mail":{"a":1}}]]}', deep):
        treated = rules.applied(line(sent))
        assert b'mail":' not in treated
        assert treated.count(b"{") == sent.count("{") + 2 - sent.count('"mail":{')


@each(
    "bad",
    [
        *(b"{}", b"", b"no JSON", b'{"record":1}', b'{"record":{}}', b'{"record":{"data":null}}', b'{"record":{"data":[{"id":1}]}}'),
        *(
            b'{"record":{"data":{"id":1,}}}',
            b'{"record":{"data":{"id":"\xff"}}}',
            b'{"record":{"data":{"gone":tru}}}',
            b'{"record":{"data":{}',
        ),
    ],
)
def test_a_line_that_is_no_record_is_told_by_its_ordinal_alone(kind: str, bad: bytes) -> None:
    with pytest.raises(UnreadableRecord) as error:
        line_rules(kind).applied(line("{}") + bad + b"\n" + line("{}"))
    assert error.value.index == 1


def test_the_data_that_counts_is_treated_in_any_envelope(kind: str) -> None:
    rules = line_rules(kind)
    first = (
        b'{"record":{"data":{"gone":1},"d\\u0061ta":{"gone":2}},"type":"RECORD","record" : {"data":{"gone":3,"a":1} , "x":{"gone":4}}}\n'
    )
    assert rules.applied(first) == first.replace(b'{"gone":3,"a":1}', b'{"a":1}')
    many = b"".join(line(f'{{"gone":{at},"id":{at}}}') for at in range(50)).removesuffix(b"\n")
    assert rules.applied(many + b"\n" + first) == b"".join(line(f'{{"id":{h(str(at))}}}') for at in range(50)) + rules.applied(first)


def test_numbers_have_one_text() -> None:
    equal = [["0", "-0", "0.000", "0e9"], ["1", "1.0", "1e0", "10E-1", "0.1e+1"], ["-1.5", "-15e-1", "-0.00150e3"], ["1e400", "10e399"]]
    texts = [{number_text(text.encode()) for text in group} for group in equal]
    assert texts == [{b"0"}, {b"1"}, {b"-1.5"}, {b"1e400"}]
    assert number_text(b"1e38") == b"1" + b"0" * 38
    assert number_text(b"12e-40") == b"0." + b"0" * 38 + b"12"
    assert number_text(b"1e9999999999999999999") == b"1e9999999999999999999"
    assert json.loads(number_text(b"123.4560e-2")) == 1.23456


def test_changes_of_the_source_are_the_protocols_words_about_declared_fields(kind: str) -> None:
    said = "jane@example.org"
    size = "SOURCE_FIELD_SIZE_LIMITATION"
    sent = [ChangedField("boss.mail", "NULLED", size), ChangedField("team.[3].age", said, size), ChangedField(said, "TRUNCATED", said)]
    kept = [("boss.mail", "NULLED", size), ("team.[3].age", None, size), (None, "TRUNCATED", None)]
    assert line_rules(kind).changes([*sent, ChangedField(None, None, None)]) == [*kept, (None, None, None)]


def test_keys_beyond_those_that_the_kernel_remembers_are_treated_too(kind: str) -> None:
    members = ",".join(f'"k{at}":1' for at in range(20_000))
    treated = line_rules(kind).applied(line("{" + members + ',"gone":1}') + line('{"gone":2}'))
    assert treated == line("{" + members + "}") + line("{}")

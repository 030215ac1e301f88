"""Records with NaN and Infinity, which are decoded with other numbers in their place."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from destination_s3_spark.decoding.containers import Members
from destination_s3_spark.decoding.record_typer import RecordTyper, UnreadableRecord
from destination_s3_spark.exact_json.marks import marked
from destination_s3_spark.schema.airbyte_type import Array, Field, Object, Scalar, SchemalessObject, Union

STAND_IN = "8.7236145908172635E-17"
PLACE = Object((Field("lat", "lat", Scalar.NUMBER), Field("name", "name", Scalar.STRING)))
FIELDS = [
    Field("n", "n", Scalar.NUMBER),
    Field("i", "i", Scalar.INTEGER),
    Field("s", "s", Scalar.STRING),
    Field("d", "d", Scalar.DATE),
    Field("o", "o", PLACE),
    Field("a", "a", Array(Scalar.NUMBER)),
    Field("l", "l", Array(PLACE)),
    Field("j", "j", SchemalessObject()),
    Field("u", "u", Union((Scalar.NUMBER, Scalar.STRING))),
]
RECORDS = [
    '{"n":NaN,"s":"a"}',
    '{"n":-Infinity,"i":1,"a":[1,NaN,2.5,Infinity]}',
    '{"n":1,"o":{"lat":Infinity,"name":"NaN"},"s":"NaN, -Infinity and Infinity"}',
    '{"l":[{"lat":1.5},{"lat":NaN,"name":"b"},null,{"lat":-Infinity}]}',
    '{"j":{"x":NaN,"y":"Infinity","z":[-Infinity , 1]},"n":2}',
    '{"u":NaN}',
    '{"u":"NaN","other":NaN,"n":3}',
    '{"NaN":1,"n":NaN,"Infinity":{"-Infinity":2}}',
    '{"n":NaN,"n":1}',
    '{"n":1,"n":NaN}',
    '{"d":"NaN","n":NaN}',
    '{"s":NaN,"d":-Infinity,"o":NaN,"a":NaN,"l":Infinity}',
    '{"i":NaN,"n":4}',
    '{"s":"no numbers","n":5}',
    '{"s":"\\u00e9\\n NaN","n":Infinity}',
    '{"\\u006e":NaN,"o":{"lat":2,"name":"NaNNaN"}}',
    '{"a":[NaN],"\\u0061":[1]}',
    '{ "a" : [ 1 , NaN ] , "n" : -Infinity , "l" : [ { "lat" : Infinity } ] }',
]
MANY = [Field(f"m{number}", f"m{number}", Scalar.NUMBER) for number in range(99)]
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-9, 9)
    | st.floats()
    | st.lists(st.sampled_from(["NaN", "Infinity", "-", " ", '"', "a"])).map("".join),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["lat", "name", "NaN", "x"]), inner, max_size=3),
    max_leaves=6,
)


@pytest.mark.parametrize(
    "number", [None, STAND_IN, STAND_IN.lower(), "87236145908172635e-33", "0.00000000000000008723614590817263501", "872.36145908172635E-19"]
)
def test_what_is_no_number_is_null_and_all_else_as_it_was(number: str | None, assert_typed_as_oracle: Any) -> None:
    """Also where the input has a number that stands in for others."""
    with_the_number = f'{{"n":{number},"s":"{number}","a":[{number},NaN]}}'
    assert_typed_as_oracle(FIELDS, RECORDS if number is None else [*RECORDS, with_the_number])


@given(
    st.lists(st.dictionaries(st.sampled_from([*"nisdoalju", "NaN", "x"]), VALUES), max_size=4),
    st.sampled_from([(",", ":"), (" , ", " : ")]),
)
def test_whatever_holds_or_speaks_of_non_numbers_is_typed_as_the_oracle_says(
    assert_typed_as_oracle: Any, records: list[dict[str, Any]], separators: tuple[str, str]
) -> None:
    assert_typed_as_oracle(FIELDS, [json.dumps(record, separators=separators) for record in records])


def test_as_many_non_numbers_as_members(assert_typed_as_oracle: Any) -> None:
    assert_typed_as_oracle(MANY, ["{" + ",".join(f'"{field.source}":NaN' for field in MANY) + "}"] * 3)


def test_what_no_decoder_goes_down_to_is_read(make_plan: Any, make_line: Any, make_block: Any, make_typer: Any) -> None:
    deep = '{"j":{"x":' + "[" * 3000 + "NaN" + "]" * 3000 + '},"n":NaN}'
    final = make_typer(make_plan(FIELDS)).type_block(make_block(map(make_line, [deep, '{"n":1}']))).final
    assert final["n"].to_pylist() == [None, 1]
    assert [change["field"] for change in final["_airbyte_meta"][0].as_py()["changes"]] == ["n"]


@pytest.mark.parametrize("key", ["NaN", "-Infinity", "a NaN b"])
def test_declared_keys_may_speak_of_non_numbers(key: str, assert_typed_as_oracle: Any) -> None:
    fields = [Field(key, "x", Scalar.NUMBER), Field("o", "o", Array(Object((Field(key, "y", Scalar.NUMBER),))))]
    assert_typed_as_oracle(fields, [f'{{"{key}":NaN,"o":[{{"{key}":1}}]}}', f'{{"{key}":2,"other":NaN}}'])


def test_a_record_with_a_non_number_is_not_taken_apart_by_itself(make_plan: Any, make_line: Any, make_block: Any, monkeypatch: Any) -> None:
    fitting = [record for record in RECORDS if '"s":NaN' not in record and '"i":NaN' not in record]
    lines = make_block(map(make_line, fitting))
    expected = RecordTyper(make_plan(FIELDS)).type_block(lines).final.drop_columns(["_airbyte_raw_id"])

    def refuse(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(Members, "from_text", refuse)
    assert RecordTyper(make_plan(FIELDS)).type_block(lines).final.drop_columns(["_airbyte_raw_id"]).equals(expected)
    with pytest.raises(AssertionError):
        RecordTyper(make_plan(FIELDS)).type_block(make_block(map(make_line, RECORDS)))


def test_a_column_of_non_numbers_is_typed_block_after_block(make_line: Any, make_block: Any, make_plan: Any, make_typer: Any) -> None:
    lines = make_block([make_line('{"x":NaN,"i":NaN}')] * 2)
    typer = make_typer(make_plan([Field("x", "x", Scalar.NUMBER), Field("i", "i", Scalar.INTEGER)]))
    for _ in range(1200):  # more often than Python lets calls nest
        final = typer.type_block(lines).final
        assert final["x"].null_count == final["i"].null_count == 2
        assert [change["field"] for change in final["_airbyte_meta"][1].as_py()["changes"]] == ["x", "i"]


@pytest.mark.parametrize("text", ["NaN", "[NaN,-Infinity , Infinity]", '{"a":-Infinity,"Infinity":"NaN\\n"}'])
def test_marks_make_json_of_what_is_json_but_for_non_numbers(text: str) -> None:
    assert is_json(text)


@pytest.mark.parametrize(
    "text",
    [
        *("-NaN", "--Infinity", "+Infinity", "NaN1", "1NaN", "NaN.5", "NaNe5", "1eNaN", "1e-Infinity", "NaNNaN", "NaN NaN", "tNaNrue"),
        *("-", "Na", "nan", "{NaN:1}", '"NaN', r'"\NaN"', r'"\Infinity"', r'"\-Infinity"', r'"\uNaN0"', r'"\u0NaN00"'),
    ],
)
def test_marks_make_no_json_of_what_is_none(text: str, make_plan: Any, make_line: Any, make_block: Any, make_typer: Any) -> None:
    record = f'{{"a":NaN,"b":[{text}]}}'
    assert not is_json(record)
    with pytest.raises(UnreadableRecord) as raised:
        make_typer(make_plan(FIELDS)).type_block(make_block([make_line('{"n":NaN}'), make_line(record)]))
    assert raised.value.index == 1


def is_json(text: str) -> bool:
    readable = marked(text.encode())
    assert readable is not None
    try:
        json.loads(readable, parse_constant=lambda _: pytest.fail("a non-number is left"))
    except ValueError:
        return False
    return True

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from destination_s3_spark.exact_json.members import elements, members
from destination_s3_spark.exact_json.values import split_object, string_value
from unit_tests.cases import each

ODD_VALUES = [
    b"NaN",
    b"-Infinity",
    b"1e400",
    b"-0.0",
    b"1" * 5000,
    b"123456789012345678901234567890.10",
    rb'"\ud800"',
    rb'"\ud83d\ude00 \u0000 \" \\ \/"',
    b'"\xff\xfe"',
    b"[]",
    b"{}",
    b'{ "a" : [ 1 , {"b":null} ] , "c":true }',
    b'[1,[2,"]}"],{"}":"{"}]',
    b'""',
    b"false",
]


@each("value", ODD_VALUES, ids=lambda value: ascii(value[:40]))
def test_a_value_comes_back_with_its_exact_text(value: bytes) -> None:
    text = b' \t{ "first" : 1 ,"odd"\r: ' + value + b' , "last":[NaN]}  '
    assert split_object(text) == {"first": b"1", "odd": value, "last": b"[NaN]"}


def test_members_keep_order_duplicates_and_places() -> None:
    text = b'{"a":1,"b":NaN,"a": {"c":2}}'
    assert [(member.key, text[member.start : member.end]) for member in members(text)] == [("a", b"1"), ("b", b"NaN"), ("a", b'{"c":2}')]


@each("tail", [b"", b',"n":NaN'])
def test_the_last_of_duplicate_keys_wins_on_both_ways(tail: bytes) -> None:
    assert split_object(b'{"a":1,"a":2' + tail + b"}")["a"] == b"2"


def test_keys_are_decoded_and_keys_that_are_no_text_stay_apart() -> None:
    found = split_object(rb'{"\u0061\n":1,"\ud800":2,"' + b'\xff":3,"x":NaN}')
    assert [ascii(key) for key in found] == [r"'a\n'", r"'\ud800'", r"'\udcff'", "'x'"]
    assert list(found.values()) == [b"1", b"2", b"3", b"NaN"]


def test_members_of_a_part_of_a_text() -> None:
    text = b'xx{"a":{"b":1}}yy'
    assert [(member.key, member.start, member.end) for member in members(text, 2, len(text) - 2)] == [("a", 7, 14)]


@each(
    "text",
    [
        b"",
        b" ",
        b"{",
        b"}",
        b"[]",
        b"1",
        b"null",
        b'"a"',
        b"{}{}",
        b"{} x",
        b'{"a"}',
        b'{"a":}',
        b'{"a":1,}',
        b"{,}",
        b'{"a":1 "b":2}',
        b"{1:2}",
    ]
    + [
        b'{"a":' + value + b"}"
        for value in [b"01", b"1.", b".5", b"+1", b"nan", b"-NaN", b"tru", b"truex", b"[1,]", b"[,]", b"[1 2]", b"[1", b"1]"]
    ]
    + [
        b'{"a":' + value + b"}"
        for value in [b'{"b"}', b'{"b":1,}', b"{]", b"[}", b'"\\x"', b'"\\u12g4"', b'"\n"', b'"\x01"', b'"open', b":", b","]
    ],
)
def test_what_is_not_one_complete_object_is_refused_without_its_content(text: bytes) -> None:
    with pytest.raises(ValueError, match=r"^not one complete JSON object$"):
        split_object(text)


@each(("opening", "closing"), [(b"[", b"]"), (b'{"a":', b"}")])
def test_depth_is_no_limit(opening: bytes, closing: bytes) -> None:
    value = opening * 100_000 + b"1" + closing * 100_000
    assert split_object(b'{"deep":' + value + b',"b":2}') == {"deep": value, "b": b"2"}
    with pytest.raises(ValueError, match="not one complete"):
        split_object(b'{"deep":' + value[:-1] + b',"b":2}')


@each("unit", [b"x", rb"\"", rb"\u0041"])
def test_a_string_of_megabytes_needs_no_stack(unit: bytes) -> None:
    value = b'"' + unit * (8 * 2**20 // len(unit)) + b'"'
    assert split_object(b'{"n":NaN,"s":' + value + b"}")["s"] == value


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(codec=None)),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(st.text(max_size=4), json_values, max_size=5), st.sampled_from([None, 1]), st.booleans())
def test_the_texts_stand_for_the_values_the_standard_library_reads(
    document: dict[str, object], indent: int | None, ascii_only: bool
) -> None:
    text = json.dumps(document, indent=indent, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    found = {member.key: text[member.start : member.end] for member in members(text)}
    assert found == split_object(text)
    if ascii_only:
        assert repr({key: json.loads(value) for key, value in found.items()}) == repr(json.loads(text))


@given(st.data())
def test_on_broken_text_both_ways_agree_with_the_strict_parser(data: st.DataObject) -> None:
    document = data.draw(st.dictionaries(st.text("ab", max_size=2), json_values, max_size=3))
    text = bytearray(json.dumps(document).encode())
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(text) - 1))
        text[place : place + data.draw(st.integers(0, 1))] = data.draw(
            st.sampled_from([b"", b'"', b"{", b"]", b",", b":", b"\\", b"1", b" "])
        )
        text = text or bytearray(b" ")
    try:
        strict = {key: bytes(value) for key, value in msgspec.json.decode(bytes(text), type=dict[str, msgspec.Raw]).items()}
    except msgspec.DecodeError:
        return
    assert {member.key: bytes(text[member.start : member.end]) for member in members(bytes(text))} == strict


def test_string_value_reads_text_only() -> None:
    assert string_value(rb'"a\u00e9\n"') == "aé\n"
    assert ascii(string_value(rb'"\ud800"')) == r"'\ud800'"
    for text in [b"null", b"1", b'["a"]', b'"\xff"', b'"a', b"", b'"a"x']:
        with pytest.raises(ValueError, match="not readable text"):
            string_value(text)


@each(
    ("text", "expected"),
    [
        (b"[]", []),
        (b"[ ]", []),
        (b"[1]", [b"1"]),
        (b"[1,11, 1 ,\n[1]]", [b"1", b"11", b"1", b"[1]"]),
        (b'[",",{"a":[1,2]},"]",NaN]', [b'","', b'{"a":[1,2]}', b'"]"', b"NaN"]),
        (rb'["\ud800" , 1e400 ]', [rb'"\ud800"', b"1e400"]),
        (b"[" * 3000 + b"]" * 3000, [b"[" * 2999 + b"]" * 2999]),
    ],
)
def test_elements_are_where_they_stand(text: bytes, expected: list[bytes]) -> None:
    whole = b"x[1]" + text + b"]"
    found = elements(whole, 4, len(whole) - 1)
    assert [whole[start:end] for start, end in found] == expected


@each("text", [b"", b"{}", b"[", b"[1", b"[1,", b"[1,]", b"[1 2]", b"[NaN,]", b"[NaN 1]", b"[NaN]]", b"[]]", b"1"])
def test_what_is_no_array_has_no_elements(text: bytes) -> None:
    with pytest.raises(ValueError, match="not one complete"):
        elements(text)

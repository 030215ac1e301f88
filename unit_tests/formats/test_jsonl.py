from __future__ import annotations

import gzip
import io
import json
import re
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from destination_s3_spark.formats.jsonl import JsonlFile, JsonlOptions
from unit_tests.cases import each

PLAIN = JsonlOptions(flattened=False, compressed=False)
FLAT = JsonlOptions(flattened=True, compressed=False)
OWN = ["_airbyte_raw_id", "_airbyte_extracted_at", "_airbyte_meta", "_airbyte_generation_id"]
ID = {"id": {"type": "integer"}}
SOURCE_CHANGE = ',"meta":{"changes":[{"field":"é \\"x\\"","change":"TRUNCATED","reason":"SOURCE_FIELD_SIZE_LIMITATION"}]}'


def rows(file: bytes) -> list[dict[str, Any]]:
    assert file.endswith(b"\n")
    return [json.loads(line) for line in file.decode().split("\n")[:-1]]


def changes(row: dict[str, Any]) -> list[tuple[str, str]]:
    return [(change["field"], change["reason"]) for change in row["_airbyte_meta"]["changes"]]


def test_a_line_is_the_meta_columns_and_the_record_as_it_came(landing: Callable[..., Any]) -> None:
    line = landing(PLAIN, ID).file(['{"id":1.0,"b":12345678901234567890.10,"a":"é\\u00e9"}']).decode()
    assert re.fullmatch(
        r'\{"_airbyte_raw_id":"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}","_airbyte_extracted_at":1700000000123,'
        r'"_airbyte_meta":\{"sync_id":7,"changes":\[\]\},"_airbyte_generation_id":3,'
        r'"_airbyte_data":\{"id":1\.0,"b":12345678901234567890\.10,"a":"é\\u00e9"\}\}\n',
        line,
    )


def test_root_flattening_puts_the_fields_beside_the_meta_columns(landing: Callable[..., Any]) -> None:
    file = landing(FLAT, ID).file(['{"z":[{"y":1}],"id":1}', "{}"])
    first, second = rows(file)
    assert list(first) == [*OWN, "z", "id"]
    assert first["z"] == [{"y": 1}]
    assert list(second) == OWN


@each("options", [PLAIN, FLAT])
def test_undeclared_fields_and_wrong_types_are_kept_without_a_change(landing: Callable[..., Any], options: JsonlOptions) -> None:
    row = rows(landing(options, ID).file(['{"id":"no integer","other":{"x":null}}']))[0]
    assert row.get("_airbyte_data", row)["id"] == "no integer"
    assert row.get("_airbyte_data", row)["other"] == {"x": None}
    assert changes(row) == []


def test_an_unknown_type_is_passed_through(landing: Callable[..., Any]) -> None:
    assert rows(landing(FLAT, {"odd": {"type": "potato"}}).file(['{"odd":[1,{}]}']))[0]["odd"] == [1, {}]


def test_the_changes_of_the_source_are_kept(landing: Callable[..., Any]) -> None:
    files = landing(PLAIN, ID).file(['{"id":"x"}'], SOURCE_CHANGE)
    assert rows(files)[0]["_airbyte_meta"] == {
        "sync_id": 7,
        "changes": [{"field": 'é "x"', "change": "TRUNCATED", "reason": "SOURCE_FIELD_SIZE_LIMITATION"}],
    }


@each("options", [PLAIN, FLAT])
def test_numbers_that_json_does_not_have_become_null_and_are_recorded(landing: Callable[..., Any], options: JsonlOptions) -> None:
    text = '{"a":NaN,"b":{"c,\\"":[1,-Infinity,{"d":Infinity}]},"e":"NaN","f":1}'
    block = landing(options, ID).typed([text, '{"a":1}'], SOURCE_CHANGE)
    row = rows(landing(options, ID).file([text], SOURCE_CHANGE))[0]
    data = row.get("_airbyte_data", row)
    assert (data["a"], data["b"], data["e"], data["f"]) == (None, {'c,"': [1, None, {"d": None}]}, "NaN", 1)
    reason = "DESTINATION_SERIALIZATION_ERROR"
    ours = [("a", reason), ('b.c,".[1]', reason), ('b.c,".[2].d', reason)]
    assert changes(row) == [('é "x"', "SOURCE_FIELD_SIZE_LIMITATION"), *ours]
    assert block.raw["_airbyte_data"][0].as_py() == text


def test_blanks_between_tokens_go_and_those_in_strings_stay(landing: Callable[..., Any]) -> None:
    file = landing(PLAIN, ID).file(['{ "id" :\t1 ,\r "b": [ 1 , "x, y : { " ] }', '{"c": {}}'])
    assert file.count(b"\n") == 2
    assert b'"_airbyte_data":{"id":1,"b":[1,"x, y : { "]}}\n' in file
    assert file.endswith(b'"_airbyte_data":{"c":{}}}\n')


def test_lone_surrogates_stay_escaped_as_they_came(landing: Callable[..., Any]) -> None:
    file = landing(PLAIN, ID).file(['{"\\ud800 key": "\\uDFFF"}', '{"id":1}'])
    assert b'{"\\ud800 key":"\\uDFFF"}' in file
    assert changes(rows(file)[0]) == []


def test_keys_like_those_of_the_meta_columns_get_a_suffix_beside_them(landing: Callable[..., Any]) -> None:
    text = '{"_airbyte_meta":1,"_AIRBYTE_raw_id":2,"\\u005f\\u0061irbyte_data":3,"x":{"_airbyte_meta":"_airbyte_"}}'
    row = rows(landing(FLAT, ID).file([text, '{"id":1}']))[0]
    assert list(row) == [*OWN, "_airbyte_meta_1", "_AIRBYTE_raw_id_1", "_airbyte_data_1", "x"]
    assert row["x"] == {"_airbyte_meta": "_airbyte_"}
    assert row["_airbyte_meta"] == {"sync_id": 7, "changes": []}
    assert rows(landing(PLAIN, ID).file([text]))[0]["_airbyte_data"] == json.loads(text)


def test_gzip_is_the_default_and_the_same_for_the_same_rows(landing: Callable[..., Any]) -> None:
    options = JsonlOptions()
    assert options.extension == ".jsonl.gz"
    assert PLAIN.extension == ".jsonl"
    land = landing(options, ID)
    block = land.typed(f'{{"id":{number}}}' for number in range(5000))
    files = []
    for _ in range(2):
        sink = io.BytesIO()
        file = JsonlFile(sink, land.columns.arrow, options)
        file.write(block.final.slice(0, 2500))
        file.write(block.final.slice(2500))
        assert file.close().rows == 5000
        files.append(sink.getvalue())
    assert files[0] == files[1]
    assert files[0][4:8] == bytes(4)  # no time in the header
    assert [row["_airbyte_data"]["id"] for row in rows(gzip.decompress(files[0]))] == list(range(5000))


def test_an_abandoned_file_leaves_the_sink_alone(landing: Callable[..., Any]) -> None:
    land = landing(JsonlOptions(), ID)
    sink = io.BytesIO()
    file = JsonlFile(sink, land.columns.arrow, JsonlOptions())
    file.write(land.typed(['{"id":1}']).final)
    written = sink.getvalue()
    file.abandon()
    file.write(land.typed(['{"id":1}']).final)
    file.close()
    assert sink.getvalue() == written
    with pytest.raises(zlib.error):
        zlib.decompress(written, 31)


def test_rows_with_other_columns_are_refused(landing: Callable[..., Any]) -> None:
    file = JsonlFile(io.BytesIO(), landing(PLAIN, ID).columns.arrow, PLAIN)
    with pytest.raises(pa.ArrowInvalid):
        file.write(pa.record_batch({"id": [1]}))


@each("compressed", [True, False])
def test_duckdb_and_polars_read_the_file(landing: Callable[..., Any], tmp_path: Path, compressed: bool) -> None:
    options = JsonlOptions(flattened=True, compressed=compressed)
    path = tmp_path / f"users{options.extension}"
    path.write_bytes(landing(options, ID).file(['{"id":1,"name":"é\\n"}', '{"id":2,"tags":["a"]}']))
    connection = duckdb.connect()
    found = connection.execute("select id, name, tags, _airbyte_meta.sync_id, _airbyte_extracted_at from read_json(?)", [str(path)])
    assert found.fetchall() == [(1, "é\n", None, 7, 1700000000123), (2, None, ["a"], 7, 1700000000123)]
    frame = pl.read_ndjson(io.BytesIO(gzip.decompress(path.read_bytes()) if compressed else path.read_bytes()))
    assert frame.select("id", "name", "tags").rows() == [(1, "é\n", None), (2, None, ["a"])]


NUMBERS = st.one_of(
    st.integers().map(str),
    st.from_regex(r"-?(0|[1-9][0-9]{0,30})(\.[0-9]{1,30})?([eE][+-]?[0-9]{1,3})?", fullmatch=True),
)
STRINGS = st.text(st.characters(codec=None)).map(json.dumps) | st.text(st.characters(codec="utf-8", exclude_categories=["Cc"])).map(
    lambda text: json.dumps(text, ensure_ascii=False)
)
BLANKS = st.sampled_from(["", "", "", " ", "\t", "\r ", "  "])


@st.composite
def spaced(draw: st.DrawFn, children: st.SearchStrategy[str]) -> str:
    """A container of these texts, with blanks between its tokens."""
    blank = lambda: draw(BLANKS)  # noqa: E731
    items = draw(st.lists(children, max_size=3))
    if draw(st.booleans()):
        return "[" + blank() + ",".join(f"{blank()}{item}{blank()}" for item in items) + "]"
    keys = draw(st.lists(STRINGS, min_size=len(items), max_size=len(items)))
    return (
        "{" + blank() + ",".join(f"{blank()}{key}{blank()}:{blank()}{item}{blank()}" for key, item in zip(keys, items, strict=True)) + "}"
    )


TEXTS = st.recursive(NUMBERS | STRINGS | st.sampled_from(["true", "false", "null", "NaN", "Infinity", "-Infinity"]), spaced, max_leaves=8)
RECORDS = spaced(TEXTS).filter(lambda text: text.startswith("{"))


def exactly(text: str | bytes, constant: Callable[[str], Any]) -> Any:
    """The value of a JSON text with every digit and every duplicate key, so that only what the formats may change compares equal."""
    return json.loads(
        text, parse_int=lambda n: ("number", n), parse_float=lambda n: ("number", n), parse_constant=constant, object_pairs_hook=lambda p: p
    )


def no_constant(name: str) -> Any:
    raise AssertionError(f"{name} is no JSON")


@given(st.lists(RECORDS, min_size=1, max_size=4))
def test_a_line_has_the_values_of_its_record_with_every_digit(landing: Callable[..., Any], records: list[str]) -> None:
    file = landing(PLAIN, ID).file(records)
    lines = file.split(b"\n")[:-1]
    assert [dict(exactly(line, no_constant))["_airbyte_data"] for line in lines] == [exactly(text, lambda _: None) for text in records]
    flat = landing(FLAT, ID).file(records).split(b"\n")[:-1]
    for line, text in zip(flat, records, strict=True):
        found = exactly(line, no_constant)
        assert [key for key, _ in found[:4]] == OWN
        assert [value for _, value in found[4:]] == [value for _, value in exactly(text, lambda _: None)]

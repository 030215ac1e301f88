from __future__ import annotations

import csv
import gzip
import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from destination_s3_spark.formats.csv import CsvFile, CsvOptions
from unit_tests.cases import each

PLAIN = CsvOptions(flattened=False, compressed=False)
FLAT = CsvOptions(flattened=True, compressed=False)
OWN = ["_airbyte_raw_id", "_airbyte_extracted_at", "_airbyte_meta", "_airbyte_generation_id"]
HEADER = '"_airbyte_raw_id","_airbyte_extracted_at","_airbyte_meta","_airbyte_generation_id"'
NO_CHANGES = '"{""sync_id"":7,""changes"":[]}"'
ANY: dict[str, Any] = {"type": "string"}


def lines(file: bytes) -> list[str]:
    """The lines without the row ids, which are new each time."""
    text = file.decode()
    assert text.endswith("\r\n")
    header, *rows = text.split("\r\n")[:-1]
    return [header, *(row.split(",", 1)[1] for row in rows)]


def table(file: bytes) -> list[dict[str, str]]:
    csv.field_size_limit(sys.maxsize)
    return list(csv.DictReader(io.StringIO(file.decode(), newline=""), strict=True))


def changes(row: dict[str, str]) -> list[tuple[str, str, str]]:
    return [(change["field"], change["change"], change["reason"]) for change in json.loads(row["_airbyte_meta"])["changes"]]


def test_without_flattening_the_record_is_one_quoted_value(landing: Callable[..., Any]) -> None:
    file = landing(PLAIN, {"id": {"type": "integer"}}).file(['{"id": 1.0, "other": "a\\n,\\"b"}'])
    assert lines(file) == [
        f'{HEADER},"_airbyte_data"',
        f'1700000000123,{NO_CHANGES},3,"{{""id"":1.0,""other"":""a\\n,\\""b""}}"',
    ]
    assert file.decode().split("\r\n")[1].startswith('"')


def test_every_value_but_a_number_is_quoted(landing: Callable[..., Any]) -> None:
    names = ["array", "bool", "exact", "exponent", "negative", "null", "object", "string", "zero"]
    record = (
        '{"string":"text","exact":12345678901234567890.10,"exponent":1E+400,"zero":-0,"negative":-1,"bool":true,"null":null,'
        '"object":{"b": [1.0, "x"]},"array":[ ],"undeclared":1}'
    )
    file = landing(FLAT, dict.fromkeys(names, ANY)).file([record])
    assert lines(file) == [
        HEADER + "".join(f',"{name}"' for name in names),
        f'1700000000123,{NO_CHANGES},3,"[]","true",12345678901234567890.10,1E+400,-1,"","{{""b"":[1.0,""x""]}}","text",-0',
    ]


def test_values_are_written_as_they_come_whatever_was_declared(landing: Callable[..., Any]) -> None:
    properties = {"a": {"type": "integer"}, "b": {"type": "boolean"}, "c": {"type": "string", "format": "date"}, "d": {"type": "potato"}}
    row = table(landing(FLAT, properties).file(['{"a":"x","b":2,"c":false,"d":{"e":1}}']))[0]
    assert [row[name] for name in properties] == ["x", "2", "false", '{"e":1}']
    assert changes(row) == []


def test_columns_are_in_the_order_of_the_table(landing: Callable[..., Any]) -> None:
    land = landing(FLAT, {"b": ANY, "Ä b": ANY, "a": ANY, '1,"': ANY}, required=["b"])
    assert lines(land.file(['{"a":"1"}']))[0] == f'{HEADER},"b","Ä b","1,""","a"'


def test_null_absent_and_empty_values_look_the_same(landing: Callable[..., Any]) -> None:
    rows = lines(landing(FLAT, {"a": ANY}).file(['{"a":null}', "{}", '{"a":""}']))[1:]
    assert rows == [f'1700000000123,{NO_CHANGES},3,""'] * 3


def test_a_key_like_those_of_the_meta_columns_gets_a_suffix(landing: Callable[..., Any]) -> None:
    land = landing(FLAT, {"_airbyte_meta": ANY, "_Airbyte_x": ANY, "x": ANY})
    row = table(land.file(['{"_airbyte_meta":"1","_Airbyte_x":"2","x":"3"}']))[0]
    assert {name: row[name] for name in list(row)[4:]} == {"_Airbyte_x_1": "2", "_airbyte_meta_1": "1", "x": "3"}


def test_numbers_that_json_does_not_have_become_null_and_are_recorded(landing: Callable[..., Any]) -> None:
    land = landing(FLAT, {"a": ANY, "b": ANY, "c": ANY})
    row, untouched = table(land.file(['{"a":-Infinity,"b":[NaN,{"c":Infinity}],"c":"NaN","d":NaN}', '{"a":"NaN"}']))
    assert (row["a"], row["b"], row["c"]) == ("", '[null,{"c":null}]', "NaN")
    nulled = ("NULLED", "DESTINATION_SERIALIZATION_ERROR")
    assert changes(row) == [("a", *nulled), ("b.[0]", *nulled), ("b.[1].c", *nulled)]
    assert (untouched["a"], changes(untouched)) == ("NaN", [])
    unflattened = table(landing(PLAIN, {}).file(['{"b":[NaN]}']))[0]
    assert (unflattened["_airbyte_data"], changes(unflattened)) == ('{"b":[null]}', [("b.[0]", *nulled)])


def test_a_lone_surrogate_in_a_string_is_replaced_and_recorded(landing: Callable[..., Any]) -> None:
    row = table(landing(FLAT, {"a": ANY, "b": ANY, "c": ANY}).file(['{"a":"\\ud800\\"x","b":"\\ud83d\\ude00","c":["\\udc00"]}']))[0]
    assert (row["a"], row["b"], row["c"]) == ('\ufffd"x', "😀", '["\\udc00"]')
    assert changes(row) == [("a", "TRUNCATED", "DESTINATION_SERIALIZATION_ERROR")]


def test_keys_that_cannot_be_struct_members_are_read_too(landing: Callable[..., Any]) -> None:
    row = table(landing(FLAT, {'q"': ANY, "n\n": ANY}).file(['{"q\\"":"1","n\\n":2}']))[0]
    assert (row['q"'], row["n\n"]) == ("1", "2")


def test_gzip_is_the_default() -> None:
    assert (CsvOptions().extension, PLAIN.extension) == (".csv.gz", ".csv")


def test_many_blocks_have_one_header(landing: Callable[..., Any]) -> None:
    land = landing(CsvOptions(flattened=True), {"id": ANY})
    block = land.typed(f'{{"id":{number}}}' for number in range(3000))
    sink = io.BytesIO()
    file = CsvFile(sink, land.columns.arrow, CsvOptions(flattened=True))
    for start in (0, 1000, 2000):
        file.write(block.final.slice(start, 1000))
    file.write(block.final.slice(0, 0))
    assert file.close().rows == 3000
    assert [row["id"] for row in table(gzip.decompress(sink.getvalue()))] == [str(number) for number in range(3000)]


def test_rows_with_other_columns_are_refused(landing: Callable[..., Any]) -> None:
    file = CsvFile(io.BytesIO(), landing(FLAT, {"id": ANY}).columns.arrow, FLAT)
    with pytest.raises(pa.ArrowInvalid):
        file.write(landing(FLAT, {"other": ANY}).typed(["{}"]).final)


@each("compressed", [True, False])
def test_duckdb_and_polars_read_the_file(landing: Callable[..., Any], tmp_path: Path, compressed: bool) -> None:
    options = CsvOptions(flattened=True, compressed=compressed)
    path = tmp_path / f"users{options.extension}"
    records = ['{"id":1,"name":"é\\r\\n\\"quoted\\", x","on":true}', '{"id":2.50,"on":false}']
    path.write_bytes(landing(options, dict.fromkeys(["id", "name", "on"], ANY)).file(records))
    found = duckdb.connect().execute('select id, name, "on", _airbyte_extracted_at from read_csv(?)', [str(path)]).fetchall()
    assert found == [(1.0, 'é\r\n"quoted", x', True, 1700000000123), (2.5, None, False, 1700000000123)]
    frame = pl.read_csv(path)
    assert frame.select("id", "name", "on").rows() == [(1.0, 'é\r\n"quoted", x', True), (2.5, "", False)]


STRINGS = st.text(st.sampled_from("\",\r\n\\\t\0;'\ufeffé😀 {[tn1") | st.characters(codec="utf-8"), max_size=12)


@given(st.lists(st.tuples(STRINGS, STRINGS), min_size=1, max_size=5))
def test_any_strings_come_back_from_a_csv_reader(landing: Callable[..., Any], pairs: list[tuple[str, str]]) -> None:
    records = [json.dumps({"a": a, "b": b}, ensure_ascii=number % 2 == 0) for number, (a, b) in enumerate(pairs)]
    found = table(landing(FLAT, {"a": ANY, "b": ANY}).file(records))
    assert [(row["a"], row["b"]) for row in found] == pairs
    whole = table(landing(PLAIN, {}).file(records))
    assert [json.loads(row["_airbyte_data"]) for row in whole] == [{"a": a, "b": b} for a, b in pairs]

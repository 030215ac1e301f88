"""Records and fields that stay the JSON text they came in."""

from __future__ import annotations

import json
from math import isfinite
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from destination_s3_spark.decoding.plan import RowPlan, Values
from destination_s3_spark.decoding.record_line import UnreadableRecord
from destination_s3_spark.exact_json.values import non_numbers, with_nulls
from destination_s3_spark.schema.airbyte_type import Field, Scalar
from destination_s3_spark.schema.arrow import META_FIELDS, RAW_SCHEMA
from destination_s3_spark.stream_id import StreamId
from unit_tests.cases import each

STREAM = StreamId("shop", "users")
RECORD = RowPlan(STREAM, 7, 3, (), RAW_SCHEMA, Values.RECORD)


def cells(*keys: str) -> RowPlan:
    columns = [pa.field(key, pa.string()) for key in keys]
    return RowPlan(STREAM, 7, 3, tuple(Field(key, key, Scalar.STRING) for key in keys), pa.schema([*META_FIELDS, *columns]), Values.CELLS)


def test_both_tables_share_their_meta_columns(make_line: Any, make_block: Any, make_typer: Any) -> None:
    block = make_typer(RECORD).type_block(make_block(map(make_line, ['{"x": 1}', "{}"])))
    assert block.final.schema == RAW_SCHEMA
    assert block.final["_airbyte_data"].to_pylist() == ['{"x":1}', "{}"]
    assert block.raw["_airbyte_data"].to_pylist() == ['{"x": 1}', "{}"]
    assert block.final["_airbyte_raw_id"].equals(block.raw["_airbyte_raw_id"])
    assert block.multiset == make_typer(cells()).type_block(make_block(map(make_line, ['{"x": 1}', "{}"]))).multiset


def test_a_block_without_rows_has_the_columns(make_block: Any, make_typer: Any) -> None:
    for plan in (RECORD, cells("x")):
        assert make_typer(plan).type_block(b"").final.schema == plan.table_schema


@each("data", ["[1]", '"x"', "null", "1", '{"x":tru}', '{"x":1', '{"x":"\\q"}', '{"x":01}'])
@each("plan", [RECORD, cells("x"), cells("y")])
def test_what_is_no_object_is_unreadable(plan: RowPlan, data: str, make_line: Any, make_block: Any, make_typer: Any) -> None:
    with pytest.raises(UnreadableRecord) as raised:
        make_typer(plan).type_block(make_block([make_line("{}"), make_line(data)]))
    assert raised.value.index == 1


def test_cells_are_json_text_of_any_type(make_line: Any, make_block: Any, make_typer: Any) -> None:
    texts = ['{"x": 1.50,"y":"a, b"}', '{"y":{"a": [ 1 ]},"z":1}', '{"x":null,"x":true}', '{"x":"\\u00e9"}']
    final = make_typer(cells("x", "y")).type_block(make_block(map(make_line, texts))).final
    assert final["x"].to_pylist() == ["1.50", None, "true", '"\\u00e9"']
    assert final["y"].to_pylist() == ['"a, b"', '{"a":[1]}', None, None]


def test_any_depth_is_read(make_line: Any, make_block: Any, make_typer: Any) -> None:
    deep = '{"x":' + "[" * 3000 + "NaN, 1" + "]" * 3000 + "}"
    block = make_typer(RECORD).type_block(make_block([make_line(deep)]))
    assert block.final["_airbyte_data"][0].as_py() == deep.replace("NaN, 1", "null,1")
    assert block.final["_airbyte_meta"][0].as_py()["changes"][0]["field"] == "x" + ".[0]" * 3000


def test_non_numbers_are_found_with_the_way_to_them() -> None:
    text = b'{"a":"NaN","b":[{},NaN,[-Infinity]],"c,\\"{":{"d":1,"e":Infinity}}'
    found = list(non_numbers(text))
    assert [text[place.start : place.end] for place in found] == [b"NaN", b"-Infinity", b"Infinity"]
    assert [place.steps for place in found] == [((1, "b"), (1, None)), ((1, "b"), (2, None), (0, None)), ((2, 'c,"{'), (1, "e"))]
    assert with_nulls(found, text) == b'{"a":"NaN","b":[{},null,[null]],"c,\\"{":{"d":1,"e":null}}'
    assert [place.steps for place in non_numbers(b"NaN")] == [()]


VALUES = st.recursive(
    st.none() | st.floats() | st.integers() | st.text(st.sampled_from('ab ,:{}[]"\\Naé\t')),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(st.sampled_from(' a,:"{NaN')), inner, max_size=3),
    max_leaves=6,
)


@given(
    values=st.lists(VALUES, min_size=1, max_size=6),
    separators=st.sampled_from([(",", ":"), (", ", ":"), (",", ": "), (" ,", ":"), (",", " :"), ("\r,", ":")]),
)
def test_a_cell_is_the_compact_text_of_the_value_with_nulls(
    values: list[Any], separators: tuple[str, str], make_line: Any, make_block: Any, make_typer: Any
) -> None:
    records = [json.dumps({"x": value}, separators=separators, ensure_ascii=False) for value in values]
    compact = [json.dumps(with_nulls_for_non_numbers(value), separators=(",", ":"), ensure_ascii=False) for value in values]
    final = make_typer(cells("x")).type_block(make_block(map(make_line, records))).final
    assert final["x"].to_pylist() == [None if text == "null" else text for text in compact]


def with_nulls_for_non_numbers(value: Any) -> Any:
    match value:
        case float():
            return value if isfinite(value) else None
        case list():
            return [with_nulls_for_non_numbers(item) for item in value]
        case dict():
            return {key: with_nulls_for_non_numbers(member) for key, member in value.items()}
    return value

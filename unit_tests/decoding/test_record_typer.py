"""Blocks of lines as rows of both tables."""

from __future__ import annotations

import tracemalloc
from typing import Any
from uuid import UUID

import pyarrow as pa
import xxhash

from destination_s3_spark.schema.airbyte_type import Array, Field, Object, Scalar, SchemalessArray, SchemalessObject, Union
from unit_tests.cases import each

NULLED = "DESTINATION_SERIALIZATION_ERROR"
TOO_LARGE = "DESTINATION_FIELD_SIZE_LIMITATION"


def field(of: Any, source: str = "x") -> Field:
    return Field(source, source, of)


def test_both_tables_share_ids_metadata_and_order(make_plan: Any, make_line: Any, make_block: Any, make_typer: Any) -> None:
    plan = make_plan([field(Scalar.INTEGER)], extra_columns=[pa.field("gone", pa.list_(pa.string()))])
    data = ['{"x":1}', '{ "x": 2.50,  "y":[ ]}', "{}"]
    block = make_typer(plan).type_block(make_block(make_line(text, emitted_at=str(at)) for at, text in enumerate(data, -1)))

    assert block.records == 3
    assert block.final.schema == plan.table_schema
    assert block.raw.schema.names == [
        "_airbyte_raw_id",
        "_airbyte_extracted_at",
        "_airbyte_meta",
        "_airbyte_generation_id",
        "_airbyte_data",
    ]
    for shared in block.raw.schema.names[:4]:
        assert block.raw.schema.field(shared) == block.final.schema.field(shared)
    for same in ("_airbyte_raw_id", "_airbyte_extracted_at", "_airbyte_generation_id"):
        assert block.raw[same].equals(block.final[same])
    assert [len(meta["changes"]) for meta in block.final["_airbyte_meta"].to_pylist()] == [0, 1, 0]
    assert [len(meta["changes"]) for meta in block.raw["_airbyte_meta"].to_pylist()] == [0, 0, 0]
    assert data == block.raw["_airbyte_data"].to_pylist()
    assert block.raw["_airbyte_extracted_at"].cast("int64").to_pylist() == [-1, 0, 1]
    assert block.raw["_airbyte_generation_id"].to_pylist() == [3, 3, 3]
    assert block.final["x"].to_pylist() == [1, None, None]
    assert block.final["gone"].to_pylist() == [None, None, None]


def test_the_raw_row_keeps_the_sources_changes_only(make_plan: Any, make_line: Any, make_block: Any, make_typer: Any) -> None:
    meta = ',"meta":{"changes":[{"field":"y","change":"TRUNCATED","reason":"SOURCE_FIELD_SIZE_LIMITATION"}]}'
    block = make_typer(make_plan([field(Scalar.INTEGER)])).type_block(make_block([make_line('{"x":"no"}', rest=meta)]))
    assert [entry["field"] for entry in block.raw["_airbyte_meta"].to_pylist()[0]["changes"]] == ["y"]
    assert [entry["field"] for entry in block.final["_airbyte_meta"].to_pylist()[0]["changes"]] == ["y", "x"]


def test_row_ids_are_distinct_uuids_of_version_7(make_plan: Any, make_line: Any, make_block: Any, make_typer: Any) -> None:
    ids = make_typer(make_plan([])).type_block(make_block([make_line("{}")] * 3000)).raw["_airbyte_raw_id"].to_pylist()
    assert len(set(ids)) == 3000
    for text in ids[:100]:
        assert str(UUID(text)) == text
        assert (UUID(text).version, UUID(text).variant) == (7, "specified in RFC 4122")


def test_the_multiset_hash_ignores_order_and_blocks_but_not_content(
    make_plan: Any, make_line: Any, make_block: Any, make_typer: Any
) -> None:
    data = [f'{{"x": {number}}}' for number in range(5)]
    expected = sum(xxhash.xxh3_128_intdigest(text.encode()) for text in data) % 2**128
    typer = make_typer(make_plan([field(Scalar.INTEGER)]))

    def hashed(texts: list[str]) -> int:
        return typer.type_block(make_block(map(make_line, texts))).multiset

    assert expected == hashed(data) == hashed(data[::-1]) == (hashed(data[:2]) + hashed(data[2:])) % 2**128
    assert expected != hashed([*data[:4], '{"x":4}'])
    assert 2 * xxhash.xxh3_128_intdigest(b"{}") % 2**128 == hashed(["{}", "{}"])


def test_an_empty_block_has_no_rows(make_plan: Any, make_typer: Any) -> None:
    plan = make_plan([field(Array(Scalar.DATE)), field(SchemalessObject(), "y")])
    block = make_typer(plan).type_block(b"")
    assert (block.records, block.multiset, block.final.num_rows, block.raw.num_rows) == (0, 0, 0, 0)
    assert plan.table_schema == block.final.schema


def test_a_last_line_without_a_newline_counts(make_plan: Any, make_line: Any, make_typer: Any) -> None:
    lines = (make_line("{}") + "\n" + make_line("{}")).encode()
    assert make_typer(make_plan([])).type_block(lines).records == 2
    assert make_typer(make_plan([])).type_block(make_line("{}").encode()).records == 1


def test_columns_follow_the_table_and_changes_follow_the_declared_fields(
    make_plan: Any, make_line: Any, make_block: Any, make_typer: Any
) -> None:
    fields = [
        field(Scalar.DATE, "b"),
        field(Object((field(Scalar.INTEGER, "q"), field(Scalar.DATE, "p"))), "a"),
        field(Scalar.BOOLEAN, "c"),
    ]
    plan = make_plan(fields)
    schema = plan.table_schema
    turned = make_plan(fields).__class__(
        plan.stream, 1, 1, tuple(fields), pa.schema([*list(schema)[:4], schema.field("c"), schema.field("a"), schema.field("b")])
    )
    line = make_line('{"b":"no","c":"no","a":{"p":"no","q":"no"}}')
    for lines, paths in (([line], ["b", "a.q", "a.p", "c"]), ([line.replace('"q":"no"', '"q":1')], ["b", "a.p", "c"])):
        block = make_typer(turned).type_block(make_block(lines))
        assert turned.table_schema == block.final.schema
        assert paths == [change["field"] for change in block.final["_airbyte_meta"].to_pylist()[0]["changes"]]


def test_paths_go_through_members_and_items(one_value: Any) -> None:
    of = Array(
        Object(
            (field(Array(Scalar.DATE), "d"), field(Array(Array(Scalar.INTEGER)), "n"), field(Union((Scalar.DATE, Array(Scalar.DATE))), "u"))
        )
    )
    text = '[{"d":["2021-01-01","x"]},null,7,{"n":[[],[1,true],2],"u":["x"]},{"u":5,"d":[{}]}]'
    _, changes = one_value(of, text)
    paths = ["x.[0].d.[1]", "x.[2]", "x.[3].n.[1].[1]", "x.[3].n.[2]", "x.[3].u.[0]", "x.[4].d.[0]", "x.[4].u"]
    assert paths == [change["field"] for change in changes]


@each(
    ("options", "text", "value", "reasons"),
    [
        ((Scalar.INTEGER, Scalar.STRING), "false", None, [NULLED]),
        ((Scalar.INTEGER, Scalar.STRING), '"1"', {"type": "string", "integer": None, "string": "1"}, []),
        ((Scalar.STRING, Scalar.DATE), '"2021-01-01"', {"type": "string", "string": "2021-01-01", "date": None}, []),
        ((Scalar.DATE, Scalar.STRING), '"2021-01-01"', {"type": "date", "date": 18628, "string": None}, []),
        ((Scalar.DATE, Scalar.STRING), '"foo"', {"type": "string", "date": None, "string": "foo"}, []),
        ((Scalar.DATE, Scalar.INTEGER), '"foo"', None, [NULLED]),
        ((Scalar.DATE, Scalar.INTEGER), '"+99999999-01-01"', None, [TOO_LARGE]),
        ((Scalar.NUMBER, Scalar.INTEGER), "1", {"type": "integer", "number": None, "integer": 1}, []),
        ((Scalar.INTEGER, Scalar.NUMBER), "1.5", {"type": "number", "integer": None, "number": 1.5}, []),
        ((Scalar.INTEGER, Scalar.NUMBER), "1.0", {"type": "number", "integer": None, "number": 1.0}, []),
        ((Scalar.INTEGER, Scalar.NUMBER), "1" + "0" * 30, {"type": "number", "integer": None, "number": 1e30}, []),
        ((Scalar.INTEGER, Scalar.BOOLEAN), "2.0", {"type": "integer", "integer": 2, "boolean": None}, []),
        ((Scalar.INTEGER, Scalar.BOOLEAN), "1e30", None, [TOO_LARGE]),
        ((Scalar.INTEGER, Scalar.BOOLEAN), "NaN", None, [NULLED]),
        ((SchemalessObject(), Scalar.INTEGER), '{"a": [1]}', {"type": "object", "object": '{"a":[1]}', "integer": None}, []),
        ((SchemalessArray(), Scalar.INTEGER), '[ "a b" ]', {"type": "array", "array": '["a b"]', "integer": None}, []),
        (
            (Object((field(Scalar.INTEGER, "i"),)), Scalar.BOOLEAN),
            '{"i":"x"}',
            {"type": "object", "object": {"i": None}, "boolean": None},
            [NULLED],
        ),
    ],
)
def test_a_union_takes_a_value_by_its_kind(options: Any, text: str, value: Any, reasons: list[str], one_value: Any) -> None:
    actual, changes = one_value(Union(options), text)
    assert value == actual
    assert reasons == [change["reason"] for change in changes]


@each(
    ("of", "text", "value", "reasons"),
    [  # the examples of the migration guide to destination-s3 1.0
        (Scalar.TIME_WITH_TIMEZONE, '"12:00:00-01:00"', 46_800_000_000, []),
        (Scalar.TIME_WITH_TIMEZONE, '"04:00:00+02:00"', 7_200_000_000, []),
        (Scalar.TIME_WITH_TIMEZONE, '"04:00:00+05:30"', 81_000_000_000, []),
        (Object((field(Scalar.INTEGER, "id"),)), '{ "id": 1, "name": "Alice" }', {"id": 1}, []),
        (SchemalessObject(), '{ "id": 1, "name": "Alice" }', '{"id":1,"name":"Alice"}', []),
        (Array(Scalar.INTEGER), '[1, "Alice"]', [1, None], [NULLED]),
        (SchemalessArray(), '[1, "Alice"]', '[1,"Alice"]', []),
        (
            Array(Union((Scalar.INTEGER, Scalar.STRING))),
            '[1, "Alice"]',
            [{"type": "integer", "integer": 1, "string": None}, {"type": "string", "integer": None, "string": "Alice"}],
            [],
        ),
        (Array(Union((Scalar.INTEGER, Scalar.STRING))), "[1, false]", [{"type": "integer", "integer": 1, "string": None}, None], [NULLED]),
    ],
)
def test_the_migration_guide_holds(of: Any, text: str, value: Any, reasons: list[str], one_value: Any) -> None:
    actual, changes = one_value(of, text)
    assert value == actual
    assert reasons == [change["reason"] for change in changes]


@each("depth", [900, 1100, 20_000])
def test_depth_is_no_limit(depth: int, make_plan: Any, make_line: Any, make_block: Any, make_typer: Any) -> None:
    deep = "[" * depth + " 1 " + "]" * depth
    fields = [field(Scalar.STRING, "s"), field(SchemalessArray(), "a"), field(Scalar.INTEGER, "i"), field(Scalar.INTEGER, "n")]
    data = f'{{"n":5,"s":{deep},"a":{deep},"i":{deep}}}'
    block = make_typer(make_plan(fields)).type_block(make_block([make_line("{}"), make_line(data)]))
    compact = deep.replace(" ", "")
    assert {"s": compact, "a": compact, "i": None, "n": 5} == block.final.select(["s", "a", "i", "n"]).to_pylist()[1]
    assert data == block.raw["_airbyte_data"].to_pylist()[1]


def test_numbers_of_any_length_are_settled_by_their_digits(one_value: Any) -> None:
    digits = "9" * 10_000
    assert reasons_of(one_value(Scalar.INTEGER, digits)) == (None, [TOO_LARGE])
    assert reasons_of(one_value(Scalar.INTEGER, f'"-{digits}"')) == (None, [TOO_LARGE])
    assert reasons_of(one_value(Scalar.NUMBER, digits)) == (None, [TOO_LARGE])
    assert (digits, []) == reasons_of(one_value(Scalar.STRING, digits))
    assert reasons_of(one_value(Scalar.INTEGER, "7." + "0" * 10_000)) == (7, [])
    assert reasons_of(one_value(Scalar.INTEGER, "1e-" + digits)) == (None, [NULLED])
    assert reasons_of(one_value(Scalar.INTEGER, "1e" + digits)) == (None, [TOO_LARGE])
    assert reasons_of(one_value(Scalar.NUMBER, "1e-" + digits)) == (0.0, [])


def reasons_of(typed: tuple[Any, list[dict[str, Any]]]) -> tuple[Any, list[str]]:
    return typed[0], [change["reason"] for change in typed[1]]


def test_thousands_of_columns(make_plan: Any, make_line: Any, make_block: Any, make_typer: Any) -> None:
    fields = [field(Scalar.INTEGER, f"column {number}") for number in range(2500)]
    data = "{" + ",".join(f'"column {number}":{number}' for number in reversed(range(2500))) + "}"
    block = make_typer(make_plan(fields)).type_block(make_block([make_line(data)]))
    assert list(range(2500)) == [block.final[f"column {number}"][0].as_py() for number in range(2500)]


def test_what_is_no_number_is_null_in_a_number_and_text_elsewhere(make_plan: Any, make_line: Any, make_block: Any, make_typer: Any) -> None:
    point = Object((field(Scalar.NUMBER, "lat"), field(Scalar.STRING, "name")))
    fields = [field(Scalar.NUMBER, "n"), field(Scalar.STRING, "s"), field(Array(point), "l"), field(SchemalessObject(), "j")]
    data = '{"n":-Infinity,"s":NaN,"l":[{"lat":NaN,"name":"NaN"}],"j":{"x": Infinity},"NaN":NaN}'
    final = make_typer(make_plan(fields)).type_block(make_block([make_line('{"n":NaN,"n":1}'), make_line(data)])).final
    assert final.select(["n", "s", "l", "j"]).to_pylist() == [
        {"n": 1.0, "s": None, "l": None, "j": None},
        {"n": None, "s": "NaN", "l": [{"lat": None, "name": "NaN"}], "j": '{"x":Infinity}'},
    ]
    assert [change["field"] for change in final["_airbyte_meta"].to_pylist()[1]["changes"]] == ["n", "l.[0].lat"]


def test_one_huge_line_takes_a_small_multiple_of_its_size(make_plan: Any, make_line: Any, make_block: Any, make_typer: Any) -> None:
    size = 20_000_000
    lines = make_block([make_line('{"x":"' + "é" * (size // 2) + '","y":{"z":"' + "a " * 10 + '"}}')])
    before = pa.total_allocated_bytes()
    tracemalloc.start()
    try:
        block = make_typer(make_plan([field(Scalar.STRING), field(SchemalessObject(), "y")])).type_block(lines)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert size // 2 == len(block.final["x"][0].as_py())
    assert peak + pa.total_allocated_bytes() - before < 8 * size


def test_raw_rows_of_another_writer_may_have_newlines(make_plan: Any, make_line: Any, make_block: Any, make_typer: Any) -> None:
    typer = make_typer(make_plan([field(SchemalessObject())]))
    raw = typer.type_block(make_block(make_line(text) for text in ('{"x":{"a":1}}', '{"x":{}}', "{}", '{"x":[]}'))).raw
    at = raw.schema.get_field_index("_airbyte_data")
    texts = pa.array(['{"x":{"a":\n1}}', '{"x":{\n}}', "{}", '{"x":[\n]}'])
    again = typer.retype(raw.set_column(at, raw.schema.field(at), texts))

    assert again.final["x"].to_pylist() == ['{"a":1}', "{}", None, None]
    assert [len(meta["changes"]) for meta in again.final["_airbyte_meta"].to_pylist()] == [0, 0, 0, 1]

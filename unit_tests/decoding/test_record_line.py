"""Which lines are records of the stream, and what surrounds their data."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from destination_s3_spark.decoding.record_line import MisroutedRecord, UnreadableRecord
from destination_s3_spark.schema.airbyte_type import Field, Scalar
from destination_s3_spark.stream_id import StreamId
from unit_tests.cases import each

ID = Field("id", "id", Scalar.INTEGER)
GOOD = '{"type":"RECORD","record":{"stream":"users","namespace":"shop","emitted_at":5,"data":{"id":1}}}'
NO_JSON = ["--Infinity", "+Infinity", "1NaN", "NaN.5", "1eNaN", "NaN NaN", "tNaNrue", "-", "nan", "{NaN:1}", r'"\NaN"', r'"\uNaN0"']


@pytest.fixture(params=["first block", "block after one like it"])
def typed(request: Any, make_typer: Any) -> Any:
    """Types lines with a fresh typer, and with one that has learnt what the stream's lines look like."""

    def of(plan: Any, *lines: str | bytes) -> Any:
        typer = make_typer(plan)
        if request.param != "first block" and plan.stream.namespace:
            assert typer.type_block(f"{GOOD}\n{GOOD}\n".encode()).records == 2
        return typer.type_block(b"".join((line if isinstance(line, bytes) else line.encode()) + b"\n" for line in lines))

    return of


@each(
    "line",
    [
        "",
        "   ",
        "null",
        "[]",
        '"text"',
        "{}",
        '{"type":"RECORD"}',
        '{"type":"RECORD","record":null}',
        '{"record":{"stream":"users","namespace":"shop","emitted_at":5}}',
        '{"record":{"stream":"users","namespace":"shop","emitted_at":5,"data":null}}',
        '{"record":{"stream":"users","namespace":"shop","emitted_at":5,"data":[]}}',
        '{"record":{"stream":"users","namespace":"shop","emitted_at":5,"data":"{}"}}',
        '{"record":{"stream":"users","namespace":"shop","data":{}}}',
        '{"record":{"stream":"users","namespace":"shop","emitted_at":null,"data":{}}}',
        '{"record":{"stream":"users","namespace":"shop","emitted_at":5.0,"data":{}}}',
        '{"record":{"stream":"users","namespace":"shop","emitted_at":"5","data":{}}}',
        '{"record":{"stream":"users","namespace":"shop","emitted_at":true,"data":{}}}',
        '{"record":{"stream":"users","namespace":"shop","emitted_at":9223372036854776,"data":{}}}',
        '{"record":{"stream":"users","namespace":"shop","emitted_at":-9223372036854776,"data":{}}}',
        '{"record":{"stream":"users","namespace":"shop","emitted_at":' + "9" * 5000 + ',"data":{}}}',
        '{"record":{"namespace":"shop","emitted_at":5,"data":{}}}',
        '{"record":{"stream":7,"namespace":"shop","emitted_at":5,"data":{}}}',
        '{"record":{"stream":"users","namespace":{},"emitted_at":5,"data":{}}}',
        '{"record":{"stream":"users","namespace":"shop","emitted_at":5,"data":{},"meta":[]}}',
        '{"record":{"stream":"users","namespace":"shop","emitted_at":5,"data":{},"meta":{"changes":{}}}}',
        '{"record":{"stream":"users","namespace":"shop","emitted_at":5,"data":{},"meta":{"changes":[1]}}}',
        GOOD[:-1],
        GOOD + "}",
        GOOD + GOOD,
        GOOD.replace('{"id":1}', '{"id":1,}'),
        GOOD.replace('{"id":1}', '{"id":1},{"id":1}'),
        GOOD.replace('{"id":1}', '{"id":1}}},{"a":{"b":{}'),
        GOOD.replace('"emitted_at":5', '"emitted_at":05'),
        "x" + GOOD,
        GOOD.replace('{"id":1}', '{"id":01}'),
        GOOD.replace('{"id":1}', '{"id":1 "b":2}'),
        GOOD.replace('{"id":1}', '{"x":"tab\there"}'),
        GOOD.replace('{"id":1}', '{"x":"\\x"}'),
        GOOD.replace('{"id":1}', '{"x":[NaN,]}'),
        GOOD.replace('{"id":1}', '{"x":-NaN}'),
        GOOD.replace('{"id":1}', '{"id":-NaN}'),
        GOOD.replace('{"id":1}', '{"x":NaN1}'),
        GOOD.replace('{"id":1}', '{"x":NaN "id":2}'),
        GOOD.replace('{"id":1}', '{"x":NaN,}'),
        GOOD.replace('{"id":1}', '{"x":NaN,"y":Nan}'),
        *(GOOD.replace('{"id":1}', f'{{"a":NaN,"x":[{text}]}}') for text in NO_JSON),
        GOOD.replace('{"id":1}', "{'id':1}"),
        GOOD.encode().replace(b'{"id":1}', b'{"x":"\xff"}'),
        GOOD.encode().replace(b'{"id":1}', b'{"x":"\xed\xa0\x80"}'),
        GOOD.encode().replace(b'{"id":1}', b'{"\xff":1}'),
        b"\xef\xbb\xbf" + GOOD.encode(),
    ],
)
def test_a_line_that_is_no_record_is_named_by_its_ordinal_alone(typed: Any, line: str | bytes, make_plan: Any) -> None:
    with pytest.raises(UnreadableRecord) as failure:
        typed(make_plan([ID]), GOOD, GOOD, line, GOOD)
    assert (failure.type, failure.value.index) == (UnreadableRecord, 2)
    assert "users" not in str(failure.value)
    assert failure.value.__cause__ is None


@each(
    "line",
    [
        '{"record":{"stream":"others","namespace":"shop","emitted_at":5,"data":{}}}',
        '{"record":{"stream":"Users","namespace":"shop","emitted_at":5,"data":{}}}',
        '{"record":{"stream":"users","namespace":"other","emitted_at":5,"data":{}}}',
        '{"record":{"stream":"users","namespace":null,"emitted_at":5,"data":{}}}',
        '{"record":{"stream":"users","namespace":"","emitted_at":5,"data":{}}}',
        '{"record":{"stream":"users","emitted_at":5,"data":{}}}',
        '{"record":{"stream":"users","namespace":"shop","stream":"last key wins","emitted_at":5,"data":{}}}',
    ],
)
def test_a_record_of_another_stream_is_refused(typed: Any, line: str, make_plan: Any) -> None:
    with pytest.raises(MisroutedRecord) as failure:
        typed(make_plan([ID]), GOOD, line)
    assert failure.value.index == 1


@each("namespace", ['"namespace":null,', '"namespace":"",', ""])
def test_no_namespace_an_empty_one_and_null_are_the_same(typed: Any, namespace: str, make_plan: Any) -> None:
    line = f'{{"record":{{"stream":"users",{namespace}"emitted_at":5,"data":{{"id":1}}}}}}'
    plan = make_plan([ID], StreamId(None, "users"))
    assert typed(plan, line).final["id"].to_pylist() == [1]
    with pytest.raises(MisroutedRecord):
        typed(plan, GOOD)


@each(
    "line",
    [
        GOOD,
        GOOD.replace(",", " , ").replace(":", " :\t").replace("{", "{ ") + "\r",
        '{"x":{"record":1},"record":{"data":{"id":1},"y":[{"data":2}],"emitted_at":5,"stream":"users","namespace":"shop","z":null},"type":"RECORD"}',
        '{"record":{"stream":"\\u0075sers","namespace":"shop","emitted_at":5,"data":{"id":2},"data":{"id":1},"emitted_at":5}}',
        '{"record":{"stream":"wrong","stream":"users","namespace":"shop","emitted_at":"x","emitted_at":5,"data":{"id":1}}}',
        '{"record":{"stream":"users","namespace":"shop","emitted_at":5,"data":{"id":1},"meta":null,"lone":"\\ud800","n":NaN}}',
        '{"record":{"stream":"users","namespace":"shop","emitted_at":5,"data":{"id":1},"deep":' + "[" * 3000 + "]" * 3000 + "}}",
        GOOD.replace('{"id":1}', '{"id":1},"more":{"a":{}}'),
        GOOD.replace('{"id":1}', '{"id":2},"data":{"id":1}'),
        GOOD.replace('{"id":1}', '{"id":1},"emitted_at":6,"emitted_at":5,"x":{}'),
        GOOD.replace('{"id":1}', '{"id":1,"x":NaN},"more":{"a":{}}'),
        GOOD.replace('"emitted_at":5', '"emitted_at":6').replace('{"id":1}}', '{"id":1},"emitted_at":5}'),
        GOOD.replace('"emitted_at":5', '"emitted_at": 5'),
    ],
)
def test_blanks_key_order_unknown_and_repeated_members_do_not_matter(typed: Any, line: str, make_plan: Any) -> None:
    block = typed(make_plan([ID]), GOOD, line, GOOD)
    assert block.final["id"].to_pylist() == [1, 1, 1]
    assert block.raw["_airbyte_extracted_at"].cast("int64").to_pylist() == [5, 5, 5]


def test_times_as_early_and_late_as_microseconds_go_are_read(typed: Any, make_plan: Any) -> None:
    times = [2**63 // 1000, -(2**63 // 1000)]
    block = typed(make_plan([ID]), *(GOOD.replace('"emitted_at":5', f'"emitted_at":{time}') for time in times))
    assert block.final["_airbyte_extracted_at"].cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_pylist() == [
        1000 * time for time in times
    ]


def test_two_records_on_one_line_are_not_hidden_by_one_that_spans_two(typed: Any, make_plan: Any) -> None:
    spanning = GOOD.replace('"record":', '"record":\n')
    with pytest.raises(UnreadableRecord) as failure:
        typed(make_plan([ID]), GOOD + GOOD, spanning)
    assert failure.value.index == 0


def test_the_changes_of_the_source_pass_as_they_are_and_come_first(typed: Any, make_plan: Any) -> None:
    changes = (
        '[{"field":"z","change":"TRUNCATED","reason":"SOURCE_FIELD_SIZE_LIMITATION"},'
        '{"field":"y","change":"EXPLODED","reason":"NEW_REASON","more":1},{},{"field":null,"change":5}]'
    )
    line = GOOD.replace('{"id":1}', '{"id":"x"}').replace("}}}", '},"meta":{"changes":' + changes + ',"other":1}}}', 1)
    block = typed(make_plan([ID]), GOOD, line)
    assert block.final["_airbyte_meta"].to_pylist() == [
        {"sync_id": 7, "changes": []},
        {
            "sync_id": 7,
            "changes": [
                {"field": "z", "change": "TRUNCATED", "reason": "SOURCE_FIELD_SIZE_LIMITATION"},
                {"field": "y", "change": "EXPLODED", "reason": "NEW_REASON"},
                {"field": None, "change": None, "reason": None},
                {"field": None, "change": "5", "reason": None},
                {"field": "id", "change": "NULLED", "reason": "DESTINATION_SERIALIZATION_ERROR"},
            ],
        },
    ]


@each("meta", ["null", "{}", '{"changes":null}', '{"changes":[]}'])
def test_meta_without_changes_is_no_change(typed: Any, meta: str, make_plan: Any) -> None:
    line = GOOD.replace('"data"', f'"meta":{meta},"data"')
    assert typed(make_plan([ID]), line).final["_airbyte_meta"].to_pylist()[0]["changes"] == []


def test_the_first_line_at_fault_is_named_whatever_was_learnt(typed: Any, make_plan: Any) -> None:
    broken = GOOD.replace('{"id":1}', '{"id" 1}')
    with pytest.raises(UnreadableRecord) as failure:
        typed(make_plan([ID]), GOOD, broken, GOOD.replace("users", "other"))
    assert failure.value.index == 1


def test_an_odd_line_among_alike_ones_is_typed_in_its_place(make_plan: Any, make_typer: Any) -> None:
    typer = make_typer(make_plan([ID]))
    alike = [GOOD.replace("1", str(number)).replace(":5", f":{number}") for number in range(40)]
    block = "".join(line + "\n" for line in alike)
    typer.type_block(block.encode())
    odd = block.replace(alike[7], alike[7].replace(",", " ,")).replace(alike[9] + "\n", alike[9].replace('"id":9', '"id":"9x"') + "\n")
    odd = odd.replace(alike[30], alike[30].replace("}}}", '},"meta":{"changes":[{"field":"f"}]}}}'))
    typed = typer.type_block(odd.encode())
    assert typed.final["id"].to_pylist() == [None if number == 9 else number for number in range(40)]
    assert typed.final["_airbyte_extracted_at"].cast("int64").to_pylist() == list(range(40))
    changed = {row: meta["changes"][0]["field"] for row, meta in enumerate(typed.final["_airbyte_meta"].to_pylist()) if meta["changes"]}
    assert changed == {9: "id", 30: "f"}


def test_lines_that_are_never_alike_are_read_all_the_same(make_plan: Any, make_typer: Any) -> None:
    typer = make_typer(make_plan([ID]))
    block = "".join(GOOD.replace('"type"', f'"number":{number},"type"') + "\n" for number in range(50)).encode()
    for _ in range(3):
        assert typer.type_block(block).records == 50

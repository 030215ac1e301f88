from __future__ import annotations

import pickle
from typing import Any
from uuid import RFC_4122, UUID

from hypothesis import given
from hypothesis import strategies as st

from destination_s3_spark.decoding.plan import RowPlan
from destination_s3_spark.decoding.raw_ids import carried_digest, key_text, keyed_id, raw_ids
from destination_s3_spark.schema.airbyte_type import Field, Scalar
from unit_tests.cases import each


@given(st.lists(st.binary(max_size=4), min_size=2, max_size=5, unique=True))
def test_an_id_carries_its_key_and_stays_one_of_its_own(keys: list[bytes]) -> None:
    ids = raw_ids(2 * len(keys)).to_pylist()
    carrying = [keyed_id(raw_id, key) for raw_id, key in zip(ids, [*keys, *keys], strict=True)]
    assert len(set(carrying)) == len(ids)
    assert {(UUID(one).version, UUID(one).variant, str(UUID(one)) == one) for one in carrying} == {(8, RFC_4122, True)}
    digests = [carried_digest(one) for one in carrying]
    assert digests[: len(keys)] == digests[len(keys) :]
    assert len(set(digests)) == len(keys)
    assert {carried_digest(raw_id) for raw_id in ids} == {None}
    assert [keyed_id(one, key) for one, key in zip(carrying, [*keys, *keys], strict=True)] == carrying, "made twice it is the same"


@each(
    ("data", "text"),
    [
        (b'{"id":99999999999999999999,"day":"soon"}', b'99999999999999999999\n"soon"'),
        (b'{ "day" : "soon" , "x":1, "id" : [ 1, 2 ] }', b'[1,2]\n"soon"'),
        (b'{"id":NaN,"id":Infinity}', b"Infinity\nnull"),
    ],
)
def test_the_text_of_a_key_is_that_of_its_fields(data: bytes, text: bytes) -> None:
    assert key_text(data, ("id", "day")) == text


def test_a_record_has_the_same_key_whichever_way_it_is_typed(make_plan: Any, make_line: Any, make_block: Any, make_typer: Any) -> None:
    fields = [
        Field("id", "id", Scalar.INTEGER),
        Field("at", "at", Scalar.DATE),
        Field("n", "n", Scalar.NUMBER),
        Field("s", "s", Scalar.STRING),
    ]
    plan = make_plan(fields)
    keyed = RowPlan(plan.stream, 7, 3, plan.fields, plan.table_schema, key=("id", "n"))
    assert pickle.loads(pickle.dumps(keyed)) == keyed
    data = [
        '{"id":1}',
        '{"id":1e30}',
        '{"id":2,"at":"x","s":"\\ud800"}',
        '{"id":3,"n":9007199254740993}',
        '{"id":"y"}',
        '{"id":NaN}',
        '{"id":1e30}',
    ]
    block = make_typer(keyed).type_block(make_block(map(make_line, data)))
    digests = list(map(carried_digest, block.final["_airbyte_raw_id"].to_pylist()))
    assert [digest is not None for digest in digests] == [False, True, False, True, True, True, True]
    assert digests[1] == digests[6]
    assert block.raw["_airbyte_raw_id"].equals(block.final["_airbyte_raw_id"])
    assert dict(block.unfit) == {"id": 4, "at": 1, "n": 1}
    again = make_typer(keyed).retype(block.raw)
    assert again.final.equals(block.final)
    assert again.unfit == block.unfit
    unkeyed = make_typer(plan).type_block(make_block(map(make_line, data)))
    assert {carried_digest(raw_id) for raw_id in unkeyed.final["_airbyte_raw_id"].to_pylist()} == {None}
    assert dict(unkeyed.unfit) == {}


@each(
    ("of", "whole", "cut"),
    [
        (
            Scalar.TIMESTAMP_WITH_TIMEZONE,
            ["2024-01-02T03:04:05Z", "2024-01-02T03:04:05.123456000+01:00", "2024.01.02 03:04:05.1"],
            ["2024-01-02T03:04:05.1234567Z", "2024-01-02T03:04:05.000000001Z", "2024-01-02 03:04:05.0000001 Europe/Berlin"],
        ),
        (Scalar.TIMESTAMP_WITHOUT_TIMEZONE, ["2024-01-02T03:04:05.123456"], ["2024-01-02T03:04:05.1234561"]),
        (Scalar.TIME_WITHOUT_TIMEZONE, ["03:04:05", "03:04:05.1234560"], ["03:04:05.1234567"]),
        (Scalar.TIME_WITH_TIMEZONE, ["03:04:05Z", "03:04:05.5+01:00"], ["03:04:05.1234567+01:00"]),
        (
            Scalar.DATE,
            ["2024-01-02", "2024-01-02T00:00:00Z", "2024-01-02 00:00:00.000+00:00", "2024 Jan 2"],
            ["2024-01-02T10:00:00Z", "2024-01-02 00:01", "2024-01-02T00:00:00.5Z", "2024-01-02T00:00:00+02:00", "2024-01-02T01:00"],
        ),
    ],
)
def test_a_temporal_key_is_told_apart_by_what_its_type_does_not_hold(
    of: Scalar, whole: list[str], cut: list[str], make_plan: Any, make_line: Any, make_block: Any, make_typer: Any
) -> None:
    plan = make_plan([Field("at", "at", of)])
    keyed = RowPlan(plan.stream, 7, 3, plan.fields, plan.table_schema, key=("at",))
    own = ["_airbyte_raw_id", "_airbyte_meta"]
    for text in [*whole, *cut]:  # alone, so that each goes the fastest way that takes it
        lines = make_block([make_line(f'{{"at":"{text}"}}')])
        final, unkeyed = (make_typer(each).type_block(lines).final for each in (keyed, plan))
        assert final["at"][0].is_valid, text
        assert (carried_digest(final["_airbyte_raw_id"][0].as_py()) is not None) == (text in cut), text
        assert final.drop_columns(own) == unkeyed.drop_columns(own)

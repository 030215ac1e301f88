"""Columns as Delta describes them: types, and what has none."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
from deltalake import Schema

from destination_s3_spark.delta_log.actions import delta_columns
from destination_s3_spark.schema.airbyte_type import Field
from destination_s3_spark.schema.arrow import arrow_type
from destination_s3_spark.schema.encodings import has_time
from unit_tests.cases import each
from unit_tests.schema.every_type import EVERYWHERE
from unit_tests.schema.of_arrow import fields_of

CLOCK = pa.time64("us")


def fields(schema: pa.Schema, partition: tuple[str, str] | None = None) -> list[dict[str, Any]]:
    found: dict[str, Any] = json.loads(delta_columns(fields_of(schema), partition).schema_string)
    assert found["type"] == "struct"
    return list(found["fields"])


@each(
    ("kind", "name"),
    [
        (pa.string(), "string"),
        (pa.int64(), "long"),
        (pa.float64(), "double"),
        (pa.bool_(), "boolean"),
        (pa.date32(), "date"),
        (pa.timestamp("us", "UTC"), "timestamp"),
        (pa.decimal128(12, 2), "decimal(12,2)"),
        (pa.list_(pa.string()), {"type": "array", "elementType": "string", "containsNull": True}),
        (
            pa.struct([pa.field("x y", pa.int64(), nullable=False)]),
            {"type": "struct", "fields": [{"name": "x y", "type": "long", "nullable": True, "metadata": {}}]},
        ),
    ],
    ids=str,
)
def test_types(kind: pa.DataType, name: object) -> None:
    schema = pa.schema([pa.field("c", kind, nullable=False)])
    assert fields(schema) == [{"name": "c", "type": name, "nullable": True, "metadata": {}}]
    assert delta_columns(fields_of(schema)).left_out == ()


def test_times_of_day_are_left_out_at_any_depth() -> None:
    inner = pa.struct([("t", CLOCK), ("n", pa.int64())])
    schema = pa.schema(
        [
            ("t", CLOCK),
            ("s", inner),
            ("only", pa.struct([("t", CLOCK)])),
            ("l", pa.list_(inner)),
            ("ts", pa.list_(CLOCK)),
            ("id", pa.int64()),
        ]
    )
    columns = delta_columns(fields_of(schema))

    assert columns.left_out == ("t", "s.t", "only.t", "l[].t", "ts[]")
    assert columns.names == ("s", "l", "id")
    assert [field["name"] for field in fields(schema)[0]["type"]["fields"]] == ["n"]


def test_structs_with_lists_are_partly_bounded() -> None:
    deep = pa.struct([("inner", pa.struct([("tags", pa.list_(pa.string()))]))])
    schema = pa.schema([("deep", deep), ("plain", pa.struct([("x", pa.int64())])), ("tags", pa.list_(pa.string()))])
    assert delta_columns(fields_of(schema)).partly_bounded == ("deep",)


def test_a_partition_column_comes_last_and_has_no_statistics() -> None:
    found = delta_columns(fields_of(pa.schema([("id", pa.int64())])), ("at_day", "date"))
    assert [field["name"] for field in json.loads(found.schema_string)["fields"]] == ["id", "at_day"]
    assert found.names == ("id",)


@each("name", EVERYWHERE)
def test_every_type_in_every_place_is_what_delta_rs_makes_of_arrows(name: str) -> None:
    of = EVERYWHERE[name]
    found = delta_columns([Field("c", "c", of)])
    if has_time(arrow_type(of)):
        assert found.left_out
    else:
        assert json.loads(found.schema_string) == json.loads(Schema.from_arrow(pa.schema([("c", arrow_type(of))])).to_json())

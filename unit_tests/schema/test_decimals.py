"""Which numbers become decimals, and of which precision and scale."""

from __future__ import annotations

from typing import Any

import pytest

from destination_s3_spark.schema.airbyte_type import AirbyteType, Array, Decimal, Field, Object, Scalar, Union
from destination_s3_spark.schema.json_schema import Decimals, NamedDecimal, stream_fields
from destination_s3_spark.stream_id import StreamId
from unit_tests.cases import each

DECLARED = Decimals(declared=True)
MONEY = Decimal(12, 2)
NUMBER = {"type": "number"}
BIG_NUMBER, BIG_INTEGER = Decimal(38, 9), Decimal(38, 0)


def typed(schema: object, decimals: Decimals, source: str = "amount") -> AirbyteType:
    (field,) = stream_fields({"properties": {source: schema}}, StreamId("shop", "orders"), decimals=decimals).fields
    return field.type


def named(stream: str, column: str, of: Decimal = MONEY) -> Decimals:
    return Decimals(named=(NamedDecimal(stream, column, of),))


@each(
    ("schema", "expected"),
    [
        (NUMBER, Scalar.NUMBER),
        ({"$ref": "WellKnownTypes.json#/definitions/Number"}, Scalar.NUMBER),
        ({"type": "integer"}, Scalar.INTEGER),
        ({"type": "integer", "multipleOf": 5}, Scalar.INTEGER),
        ({"type": "number", "airbyte_type": "integer", "multipleOf": 0.01}, Scalar.INTEGER),
        ({"type": "number", "airbyte_type": "float"}, Scalar.NUMBER),
        ({"type": "number", "airbyte_type": ["big_number"]}, Scalar.NUMBER),
        ({"type": "number", "airbyte_type": "big_number"}, BIG_NUMBER),
        ({"type": "string", "airbyte_type": "big_number"}, BIG_NUMBER),
        ({"type": "number", "airbyte_type": "big_number", "multipleOf": 0.0001}, Decimal(38, 4)),
        ({"type": "number", "airbyte_type": "big_integer"}, BIG_INTEGER),
        ({"type": "integer", "airbyte_type": "big_integer"}, BIG_INTEGER),
        ({"type": "string", "airbyte_type": "big_integer"}, BIG_INTEGER),
        ({"type": ["null", "number"], "multipleOf": 0.01}, Decimal(38, 2)),
        ({"type": "number", "multipleOf": 0.25}, Decimal(38, 2)),
        ({"type": "number", "multipleOf": 1e-9}, Decimal(38, 9)),
        ({"type": "number", "multipleOf": 1.50}, Decimal(38, 1)),
        ({"type": "number", "multipleOf": 1}, Decimal(38, 0)),
        ({"type": "number", "multipleOf": 100}, Decimal(38, 0)),
        ({"type": "number", "multipleOf": 1e-38}, Decimal(38, 38)),
        *(
            ({"type": "number", "multipleOf": step}, Scalar.NUMBER)
            for step in (1e-39, 0, -0.01, True, "0.01", None, float("inf"), float("nan"))
        ),
    ],
)
def test_declarations_are_followed_only_when_asked_for(schema: dict[str, Any], expected: AirbyteType) -> None:
    assert typed(schema, DECLARED) == expected
    without = typed(schema, Decimals())
    assert not isinstance(without, Decimal)
    if not isinstance(expected, Decimal):
        assert without == expected


@each(
    ("stream", "column", "meant"),
    [
        ("orders", "amount", True),
        ("shop.orders", "amount", True),
        ("*", "*", True),
        ("shop.*", "am*", True),
        ("other.orders", "amount", False),
        ("Orders", "amount", False),
        ("orders", "Amount", False),
        ("orders", "total", False),
    ],
)
def test_named_columns_are_decimals(stream: str, column: str, meant: bool) -> None:
    assert typed(NUMBER, named(stream, column)) == (MONEY if meant else Scalar.NUMBER)


def test_a_name_is_for_numbers_only() -> None:
    every = named("*", "*")
    assert typed({"type": "integer"}, every) is Scalar.INTEGER
    assert typed({"type": "string"}, every) is Scalar.STRING
    assert typed({"type": "string", "airbyte_type": "big_number"}, every) == MONEY
    assert typed({"$ref": "WellKnownTypes.json#/definitions/Number"}, every) == MONEY


def test_members_and_items_are_named_by_their_path() -> None:
    line = {"type": "object", "properties": {"price": NUMBER, "weight": NUMBER}}
    schema = {"type": "array", "items": line}
    assert typed(schema, named("orders", "amount.price")) == Array(
        Object((Field("price", "price", MONEY), Field("weight", "weight", Scalar.NUMBER)))
    )
    assert typed({"type": "array", "items": NUMBER}, named("orders", "amount")) == Array(MONEY)


def test_the_first_matching_name_comes_first_and_any_name_before_a_declaration() -> None:
    decimals = Decimals(True, (NamedDecimal("*", "amount", MONEY), NamedDecimal("*", "*", Decimal(5, 1))))
    assert typed({"type": "number", "multipleOf": 0.001}, decimals) == MONEY
    assert typed({"type": "number", "multipleOf": 0.001}, decimals, source="tax") == Decimal(5, 1)


@each(
    ("options", "expected"),
    [
        ([{"type": "number", "multipleOf": 0.01}, NUMBER], Scalar.NUMBER),
        ([{"type": "number", "multipleOf": 0.01}, {"type": "number", "multipleOf": 0.01}], Decimal(38, 2)),
        ([{"type": "number", "multipleOf": 0.01}, {"type": "number", "multipleOf": 0.001}], Scalar.NUMBER),
        ([{"type": "integer"}, {"type": "number", "multipleOf": 0.01}], Union((Scalar.INTEGER, Decimal(38, 2)))),
        ([{"type": "string"}, {"type": "string", "airbyte_type": "big_number"}], Union((Scalar.STRING, BIG_NUMBER))),
    ],
)
def test_the_numbers_of_a_union_are_one_option(options: list[Any], expected: AirbyteType) -> None:
    assert typed({"oneOf": options}, DECLARED) == expected


def test_a_member_that_the_objects_of_a_union_declare_with_two_scales_is_a_double() -> None:
    cents, mills = ({"type": "object", "properties": {"a": {"type": "number", "multipleOf": step}}} for step in (0.01, 0.001))
    assert typed({"oneOf": [cents, mills]}, DECLARED) == Object((Field("a", "a", Scalar.NUMBER),))
    assert typed({"oneOf": [cents, cents]}, DECLARED) == Object((Field("a", "a", Decimal(38, 2)),))


@each(("precision", "scale"), [(0, 0), (39, 0), (5, 6), (5, -1)])
def test_a_decimal_that_no_reader_supports_does_not_exist(precision: int, scale: int) -> None:
    with pytest.raises(ValueError, match="digits"):
        Decimal(precision, scale)

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from destination_s3_spark.errors import DataError
from destination_s3_spark.schema.airbyte_type import (
    AirbyteType,
    Array,
    Decimal,
    Field,
    Object,
    Scalar,
    SchemalessArray,
    SchemalessObject,
    Union,
    readable,
    type_from_json,
    type_to_text,
)
from unit_tests.cases import each

TYPES: st.SearchStrategy[AirbyteType] = st.recursive(
    st.sampled_from([*Scalar, Decimal(10, 2), Decimal(38, 0), SchemalessObject(), SchemalessArray()]),
    lambda inner: st.one_of(
        inner.map(Array),
        st.lists(st.builds(Field, st.text(max_size=3), st.text(max_size=3), inner), max_size=3).map(lambda fields: Object(tuple(fields))),
        st.lists(inner, min_size=2, max_size=3).map(lambda options: Union(tuple(options))),
    ),
    max_leaves=8,
)


@given(TYPES)
def test_a_type_reads_back_from_its_json(airbyte_type: AirbyteType) -> None:
    assert type_from_json(json.loads(type_to_text(airbyte_type))) == airbyte_type


@given(TYPES, TYPES)
def test_types_are_equal_exactly_when_their_texts_are(left: AirbyteType, right: AirbyteType) -> None:
    assert (type_to_text(left) == type_to_text(right)) == (left == right)


def test_people_read_what_tells_types_apart() -> None:
    columns = Object((Field("a", "a", Decimal(38, 2)), Field("b", "b", Array(Union((Scalar.INTEGER, Scalar.STRING))))))
    assert readable(columns) == "object<a: decimal(38, 2), b: array<union<integer, string>>>"


@each(
    "value",
    [
        *("potato", None, 7, [], {}, {"kind": "map"}, {"kind": "object"}, {"kind": "array", "items": "potato"}),
        *({"kind": "decimal", "precision": precision, "scale": scale} for precision, scale in ((39, 2), (2, 3), (0, 0), (2, -1), ("2", 1))),
    ],
)
def test_an_unknown_type_asks_for_a_newer_connector(value: object) -> None:
    with pytest.raises(DataError, match="Upgrade the connector"):
        type_from_json(value)

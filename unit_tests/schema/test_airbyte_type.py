from __future__ import annotations

from typing import get_args

from destination_s3_spark.schema.airbyte_type import AirbyteType, Scalar
from unit_tests.schema.every_type import EVERY_TYPE


def test_the_tests_of_every_type_forget_none() -> None:
    """Each of them takes its types from there."""
    assert {type(of) for of in EVERY_TYPE.values()} == set(get_args(AirbyteType))
    assert set(Scalar) <= set(EVERY_TYPE.values())

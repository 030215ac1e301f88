"""One of each Airbyte type, and the places where a table can have it."""

from __future__ import annotations

from collections.abc import Mapping

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
    option_name,
)

TIMES: tuple[AirbyteType, ...] = (Scalar.TIME_WITH_TIMEZONE, Scalar.TIME_WITHOUT_TIMEZONE)
EVERY_TYPE: Mapping[str, AirbyteType] = {
    **{scalar.value: scalar for scalar in Scalar},
    "decimal": Decimal(38, 9),
    "schemaless object": SchemalessObject(),
    "schemaless array": SchemalessArray(),
    "object": Object((Field("a", "a", Scalar.INTEGER), Field("b", "b", Scalar.DATE))),
    "array": Array(Scalar.NUMBER),
    "union": Union((Scalar.INTEGER, Scalar.STRING)),
}


def places(of: AirbyteType) -> dict[str, AirbyteType]:
    """The type as a column, in a list, in an object, in an object in a list and in a union."""
    member = Object((Field("m", "m", of),))
    found = {"column": of, "list": Array(of), "member": member, "item": Array(member)}
    if isinstance(of, Union):
        return found
    other = Scalar.STRING if option_name(of) == "object" else Object((Field("other", "other", of),))
    return {**found, "option": Union((of, other))}


EVERYWHERE: Mapping[str, AirbyteType] = {
    f"{name} as {place}": kind for name, of in EVERY_TYPE.items() for place, kind in places(of).items()
}
"""Every type in every place."""

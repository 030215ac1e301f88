"""Choice of the number columns that are stored as decimals: those that the user names, and those that the JSON schema declares.

A declaration has no precision, so a declared decimal has as many digits as there can be.
"""

from __future__ import annotations

import decimal
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Any

from destination_s3_spark.schema.airbyte_type import MAX_PRECISION, Decimal
from destination_s3_spark.stream_id import StreamId

_BIG: Mapping[str, Decimal] = MappingProxyType({"big_number": Decimal(MAX_PRECISION, 9), "big_integer": Decimal(MAX_PRECISION, 0)})
"""Types by `airbyte_type`. Airbyte's warehouse destinations store a number as NUMERIC(38, 9)."""


@dataclass(frozen=True, slots=True)
class NamedDecimal:
    """Number columns that the user wants as decimals of a type.

    `stream` is a pattern for a stream's name, with or without its namespace and a dot before it. `column` is a pattern for the JSON keys
    down to the number, joined by dots. The items of an array have the keys of the array.
    """

    stream: str
    column: str
    type: Decimal

    def names(self, stream: StreamId, path: tuple[str, ...]) -> bool:
        """Tell whether the number at this path of the stream is meant."""
        return stream.matches(self.stream) and fnmatchcase(".".join(path), self.column)


@dataclass(frozen=True, slots=True)
class Decimals:
    """The user's choice. `declared`: whether to follow declarations. `named` comes first, and of several matches the first one applies."""

    declared: bool = False
    named: tuple[NamedDecimal, ...] = ()

    def of_number(self, schema: Mapping[str, Any], stream: StreamId, path: tuple[str, ...]) -> Decimal | None:
        """Return the type of a number with this JSON schema, or None if it is no decimal."""
        named = next((named.type for named in self.named if named.names(stream, path)), None)
        return _declared(schema) if named is None and self.declared else named

    def of_big(self, schema: Mapping[str, Any], stream: StreamId, path: tuple[str, ...]) -> Decimal | None:
        """Return the type of a string or integer with this JSON schema, or None unless it is declared to be a big number."""
        return self.of_number(schema, stream, path) if str(schema.get("airbyte_type")) in _BIG else None


NO_DECIMALS = Decimals()

_EXACT = decimal.Context(prec=400)
"""A context in which no double is rounded."""


def _declared(schema: Mapping[str, Any]) -> Decimal | None:
    return _multiple_of(schema.get("multipleOf")) or _BIG.get(str(schema.get("airbyte_type")))


def _multiple_of(step: object) -> Decimal | None:
    """Return the decimal that holds all multiples of the step: two digits after the point for 0.01 or 0.25. None for any other value."""
    if isinstance(step, bool) or not isinstance(step, int | float) or step <= 0:
        return None
    # The shortest text of a double is the number as it was written.
    exponent = decimal.Decimal(repr(step)).normalize(_EXACT).as_tuple().exponent
    if not isinstance(exponent, int) or -exponent > MAX_PRECISION:
        return None
    return Decimal(MAX_PRECISION, max(0, -exponent))

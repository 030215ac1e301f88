"""Statistics of a file for Iceberg's manifests, by which readers skip files. They are made from those of the chain; no file is read.

The chain's bounds lie at or beyond the values, and so do Iceberg's. Columns without values have counts only, and lists have none.
"""

from __future__ import annotations

import decimal
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from datetime import date, datetime
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import Any

from pyiceberg.conversions import to_bytes
from pyiceberg.schema import Schema
from pyiceberg.types import DateType, DecimalType, DoubleType, NestedField, PrimitiveType, StructType, TimestamptzType

from destination_s3_spark.formats.file_statistics import FileStatistics

_EXACT = decimal.Context(prec=64)
"""Enough digits for every decimal of 38 digits, and for the text of every double among the chain's bounds."""


@dataclass(frozen=True, slots=True)
class Metrics:
    """Counts and bounds of a file's columns by field id. The names are those of Iceberg's data files."""

    value_counts: dict[int, int] = field(default_factory=dict)
    null_value_counts: dict[int, int] = field(default_factory=dict)
    lower_bounds: dict[int, bytes] = field(default_factory=dict)
    upper_bounds: dict[int, bytes] = field(default_factory=dict)

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of a data file. A file without statistics has none, so that readers take them for unknown."""
        return {name: by_id for name, by_id in asdict(self).items() if by_id}


def metrics(schema: Schema, statistics: FileStatistics | None, rows: int) -> Metrics:
    """Return the metrics of a file with these statistics in a table with this schema."""
    found = Metrics()
    if statistics is None:
        return found
    for number, kind, path in _leaves(schema.fields, ()):
        nulls = _get(statistics.nulls, path)
        if nulls is None:
            continue
        found.value_counts[number], found.null_value_counts[number] = rows, nulls
        for bounds, tree, upper in ((found.lower_bounds, statistics.min, False), (found.upper_bounds, statistics.max, True)):
            bound = _get(tree, path)
            if bound is not None:
                bounds[number] = to_bytes(kind, _value(kind, bound, upper=upper))
    return found


def _leaves(fields: tuple[NestedField, ...], path: tuple[str, ...]) -> Iterator[tuple[int, PrimitiveType, tuple[str, ...]]]:
    """Yield the id, type and path of each column and member outside of lists."""
    for column in fields:
        here = (*path, column.name)
        if isinstance(column.field_type, StructType):
            yield from _leaves(column.field_type.fields, here)
        elif isinstance(column.field_type, PrimitiveType):
            yield column.field_id, column.field_type, here


def _get(tree: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    found: Any = tree
    for name in path:
        found = found.get(name) if isinstance(found, Mapping) else None
    return found


def _value(kind: PrimitiveType, bound: Any, *, upper: bool) -> Any:
    match kind:
        case DoubleType():
            return float(bound)
        case DateType():
            return date.fromisoformat(bound)
        case TimestamptzType():
            return datetime.fromisoformat(bound)
        case DecimalType():
            return _decimal(kind, bound, upper=upper)
    return bound


def _decimal(kind: DecimalType, bound: float, *, upper: bool) -> Decimal:
    """Return the bound with the digits of the type, rounded outwards. No value of the type lies beyond its greatest ones."""
    unit = Decimal(1).scaleb(-kind.scale)
    value = Decimal(repr(bound)).quantize(unit, ROUND_CEILING if upper else ROUND_FLOOR, _EXACT)
    greatest = Decimal(10**kind.precision - 1).scaleb(-kind.scale, _EXACT)
    return max(-greatest, min(value, greatest))

"""Conditions on each column and member of a table's rows: as SQL for an engine, and the number of rows that they must find."""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

from unit_tests.lake.table_readers import neutral
from unit_tests.sampling import sample

Row = Mapping[str, Any]
Names = tuple[str, ...]

KINDS = 3
"""Of conditions of each column."""
COMPARISONS: Mapping[str, Callable[[Any, Any], bool]] = {"=": operator.eq, "<": operator.lt}
SCALARS = (bool, int, float, Decimal, str, date, datetime, time)


@dataclass(frozen=True, slots=True)
class Condition:
    sql: str
    found: int


def chosen(every: Iterable[Condition]) -> list[Condition]:
    """Return one in KINDS of the conditions, or all at night."""
    found = list(every)
    return sample(found, -(-len(found) // KINDS))


def spark_literal(value: Any) -> str:
    """The value in Spark's SQL. Times of day are the integers that they are stored as."""
    match value:
        case bool():
            return str(value).lower()
        case float():
            return f"{value!r}D"
        case Decimal():
            return f"{value:f}BD"
        case str():
            return "'" + json.dumps(value)[1:-1].replace("'", "\\'") + "'"
        case datetime():
            return f"TIMESTAMP'{value.isoformat(sep=' ')}'"
        case date():
            return f"DATE'{value.isoformat()}'"
        case time():
            return str(neutral(value))
        case _:
            return str(value)


def duckdb_literal(value: Any) -> str:
    """The value in DuckDB's SQL."""
    match value:
        case bool():
            return str(value).lower()
        case float():
            return f"CAST({value!r} AS DOUBLE)"
        case Decimal():
            return f"CAST('{value:f}' AS DECIMAL(38, {-min(0, int(value.as_tuple().exponent))}))"
        case str():
            return "'" + value.replace("'", "''") + "'"
        case datetime():
            return f"TIMESTAMP WITH TIME ZONE '{value.isoformat(sep=' ')}'"
        case date():
            return f"DATE '{value.isoformat()}'"
        case time():
            return str(neutral(value))
        case _:
            return str(value)


def trino_literal(value: Any) -> str:
    return f"TIMESTAMP '{value.replace(tzinfo=None).isoformat(sep=' ')} UTC'" if isinstance(value, datetime) else duckdb_literal(value)


def clickhouse_literal(value: Any) -> str:
    match value:
        case float():
            return repr(value)
        case Decimal():
            return f"toDecimal128('{value:f}', {-min(0, int(value.as_tuple().exponent))})"
        case str():
            return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
        case datetime():
            return f"toDateTime64('{value.replace(tzinfo=None).isoformat(sep=' ')}', 6, 'UTC')"
        case date():
            return f"toDate32('{value.isoformat()}')"
        case _:
            return spark_literal(value)


def conditions(rows: Sequence[Row], literal: Callable[[Any], str] = spark_literal, quote: str = "`") -> Iterator[Condition]:
    """Is null, and comparisons with a value in the middle, for each column and member outside of lists."""
    for path in sorted({path for row in rows for path in _leaves(row, ())}):
        name = ".".join(f"{quote}{part}{quote}" for part in path)
        values = sorted(value for row in rows if (value := _at(row, path)) is not None)
        yield Condition(f"{name} IS NULL", len(rows) - len(values))
        middle = values[len(values) // 2]
        for sign, compare in COMPARISONS.items():
            yield Condition(f"{name} {sign} {literal(middle)}", sum(compare(value, middle) for value in values))


def _leaves(row: Row, path: Names) -> Iterator[Names]:
    for name, value in row.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, (*path, name))
        elif isinstance(value, SCALARS):
            yield (*path, name)


def _at(row: Row, path: Names) -> Any:
    value: Any = row
    for name in path:
        value = None if value is None else value.get(name)
    return value

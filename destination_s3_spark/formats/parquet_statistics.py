"""Statistics of a Parquet file from the footer that Arrow writes, so that no pass over the data is needed.

Arrow omits the bounds of a column chunk in two cases. A text is longer than 4,096 bytes: the writer then notes the bounds in the footer's
metadata itself (`LongTexts`). All numbers are NaN: final files of this connector have no NaN, so only files of others can be unbounded for
this reason.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import date
from fractions import Fraction
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from destination_s3_spark.formats.file_statistics import NO_BOUND, UNBOUNDED, FileStatistics, of_member

MOST_COLUMNS = 500
"""The number of bounded columns and members above which a file has no statistics, because they would make its entry too large."""
TEXT_CHARACTERS = 32
LONGEST_BOUND_BYTES = 4_096
"""Arrow's writer omits the bounds of a column chunk if one of them is longer."""

LOWEST_POWER, HIGHEST_POWER = Fraction(1, 10**4), 10**15
"""Absolute values of decimals below and from which a number in JSON would have an exponent, which delta-rs misreads."""

LONG_TEXTS = "airbyte.long_texts"
"""Footer metadata: JSON object with the bounds of text columns, by the number of the column, in row groups where Arrow omits them."""

_HIGHEST = "\U0010ffff"
_UNIX_EPOCH_DAY = date(1970, 1, 1).toordinal()
_FIRST_DAY, _LAST_DAY = 1 - _UNIX_EPOCH_DAY, date.max.toordinal() - _UNIX_EPOCH_DAY
_DAY_MS = 86_400_000
_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}

Path: TypeAlias = tuple[str, ...]
Bounds: TypeAlias = tuple[Any, Any]
"""The lowest and the highest value, as Parquet stores them; texts as bytes."""

_Convert: TypeAlias = Callable[[Any, bool], Any]
"""Conversion of a bound to JSON. The flag tells whether it is the upper one."""


class _Unbounded(Exception):
    """A value has no bound in the form of the statistics."""


class _Node(NamedTuple):
    """A column or member outside of lists. `leaf` is the number of its Parquet column, None for a struct."""

    path: Path
    type: pa.DataType
    leaf: int | None


class LongTexts:
    """Bounds of text columns in row groups with texts that are too long for Arrow's own bounds."""

    def __init__(self, schema: pa.Schema) -> None:
        self._paths = [(node.path, node.leaf) for node, _ in _bounded(schema) if node.leaf is not None and _is_text(node.type)]
        self.bounds: dict[int, Bounds] = {}

    def add(self, rows: pa.Table) -> None:
        for path, leaf in self._paths:
            texts = _member(rows, path)
            if (pc.max(pc.binary_length(texts)).as_py() or 0) > LONGEST_BOUND_BYTES:
                found = pc.min_max(texts).as_py()
                self.bounds[leaf] = _wider(self.bounds.get(leaf), (_decisive(found["min"]), _decisive(found["max"])))

    def metadata(self) -> dict[str, str]:
        return {LONG_TEXTS: long_texts_to_json(self.bounds)} if self.bounds else {}


def long_texts_to_json(bounds: Mapping[int, Bounds]) -> str:
    return json.dumps({leaf: [low.decode(), high.decode()] for leaf, (low, high) in sorted(bounds.items())})


def long_texts_from_json(text: str | bytes) -> dict[int, Bounds]:
    """Return the bounds of long texts from a footer. Raises ValueError, TypeError or AttributeError for what no footer of ours holds."""
    return {int(leaf): (low.encode(), high.encode()) for leaf, (low, high) in json.loads(text).items()}


def united_long_texts(parts: Iterable[Mapping[int, Bounds]]) -> dict[int, Bounds]:
    """Return the bounds of long texts in a file of the rows of several files with the same columns."""
    united: dict[int, Bounds] = {}
    for part in parts:
        for leaf, bounds in part.items():
            united[leaf] = _wider(united.get(leaf), bounds)
    return united


def _decisive(text: str) -> bytes:
    """Return the beginning of a long text that decides about its bound."""
    end = TEXT_CHARACTERS + 1
    while text[end - 1 : end] == _HIGHEST:
        end += 1
    return text[:end].encode()


def footer_statistics(footer: pq.FileMetaData) -> FileStatistics:
    long_texts = _long_texts(footer)
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    statistics = FileStatistics({}, {}, {})
    for node, convert in _bounded(footer.schema.to_arrow_schema()):
        if node.leaf is None or convert is None:
            for tree in (statistics.min, statistics.max, statistics.nulls):
                _put(tree, node.path, {})
            continue
        chunks = [group.column(node.leaf) for group in groups]
        if not all(chunk.statistics is not None and chunk.statistics.has_null_count for chunk in chunks):
            return UNBOUNDED  # delta-rs takes a column without a null count for one without nulls
        _put(statistics.nulls, node.path, sum(int(chunk.statistics.null_count) for chunk in chunks))
        for tree, bound in zip((statistics.min, statistics.max), _bounds(chunks, node, convert, long_texts), strict=False):
            _put(tree, node.path, bound)
    return statistics


def _long_texts(footer: pq.FileMetaData) -> dict[int, Bounds]:
    try:
        return long_texts_from_json((footer.metadata or {}).get(LONG_TEXTS.encode(), b"{}"))
    except (ValueError, TypeError, AttributeError):
        return {}  # of another program


def completed(statistics: FileStatistics, schema: pa.Schema, rows: int) -> FileStatistics:
    """Return a file's statistics with the columns of a later schema, which are null in all its rows.

    Readers need their null counts: delta-rs takes a column without one for a column without nulls.
    """
    if not statistics.nulls:
        return statistics
    trees = (statistics.min, statistics.max, statistics.nulls)
    low, high, nulls = (_copy(tree) for tree in trees)
    for node in _nodes(schema):
        if node.leaf is None:
            for tree in (low, high, nulls):
                _put(tree, node.path, of_member(tree, node.path) or {})
        elif _converter(node.type) is not None and of_member(nulls, node.path) is None:
            _put(nulls, node.path, rows)
    return FileStatistics(low, high, nulls)


def _bounded(schema: pa.Schema) -> list[tuple[_Node, _Convert | None]]:
    """List the structs and the leaves with statistics, each with the conversion of its bounds. The list is empty if there are too many."""
    found = [(node, _converter(node.type)) for node in _nodes(schema)]
    bounded = [(node, convert) for node, convert in found if node.leaf is None or convert is not None]
    return bounded if len(bounded) <= MOST_COLUMNS else []


def _nodes(schema: pa.Schema) -> Iterator[_Node]:
    """Yield the structs and leaves outside of lists, each struct before its members. Parquet numbers the leaves in this order."""
    number = 0

    def walk(fields: Iterable[pa.Field[Any]], path: Path) -> Iterator[_Node]:
        nonlocal number
        for field in fields:
            kind, here = field.type, (*path, field.name)
            if pa.types.is_struct(kind):
                yield _Node(here, kind, None)
                yield from walk((kind.field(index) for index in range(kind.num_fields)), here)
            elif pa.types.is_nested(kind):
                number += _leaves(kind)
            else:
                yield _Node(here, kind, number)
                number += 1

    yield from walk(schema, ())


def _leaves(kind: pa.DataType) -> int:
    return sum(_leaves(kind.field(index).type) for index in range(kind.num_fields)) if pa.types.is_nested(kind) else 1


def _bounds(
    chunks: Iterable[pq.ColumnChunkMetaData], node: _Node, convert: _Convert, long_texts: Mapping[int, Bounds]
) -> tuple[()] | Bounds:
    """Return the bounds of a leaf in the form of the statistics: nothing if it has no value, and twice None if a value has no bound."""
    try:
        found = _stored_bounds(chunks, node.type, None if node.leaf is None else long_texts.get(node.leaf))
        return () if found is None else (convert(found[0], False), convert(found[1], True))
    except _Unbounded:
        return NO_BOUND, NO_BOUND


def _stored_bounds(chunks: Iterable[pq.ColumnChunkMetaData], kind: pa.DataType, long_texts: Bounds | None) -> Bounds | None:
    """Return the bounds of a column, None if it has no value."""
    bounds = long_texts
    for chunk in chunks:
        if chunk.statistics.has_min_max:
            found = chunk.statistics
            bounds = _wider(bounds, (_comparable(found.min_raw, kind), _comparable(found.max_raw, kind)))
        elif chunk.statistics.null_count < chunk.num_values and long_texts is None:
            raise _Unbounded
    return bounds


def _comparable(raw: Any, kind: pa.DataType) -> Any:
    """Return a bound that compares as the values do. Decimals are stored as big-endian bytes of their digits."""
    return int.from_bytes(raw, "big", signed=True) if pa.types.is_decimal(kind) and isinstance(raw, bytes) else raw


def _wider(left: Bounds | None, right: Bounds) -> Bounds:
    return right if left is None else (min(left[0], right[0]), max(left[1], right[1]))


def _converter(kind: pa.DataType) -> _Convert | None:
    """Return the conversion of the bounds of a type, or None for a type without bounds."""
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return lambda value, _: value
    if pa.types.is_floating(kind):
        return lambda value, _: _number(value)
    if pa.types.is_decimal(kind):
        return lambda digits, upper: _decimal(Fraction(digits, 10**kind.scale), upper=upper)
    if pa.types.is_date32(kind):
        return lambda value, _: _day(value)
    if pa.types.is_timestamp(kind):
        return lambda value, upper: _moment(_milliseconds(value, kind.unit, upper=upper))
    return _text if _is_text(kind) else None


def _number(value: float) -> float | str:
    if math.isfinite(value):
        return value
    if math.isnan(value):
        raise _Unbounded
    return "Infinity" if value > 0 else "-Infinity"


def _decimal(value: Fraction, *, upper: bool) -> float:
    """Return a number whose text in JSON is the value or lies beyond it."""
    if abs(value) >= HIGHEST_POWER:
        raise _Unbounded
    if 0 < abs(value) < LOWEST_POWER:
        outwards = upper == (value > 0)
        return math.copysign(float(LOWEST_POWER), value) if outwards else 0.0
    nearest = float(value)
    if upper and Fraction(repr(nearest)) < value:
        return math.nextafter(nearest, math.inf)
    if not upper and Fraction(repr(nearest)) > value:
        return math.nextafter(nearest, -math.inf)
    return nearest


def _day(days: int) -> str:
    if not _FIRST_DAY <= days <= _LAST_DAY:
        raise _Unbounded
    return date.fromordinal(days + _UNIX_EPOCH_DAY).isoformat()


def _milliseconds(value: int, unit: str, *, upper: bool) -> int:
    scaled, per_second = value * 1_000, _PER_SECOND[unit]
    return -(-scaled // per_second) if upper else scaled // per_second


def _moment(milliseconds: int) -> str:
    day, time = divmod(milliseconds, _DAY_MS)
    seconds, milliseconds = divmod(time, 1_000)
    return f"{_day(day)}T{seconds // 3_600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{milliseconds:03}Z"


def _text(value: bytes, upper: bool) -> str:
    try:
        text = value.decode()
    except UnicodeDecodeError:
        raise _Unbounded from None
    if len(text) <= TEXT_CHARACTERS:
        return text
    end = TEXT_CHARACTERS
    if not upper:
        return text[:end]
    while text[end : end + 1] == _HIGHEST:  # no character is higher, so the bound has to be longer than these
        end += 1
    return text[:end] + _HIGHEST


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _member(rows: pa.Table, path: Path) -> pa.ChunkedArray[Any]:
    """Return a column or member with nulls where its struct is null."""
    values = rows[path[0]]
    for name in path[1:]:
        values = values.flatten()[values.type.get_field_index(name)]
    return values


def _put(tree: dict[str, Any], path: Path, value: Any) -> None:
    for name in path[:-1]:
        tree = tree.setdefault(name, {})
    tree[path[-1]] = value


def _copy(tree: dict[str, Any]) -> dict[str, Any]:
    return {name: _copy(value) if isinstance(value, dict) else value for name, value in tree.items()}

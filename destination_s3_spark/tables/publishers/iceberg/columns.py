"""Columns and partitions of a table in Iceberg's terms: types with field ids, transforms, and what lets readers skip files.

Metrics are made from the statistics of the file; no file is read. The statistics' bounds lie at or beyond the values, and so do Iceberg's.
Columns without values have counts only, and lists have none.
"""

from __future__ import annotations

import decimal
from collections.abc import Iterable, Iterator, Sequence
from datetime import date, datetime
from decimal import ROUND_CEILING, ROUND_FLOOR
from itertools import islice
from typing import Any

import numpy as np
from pyiceberg.conversions import to_bytes
from pyiceberg.schema import Schema
from pyiceberg.table import Transaction
from pyiceberg.transforms import DayTransform, HourTransform, IdentityTransform, MonthTransform, YearTransform
from pyiceberg.transforms import Transform as IcebergTransform
from pyiceberg.typedef import Record
from pyiceberg.types import (
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    IcebergType,
    ListType,
    LongType,
    NestedField,
    PrimitiveType,
    StringType,
    StructType,
    TimestamptzType,
    TimeType,
)

from destination_s3_spark.formats.file_statistics import FileStatistics, of_member
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
)
from destination_s3_spark.schema.field_ids import FieldIds
from destination_s3_spark.schema.partitioning import NULL_PARTITION, Partitioning, Transform
from destination_s3_spark.schema.table_schema import union_members
from destination_s3_spark.tables.publishers.publication import NotPublished

_EXACT = decimal.Context(prec=64)
"""Enough digits for every decimal of 38 digits, and for the text of every double among the chain's bounds."""


def iceberg_schema(fields: Sequence[Field], ids: FieldIds) -> Schema:
    """Return the columns as an Iceberg schema with these ids, in the order of `schema.field_ids`. All are optional."""
    return Schema(*_members(fields, iter(ids)))


def _members(fields: Sequence[Field], ids: Iterator[int]) -> list[NestedField]:
    numbers = list(islice(ids, len(fields)))  # those of a level come before those below it
    return [NestedField(number, field.name, _type(field.type, ids), required=False) for number, field in zip(numbers, fields, strict=True)]


def _type(of: AirbyteType, ids: Iterator[int]) -> IcebergType:  # noqa: C901 (one case for each type)
    match of:
        case Scalar.STRING | SchemalessObject() | SchemalessArray():
            return StringType()
        case Scalar.BOOLEAN:
            return BooleanType()
        case Scalar.INTEGER:
            return LongType()
        case Scalar.NUMBER:
            return DoubleType()
        case Decimal(precision, scale):
            return DecimalType(precision, scale)
        case Scalar.DATE:
            return DateType()
        case Scalar.TIME_WITH_TIMEZONE | Scalar.TIME_WITHOUT_TIMEZONE:
            return TimeType()
        case Scalar.TIMESTAMP_WITH_TIMEZONE | Scalar.TIMESTAMP_WITHOUT_TIMEZONE:
            return TimestamptzType()
        case Object(fields):
            return StructType(*_members(fields, ids))
        case Union():
            return StructType(*_members(union_members(of), ids))
        case Array(items):
            number = next(ids)
            return ListType(element_id=number, element=_type(items, ids), element_required=False)


def metrics(schema: Schema, statistics: FileStatistics | None, rows: int) -> dict[str, Any]:
    """Return counts and bounds of a file's columns by field id, as the arguments of an Iceberg data file.

    A file without statistics has none, so that readers take them for unknown.
    """
    found: dict[str, dict[int, Any]] = {}
    if statistics is None:
        return found
    for number, kind, path in _leaves(schema.fields, ()):
        nulls = of_member(statistics.nulls, path)
        if nulls is None:
            continue
        found.setdefault("value_counts", {})[number], found.setdefault("null_value_counts", {})[number] = rows, nulls
        for name, tree in (("lower_bounds", statistics.min), ("upper_bounds", statistics.max)):
            bound = of_member(tree, path)
            if bound is not None:
                found.setdefault(name, {})[number] = to_bytes(kind, _value(kind, bound, upper=name == "upper_bounds"))
    return found


def _leaves(fields: tuple[NestedField, ...], path: tuple[str, ...]) -> Iterator[tuple[int, PrimitiveType, tuple[str, ...]]]:
    """Yield the id, type and path of each column and member outside of lists."""
    for column in fields:
        here = (*path, column.name)
        if isinstance(column.field_type, StructType):
            yield from _leaves(column.field_type.fields, here)
        elif isinstance(column.field_type, PrimitiveType):
            yield column.field_id, column.field_type, here


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


def _decimal(kind: DecimalType, bound: float, *, upper: bool) -> decimal.Decimal:
    """Return the bound with the digits of the type, rounded outwards. No value of the type lies beyond its greatest ones."""
    unit = decimal.Decimal(1).scaleb(-kind.scale)
    value = decimal.Decimal(repr(bound)).quantize(unit, ROUND_CEILING if upper else ROUND_FLOOR, _EXACT)
    greatest = decimal.Decimal(10**kind.precision - 1).scaleb(-kind.scale, _EXACT)
    return max(-greatest, min(value, greatest))


_TRANSFORMS: dict[Transform, type[IcebergTransform[Any, Any]]] = {
    Transform.IDENTITY: IdentityTransform,
    Transform.YEAR: YearTransform,
    Transform.MONTH: MonthTransform,
    Transform.DAY: DayTransform,
    Transform.HOUR: HourTransform,
}
_UNITS = {Transform.YEAR: "Y", Transform.MONTH: "M", Transform.DAY: "D", Transform.IDENTITY: "D"}


def shown_partitioning(partitioning: Partitioning | None) -> Partitioning | None:
    """Return the partitioning that Iceberg's readers see. They see none by texts, some of which share a partition with the nulls."""
    return None if partitioning is None or partitioning.code_type is Scalar.STRING else partitioning


def remove_other(transaction: Transaction, partitioning: Partitioning | None) -> bool:
    """Stage the removal of another partitioning than this one. Return whether this one has to be added."""
    metadata = transaction.table_metadata
    columns = {field.field_id: field.name for field in metadata.schema().fields}
    now = [(columns.get(field.source_id), type(field.transform), field.name) for field in metadata.spec().fields]
    wanted = [] if partitioning is None else [_described(partitioning)]
    if now == wanted:
        return False
    if now:
        update = transaction.update_spec()
        for _, _, name in now:
            update.remove_field(name)
        update.commit()
    return bool(wanted)


def add(transaction: Transaction, partitioning: Partitioning) -> None:
    """Stage the partitioning of a table that has none."""
    column, transform, name = _described(partitioning)
    transaction.update_spec().add_field(column, transform(), name).commit()


def require_undivided(transaction: Transaction, columns: Iterable[str]) -> None:
    """Raise NotPublished if the table is or was divided by one of the columns, which are to be replaced by columns of other types.

    A column that old manifests refer to cannot be dropped.
    """
    metadata = transaction.table_metadata
    dividing = {field.source_id for spec in metadata.specs().values() for field in spec.fields}
    for name in columns:
        if metadata.schema().find_field(name).field_id in dividing:
            raise NotPublished(
                f"The type of '{name}' has changed, by which the Iceberg table is or was partitioned, and Iceberg cannot change that. Drop "
                "the table in the catalog, without its files; the next sync makes it again. Until then readers see the table as it was."
            )


def partition_record(partitioning: Partitioning | None, value: str | None) -> Record:
    """Return the value of a file's partition in Iceberg's terms: years, months, days or hours since 1970, or the value itself."""
    if partitioning is None:
        return Record()
    return Record(None if value is None or value == NULL_PARTITION else _partition_value(partitioning, value))


def _described(partitioning: Partitioning) -> tuple[str, type[IcebergTransform[Any, Any]], str]:
    return partitioning.field.name, _TRANSFORMS[partitioning.spec.transform], partitioning.spec.name


def _partition_value(partitioning: Partitioning, text: str) -> int | bool:
    transform, kind = partitioning.spec.transform, partitioning.field.type
    if transform is Transform.HOUR:
        day, _, hour = text.rpartition("-")
        return int(np.datetime64(f"{day}T{hour}", "h").astype(np.int64))
    if transform is Transform.IDENTITY and kind is Scalar.BOOLEAN:
        return text == "true"
    if transform is Transform.IDENTITY and kind is Scalar.INTEGER:
        return int(text)
    return int(np.array([text], f"M8[{_UNITS[transform]}]").astype(np.int64)[0])

"""Partitions of a table as Iceberg hides them: transforms of columns, and the value of each file."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from pyiceberg.table import Transaction
from pyiceberg.transforms import DayTransform, HourTransform, IdentityTransform, MonthTransform, YearTransform
from pyiceberg.transforms import Transform as IcebergTransform
from pyiceberg.typedef import Record

from destination_s3_spark.schema.airbyte_type import Scalar
from destination_s3_spark.schema.partitioning import NULL_PARTITION, Partitioning, Transform
from destination_s3_spark.tables.publishers.publication import NotPublished

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
    return None if partitioning is None or partitioning.has_text_codes else partitioning


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
    return Record(None if value is None or value == NULL_PARTITION else _value(partitioning, value))


def _described(partitioning: Partitioning) -> tuple[str, type[IcebergTransform[Any, Any]], str]:
    return partitioning.field.name, _TRANSFORMS[partitioning.spec.transform], partitioning.spec.name


def _value(partitioning: Partitioning, text: str) -> int | bool:
    transform, kind = partitioning.spec.transform, partitioning.field.type
    if transform is Transform.HOUR:
        day, _, hour = text.rpartition("-")
        return int(np.datetime64(f"{day}T{hour}", "h").astype(np.int64))
    if transform is Transform.IDENTITY and kind is Scalar.BOOLEAN:
        return text == "true"
    if transform is Transform.IDENTITY and kind is Scalar.INTEGER:
        return int(text)
    return int(np.array([text], f"M8[{_UNITS[transform]}]").astype(np.int64)[0])

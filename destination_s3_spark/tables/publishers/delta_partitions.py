"""Partitions of a table as a Delta log describes them: a column beyond those of the files, and its value in each file."""

from __future__ import annotations

import re
from urllib.parse import unquote

from destination_s3_spark.chain.files import FileEntry
from destination_s3_spark.delta_log.schema_text import PartitionColumn
from destination_s3_spark.schema.airbyte_type import Scalar
from destination_s3_spark.schema.partitioning import NULL_PARTITION, Partitioning, Transform

_DATE = re.compile(r"(?!0000)[0-9]{4}-[0-9]{2}-[0-9]{2}")
"""Dates of the years 1 to 9999, which every reader knows."""


def partition_column(partitioning: Partitioning) -> PartitionColumn:
    """Return the column. Its type is the one that readers of the folders would infer."""
    return PartitionColumn(partitioning.spec.name, _type(partitioning))


def partition_values(partitioning: Partitioning | None, file: FileEntry) -> dict[str, str | None]:
    """Return the value of the column in a file. A date beyond the year 9999 is null there; the files have it in their own column."""
    if partitioning is None or file.partition is None:
        return {}
    return {partitioning.spec.name: _value(partitioning, file.partition)}


def _type(partitioning: Partitioning) -> str:
    match partitioning.spec.transform:
        case Transform.YEAR:
            return "integer"
        case Transform.DAY:
            return "date"
        case Transform.MONTH | Transform.HOUR:
            return "string"
    names = {Scalar.DATE: "date", Scalar.BOOLEAN: "boolean", Scalar.INTEGER: "long"}
    kind = partitioning.field.type
    return names.get(kind, "string") if isinstance(kind, Scalar) else "string"


def _value(partitioning: Partitioning, text: str) -> str | None:
    kind = _type(partitioning)
    if text == NULL_PARTITION or (kind == "date" and not _DATE.fullmatch(text)):
        return None
    return str(int(text)) if kind == "integer" else unquote(text)

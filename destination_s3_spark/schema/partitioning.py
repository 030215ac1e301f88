"""Partitions of a table by a column: the value of each row's partition, and the text of the folder for it.

Values are in UTC. A folder is named as Hive does: `name=value`, with null as `__HIVE_DEFAULT_PARTITION__`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Literal
from urllib.parse import quote

import numpy as np
import pyarrow as pa

from destination_s3_spark.schema.airbyte_type import AirbyteType, Field, Scalar
from destination_s3_spark.schema.arrow import contiguous

NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"
"""The value in the folder of rows without a value, as Hive and Spark write it."""
LONGEST_TEXT = 128
"""Most characters of a text in a folder's name, escapes included. As in Hive, other texts and empty ones are in NULL_PARTITION."""

_TIMESTAMPS = (Scalar.TIMESTAMP_WITH_TIMEZONE, Scalar.TIMESTAMP_WITHOUT_TIMEZONE)
_PLAIN = (Scalar.DATE, Scalar.BOOLEAN, Scalar.INTEGER, Scalar.STRING)
_HOUR_US = 3_600_000_000
_DAY_US = 24 * _HOUR_US


class Transform(Enum):
    """The function that turns a column's value into the value of a partition."""

    IDENTITY = "identity"
    YEAR = "year"
    MONTH = "month"
    DAY = "day"
    HOUR = "hour"


_UNITS: Mapping[Transform, Literal["Y", "M", "D", "h"]] = {
    Transform.YEAR: "Y",
    Transform.MONTH: "M",
    Transform.DAY: "D",
    Transform.HOUR: "h",
}
"""numpy's units of the values of partitions."""


class NotPartitionable(Exception):
    """A column cannot partition a table with this transform. The text follows the column's name in a message."""


@dataclass(frozen=True, slots=True)
class PartitionSpec:
    """The partitioning of a table. `source`: JSON key of the column. `name`: the directory's key, which no column has."""

    source: str
    transform: Transform
    name: str

    def to_json(self) -> dict[str, str]:
        return {"source": self.source, "transform": self.transform.value, "name": self.name}

    @classmethod
    def from_json(cls, recorded: Mapping[str, Any]) -> PartitionSpec:
        """Read a recorded spec. Raises KeyError or ValueError for one that this version does not know."""
        return cls(str(recorded["source"]), Transform(recorded["transform"]), str(recorded["name"]))


def default_name(column: str, transform: Transform) -> str:
    """Return the directory's key for a column. It begins with no underscore, because readers skip folders that do."""
    return f"{column.lstrip('_') or 'column'}_{transform.value}"


def require_partitionable(kind: AirbyteType, transform: Transform) -> None:
    """Raise NotPartitionable unless values of the type can be divided by the transform."""
    if kind in _TIMESTAMPS:
        if transform is Transform.IDENTITY:
            raise NotPartitionable("is a timestamp, which takes the transform year, month, day or hour")
    elif kind is Scalar.DATE:
        if transform is Transform.HOUR:
            raise NotPartitionable("is a date, which takes the transform identity, year, month or day")
    elif kind not in _PLAIN:
        raise NotPartitionable("is none of date, timestamp, boolean, integer and string, the types that can partition a table")
    elif transform is not Transform.IDENTITY:
        raise NotPartitionable("is neither a date nor a timestamp, and takes the transform identity only")


@dataclass(frozen=True, slots=True)
class Partitioning:
    """A partitioning with its column as the table has it now. Picklable."""

    spec: PartitionSpec
    field: Field

    def folder(self, value: str) -> str:
        """Return the folder of a partition, ending in "/"."""
        return f"{self.spec.name}={value}/"

    @property
    def code_type(self) -> Scalar:
        """The type of the codes of partitions: texts or integers."""
        return Scalar.STRING if self.field.type is Scalar.STRING else Scalar.INTEGER

    def codes(self, rows: pa.RecordBatch | pa.Table) -> pa.Array[Any]:
        """Return a code of each row's partition. Integers or texts, null for NULL_PARTITION; equal codes are of one partition."""
        found = ordinals(rows[self.field.name], self.spec.transform)
        if not pa.types.is_string(found.type):
            return found
        encoded = found.dictionary_encode()
        texts = [None if (text := _escaped(value)) == NULL_PARTITION else text for value in encoded.dictionary.to_pylist()]
        return pa.array(texts, pa.string()).take(encoded.indices)

    def split(self, rows: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Yield the rows of each partition with its value, in the order of their first rows. Rows of a partition keep their order."""
        encoded: pa.DictionaryArray = self.codes(rows).dictionary_encode(null_encoding="encode")
        values = [self.text(code) for code in encoded.dictionary.to_pylist()]
        if len(values) == 1:
            yield values[0], rows
            return
        places = encoded.indices.to_numpy(zero_copy_only=False)
        ordered = rows if (np.diff(places) >= 0).all() else rows.take(pa.array(np.argsort(places, kind="stable")))
        start = 0
        for value, count in zip(values, np.bincount(places, minlength=len(values)).tolist(), strict=True):
            yield value, ordered.slice(start, count)
            start += count

    def text(self, code: int | str | None) -> str:
        """Return the value in the folder's name of the partition with this code."""
        if code is None:
            return NULL_PARTITION
        if isinstance(code, str):
            return code
        unit = _UNITS.get(self.spec.transform, "D" if self.field.type is Scalar.DATE else None)
        if unit is not None:
            text = str(np.datetime64(code, unit)).replace("T", "-")  # before an hour
            # Numpy writes the year -43 with three digits, and Spark needs four.
            return text.zfill(1 + len(str(np.datetime64(0, unit)))) if text.startswith("-") else text
        if self.field.type is Scalar.BOOLEAN:
            return "true" if code else "false"
        return str(code)


def ordinals(column: pa.Array[Any] | pa.ChunkedArray[Any], transform: Transform) -> pa.Array[Any]:
    """Return the value of each row's partition: years, months, days or hours since 1970, an integer, or a text. Null stays null."""
    values = contiguous(column)
    kind = values.type
    if pa.types.is_string(kind):
        return values
    if pa.types.is_boolean(kind):
        return values.cast(pa.int64())
    if pa.types.is_int64(kind):
        return values
    if pa.types.is_date32(kind):
        numbers = np.asarray(values.view(pa.int32()).fill_null(0)).astype(np.int64)
    else:
        micros = np.asarray(values.view(pa.int64()).fill_null(0))
        numbers = np.floor_divide(micros, _HOUR_US if transform is Transform.HOUR else _DAY_US)
    if transform in (Transform.YEAR, Transform.MONTH):
        numbers = numbers.astype("M8[D]").astype(f"M8[{_UNITS[transform]}]").astype(np.int64)
    mask = None if values.null_count == 0 else ~values.is_valid().to_numpy(zero_copy_only=False)
    return pa.array(numbers, pa.int64(), mask=mask)


def _escaped(text: str) -> str:
    """Return a text as a folder may be named, with percent escapes for all but letters, digits and `_ - .` of ASCII."""
    if text == NULL_PARTITION:
        return text.replace("_", "%5F", 1)
    escaped = quote(text, safe="").replace("~", "%7E")
    return escaped if 0 < len(escaped) <= LONGEST_TEXT else NULL_PARTITION

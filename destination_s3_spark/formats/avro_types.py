"""Avro types: the schema of each, and its binary encoding of whole Arrow columns.

A column is encoded as a list of parts. A part is a binary array, or a scalar that applies to every row. The parts of a row, joined, are
Avro's encoding of its value. The parts of a null value are null and join as no bytes. Encoding row by row from Python objects took ten
times as long.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from destination_s3_spark.formats.row_bytes import Part, decimal_bytes, joined, row_bytes, row_offsets

Schema = Any
"""An Avro schema as JSON: a name, a list for a union, or a dict."""
_Numbers = np.ndarray[Any, Any]

_NOTHING, _ZERO, _ONE, _SECOND_BRANCH = b"", b"\x00", b"\x01", b"\x02"


class AvroType(ABC):
    """A type of values that are not null. `Nullable` and `OneOf` are the types that allow null."""

    nullable: ClassVar[bool] = False

    @property
    @abstractmethod
    def schema(self) -> Schema:
        """The type in an Avro schema."""

    @abstractmethod
    def parts(self, array: pa.Array[Any]) -> list[Part]:
        """Encode each value of the array."""


@dataclass(frozen=True)
class Text(AvroType):
    """UTF-8 text. `logical` is its logical type."""

    logical: str | None = None

    @property
    def schema(self) -> Schema:
        return _named("string", self.logical)

    def parts(self, array: pa.Array[Any]) -> list[Part]:
        """Encode each text as its number of bytes and its bytes."""
        text = array.cast(pa.binary())
        return [_integers(pc.binary_length(text)), text]


@dataclass(frozen=True)
class Boolean(AvroType):
    """True or false."""

    schema = "boolean"

    def parts(self, array: pa.Array[Any]) -> list[Part]:
        """Encode each value as one byte."""
        return [pc.if_else(array, _ONE, _ZERO)]


@dataclass(frozen=True)
class Double(AvroType):
    """A 64-bit floating point number."""

    schema = "double"

    def parts(self, array: pa.Array[Any]) -> list[Part]:
        """Encode each number as eight bytes, little-endian."""
        values = pc.fill_null(array, 0.0).to_numpy(zero_copy_only=False).astype("<f8", copy=False)
        return [_binary(np.arange(len(values) + 1) * 8, values.view(np.uint8), array)]


@dataclass(frozen=True)
class DecimalBytes(AvroType):
    """A decimal, as the bytes of its digits."""

    precision: int
    scale: int

    @property
    def schema(self) -> Schema:
        return {"type": "bytes", "logicalType": "decimal", "precision": self.precision, "scale": self.scale}

    def parts(self, array: pa.Array[Any]) -> list[Part]:
        """Encode each number as the big-endian two's complement of its digits, in as few bytes as it takes, after their number."""
        little = decimal_bytes(array)
        sign = np.where(little[:, -1:] & 0x80, 0xFF, 0x00).astype(np.uint8)
        # The highest byte that is not a mere sign, and one more where its upper bit is not the sign.
        big = little[:, ::-1]
        lengths = 16 - np.argmax(np.column_stack([big != sign, np.ones(len(big), np.bool_)]), axis=1)
        highest = np.take_along_axis(little, np.maximum(lengths - 1, 0)[:, None], axis=1)
        lengths = np.minimum(lengths + ((lengths == 0) | ((highest ^ sign)[:, 0] >= 0x80)), 16)
        kept = np.arange(16) >= (16 - lengths)[:, None]
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        values = _binary(offsets, big[kept], array)
        return [_integers(pc.binary_length(values)), values]


@dataclass(frozen=True)
class Integer(AvroType):
    """An `int` or `long`. `logical` is its logical type. Arrow's temporal types store the same number as Avro's."""

    name: str = "long"
    logical: str | None = None

    @property
    def schema(self) -> Schema:
        return _named(self.name, self.logical)

    def parts(self, array: pa.Array[Any]) -> list[Part]:
        """Encode each number in one to ten bytes."""
        return [_integers(array.view(pa.int32() if array.type.bit_width == 32 else pa.int64()))]


@dataclass(frozen=True)
class ArrayOf(AvroType):
    """An array with items of one type."""

    items: AvroType

    @property
    def schema(self) -> Schema:
        return {"type": "array", "items": self.items.schema}

    def parts(self, array: pa.Array[Any]) -> list[Part]:
        """Encode each list as its number of items, the items and a zero. An empty list is a single zero: its number of items."""
        if len(array) == 0:
            return [pa.array([], pa.binary())]
        spans = array.offsets.to_numpy()
        items = joined(self.items.parts(array.values.slice(spans[0], spans[-1] - spans[0])))
        counts = pa.array(np.diff(spans))
        parts = [
            _integers(counts),
            _binary(row_offsets(items)[spans - spans[0]], row_bytes(items), counts),
            pc.if_else(pc.greater(counts, 0), _ZERO, _NOTHING),
        ]
        return [_where_valid(array, part) for part in parts]


@dataclass(frozen=True)
class Record(AvroType):
    """A record of named members in order."""

    name: str
    namespace: str
    members: tuple[tuple[str, AvroType], ...]

    @property
    def schema(self) -> Schema:
        """`record`, with null as the default of each nullable member."""
        fields = [{"name": name, "type": member.schema, **({"default": None} if member.nullable else {})} for name, member in self.members]
        return {"type": "record", "name": self.name, "namespace": self.namespace, "fields": fields}

    def parts(self, array: pa.Array[Any]) -> list[Part]:
        return [_where_valid(array, self.rows(array.flatten()))]

    def rows(self, columns: Sequence[pa.Array[Any]]) -> pa.BinaryArray:
        """Encode each row of a table with these columns. No row is null."""
        members = zip(self.members, columns, strict=True)
        return joined([part for (_, member), column in members for part in member.parts(column)])


@dataclass(frozen=True)
class Nullable(AvroType):
    """A union of null and one other type."""

    of: AvroType
    nullable = True

    @property
    def schema(self) -> Schema:
        return ["null", self.of.schema]

    def parts(self, array: pa.Array[Any]) -> list[Part]:
        """Encode each value as the number of its branch and the value."""
        branch = _SECOND_BRANCH if array.null_count == 0 else pc.if_else(array.is_valid(), _SECOND_BRANCH, _ZERO)
        return [branch, *self.of.parts(array)]


@dataclass(frozen=True)
class OneOf(AvroType):
    """A union of null and several other types. In Arrow it is a struct of a tag and one member per option, of which one is set.

    `branches` holds the branch of each member, counted from 1. Options with the same Avro type share a branch.
    """

    types: tuple[AvroType, ...]
    branches: tuple[int, ...]
    nullable = True

    @property
    def schema(self) -> Schema:
        return ["null", *(type_.schema for type_ in self.types)]

    def parts(self, array: pa.Array[Any]) -> list[Part]:
        members = array.flatten()[1:]
        chosen = np.zeros(len(array), np.uint8)
        for branch, member in zip(self.branches, members, strict=True):
            # The branch comes from the members, not from the tag: a tag that disagreed with them would corrupt the file.
            chosen[member.is_valid().to_numpy(zero_copy_only=False)] = branch * 2
        options = [self.types[branch - 1].parts(member) for branch, member in zip(self.branches, members, strict=True)]
        return [_binary(np.arange(len(chosen) + 1), chosen), *(part for parts in options for part in parts)]


def _named(name: str, logical: str | None) -> Schema:
    return name if logical is None else {"type": name, "logicalType": logical}


def _integers(array: pa.Array[Any]) -> pa.BinaryArray:
    """Encode integers as zigzag varints: groups of seven bits, lowest first, with the eighth bit set in all but the last."""
    values = pc.fill_null(array, 0).to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
    rest = ((values << 1) ^ (values >> 63)).view(np.uint64)
    lengths = np.ones(len(rest) + 1, np.int32)
    lengths[0] = 0
    higher = rest >> np.uint64(7)
    while higher.any():
        lengths[1:] += higher != 0
        higher >>= np.uint64(7)
    offsets = np.cumsum(lengths)
    encoded = np.empty(offsets[-1], np.uint8)
    at = offsets[:-1]
    while len(rest):
        more = rest > 0x7F
        encoded[at] = (rest & np.uint64(0x7F)).astype(np.uint8) | (more.astype(np.uint8) << 7)
        at, rest = at[more] + 1, rest[more] >> np.uint64(7)
    return _binary(offsets, encoded, array)


def _binary(offsets: _Numbers, data: _Numbers | pa.Buffer, nulls_of: pa.Array[Any] | None = None) -> pa.BinaryArray:
    """Return an array of the bytes between the offsets, null where `nulls_of` is null."""
    nulls = None if nulls_of is None or nulls_of.null_count == 0 else nulls_of.is_valid().buffers()[1]
    buffers = [nulls, pa.py_buffer(offsets.astype(np.int32, copy=False)), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers)


def _where_valid(array: pa.Array[Any], part: pa.BinaryArray) -> pa.BinaryArray:
    return part if array.null_count == 0 else pc.if_else(array.is_valid(), part, None)

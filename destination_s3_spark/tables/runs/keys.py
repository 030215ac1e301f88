"""Encoding of primary keys: one byte string per row that sorts in the order of the keys.

Input: the key columns as Arrow arrays. Output: a binary array. Its bytewise order is the order of the keys, column by column, nulls first.
Sorting, the key ranges of files and merges all use this encoding.

Each column is encoded as a byte, 0 for null and 1 for a value, followed by a body. Numbers, dates and times are big-endian and shifted so
that they sort as unsigned integers; a decimal is the integer of its digits. Null has the body of zero. Text is its bytes, with 0x00 written
as 0x00 0xFF and terminated by 0x00 0x00; null has no body. A key that does not fit its types is encoded as the byte 2 and the digest of its
text, which the row's id carries (`decoding.raw_ids`). No encoded key is a prefix of another one.

In a table with partitions, the code of a row's partition comes before its key, encoded like a column. The key determines the partition, so
equal keys stay equal, and the rows of a partition are neighbours.
"""

from __future__ import annotations

import decimal
import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from typing import Any, NamedTuple, assert_never

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from destination_s3_spark.chain.files import FileEntry
from destination_s3_spark.decoding.changes import Reason
from destination_s3_spark.decoding.raw_ids import carried_digest
from destination_s3_spark.decoding.value_text import TEMPORAL_TEXTS
from destination_s3_spark.errors import Bug
from destination_s3_spark.formats.file_statistics import KeyRange
from destination_s3_spark.formats.row_bytes import decimal_bytes
from destination_s3_spark.schema.airbyte_type import (
    MAX_PRECISION,
    AirbyteType,
    Array,
    Decimal,
    Field,
    Object,
    Scalar,
    SchemalessArray,
    SchemalessObject,
    Union,
    readable,
    type_to_json,
)
from destination_s3_spark.schema.arrow import META_FIELDS, arrow_type, contiguous
from destination_s3_spark.schema.partitioning import Partitioning

KEY = "_airbyte_key"
"""Control column: the encoded key, binary."""
CURSOR = "_airbyte_cursor"
"""Control column: the cursor's value in the cursor's type. Absent if the stream has no cursor."""
DELETED = "_airbyte_deleted"
"""Control column: whether the row deletes its key, bool."""
OFFSET = "_airbyte_offset"
"""Control column: the position of the row in the order of arrival, int64."""

CDC_FIELDS = "_ab_cdc_"
"""Prefix of the fields in which a source reports a change and its position in its own log. They are not data of the row."""
_POSITION_FIELDS = (CDC_FIELDS, "_ab_trigger_")
"""Prefixes of cursors that tell such a position. The second one is that of sources that capture changes by triggers."""

RAW_ID, META = META_FIELDS[0].name, META_FIELDS[2].name

BOUND_BYTES = 64
"""Length to which the bounds of a file's keys are cut, because the hint has them for every file."""

_UNFIT = b"\x02"
_END_OF_TEXT = b"\x00\x00"
_INTEGER_BYTES = 9
"""Length of an encoded integer."""
_INT32_MAX = 2**31 - 1
_SIGN = 1 << 63
_CUT = "…"
_EXACT = decimal.Context(prec=MAX_PRECISION)

_Bytes = np.ndarray[Any, np.dtype[np.uint8]]


class CdcDeletion(Enum):
    """The effect of a record with `_ab_cdc_deleted_at`. HARD removes the row of its key, SOFT marks it and keeps its values."""

    HARD = "hard"
    SOFT = "soft"


@dataclass(frozen=True, slots=True)
class KeySpec:
    """The key, cursor and deletion of a deduplicated table's rows. The fields are columns of the table. Picklable."""

    key: tuple[Field, ...]
    """At least one field."""
    cursor: Field | None
    deleted_at: Field | None
    deletion: CdcDeletion
    cursor_in_text: bool = False
    """Whether the table's rows are text. Stored rows then have only the cursor value that was extracted when they landed."""
    partitioning: Partitioning | None = None
    """The division of the table by a column of the key, or None if the table has no partitions."""
    snapshots: tuple[int, ...] = ()
    """The times in milliseconds since 1970, ascending, from which snapshots without cursors were extracted."""

    @property
    def fields(self) -> tuple[Field, ...]:
        return (*self.key, *(field for field in (self.cursor, self.deleted_at) if field is not None))

    @property
    def fingerprint(self) -> str:
        """8 hex digits that identify the control columns of files. Files with equal fingerprints can be merged without sorting them again.

        The digits cover the sources and types of the key's fields in order. For text rows they also cover the cursor. In a table with
        partitions they also cover the column and its transform.
        """
        if self.partitioning is not None:
            return _fingerprint(self.key, (self.partitioning.field,), transform=self.partitioning.spec.transform.value)
        return _fingerprint(self.key, self._cursor) if self.cursor_in_text else _fingerprint(self.key)

    @property
    def cursor_fingerprint(self) -> str:
        """The fingerprint of the cursor alone. Stored values of different cursors are not comparable."""
        return _fingerprint(self._cursor)

    def cursor_type(self, fingerprint: str, stored: pa.DataType) -> AirbyteType | None:
        """Return the type with which today's cursor has this fingerprint, given how its values are stored. None for another cursor."""
        if self.cursor is None:
            return None
        kinds: list[AirbyteType] = [kind for kind in Scalar if arrow_type(kind) == stored]
        if pa.types.is_decimal128(stored):
            kinds.append(Decimal(stored.precision, stored.scale))
        return next((kind for kind in kinds if _fingerprint((replace(self.cursor, type=kind),)) == fingerprint), None)

    @property
    def by_position(self) -> bool:
        """Whether the cursor is the position in the source's own log, which rows of its snapshots may not have."""
        return self.cursor is not None and self.cursor.source.startswith(_POSITION_FIELDS)

    @property
    def of_deletions(self) -> KeySpec:
        """The spec of files of deletions. They hold no rows, so they do not depend on whether the table's rows are text."""
        return replace(self, cursor_in_text=False)

    @property
    def _cursor(self) -> tuple[Field, ...]:
        return () if self.cursor is None else (self.cursor,)


def _fingerprint(*parts: Sequence[Field], transform: str | None = None) -> str:
    columns: list[object] = [[[field.source, type_to_json(field.type)] for field in part] for part in parts]
    if transform is not None:
        columns.append(transform)
    return hashlib.sha256(json.dumps(columns, separators=(",", ":")).encode()).hexdigest()[:8]


class _Body(NamedTuple):
    """The body of a type's values with a fixed number of bytes.

    `encode` makes a row of `width` bytes from each value. `text` shows a body that is read as an unsigned number.
    """

    width: int
    encode: Callable[[pa.Array[Any]], _Bytes]
    text: Callable[[int], str]


def _body(kind: AirbyteType) -> _Body | None:
    """Return how a type's values are encoded, None for text. Raises Bug for a type that cannot be part of a key."""
    match kind:
        case Scalar.STRING | SchemalessObject() | SchemalessArray():
            return None
        case Scalar.BOOLEAN:
            return _Body(1, _flags, lambda number: str(bool(number)).lower())
        case Scalar.NUMBER:
            return _Body(8, _floats, _float_text)
        case Decimal(_, scale):
            return _Body(16, _decimals, lambda number: f"{decimal.Decimal(_signed(number, 16)).scaleb(-scale, _EXACT):f}")
        case Scalar.DATE:
            return _Body(4, partial(_integers, as_type=pa.int32()), lambda number: TEMPORAL_TEXTS[kind](_signed(number, 4)))
        case (
            Scalar.INTEGER
            | Scalar.TIME_WITH_TIMEZONE
            | Scalar.TIME_WITHOUT_TIMEZONE
            | Scalar.TIMESTAMP_WITH_TIMEZONE
            | Scalar.TIMESTAMP_WITHOUT_TIMEZONE
        ):
            return _Body(8, partial(_integers, as_type=pa.int64()), lambda number: TEMPORAL_TEXTS.get(kind, str)(_signed(number, 8)))
        case Object() | Array() | Union():
            raise Bug(f"A column of type {readable(kind)} cannot be part of a primary key.")
        case _:
            assert_never(kind)


def encode_key(columns: Sequence[pa.Array[Any]], kinds: Sequence[AirbyteType]) -> pa.BinaryArray:
    """Encode the keys of rows, given as one array per key column, all of the same length, and the types of the columns.

    Raises pa.ArrowCapacityError when the keys take more than 2 GiB in total, and Bug for a column that cannot be part of a key.
    """
    bodies = [_body(kind) for kind in kinds]
    if None not in bodies:
        return _encode_fixed(columns, [body for body in bodies if body is not None])
    pairs = zip(columns, bodies, strict=True)
    parts = [_encode_text(column) if body is None else _encode_fixed([column], [body]) for column, body in pairs]
    return parts[0] if len(parts) == 1 else pc.binary_join_element_wise(*parts, b"")


def encode_fields(rows: pa.RecordBatch | pa.Table, fields: Sequence[Field]) -> pa.BinaryArray:
    """Encode the columns of these fields, as `encode_key` does. The rows have them by name."""
    return encode_key([contiguous(rows[field.name]) for field in fields], [field.type for field in fields])


def key_column(rows: pa.RecordBatch | pa.Table, spec: KeySpec) -> pa.BinaryArray:
    """Encode the keys of rows that have the key's columns by name, and the connector's own columns."""
    keys = encode_fields(rows, spec.key)
    unfit = {row: digest for row, raw_id in unfit_rows(rows, spec) if (digest := carried_digest(raw_id)) is not None}
    if unfit:
        mask = np.zeros(len(keys), np.bool_)
        mask[list(unfit)] = True
        keys = pc.replace_with_mask(keys, pa.array(mask), pa.array([_UNFIT + digest.encode() for digest in unfit.values()], keys.type))
    return _behind_partition(keys, rows, spec)


def fitting_keys(rows: pa.RecordBatch | pa.Table, spec: KeySpec) -> pa.BinaryArray:
    """Encode the keys of rows that all fit their types (see `may_be_unfit`), from the key's columns alone."""
    return _behind_partition(encode_fields(rows, spec.key), rows, spec)


def _behind_partition(keys: pa.BinaryArray, rows: pa.RecordBatch | pa.Table, spec: KeySpec) -> pa.BinaryArray:
    if spec.partitioning is None:
        return keys
    return pc.binary_join_element_wise(encode_key([spec.partitioning.codes(rows)], [spec.partitioning.code_type]), keys, b"")


def partition_end(key: bytes, spec: KeySpec) -> int | None:
    """Return the length of the partition's code at the start of an encoded key, 0 without partitions, None if the key is cut inside it."""
    if spec.partitioning is None:
        return 0
    if spec.partitioning.code_type is Scalar.STRING:
        end = 1 if key[:1] == b"\x00" else key.find(_END_OF_TEXT) + len(_END_OF_TEXT)
        return end if key[:1] == b"\x00" or _END_OF_TEXT in key else None
    return _INTEGER_BYTES if len(key) >= _INTEGER_BYTES else None


def is_unfit(key: bytes, spec: KeySpec) -> bool:
    """Tell whether an encoded key stands for one that does not fit its types."""
    return key[partition_end(key, spec) or 0 :].startswith(_UNFIT)


def may_be_unfit(first_key: bytes, last_key: bytes, spec: KeySpec) -> bool:
    """Tell whether a row between two rows of a sorted file, or one of them, may have a key that does not fit its types.

    Such keys come last in their partition, so the last key does not tell for rows of several partitions.
    """
    return partition_bounds(first_key, spec) != partition_bounds(last_key, spec) or is_unfit(last_key, spec)


def partition_bounds(key: bytes, spec: KeySpec) -> tuple[bytes, bytes | None]:
    """Return the range of keys, the second bound exclusive, of the partition of a key. None is no bound; a cut key may have none."""
    end = partition_end(key, spec)
    if not end:
        return b"", None
    return key[:end], _next_prefix(key[:end])


def unfit_rows(rows: pa.RecordBatch | pa.Table, spec: KeySpec) -> list[tuple[int, str]]:
    """List the positions and raw ids of the rows with a key that did not fit its types, in row order."""
    meta = rows[META]
    if not any(len(chunk.field("changes").flatten()) for chunk in (meta.chunks if isinstance(meta, pa.ChunkedArray) else [meta])):
        return []
    changes = contiguous(meta).field("changes")
    entries = changes.flatten()
    of_key = pc.is_in(entries.field("field"), pa.array([field.source for field in spec.key]))
    ours = pc.is_in(entries.field("reason"), pa.array([reason.value for reason in Reason]))
    found = pc.list_parent_indices(changes).filter(pc.and_(of_key, ours)).unique()
    return list(zip(found.to_pylist(), contiguous(rows[RAW_ID]).take(found).to_pylist(), strict=True))


def deleted_column(rows: pa.RecordBatch | pa.Table, spec: KeySpec) -> pa.BooleanArray:
    """Flag the rows that delete their key; none with SOFT. The rows have the `deleted_at` column by name, if there is one."""
    if spec.deleted_at is None or spec.deletion is CdcDeletion.SOFT:
        return pa.array(np.zeros(rows.num_rows, np.bool_))
    return contiguous(rows[spec.deleted_at.name]).is_valid()


def key_range(first: bytes, last: bytes, fingerprint: str) -> KeyRange:
    """Return the bounds of a sorted file from its first and last encoded key. Long bounds are cut: the first down, the last up."""
    upper = last if len(last) <= BOUND_BYTES else _next_prefix(last[:BOUND_BYTES])
    return KeyRange(first[:BOUND_BYTES].hex(), upper.hex(), fingerprint)


def lower(keys: KeyRange) -> bytes:
    """Return the inclusive lower bound of the file's keys."""
    return bytes.fromhex(keys.first)


def upper(keys: KeyRange) -> bytes:
    """Return the inclusive upper bound of the file's keys."""
    return bytes.fromhex(keys.last)


def after(key: bytes) -> bytes:
    """Return the least byte string above `key`. It turns an inclusive upper bound into an exclusive one."""
    return key + b"\x00"


def _next_prefix(prefix: bytes) -> bytes:
    """Return the least byte string above all that start with `prefix`. It always exists, because keys start with 0, 1 or 2."""
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1])


def _encode_fixed(columns: Sequence[pa.Array[Any]], bodies: Sequence[_Body]) -> pa.BinaryArray:
    rows, size = len(columns[0]), sum(body.width for body in bodies) + len(bodies)
    if rows * size > _INT32_MAX:
        raise pa.ArrowCapacityError(f"{rows} keys of {size} bytes are more than one array can hold")
    encoded = np.empty((rows, size), np.uint8)
    at = 0
    for column, body in zip(columns, bodies, strict=True):
        encoded[:, at] = 1 if column.null_count == 0 else column.is_valid().to_numpy(zero_copy_only=False)
        encoded[:, at + 1 : at + 1 + body.width] = body.encode(column)
        at += 1 + body.width
    offsets = np.arange(0, rows * size + 1, size, dtype=np.int32)
    return pa.BinaryArray.from_buffers(pa.binary(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(encoded)])


def _flags(column: pa.Array[Any]) -> _Bytes:
    return np.asarray(column.fill_null(False).cast(pa.uint8())).reshape(-1, 1)


def _floats(column: pa.Array[Any]) -> _Bytes:
    """Encode floats as IEEE bits that sort in the order of the numbers.

    -0.0 becomes 0.0, and every NaN becomes the same NaN above infinity, as in Arrow's order.
    """
    values = np.asarray(column.fill_null(0.0))
    bits = np.where(np.isnan(values), np.nan, values + 0.0).view(np.uint64)
    return _big_endian(np.where(bits >= np.uint64(_SIGN), ~bits, bits | np.uint64(_SIGN)))


def _float_text(number: int) -> str:
    bits = number ^ _SIGN if number & _SIGN else ~number & (2 * _SIGN - 1)
    return str(pa.array([bits], pa.uint64()).view(pa.float64())[0].as_py())


def _decimals(column: pa.Array[Any]) -> _Bytes:
    big_endian = decimal_bytes(column)[:, ::-1].copy()
    big_endian[:, 0] ^= 0x80
    return big_endian


def _integers(column: pa.Array[Any], *, as_type: pa.DataType) -> _Bytes:
    """Encode integers, dates and times. Flipping the sign bit turns the least number into 0."""
    signed = np.asarray(column.view(as_type).fill_null(0))
    return _big_endian(np.bitwise_xor(signed, np.iinfo(signed.dtype).min))


def _big_endian(numbers: np.ndarray[Any, Any]) -> _Bytes:
    width = numbers.dtype.itemsize
    return numbers.astype(f">u{width}", copy=False).view(np.uint8).reshape(len(numbers), width)


def _signed(number: int, width: int) -> int:
    return number - (1 << (8 * width - 1))


def _encode_text(column: pa.Array[Any]) -> pa.BinaryArray:
    escaped = pc.replace_substring(column.cast(pa.binary()), pattern=b"\x00", replacement=b"\x00\xff")
    # The join yields null for null, which is then replaced by its marker.
    return pc.binary_join_element_wise(b"\x01", escaped, b"\x00\x00", b"").fill_null(b"\x00")


def keys_of(file: FileEntry) -> KeyRange:
    """Return the key bounds of a sorted file (see `footers.with_keys`). Raises Bug for a file without them."""
    if file.keys is None:
        raise Bug(f"The keys of '{file.key}' are not known; nothing was changed.")
    return file.keys


def key_bounds(keys: KeyRange, specs: Sequence[KeySpec]) -> tuple[str, str] | None:
    """Return the least and the greatest key as text, or None if none of the specs wrote the range.

    A bound that was cut because it is long ends in an ellipsis.
    """
    spec = next((spec for spec in specs if spec.fingerprint == keys.of), None)
    if spec is None:
        return None
    return _text(_own(lower(keys), spec), spec.key), _text(_own(upper(keys), spec), spec.key)


def _own(encoded: bytes, spec: KeySpec) -> bytes:
    """Return the key without the partition before it."""
    end = partition_end(encoded, spec)
    return b"" if end is None else encoded[end:]


def _text(encoded: bytes, fields: Sequence[Field]) -> str:
    if encoded[:1] == _UNFIT:
        return f"does not fit its type ({encoded[1:9].decode(errors='replace')}{_CUT})"
    values: list[str] = []
    for field in fields:
        if not encoded:
            return ", ".join(values if values and values[-1].endswith(_CUT) else [*values, _CUT])
        body = _body(field.type)
        value, encoded = _text_value(encoded) if body is None else _fixed_value(encoded, body)
        values.append(value)
    return ", ".join(values)


def _fixed_value(encoded: bytes, body: _Body) -> tuple[str, bytes]:
    value, rest = encoded[1 : 1 + body.width], encoded[1 + body.width :]
    if len(value) < body.width:
        return _CUT, b""
    return "null" if encoded[0] == 0 else body.text(int.from_bytes(value, "big")), rest


def _text_value(encoded: bytes) -> tuple[str, bytes]:
    if encoded[0] == 0:
        return "null", encoded[1:]
    at = 1
    while (end := encoded.find(b"\x00", at)) >= 0 and encoded[end : end + 2] == b"\x00\xff":
        at = end + 2
    if end < 0 or encoded[end : end + 2] != _END_OF_TEXT:
        return _plain(encoded[1:]) + _CUT, b""
    return _plain(encoded[1:end]), encoded[end + 2 :]


def _plain(text: bytes) -> str:
    return text.replace(b"\x00\xff", b"\x00").decode(errors="replace")

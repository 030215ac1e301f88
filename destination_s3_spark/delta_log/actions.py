"""Actions of a Delta log, the columns of its table, the bytes of a commit, and the Parquet file of a checkpoint.

A commit is one JSON object per line, each with one action; unknown fields and actions of other writers are ignored when it is read. A
checkpoint has all actions that are in force at one version.
"""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from destination_s3_spark.formats.bounded import reading
from destination_s3_spark.formats.parquet_pages import PagedFile
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
from destination_s3_spark.schema.table_schema import union_members

_MAP = pa.map_(pa.string(), pa.string())
_TEXTS = pa.list_(pa.string())
_TXN = pa.struct([("appId", pa.string()), ("version", pa.int64()), ("lastUpdated", pa.int64())])
_ADD = pa.struct(
    [
        ("path", pa.string()),
        ("partitionValues", _MAP),
        ("size", pa.int64()),
        ("modificationTime", pa.int64()),
        ("dataChange", pa.bool_()),
        ("stats", pa.string()),
    ]
)
_REMOVE = pa.struct([("path", pa.string()), ("deletionTimestamp", pa.int64()), ("dataChange", pa.bool_())])
_METADATA = pa.struct(
    [
        ("id", pa.string()),
        ("format", pa.struct([("provider", pa.string()), ("options", _MAP)])),
        ("schemaString", pa.string()),
        ("partitionColumns", _TEXTS),
        ("configuration", _MAP),
    ]
)
_PROTOCOL = pa.struct(
    [("minReaderVersion", pa.int32()), ("minWriterVersion", pa.int32()), ("readerFeatures", _TEXTS), ("writerFeatures", _TEXTS)]
)
_SCHEMA = pa.schema([("txn", _TXN), ("add", _ADD), ("remove", _REMOVE), ("metaData", _METADATA), ("protocol", _PROTOCOL)])


class Protocol(Struct, frozen=True, rename="camel", omit_defaults=True):
    """The versions and features that readers and writers of the table must know."""

    min_reader_version: int
    min_writer_version: int
    reader_features: list[str] | None = None
    writer_features: list[str] | None = None


class Format(Struct, frozen=True):
    """The format of the data files."""

    provider: str = "parquet"
    options: dict[str, str] | None = {}


class Metadata(Struct, frozen=True, rename="camel"):
    """The columns and properties of the table. `schema_string` is the text of `schema_text.delta_columns`."""

    id: str
    schema_string: str
    partition_columns: list[str]
    configuration: dict[str, str]
    format: Format = Format()


class Transaction(Struct, frozen=True, rename="camel"):
    """The number that an application gives to its commit. `last_updated` is a time in milliseconds."""

    app_id: str
    version: int
    last_updated: int = 0


class Add(Struct, frozen=True, rename="camel", omit_defaults=True):
    """A data file of the table. `path` is relative to the table's root, `modification_time` in milliseconds, `stats` JSON text."""

    path: str
    partition_values: dict[str, str | None]
    size: int
    modification_time: int
    data_change: bool
    stats: str | None = None
    deletion_vector: Any = None
    """Set by other writers only."""


class Remove(Struct, frozen=True, rename="camel", omit_defaults=True):
    """A data file that left the table. `deletion_timestamp` is in milliseconds."""

    path: str
    data_change: bool
    deletion_timestamp: int | None = None


class CommitInfo(Struct, frozen=True, rename="camel"):
    """Provenance of a commit, for people. `txn_id` makes the bytes of each commit unique. `timestamp` is in milliseconds."""

    timestamp: int
    operation: str
    operation_parameters: dict[str, str]
    engine_info: str
    txn_id: str


DecisiveAction = Protocol | Metadata | Transaction | Remove | Add
"""An action that decides what the table is."""
Action = CommitInfo | DecisiveAction


class _Line(Struct, rename="camel"):
    protocol: Protocol | UnsetType = UNSET
    meta_data: Metadata | UnsetType = UNSET
    txn: Transaction | UnsetType = UNSET
    remove: Remove | UnsetType = UNSET
    add: Add | UnsetType = UNSET


_NAMES: dict[type, str] = {
    CommitInfo: "commitInfo",
    Protocol: "protocol",
    Metadata: "metaData",
    Transaction: "txn",
    Remove: "remove",
    Add: "add",
}
_TYPES: dict[str, type[DecisiveAction]] = {"protocol": Protocol, "metaData": Metadata, "txn": Transaction, "add": Add}
MOST_CHECKPOINT_BYTES = 256 * 2**20
"""Most bytes of a checkpoint, also in memory."""
_VALUES_A_BYTE = 8
"""Most values of a column of a checkpoint for each of its bytes: an action has a path, which takes some."""
_ACTIONS_AT_ONCE = 1_024
_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(_Line)


class Malformed(Exception):
    """The bytes are not a Delta commit, or not a checkpoint, or one with parts that this module does not read."""


def encode_commit(actions: Iterable[Action]) -> bytes:
    return b"".join(_ENCODER.encode({_NAMES[type(action)]: action}) + b"\n" for action in actions)


def decode_commit(body: bytes) -> Iterator[DecisiveAction]:
    """Yield the decisive actions. Raises Malformed."""
    for text in body.split(b"\n"):
        if not text.strip():
            continue
        try:
            line = _DECODER.decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise Malformed(str(error)) from None
        for action in (line.protocol, line.meta_data, line.txn, line.remove, line.add):
            if action is not UNSET:
                yield action


def encode_checkpoint(actions: Iterable[Action]) -> tuple[bytes, int]:
    """Return the bytes of the Parquet file and its number of actions. Removed files are left out: they are not in the bucket either."""
    in_force = (replace(action, data_change=False) if isinstance(action, Add) else action for action in actions)
    # Each row holds one action, so that the other columns are null there.
    rows = [{_NAMES[type(action)]: msgspec.to_builtins(action)} for action in in_force]
    out = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows, _SCHEMA), out, compression="snappy")
    return out.getvalue(), len(rows)


def decode_checkpoint(body: bytes) -> list[DecisiveAction]:
    """Return the actions of a checkpoint. Raises Malformed."""
    with reading(lambda fault: Malformed(f"it is damaged: {fault}")):
        try:
            actions = list(_actions(PagedFile(io.BytesIO(body)), len(body)))
        except msgspec.MsgspecError as error:
            raise Malformed(str(error)) from None
    counts = Counter(map(type, actions))
    if counts[Protocol] != 1 or counts[Metadata] != 1:
        raise Malformed("it does not have one protocol and one metaData")
    return actions


def _actions(file: PagedFile, size: int) -> Iterator[DecisiveAction]:
    """Yield the actions of a checkpoint of `size` bytes. Raises Malformed."""
    names = set(file.schema.names)
    columns = [*(name for name in _TYPES if name in names or name != "txn"), *({"sidecar"} & names)]
    file.require_bounds(MOST_CHECKPOINT_BYTES, _VALUES_A_BYTE * size)
    left = MOST_CHECKPOINT_BYTES
    for batch in file.batches(_ACTIONS_AT_ONCE, columns):
        left -= batch.nbytes
        if left < 0:
            raise Malformed("it unpacks to more bytes than any checkpoint has")
        # Other programs write the column even if there are none.
        if "sidecar" in columns and batch["sidecar"].null_count < len(batch):
            raise Malformed("it has sidecar files")
        for name, kind in _TYPES.items():
            if name in columns:
                for row in batch[name].drop_null().to_pylist(maps_as_pydicts="strict"):
                    yield msgspec.convert(_present(row) | {"dataChange": False}, kind)


def _present(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of an action that are not null. Maps may be, where other programs write none."""
    return {"partitionValues": {}, "configuration": {}} | {name: value for name, value in row.items() if value is not None}


@dataclass(frozen=True, slots=True)
class DeltaColumns:
    """The text of `schemaString`, and the dotted paths of columns and members that it leaves out.

    `partly_bounded`: names of structs with lists among their members, for which statistics have no bounds.
    """

    schema_string: str
    left_out: tuple[str, ...]
    names: tuple[str, ...]
    partly_bounded: tuple[str, ...]


def delta_columns(fields: Sequence[Field], partition: tuple[str, str] | None = None) -> DeltaColumns:
    """Convert the columns of the files. All become nullable, because adopted files may hold nulls anywhere.

    `partition`: the name and Delta's type of a column whose value is the same in all rows of a file. It comes last. The files do not have
    it, and it has no statistics.
    """
    left_out: list[str] = []
    columns = _members(fields, "", left_out)
    partly = tuple(field.name for field in fields if _is_partly_bounded(field.type))
    names = tuple(column["name"] for column in columns)
    if partition is not None:
        columns.append({"name": partition[0], "type": partition[1], "nullable": True, "metadata": {}})
    return DeltaColumns(msgspec.json.encode({"type": "struct", "fields": columns}).decode(), tuple(left_out), names, partly)


def _is_partly_bounded(of: AirbyteType) -> bool:
    members = of.fields if isinstance(of, Object) else union_members(of) if isinstance(of, Union) else ()
    return any(isinstance(member.type, Array) or _is_partly_bounded(member.type) for member in members)


def _members(fields: Iterable[Field], path: str, left_out: list[str]) -> list[dict[str, Any]]:
    found = []
    for field in fields:
        kind = _type(field.type, f"{path}{field.name}", left_out)
        if kind is not None:
            found.append({"name": field.name, "type": kind, "nullable": True, "metadata": {}})
    return found


def _type(of: AirbyteType, path: str, left_out: list[str]) -> str | dict[str, Any] | None:  # noqa: C901 (one case for each type)
    """Return the Delta type, or None after adding the path to `left_out`."""
    match of:
        case Scalar.STRING | SchemalessObject() | SchemalessArray():
            return "string"
        case Scalar.BOOLEAN:
            return "boolean"
        case Scalar.INTEGER:
            return "long"
        case Scalar.NUMBER:
            return "double"
        case Decimal(precision, scale):
            return f"decimal({precision},{scale})"
        case Scalar.DATE:
            return "date"
        case Scalar.TIMESTAMP_WITH_TIMEZONE | Scalar.TIMESTAMP_WITHOUT_TIMEZONE:
            return "timestamp"
        case Scalar.TIME_WITH_TIMEZONE | Scalar.TIME_WITHOUT_TIMEZONE:
            left_out.append(path)
            return None
        case Object(fields):
            return _struct(fields, path, left_out)
        case Union():
            return _struct(union_members(of), path, left_out)
        case Array(items):
            element = _type(items, f"{path}[]", left_out)
            return None if element is None else {"type": "array", "elementType": element, "containsNull": True}


def _struct(fields: Iterable[Field], path: str, left_out: list[str]) -> dict[str, Any] | None:
    """Return a struct. One whose members are all left out has no columns in Delta, so it is left out itself."""
    members = _members(fields, f"{path}.", left_out)
    return {"type": "struct", "fields": members} if members else None

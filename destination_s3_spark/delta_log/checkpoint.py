"""Checkpoint of a Delta log: all actions that are in force at one version, as a Parquet file."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from destination_s3_spark.delta_log.actions import Add, Format, Metadata, Protocol, Transaction

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


@dataclass(frozen=True, slots=True)
class Contents:
    """The actions in force at a version."""

    protocol: Protocol
    metadata: Metadata
    transactions: tuple[Transaction, ...]
    adds: tuple[Add, ...]


class MalformedCheckpoint(Exception):
    """The bytes are not a checkpoint, or one with parts that this module does not read."""


def encode_checkpoint(contents: Contents) -> tuple[bytes, int]:
    """Return the bytes of the Parquet file and its number of actions. Removed files are left out: they are not in the bucket either."""
    protocol, metadata = contents.protocol, contents.metadata
    protocols = [
        {
            "minReaderVersion": protocol.min_reader_version,
            "minWriterVersion": protocol.min_writer_version,
            "readerFeatures": protocol.reader_features,
            "writerFeatures": protocol.writer_features,
        }
    ]
    metadatas = [
        {
            "id": metadata.id,
            "format": {"provider": metadata.format.provider, "options": list(metadata.format.options.items())},
            "schemaString": metadata.schema_string,
            "partitionColumns": metadata.partition_columns,
            "configuration": list(metadata.configuration.items()),
        }
    ]
    txns = [{"appId": txn.app_id, "version": txn.version, "lastUpdated": txn.last_updated} for txn in contents.transactions]
    columns: dict[str, list[dict[str, Any]]] = {
        "txn": txns,
        "add": _add_rows(contents.adds),
        "remove": [],
        "metaData": metadatas,
        "protocol": protocols,
    }
    # Each row holds one action, so that the other columns are null there.
    parts = [pa.table({name: pa.array(rows, _SCHEMA.field(name).type)}) for name, rows in columns.items() if rows]
    table = pa.concat_tables([*parts, _SCHEMA.empty_table()], promote_options="default").select(_SCHEMA.names)
    out = io.BytesIO()
    pq.write_table(table, out, compression="snappy")
    return out.getvalue(), table.num_rows


def decode_checkpoint(body: bytes) -> Contents:
    """Return the contents of a checkpoint. Raises MalformedCheckpoint."""
    try:
        table = pq.read_table(pa.BufferReader(body))
        columns = {name: [row for row in table[name].to_pylist() if row is not None] for name in ("protocol", "metaData", "add")}
        txns = [row for row in table["txn"].to_pylist() if row is not None] if "txn" in table.column_names else []
        ((protocol,), (metadata,)) = columns["protocol"], columns["metaData"]
        # Other programs write the column even if there are none.
        if "sidecar" in table.column_names and table["sidecar"].null_count < table.num_rows:
            raise MalformedCheckpoint("it has sidecar files")
        return Contents(
            Protocol(
                protocol["minReaderVersion"],
                protocol["minWriterVersion"],
                protocol.get("readerFeatures"),
                protocol.get("writerFeatures"),
            ),
            Metadata(
                metadata["id"],
                metadata["schemaString"],
                metadata["partitionColumns"],
                dict(metadata["configuration"] or ()),
                Format(metadata["format"]["provider"], dict(metadata["format"]["options"] or ())),
            ),
            tuple(Transaction(txn["appId"], txn["version"], txn["lastUpdated"] or 0) for txn in txns),
            tuple(map(_add, columns["add"])),
        )
    except (pa.ArrowException, KeyError, TypeError, ValueError) as error:
        raise MalformedCheckpoint(f"{type(error).__name__}: {error}") from None


def _add_rows(adds: Iterable[Add]) -> list[dict[str, Any]]:
    return [
        {
            "path": add.path,
            "partitionValues": list(add.partition_values.items()),
            "size": add.size,
            "modificationTime": add.modification_time,
            "dataChange": False,
            "stats": add.stats,
        }
        for add in adds
    ]


def _add(row: Mapping[str, Any]) -> Add:
    return Add(
        row["path"],
        dict(row["partitionValues"] or ()),
        row["size"],
        row["modificationTime"],
        False,
        row.get("stats"),
        row.get("deletionVector"),
    )

"""Actions of a Delta log, and the bytes of a commit: one JSON object per line, each with one action.

Unknown fields and actions of other writers are ignored when a commit is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
from msgspec import UNSET, Struct, UnsetType


class Protocol(Struct, frozen=True, rename="camel", omit_defaults=True):
    """The versions and features that readers and writers of the table must know."""

    min_reader_version: int
    min_writer_version: int
    reader_features: list[str] | None = None
    writer_features: list[str] | None = None


class Format(Struct, frozen=True):
    """The format of the data files."""

    provider: str = "parquet"
    options: dict[str, str] = {}


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


Action = CommitInfo | Protocol | Metadata | Transaction | Remove | Add


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
_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(_Line)


class MalformedCommit(Exception):
    """The bytes are not a Delta commit."""


def encode_commit(actions: Iterable[Action]) -> bytes:
    """Return the bytes of a commit."""
    return b"".join(_ENCODER.encode({_NAMES[type(action)]: action}) + b"\n" for action in actions)


def decode_commit(body: bytes) -> Iterator[Protocol | Metadata | Transaction | Remove | Add]:
    """Yield the actions that decide what the table is. Raises MalformedCommit."""
    for text in body.split(b"\n"):
        if not text.strip():
            continue
        try:
            line = _DECODER.decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise MalformedCommit(str(error)) from None
        for action in (line.protocol, line.meta_data, line.txn, line.remove, line.add):
            if action is not UNSET:
                yield action

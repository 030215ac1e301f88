"""What a table's chain adds up to at one of its blocks.

Everything a writer needs to go on, small enough to be kept in the hint: the list of live files is a fold of its own (`live_files`).
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from msgspec import Struct

from destination_s3_spark.chain.files import FileEntry


class StreamName(Struct, frozen=True):
    """A stream as the catalog names it."""

    namespace: str | None
    name: str

    def __str__(self) -> str:
        return self.name if self.namespace is None else f"{self.namespace}.{self.name}"


class Checkpoint(Struct, frozen=True, rename="camel"):
    """A table's share of a checkpoint, recorded so that its replay is recognised.

    `state_hash`: sha256 hex of the state blob, null for the records behind a stream's last STATE. `multiset_hash`: 32 hex digits, the sum
    of the records' xxh3_128 modulo 2**128; independent of their order.
    """

    state_hash: str | None
    records: int
    multiset_hash: str
    generation: int


class Opener(Struct, frozen=True, rename="camel"):
    """The sync that opened the table."""

    sync_id: int
    started_at: datetime


class Identity(Struct, frozen=True, rename="camel"):
    """The facts of the Seed that never change. `table_number`: ten digits, stands in the name of every data file."""

    stream: StreamName
    table_id: str
    table_number: int
    final_root: str
    format_version: int


class Counters(Struct, frozen=True):
    """Totals over the live files the chain added. `rows` counts each record once, whatever number of tables it stands in."""

    rows: int = 0
    files: int = 0
    bytes: int = 0


class Unsettled(Struct, frozen=True, rename="camel"):
    """The data block whose uploads (AddData) or deletes (Void) are not known to be done.

    `files` are the AddData's in both cases; the rest says what the table goes back to when the AddData is voided.
    """

    sequence_number: int
    voided: bool
    files: tuple[FileEntry, ...]
    checkpoints: int
    next_offset: int
    counters: Counters


class TableState(Struct, frozen=True, rename="camel"):
    """The fold of the blocks 0 to `sequence_number`.

    `last_data` is the last data block (AddData, Void), `settled` the highest one known to be done, `unsettled` is `last_data` when they
    differ. `generation` is the one of the last session. `closed`: the last session ended cleanly. `replay`: the checkpoints committed
    since the last clean end, oldest first, which a source may send again. `snapshot`: number of the last Snapshot.
    """

    identity: Identity
    sequence_number: int
    block_hash: str
    system_time: datetime
    epoch: int
    opener: Opener
    generation: int
    settled: int | None = None
    last_data: int | None = None
    unsettled: Unsettled | None = None
    schema: dict[str, Any] | None = None
    next_offset: int = 0
    closed: bool = False
    replay: tuple[Checkpoint, ...] = ()
    snapshot: int | None = None
    counters: Counters = Counters()

    @property
    def schema_id(self) -> int | None:
        """The `schemaId` of the last SetDataSchema."""
        return None if self.schema is None else int(self.schema["schemaId"])

    @property
    def blocks_since_snapshot(self) -> int:
        """How many blocks a reader without a hint has to fold."""
        return self.sequence_number - (self.snapshot or 0)

"""What a table's chain adds up to at one of its blocks.

Everything a writer needs to go on, small enough to be kept in the hint: the list of live files is a fold of its own (`live_files`).
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from msgspec import Struct

from destination_s3_spark.chain.files import FileEntry, FileKind
from destination_s3_spark.chain.operation_count import OperationCount
from destination_s3_spark.stream_id import StreamId


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

    stream: StreamId
    table_id: str
    table_number: int
    final_root: str
    format_version: int


class Counters(Struct, frozen=True):
    """Totals over the live files of a kind."""

    rows: int = 0
    files: int = 0
    bytes: int = 0


class Pending(Struct, frozen=True, rename="camel"):
    """A generation that is to replace the table: its raw and delta files are those from `from_offset` on; nobody reads them yet.

    `sync_id`: the sync that began it.
    """

    generation: int
    from_offset: int
    sync_id: int


class Contents(Struct, frozen=True, rename="camel"):
    """What the data blocks add up to: all that taking one back must restore.

    `held` are the live files the chain added, by kind; `adopted` counts those it took over. `generation` is Current: the generation of
    the last session, or of the last ReplaceData after it. `landed` are the rows that came in since the table was last replaced, merged
    or not; those of a pending generation are `pending_rows`. `begun_by`: the sync that found the table empty or replaced it last.
    `operation_count`: what the change log counts up to, None where there is none or it does not reach to here.
    `earlier_rows` are those of `landed` that came in under another generation than Current, whose own begin at offset `current_from`;
    None: an earlier version wrote this, which did not tell them apart.
    """

    generation: int
    next_offset: int = 0
    held: dict[str, Counters] = {}
    adopted: int = 0
    landed: int = 0
    pending: Pending | None = None
    pending_rows: int = 0
    begun_by: int = 0
    operation_count: OperationCount | None = None
    earlier_rows: int = 0
    current_from: int | None = None

    @property
    def current_rows(self) -> int:
        """Rows that came into the table under Current."""
        return self.landed - self.earlier_rows

    @property
    def empty(self) -> bool:
        """Whether there is no file at all."""
        return not self.adopted and not any(counters.files for counters in self.held.values())

    @property
    def rows(self) -> int:
        """Rows in the final table, as far as the chain added them."""
        return self.held.get(FileKind.FINAL.value, Counters()).rows

    def files(self, kind: FileKind) -> int:
        """Number of live files of the kind."""
        return self.held.get(kind.value, Counters()).files


class Unsettled(Struct, frozen=True, rename="camel"):
    """The data block whose uploads and deletes are not known to be done, or the Void that takes it back.

    `files` are the uploads of the block that added them. `removed` are the keys to delete once these are complete, null where the block
    only adds. `before` is what the table goes back to, with the number of `checkpoints` to forget, when the block is voided.
    """

    sequence_number: int
    voided: bool
    files: tuple[FileEntry, ...]
    removed: tuple[str, ...] | None
    checkpoints: int
    before: Contents


class TableState(Struct, frozen=True, rename="camel"):
    """The fold of the blocks 0 to `sequence_number`.

    `last_data` is the last data block (Void included), `settled` the highest one known to be done, `unsettled` is `last_data` when they
    differ. `closed`: the last session ended cleanly. `replay`: the checkpoints committed since the last clean end, oldest first, which a
    source may send again. `snapshot`: number of the last Snapshot. `types_since`: files of an older schema have columns of other types.
    """

    identity: Identity
    sequence_number: int
    block_hash: str
    system_time: datetime
    epoch: int
    opener: Opener
    contents: Contents
    settled: int | None = None
    last_data: int | None = None
    unsettled: Unsettled | None = None
    schema: dict[str, Any] | None = None
    types_since: int = 0
    closed: bool = False
    replay: tuple[Checkpoint, ...] = ()
    snapshot: int | None = None

    @property
    def schema_id(self) -> int | None:
        """The `schemaId` of the last SetDataSchema."""
        return None if self.schema is None else int(self.schema["schemaId"])

    @property
    def blocks_since_snapshot(self) -> int:
        """How many blocks a reader without a hint has to fold."""
        return self.sequence_number - (self.snapshot or 0)

"""State of a table at one block of its chain.

The state holds everything a writer needs to continue and is small enough for the hint. The list of live files is a separate fold
(`live_files`).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import takewhile
from typing import Annotated, Any

from msgspec import Meta, Struct

from destination_s3_spark.chain.files import HISTORY_KINDS, MAX_EPOCH, Count, FileEntry, FileKind, HistoryMark, OperationCount
from destination_s3_spark.stream_id import StreamId


class Checkpoint(Struct, frozen=True, rename="camel"):
    """A table's share of a checkpoint, recorded to recognise its replay.

    `state_hash`: SHA-256 of the state blob in hex, null for the records after a stream's last STATE. `multiset_hash`: 32 hex digits, the
    sum of the records' xxh3_128 modulo 2**128, which is independent of their order. `sync_id`: the sync that committed it, 0 if unknown.
    """

    state_hash: str | None
    records: int
    multiset_hash: str
    generation: int
    sync_id: int = 0

    def is_replay_of(self, earlier: Checkpoint) -> bool:
        """Tell whether an attempt after the one that committed `earlier` sends the same records again.

        Another attempt of a sync may have another generation: the platform gives one to each stream that it reads from the start.
        """
        same = (self.state_hash, self.records, self.multiset_hash) == (earlier.state_hash, earlier.records, earlier.multiset_hash)
        return same and (self.generation == earlier.generation or self.sync_id == earlier.sync_id != 0)


class Opener(Struct, frozen=True, rename="camel"):
    """The sync or the command that opened the table. `maintains`: whether it is a command, which lands no rows."""

    sync_id: int
    started_at: datetime
    maintains: bool = False


class Identity(Struct, frozen=True, rename="camel"):
    """The facts of the Seed that never change. `table_number`: ten digits, part of every data file's name."""

    stream: StreamId
    table_id: str
    table_number: int
    final_root: str
    format_version: int


class Counters(Struct, frozen=True):
    """Totals over the live files of one kind."""

    rows: Count = 0
    files: Count = 0
    bytes: Count = 0


class Landed(Struct, frozen=True, rename="camel"):
    """The end of a complete generation: the start of the session in which all of it had landed, and the chain offset behind its rows."""

    by: datetime
    until: Count


class Pending(Struct, frozen=True, rename="camel"):
    """A generation that will replace the table. Its files are those from chain offset `from_offset` on, which nobody reads yet.

    `sync_id`: the sync that began it. `held_back`: all of it has landed, but nothing proves that, and it has suspiciously few rows.
    `complete`: all of it has landed, and it waits for a merge that no sync had the time for. Rows of later syncs are added to it.
    `landed`: how it landed, if it is complete.
    """

    generation: int
    from_offset: Count
    sync_id: int
    held_back: bool = False
    complete: bool = False
    landed: Landed | None = None


class Leaving(Struct, frozen=True, rename="camel"):
    """Replaced files that stay in the store until a time, for queries that were planned before the replacement.

    `block`: the number of the block that replaced them.
    """

    until: datetime
    keys: tuple[str, ...]
    bytes: Count
    block: Count


class BarredMark(Struct, frozen=True):
    """The barred keys of a table: the block that has them all, and their number."""

    block: Count
    keys: Count


class EarlierSchema(Struct, frozen=True, rename="camel"):
    """The schema of the table's rows, if a generation that was to replace them has recorded another.

    `joined`: whether rows of such a generation were added to them instead.
    """

    schema_id: int
    joined: bool = False


class Contents(Struct, frozen=True, rename="camel"):
    """The result of the data blocks: everything that taking a data block back must restore."""

    generation: int
    """The current generation: that of the last session, or of the last ReplaceData after it."""
    next_offset: Count = 0
    held: dict[str, Counters] = {}
    """Totals of the live files that the chain added, by kind."""
    adopted: Count = 0
    """Number of live files that destination-s3 wrote."""
    landed: Count = 0
    """Rows that landed since the table was last replaced, merged or not, without `pending_rows`."""
    pending: Pending | None = None
    pending_rows: Count = 0
    """Rows of the pending generation."""
    begun_by: int = 0
    """The sync that last replaced the table or found it empty."""
    operation_count: OperationCount | None = None
    """Count at the end of the change log. None if there is no change log or it does not cover the whole final table."""
    earlier_rows: Count = 0
    """Rows of `landed` that came in under a generation other than the current one."""
    current_from: Count = 0
    """Offset from which rows came in under the current generation."""
    leaving: tuple[Leaving, ...] = ()
    """Replaced files that are not deleted yet, one entry for each block that replaced some, oldest first."""
    waiting_since: datetime | None = None
    """The time of the first block with rows that still wait for a merge, or of the end of a complete generation. None if no rows wait."""
    history: HistoryMark | None = None
    """The history that has every version of the table's rows. None if there is none or it has ended."""
    rows_lacked: Count = 0
    """Rows of earlier generations that stayed, marked as deleted, when the table was last replaced. They are not in `landed`."""
    rows_from: Count = 0
    """The chain offset from which the table's rows landed, at the earliest."""
    rules_from: Count = 0
    """The chain offset from which rows landed under today's column rules."""
    earlier_schema: EarlierSchema | None = None
    """The schema of the rows, if it is not the last one nor one that this grew from."""
    records_barred: Count = 0
    """Records that were left out because of their key, over the table's lifetime."""
    replaced_by: int = 0
    """The sync after which the table had all of the current generation, which replaces others. 0 if there is none."""
    snapshots: tuple[datetime, ...] = ()
    """The newest `snapshot_from` of the commits, ascending."""

    @property
    def waiting(self) -> Counters:
        """Totals of the runs that wait for a merge. While a generation is pending, which replaces earlier runs, there are none.

        Of a complete generation, the rows are its own; the files and bytes include those of the runs that it replaces.
        """
        runs = self.held.get(FileKind.DELTA.value, Counters())
        if self.pending is None:
            return runs
        return Counters(self.pending_rows, runs.files, runs.bytes) if self.pending.complete else Counters()

    @property
    def current_rows(self) -> int:
        """Rows that came into the table under the current generation."""
        return self.landed - self.earlier_rows

    @property
    def came_in(self) -> int:
        """Records that came in and that the table's rows are made of, at least one for each row."""
        return self.landed + self.rows_lacked

    @property
    def empty(self) -> bool:
        """Whether the table has no files at all, except for versions of rows that it had."""
        return not self.adopted and not any(counters.files for kind, counters in self.held.items() if FileKind(kind) not in HISTORY_KINDS)

    def has_earlier_schema(self, *, without_pending: bool = False) -> bool:
        """Tell whether the table's rows have `earlier_schema`, because the generation that recorded another was given up.

        `without_pending`: whether the pending generation, if there is one, counts as given up. Its rows are then added to the table.
        """
        if self.earlier_schema is None or self.earlier_schema.joined:
            return False
        return self.pending is None or (without_pending and (self.pending.held_back or not self.pending_rows))

    @property
    def kept_keys(self) -> frozenset[str]:
        """The keys of replaced files that are not deleted yet."""
        return frozenset(key for leaving in self.leaving for key in leaving.keys)

    def is_replaced_again(self, sync_id: int, generation: int) -> bool:
        """Tell whether a sync is to replace the table with a generation that another sync has completed."""
        return generation == self.generation and sync_id not in (0, self.replaced_by) and self.replaced_by != 0

    def expired(self, now: datetime) -> tuple[str, ...]:
        """Return the keys of replaced files that need not stay any longer."""
        return tuple(key for leaving in self.leaving if leaving.until <= now for key in leaving.keys)

    @property
    def rows(self) -> int:
        """Rows in the final table, without those of adopted files."""
        return self.held.get(FileKind.FINAL.value, Counters()).rows

    def files(self, kind: FileKind) -> int:
        return self.held.get(kind.value, Counters()).files


class Unsettled(Struct, frozen=True, rename="camel"):
    """The data block whose uploads and deletes may not be done yet, or the Void that takes it back."""

    sequence_number: int
    voided: bool
    files: tuple[FileEntry, ...]
    """Files of the data block, with their uploads."""
    removed: tuple[str, ...] | None
    """Keys to delete once the uploads are complete. Null if the block only adds files."""
    checkpoints: int
    """Number of checkpoints to drop from the replay list when the block is voided."""
    before: Contents
    """Contents to restore when the block is voided."""
    data_change: bool = True
    """Whether rows may have changed. False for a compaction."""


class TableState(Struct, frozen=True, rename="camel"):
    """The fold of the blocks 0 to `sequence_number`."""

    identity: Identity
    sequence_number: Count
    block_hash: str
    system_time: datetime
    epoch: Annotated[int, Meta(ge=1, le=MAX_EPOCH)]
    opener: Opener
    contents: Contents
    settled: int | None = None
    """The highest data block whose uploads and deletes are known to be done."""
    last_data: int | None = None
    """The last data block; a Void counts as one."""
    unsettled: Unsettled | None = None
    """The block `last_data` if it differs from `settled`."""
    schema: dict[str, Any] | None = None
    types_since: int = 0
    """The last schema id that changed a column's type in place. Columns in files of an older schema may have other types."""
    closed: bool = False
    """Whether the last session ended cleanly."""
    replay: tuple[Checkpoint, ...] = ()
    """Checkpoints committed since the last clean end, oldest first, which a source may send again."""
    snapshot: int | None = None
    """Number of the last Snapshot block."""
    schema_blocks: tuple[tuple[int, int], ...] = ()
    """The schema id and the block of each SetDataSchema."""
    barred: BarredMark | None = None
    """The keys of which no record lands."""

    @property
    def file_count(self) -> int:
        """Number of live files, without those of a generation that was given up."""
        return self.contents.adopted + sum(counters.files for counters in self.contents.held.values())

    @property
    def schema_id(self) -> int | None:
        return None if self.schema is None else int(self.schema["schemaId"])


class ReplayGuard:
    """In-order comparison of a table's incoming checkpoints with the committed ones. The first mismatch ends the comparison.

    The first incoming checkpoint may match at any position, because the last STATE that the platform received is unknown. The rightmost
    match is used: it leaves the fewest further records to drop when a source repeats itself.
    """

    def __init__(self, committed: Sequence[Checkpoint]) -> None:
        self._committed = committed
        self._next: int | None = None
        """The position of the checkpoint that the next incoming one may repeat. None before the first."""

    @property
    def active(self) -> bool:
        """Whether the next checkpoint may be a replay."""
        return (self._next or 0) < len(self._committed)

    def count_replayed(self, incoming: Sequence[Checkpoint]) -> int:
        """Return the number of leading incoming checkpoints that the table already contains."""
        pairs = zip(incoming, self._committed[self._start(incoming) :], strict=False)
        return sum(1 for _ in takewhile(lambda pair: pair[0].is_replay_of(pair[1]), pairs))

    def accept(self, incoming: Sequence[Checkpoint], replayed: int) -> None:
        """Advance past the first `replayed` incoming checkpoints. Deactivate the guard if any others follow."""
        if replayed < len(incoming):
            self._committed, self._next = (), None
        elif incoming:
            self._next = self._start(incoming) + replayed

    def _start(self, incoming: Sequence[Checkpoint]) -> int:
        """Return the next position, which for the first incoming checkpoint is the rightmost that it repeats, or the end of the list."""
        if self._next is not None:
            return self._next
        matches = (at for at in reversed(range(len(self._committed))) if incoming and incoming[0].is_replay_of(self._committed[at]))
        return next(matches, len(self._committed))

"""Events of a chain, one per block.

The reader ignores unknown fields, so newer versions can add fields. It reads an unknown kind as `UnknownEvent`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from destination_s3_spark.chain.files import Count, FileEntry, HistoryMark, OperationCount
from destination_s3_spark.chain.state import Checkpoint, Landed, Opener, Pending, TableState
from destination_s3_spark.stream_id import StreamId

FORMAT_VERSION = 1
"""Version of the chain's format, recorded in the Seed. The reader rejects a higher one."""


class _Event(Struct, frozen=True, rename="camel", tag_field="kind", tag=True):
    """Base of the events. In JSON, `kind` holds the class name."""


class Seed(_Event, frozen=True):
    """The event of block 0: the start of the table and of its first session, with epoch 1.

    `adopted`: keys of files that destination-s3 wrote and the table takes over. `pending`: as in OpenEpoch, set if the session is to
    replace the adopted files.
    """

    stream: StreamId
    table_id: str
    table_number: int
    final_root: str
    adopted: tuple[str, ...]
    sync_id: int
    generation_id: int
    started_at: datetime
    pending: Pending | None = None
    format_version: int = FORMAT_VERSION

    @property
    def opener(self) -> Opener:
        return Opener(self.sync_id, self.started_at)


class OpenEpoch(_Event, frozen=True):
    """The start of a session. It makes every older writer fail at its next block.

    `pending`: the generation that lands to replace the table. If it differs from the previous pending generation, that one's files are
    dropped. If it is None, the previous one's rows join the table, or are dropped too if `discards`. `keeps_generation`: rows of the
    pending generation that the table already has stay when the generation replaces the table. `maintains`: whether the session is that of
    a command, which lands no rows.
    """

    sync_id: int
    generation_id: int
    started_at: datetime
    pending: Pending | None = None
    keeps_generation: bool = False
    discards: bool = False
    maintains: bool = False

    @property
    def opener(self) -> Opener:
        return Opener(self.sync_id, self.started_at, self.maintains)


@dataclass(frozen=True, slots=True)
class SetDataSchema:
    """The columns of the data blocks that follow. `schema`: the payload (`schemaId`, `fields`, `arrowSchema`, …), opaque to the chain."""

    schema: dict[str, Any]

    @property
    def schema_id(self) -> int:
        """Ascending number of the schema."""
        return int(self.schema["schemaId"])

    @property
    def column_rules(self) -> object:
        """The rules by which records are treated before they land."""
        return self.schema.get("columnRules")

    @property
    def retypes(self) -> bool:
        """Whether a column changes its type in place, so that files of earlier schemas must be rewritten."""
        return bool(self.schema.get("retyped"))


class OffsetInterval(Struct, frozen=True):
    """Rows `start` to `end`, both inclusive, counted from 0 over the table's lifetime."""

    start: Count
    end: Count


class ChangedValues(Struct, frozen=True):
    """The number of values of one field that were nulled or truncated for one reason.

    `field` is a path of declared members, with `[]` for any array index. A part is None for the sum of all that are not named.
    """

    field: str | None
    change: str | None
    reason: str | None
    values: int


class BarredKeys(Struct, frozen=True):
    """Barred keys: digests of values of these fields together, in hex. The fields are JSON keys."""

    fields: tuple[str, ...]
    digests: tuple[str, ...]


class BarKeys(_Event, frozen=True):
    """The keys of which no record lands any more, because their rows were forgotten for good. It has those of such blocks before, too.

    `salt`: the table's secret of the digests, in hex.
    """

    salt: str
    keys: tuple[BarredKeys, ...]

    @property
    def count(self) -> int:
        return sum(len(one.digests) for one in self.keys)


class AddData(_Event, frozen=True):
    """The commit of one or more checkpoints: rows are added. `changed_values` has the fields with the most values first.

    `records_barred`: the records that were left out because of their key, since the block before. `snapshot_from`: the session's start or
    earliest extraction, if records of a snapshot have no position in the source's log. Rows extracted since then outrank all older ones.
    """

    schema_id: int
    sync_id: int
    generation_id: int
    prev_offset: int | None
    offset_interval: OffsetInterval
    files: tuple[FileEntry, ...]
    checkpoints: tuple[Checkpoint, ...]
    changed_values: tuple[ChangedValues, ...] = ()
    records_barred: Count = 0
    snapshot_from: datetime | None = None

    @property
    def values_changed(self) -> int:
        """The number of values that were nulled or truncated."""
        return sum(found.values for found in self.changed_values)


class MergeData(_Event, frozen=True):
    """The merge of rows added earlier, up to `consumed_offset`, into the final table. It adds and removes files atomically.

    `operation_count`: the count at the end of the change log, including the change log files this block adds. None without a change log.
    `data_change`: whether rows may have changed. False for a compaction, which only moves rows to other files. `keep_until`: the time until
    which the removed final files stay in the store. None if they are deleted at once. `history`: the history that has every version of the
    table's rows up to this block. None if the table has none, or it ends here.
    `rows_forgotten`: the number of rows that landed and that the table forgets; `earlier_rows_forgotten`: those of earlier generations.
    `pending_rows_forgotten`: the number of rows of a pending generation that it forgets.
    """

    schema_id: int
    sync_id: int
    generation_id: int
    consumed_offset: int | None
    files: tuple[FileEntry, ...]
    files_removed: tuple[FileEntry, ...]
    operation_count: OperationCount | None = None
    data_change: bool = True
    keep_until: datetime | None = None
    rows_forgotten: Count = 0
    earlier_rows_forgotten: Count = 0
    pending_rows_forgotten: Count = 0
    history: HistoryMark | None = None


class ReplaceData(_Event, frozen=True):
    """The publication of a generation: from this block on, the table has no rows of any other one, but for `rows_lacked`.

    `operation_count`, `keep_until` and `history`: as in MergeData.
    `rows_kept`: rows of the generation that were in the table before it became pending and that stay. `rows_lacked`: rows of earlier
    generations that stay, marked as deleted, because the generation lacks them.
    """

    schema_id: int | None
    sync_id: int
    generation_id: int
    files: tuple[FileEntry, ...]
    files_removed: tuple[FileEntry, ...]
    operation_count: OperationCount | None = None
    rows_kept: int = 0
    keep_until: datetime | None = None
    history: HistoryMark | None = None
    rows_lacked: Count = 0


class Void(_Event, frozen=True):
    """The withdrawal of a data block, because one of its uploads disappeared before it was completed."""

    voided_sequence_number: int


class Close(_Event, frozen=True):
    """The clean end of a session: the source will not send any of its records again.

    `swept_until`: the replaced files that were kept until this time or an earlier one are deleted. `holds_back`: the pending generation
    has landed, and an operator or a later generation decides about it. `completes`: it has landed, as `landed` says, and waits for its
    merge. `records_barred`: as in AddData. `replaces`: whether the table has all of the session's generation, which replaces others.
    """

    swept_until: datetime | None = None
    holds_back: bool = False
    completes: bool = False
    landed: Landed | None = None
    records_barred: Count = 0
    replaces: bool = False

    def ended(self, pending: Pending) -> Pending:
        """Return the pending generation as the session leaves it. One that is complete is not held back any more."""
        complete = pending.complete or self.completes
        landed = pending.landed if pending.complete else self.landed or pending.landed
        held_back = not complete and (pending.held_back or self.holds_back)
        return replace(pending, held_back=held_back, complete=complete, landed=landed)


class Snapshot(_Event, frozen=True):
    """The complete fold of the blocks before this one. Readers may start here."""

    state: TableState
    adopted: tuple[str, ...]
    files: tuple[FileEntry, ...]
    dropped: tuple[FileEntry, ...] = ()


@dataclass(frozen=True, slots=True)
class UnknownEvent:
    """An event of a newer version that changes no data."""

    kind: str


KnownEvent: TypeAlias = Seed | OpenEpoch | BarKeys | AddData | MergeData | ReplaceData | Void | Close | Snapshot
Event: TypeAlias = KnownEvent | SetDataSchema | UnknownEvent
DATA_FIELDS = frozenset({"files", "filesRemoved", "offsetInterval"})
"""Fields that mark an event as changing the table's contents. The reader rejects an unknown kind that has one of them."""


def without_values(event: Event) -> Event:
    """Return the event as its block has it: without values of records in the entries of files."""
    match event:
        case AddData():
            return replace(event, files=_named(event.files))
        case MergeData() | ReplaceData():
            return replace(event, files=_named(event.files), files_removed=_named(event.files_removed))
        case Snapshot():
            return replace(event, files=_named(event.files), dropped=_named(event.dropped))
    return event


def _named(files: tuple[FileEntry, ...]) -> tuple[FileEntry, ...]:
    return tuple(file.without_values() for file in files)

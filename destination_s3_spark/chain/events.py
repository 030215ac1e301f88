"""The events of a chain, one per block.

Unknown fields are ignored when reading, so that a newer version may add some. A kind this version does not know becomes `UnknownEvent`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeAlias

from msgspec import Struct

from destination_s3_spark.chain.files import FileEntry
from destination_s3_spark.chain.operation_count import OperationCount
from destination_s3_spark.chain.state import Checkpoint, Opener, Pending, TableState
from destination_s3_spark.stream_id import StreamId

FORMAT_VERSION = 1
"""Version of the chain's format, in the Seed; a higher one is refused."""


class _Event(Struct, frozen=True, rename="camel", tag_field="kind", tag=True):
    """In JSON an event carries its class name as `kind`."""


class Seed(_Event, frozen=True):
    """Block 0: the table begins, and its first session with epoch 1. `adopted`: earlier destination-s3 files it takes over.

    `pending` as in OpenEpoch: set when the session is to replace the adopted files.
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
        """The sync that wrote this block."""
        return Opener(self.sync_id, self.started_at)


class OpenEpoch(_Event, frozen=True):
    """A session begins; every older writer's next block is refused.

    `pending` is the generation that is being landed to replace the table. Where one was pending before and another one or a new one is
    now, its files are dropped; where none is now, its rows belong to the table. `keeps_generation`: what the table has of the pending
    generation already stays when that one replaces it.
    """

    sync_id: int
    generation_id: int
    started_at: datetime
    pending: Pending | None = None
    keeps_generation: bool = False

    @property
    def opener(self) -> Opener:
        """The sync that wrote this block."""
        return Opener(self.sync_id, self.started_at)


@dataclass(frozen=True, slots=True)
class SetDataSchema:
    """The columns of the data blocks that follow. `schema` is the payload (`schemaId`, `fields`, `arrowSchema`, …), opaque to the chain."""

    schema: dict[str, Any]

    @property
    def schema_id(self) -> int:
        """Ascending number of the schema."""
        return int(self.schema["schemaId"])

    @property
    def retypes(self) -> bool:
        """Whether a column takes another type in place, so that files of earlier schemas have to be rewritten."""
        return bool(self.schema.get("retyped"))


class OffsetInterval(Struct, frozen=True):
    """Rows `start` to `end`, both inclusive, counted from 0 over the table's life."""

    start: int
    end: int


class AddData(_Event, frozen=True):
    """Rows are added: the commit of one or more checkpoints. `changes` counts the values that were nulled or cut, by reason."""

    schema_id: int
    sync_id: int
    generation_id: int
    prev_offset: int | None
    offset_interval: OffsetInterval
    files: tuple[FileEntry, ...]
    checkpoints: tuple[Checkpoint, ...]
    changes: dict[str, int]


class MergeData(_Event, frozen=True):
    """Rows that were added earlier, up to `consumed_offset`, come into the final table: files are added and others leave, all at once.

    `operation_count`: what the change log counts up to with the files of it that are added; None without one.
    """

    schema_id: int
    sync_id: int
    generation_id: int
    consumed_offset: int | None
    files: tuple[FileEntry, ...]
    files_removed: tuple[FileEntry, ...]
    operation_count: OperationCount | None = None


class ReplaceData(_Event, frozen=True):
    """A generation is published: nothing of another one is in the table from here on. `operation_count` as in MergeData.

    `rows_kept`: rows of it that came into the table before it was pending, and stay.
    """

    schema_id: int | None
    sync_id: int
    generation_id: int
    files: tuple[FileEntry, ...]
    files_removed: tuple[FileEntry, ...]
    operation_count: OperationCount | None = None
    rows_kept: int = 0


class Void(_Event, frozen=True):
    """A data block is taken back, since an upload of it had gone before it was complete."""

    voided_sequence_number: int


class Close(_Event, frozen=True):
    """The session ended cleanly: its source will not send anything again."""


class Snapshot(_Event, frozen=True):
    """The whole fold of the blocks before this one: reading may start here."""

    state: TableState
    adopted: tuple[str, ...]
    files: tuple[FileEntry, ...]
    dropped: tuple[FileEntry, ...] = ()


@dataclass(frozen=True, slots=True)
class UnknownEvent:
    """An event of a newer version that changes no data."""

    kind: str


KnownEvent: TypeAlias = Seed | OpenEpoch | AddData | MergeData | ReplaceData | Void | Close | Snapshot
Event: TypeAlias = KnownEvent | SetDataSchema | UnknownEvent
DATA_FIELDS = frozenset({"files", "filesRemoved", "offsetInterval"})
"""An event with one of these changes what the table holds; not to know its kind is a reason to stop."""

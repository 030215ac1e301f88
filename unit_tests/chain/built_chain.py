"""Chains that are built block by block in memory, without a store."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from msgspec.structs import replace

from destination_s3_spark.chain.blocks import Block, block_hash, encode
from destination_s3_spark.chain.events import (
    AddData,
    Event,
    MergeData,
    OffsetInterval,
    OpenEpoch,
    ReplaceData,
    Seed,
    SetDataSchema,
    Void,
)
from destination_s3_spark.chain.files import FileEntry, FileKind
from destination_s3_spark.chain.fold import fold
from destination_s3_spark.chain.live_files import LiveFiles, LiveFilesFold
from destination_s3_spark.chain.state import Checkpoint, Pending, TableState
from destination_s3_spark.stream_id import StreamId

T0 = datetime(2026, 1, 1, tzinfo=UTC)
SEED = Seed(StreamId("shop", "users"), "id", 1, "lake/users/", ("adopted.parquet",), 7, 0, T0)
SCHEMA = SetDataSchema({"schemaId": 0, "fields": []})
OPEN = OpenEpoch(8, 0, T0)


def add(
    start: int,
    end: int,
    prev: int | None = None,
    schema_id: int = 0,
    rows: int | None = None,
    kinds: Sequence[FileKind] = (FileKind.RAW, FileKind.FINAL),
) -> AddData:
    rows = end - start + 1 if rows is None else rows
    files = tuple(FileEntry(kind, f"{kind.value}-{start}", rows, 10 * rows, "upload", ("e",)) for kind in kinds)
    checkpoints = (Checkpoint(f"state-{end}", rows, "00", 0),)
    prev = prev if prev is not None or start == 0 else start - 1
    return AddData(schema_id, 7, 0, prev, OffsetInterval(start, end), files, checkpoints)


class Builder:
    """A chain in memory: `settled` of a block is the last data block unless told otherwise."""

    def __init__(self) -> None:
        self.state: TableState | None = None
        self.blocks: list[Block] = []

    def next(self, event: Event, **envelope: object) -> Block:
        state = self.state
        epoch = 1 if state is None else state.epoch + (1 if isinstance(event, OpenEpoch) else 0)
        settled = None if state is None else state.last_data
        if isinstance(event, Void):
            settled = None if state is None else state.settled
        number, link = (0, None) if state is None else (state.sequence_number + 1, state.block_hash)
        block = Block(number, link, T0, epoch, "n", settled, event)
        return replace(block, **envelope)

    def append(self, *events: Event) -> Builder:
        for event in events:
            self.add(self.next(event))
        return self

    def add(self, block: Block) -> TableState:
        self.state = fold(self.state, block, block_hash(encode(block)))
        self.blocks.append(block)
        return self.state

    @property
    def head(self) -> TableState:
        assert self.state is not None
        return self.state

    @property
    def live(self) -> LiveFiles:
        return live_files(self.blocks)


def live_files(blocks: Sequence[Block]) -> LiveFiles:
    """Fold the blocks from the last Snapshot, or from the Seed, to the head. The state says whether the last data block is settled."""
    fold = LiveFilesFold()
    for block in blocks:
        fold.add(block)
    return fold.now


def chain(*events: Event) -> Builder:
    return Builder().append(*events)


def file(kind: FileKind, key: str, rows: int = 10, **more: object) -> FileEntry:
    """A staged file with 10 bytes per row."""
    return FileEntry(kind, key, rows, 10 * rows, "upload", ("e",), **more)  # type: ignore[arg-type]


def merge(files: Sequence[FileEntry] = (), removed: Sequence[FileEntry] = (), schema_id: int = 0) -> MergeData:
    return MergeData(schema_id, 7, 0, None, tuple(files), tuple(removed))


def publish(
    files: Sequence[FileEntry] = (), removed: Sequence[FileEntry] = (), generation: int = 5, schema_id: int | None = 0
) -> ReplaceData:
    return ReplaceData(schema_id, 9, generation, tuple(files), tuple(removed))


def begin(generation: int, from_offset: int, sync_id: int = 9) -> OpenEpoch:
    """A session whose generation is to replace the table."""
    return OpenEpoch(sync_id, generation, T0, Pending(generation, from_offset, sync_id))

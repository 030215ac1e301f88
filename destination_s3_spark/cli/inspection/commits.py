"""Blocks of a table's chain, one row each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from destination_s3_spark.chain.blocks import Block
from destination_s3_spark.chain.events import (
    AddData,
    Close,
    MergeData,
    OpenEpoch,
    ReplaceData,
    Seed,
    SetDataSchema,
    Snapshot,
    UnknownEvent,
    Void,
)
from destination_s3_spark.chain.files import FileKind
from destination_s3_spark.cli.words import size_text
from destination_s3_spark.counted import counted


@dataclass(frozen=True, slots=True)
class Commit:
    """A block: what it added and removed, and in words what it says.

    `rows` are the rows that came in, or for a merge or replacement the final rows it wrote. `taken_back`: a later Void withdrew the block.
    """

    block: int
    time: datetime
    kind: str
    epoch: int
    sync_id: int | None
    rows: int
    files_added: int
    files_removed: int
    bytes_added: int
    checkpoints: int
    values_changed: int
    taken_back: bool
    summary: str


def commits(blocks: Sequence[Block]) -> tuple[Commit, ...]:
    """Return the rows of the blocks in their order."""
    voided = taken_back(blocks)
    return tuple(_commit(block, block.sequence_number in voided) for block in blocks)


def taken_back(blocks: Sequence[Block]) -> frozenset[int]:
    """Return the numbers of the data blocks that one of the blocks withdraws."""
    return frozenset(block.event.voided_sequence_number for block in blocks if isinstance(block.event, Void))


def kind_of(block: Block) -> str:
    """Return the name of the block's event."""
    return block.event.kind if isinstance(block.event, UnknownEvent) else type(block.event).__name__


def rows_of(event: AddData | MergeData | ReplaceData) -> int:
    """Return the rows that came in, or the final rows that a rewrite wrote."""
    if isinstance(event, AddData):
        return event.offset_interval.end - event.offset_interval.start + 1
    return sum(file.rows for file in event.files if file.kind is FileKind.FINAL)


def _commit(block: Block, voided: bool) -> Commit:
    event = block.event
    data = event if isinstance(event, AddData | MergeData | ReplaceData) else None
    added = event if isinstance(event, AddData) else None
    sync = event.sync_id if isinstance(event, Seed | OpenEpoch | AddData | MergeData | ReplaceData) else None
    return Commit(
        block.sequence_number,
        block.system_time,
        kind_of(block),
        block.epoch,
        sync or None,
        0 if data is None else rows_of(data),
        0 if data is None else len(data.files),
        0 if data is None or data is added else len(data.files_removed),  # type: ignore[union-attr]
        0 if data is None else sum(file.bytes for file in data.files),
        0 if added is None else len(added.checkpoints),
        0 if added is None else sum(added.changes.values()),
        voided,
        _summary(block),
    )


def _summary(block: Block) -> str:
    match block.event:
        case Seed() as event:
            adopted = f", {counted(len(event.adopted), 'file')} adopted" if event.adopted else ""
            return f"table {event.stream} begins, {session_text(event.sync_id)}, generation {event.generation_id}{adopted}"
        case OpenEpoch() as event:
            return f"epoch {block.epoch}, {session_text(event.sync_id)}, generation {event.generation_id}"
        case SetDataSchema() as event:
            return _schema_summary(event)
        case AddData() as event:
            return _add_data_summary(event)
        case MergeData() | ReplaceData() as event:
            return _rewrite_summary(event)
        case Void() as event:
            return f"takes back block {event.voided_sequence_number}"
        case Close():
            return "the session ended cleanly"
        case Snapshot() as event:
            return f"all blocks before: {counted(event.state.contents.rows, 'row')} in {counted(len(event.files), 'file')}"
        case UnknownEvent():
            return "written by a newer version"


def session_text(sync_id: int | None) -> str:
    """Name the session of this sync id. The operators' commands open tables without one."""
    return f"sync {sync_id}" if sync_id else "repair or rebuild"


def _schema_summary(event: SetDataSchema) -> str:
    columns = counted(len(event.schema.get("fields", ())), "data column")
    evolved = [f"{change['kind']} {change['path']}" for change in event.schema.get("changes", ())]
    return "; ".join([f"schema {event.schema_id}, version {event.schema.get('version')}: {columns}", *evolved])


def _add_data_summary(event: AddData) -> str:
    size = size_text(sum(file.bytes for file in event.files))
    files, checkpoints = counted(len(event.files), "file"), counted(len(event.checkpoints), "checkpoint")
    text = f"{counted(rows_of(event), 'row')}, {files} ({size}), {checkpoints}"
    changed = sum(event.changes.values())
    return f"{text}, {counted(changed, 'value')} changed" if changed else text


def _rewrite_summary(event: MergeData | ReplaceData) -> str:
    what = f"generation {event.generation_id} is published" if isinstance(event, ReplaceData) else "rows come into the final table"
    files = counted(len(event.files), "file")
    return f"{what}: {files} with {counted(rows_of(event), 'final row')} in, {counted(len(event.files_removed), 'file')} out"

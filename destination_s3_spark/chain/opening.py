"""Opening a table: fence every older writer, then settle what the last session left behind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from destination_s3_spark.chain.blocks import Block
from destination_s3_spark.chain.events import OpenEpoch, Seed, Snapshot
from destination_s3_spark.chain.live_files import live_files
from destination_s3_spark.chain.log import BlockTaken, Chain
from destination_s3_spark.chain.settle import complete, delete_voided, roll_back
from destination_s3_spark.chain.state import StreamName
from destination_s3_spark.chain.strays import StrayUploads
from destination_s3_spark.chain.tokens import table_number
from destination_s3_spark.errors import Fenced, TransientError
from destination_s3_spark.storage.object_store import ObjectStore

OPEN_TRIES = 32
"""How often opening gives way to another writer's block; each time that writer has made progress."""

SNAPSHOT_EVERY = 100
"""Blocks after which a Snapshot is due, so that a reader without a hint folds about that many."""


def _adopt_nothing() -> Sequence[str]:
    return ()


@dataclass(frozen=True, slots=True)
class Table:
    """Where a table is. `folder`: `<root>/airbyte_internal/<table>/`. `adopt` is asked for keys to take over when the table is seeded."""

    stream: StreamName
    table_id: str
    folder: str
    final_root: str
    adopt: Callable[[], Sequence[str]] = _adopt_nothing

    @property
    def chain_prefix(self) -> str:
        """Where the blocks are."""
        return f"{self.folder}chain/"


@dataclass(frozen=True, slots=True)
class Session:
    """The sync that writes, for one stream."""

    sync_id: int
    generation_id: int
    started_at: datetime


def open_table(chain: Chain, store: ObjectStore, table: Table, session: Session, strays: StrayUploads) -> None:
    """Begin a session. Raises TransientError when another writer is always first, Fenced when one takes over while opening."""
    clean = _open_epoch(chain, table, session)
    try:
        recover(chain, store)
        if not clean:
            strays.abort(chain.head.identity.table_number, chain.head.epoch)
        take_snapshot_when_due(chain)
    except BlockTaken as taken:
        raise fenced(table.stream, taken.block) from None


def recover(chain: Chain, store: ObjectStore) -> None:
    """Roll the unsettled data block forward, or take it back. Raises BlockTaken when another writer opened the table."""
    undo = chain.head.unsettled
    if undo is None:
        return
    if undo.voided:
        delete_voided(chain, store)
    elif complete(store, undo.files):
        chain.mark_settled()
    else:
        roll_back(chain, store)


def take_snapshot_when_due(chain: Chain) -> None:
    """Append a Snapshot when the last one is far away."""
    if chain.head.blocks_since_snapshot >= SNAPSHOT_EVERY:
        live = live_files(chain.blocks())
        chain.append(Snapshot(chain.head, live.adopted, live.files))


def fenced(stream: StreamName, block: Block) -> Fenced:
    """The error of a writer that finds another one's block."""
    event = block.event
    who = "another sync"
    if isinstance(event, OpenEpoch | Seed):
        who = f"another sync (sync id {event.sync_id}, started {event.started_at.isoformat(timespec='seconds')})"
    return Fenced(
        f"Table {stream} was taken over by {who} while this sync was writing to it, so this sync stops. Two connections write to this "
        "table, or an earlier attempt was still running. Nothing is lost; if two connections have the same destination path, give each "
        "its own.",
        stream=(stream.namespace, stream.name),
    )


def _open_epoch(chain: Chain, table: Table, session: Session) -> bool:
    """Write the block that fences; true when there is nothing of an earlier session to clean up."""
    for _ in range(OPEN_TRIES):
        clean = chain.state is None or chain.state.closed
        try:
            chain.append(_opening_event(chain, table, session))
        except BlockTaken:
            chain.catch_up()
        else:
            return clean
    raise TransientError(
        f"Table {table.stream} could not be opened: another writer was first {OPEN_TRIES} times. Run the sync again later."
    )


def _opening_event(chain: Chain, table: Table, session: Session) -> Seed | OpenEpoch:
    if chain.state is not None:
        return OpenEpoch(session.sync_id, session.generation_id, session.started_at)
    return Seed(
        stream=table.stream,
        table_id=table.table_id,
        table_number=table_number(table.table_id),
        final_root=table.final_root,
        adopted=tuple(table.adopt()),
        sync_id=session.sync_id,
        generation_id=session.generation_id,
        started_at=session.started_at,
    )

"""Opening a table: fence every older writer, then settle what the last session left behind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum

from destination_s3_spark.chain.blocks import Block
from destination_s3_spark.chain.events import OpenEpoch, Seed, Snapshot
from destination_s3_spark.chain.log import BlockTaken, Chain
from destination_s3_spark.chain.orphan_uploads import OrphanUploads
from destination_s3_spark.chain.precedence import Precedence, TakenOver
from destination_s3_spark.chain.settle import Publish, complete, delete_voided, finish, take_back
from destination_s3_spark.chain.state import Pending, TableState
from destination_s3_spark.chain.tokens import parse_token, table_number
from destination_s3_spark.errors import Fenced, TransientError
from destination_s3_spark.storage.object_store import ObjectStore
from destination_s3_spark.stream_id import StreamId

OPEN_TRIES = 32
"""How often opening gives way to another writer's block; each time that writer has made progress."""

CHAIN_FOLDER = "chain/"
"""The blocks of a table, in its own folder."""

SNAPSHOT_EVERY = 100
"""Blocks after which a Snapshot is due, so that a reader without a hint folds about that many."""


def _adopt_nothing() -> Sequence[str]:
    return ()


@dataclass(frozen=True, slots=True)
class Table:
    """Where a table is. `folder`: `<root>/airbyte_internal/<table>/`. `adopt` is asked for keys to take over when the table is seeded."""

    stream: StreamId
    table_id: str
    folder: str
    final_root: str
    adopt: Callable[[], Sequence[str]] = _adopt_nothing

    @property
    def chain_prefix(self) -> str:
        """Where the blocks are."""
        return f"{self.folder}{CHAIN_FOLDER}"

    @property
    def scratch_prefix(self) -> str:
        """Where merges keep rows they are still sorting, and lines wait for executors of a cluster; no block names them."""
        return f"{self.folder}scratch/"


class WriteDisposition(Enum):
    """What a session does to the rows the table has."""

    APPEND = "append"
    """It adds to them."""
    TRUNCATE = "truncate"
    """Its generation replaces all others, and what the table has of it stays: `minimum_generation_id` is `generation_id`."""
    OVERWRITE = "overwrite"
    """Its rows replace all others: mode `overwrite` without generations."""
    MAINTAIN = "maintain"
    """It only clears up: a pending generation stays pending, and what may be replayed stays so."""


@dataclass(frozen=True, slots=True)
class Session:
    """The sync that writes, for one stream."""

    sync_id: int
    generation_id: int
    started_at: datetime
    disposition: WriteDisposition = WriteDisposition.APPEND


class Settlement(Enum):
    """What became of a data block that was not settled."""

    FINISHED = "finished"
    TAKEN_BACK = "taken back"


@dataclass(frozen=True, slots=True)
class Leftovers:
    """What dead sessions had left: a data block that was not settled, and how many open uploads and scratch objects.

    `ended_cleanly`: the session before this one wrote Close.
    """

    ended_cleanly: bool
    settlement: Settlement | None
    uploads: int
    scratch: int


def open_table(
    chain: Chain,
    store: ObjectStore,
    table: Table,
    session: Session,
    orphans: OrphanUploads,
    publish: Publish,
    precedence: Precedence | None = None,
) -> Leftovers:
    """Begin a session, and deal with what is left over. Raises TransientError when another writer is always first, Fenced when one takes
    the table over meanwhile, or has taken over the first table of the same sync.
    """
    precedence = precedence or Precedence()
    try:
        clean = _open_epoch(chain, table, session, precedence)
    except TakenOver as taken:
        raise fenced(taken.stream, taken.block) from None
    try:
        settlement = recover(chain, store, publish)
        if settlement is not None:
            # Only now it is known what the table holds, and so what the session's rows are to it. It also records what is settled.
            chain.append(_opening_event(chain, table, session))
        uploads = scratch = 0
        if not clean or session.disposition is WriteDisposition.MAINTAIN:
            uploads = orphans.abort(chain.head.identity.table_number, chain.head.epoch)
            scratch = _delete_scratch(store, table, chain.head)
        take_snapshot_when_due(chain)
    except BlockTaken as taken:
        raise fenced(table.stream, taken.block) from None
    precedence.opened(chain)
    return Leftovers(clean, settlement, uploads, scratch)


def recover(chain: Chain, store: ObjectStore, publish: Publish) -> Settlement | None:
    """Roll the unsettled data block forward, or take it back. Raises BlockTaken when another writer opened the table."""
    undo = chain.head.unsettled
    if undo is None:
        return None
    if undo.voided:
        delete_voided(chain, store)
        return Settlement.TAKEN_BACK
    if not complete(store, undo.files) and take_back(chain, store):
        return Settlement.TAKEN_BACK
    finish(chain, store, publish)
    return Settlement.FINISHED


def pending_in(state: TableState, session: Session) -> Pending | None:
    """The generation that is pending in the session: whether its rows go into the table, or beside it until they replace it.

    Generations are compared for equality with the current one only. Their numbers start again when a stream is renamed.
    """
    contents = state.contents
    if session.disposition is WriteDisposition.MAINTAIN:
        return contents.pending
    if session.disposition is WriteDisposition.APPEND:
        return None
    if session.disposition is WriteDisposition.TRUNCATE:
        # With rows of other generations in the table, its own wait beside it too: those are to go when it is complete, and not before.
        alone = not contents.earlier_rows and not contents.adopted
        same = session.generation_id == contents.generation and (alone or contents.pending is not None)
    else:
        begun_by = contents.begun_by if contents.pending is None else contents.pending.sync_id
        same = session.sync_id == begun_by != 0
    if same:
        return contents.pending
    return None if contents.empty else Pending(session.generation_id, contents.next_offset, session.sync_id)


def dead_scratch(store: ObjectStore, table: Table, state: TableState, before_epoch: int) -> list[str]:
    """Keys of what sessions before that epoch kept for themselves: their merges' rows, lines on their way to executors."""
    number, dead = state.identity.table_number, []
    for found in store.list(table.scratch_prefix):
        # Each task has a folder of its own, named by a token.
        token = parse_token(found.key.removeprefix(table.scratch_prefix).partition("/")[0])
        if token is not None and token.table_number == number and token.epoch < before_epoch:
            dead.append(found.key)
    return dead


def _delete_scratch(store: ObjectStore, table: Table, state: TableState) -> int:
    keys = dead_scratch(store, table, state, state.epoch)
    store.delete(keys)
    return len(keys)


def take_snapshot_when_due(chain: Chain) -> None:
    """Append a Snapshot when the last one is far away."""
    if chain.head.blocks_since_snapshot >= SNAPSHOT_EVERY:
        live = chain.live_files()
        chain.append(Snapshot(chain.head, live.adopted, live.files, live.dropped))


def fenced(stream: StreamId, block: Block) -> Fenced:
    """The error of a writer that finds another one's block."""
    event = block.event
    who = "another sync"
    if isinstance(event, OpenEpoch | Seed):
        who = f"another sync (sync id {event.sync_id}, started {event.started_at.isoformat(timespec='seconds')})"
    return Fenced(
        f"Table {stream} was taken over by {who} while this sync was writing to it, so this sync stops. Two connections write to this "
        "table, or an earlier attempt was still running. Nothing is lost; if two connections have the same destination path, give each "
        "its own.",
        stream=stream,
    )


def _open_epoch(chain: Chain, table: Table, session: Session, precedence: Precedence) -> bool:
    """Write the block that fences; true when there is nothing of an earlier session to clean up."""
    for _ in range(OPEN_TRIES):
        clean = chain.state is None or chain.state.closed
        if not clean:
            precedence.check()
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
        contents = chain.state.contents
        if chain.state.unsettled is not None or session.disposition is WriteDisposition.MAINTAIN:
            return OpenEpoch(session.sync_id, contents.generation, session.started_at, contents.pending)
        pending = pending_in(chain.state, session)
        keeps_generation = pending is not None and session.disposition is WriteDisposition.TRUNCATE
        return OpenEpoch(session.sync_id, session.generation_id, session.started_at, pending, keeps_generation)
    adopted = tuple(table.adopt())
    replaces = adopted and session.disposition is not WriteDisposition.APPEND
    return Seed(
        stream=table.stream,
        table_id=table.table_id,
        table_number=table_number(table.table_id),
        final_root=table.final_root,
        adopted=adopted,
        sync_id=session.sync_id,
        generation_id=session.generation_id,
        started_at=session.started_at,
        pending=Pending(session.generation_id, 0, session.sync_id) if replaces else None,
    )

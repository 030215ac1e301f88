"""Opening of a table: fencing older writers, then settling what the last session left behind.

The last session to open a table owns it, so two syncs over several tables could each lose one. The first table decides: every sync opens
the same table first, and the others only while it owns that one. Before a sync takes another table from a session that may be alive, it
checks that no other session has taken over its first table. The sync that opened the first table last therefore keeps all its tables.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum

from destination_s3_spark.chain.blocks import Block
from destination_s3_spark.chain.events import OpenEpoch, Seed, Snapshot
from destination_s3_spark.chain.files import parse_token, table_number
from destination_s3_spark.chain.log import BlockTaken, Chain
from destination_s3_spark.chain.settle import Publish, complete, delete_voided, finish, take_back
from destination_s3_spark.chain.state import Pending, TableState
from destination_s3_spark.chain.territory import OrphanUploads
from destination_s3_spark.errors import Fenced, TransientError
from destination_s3_spark.storage.object_store import ObjectStore
from destination_s3_spark.stream_id import StreamId
from destination_s3_spark.wording import duration_text

logger = logging.getLogger("airbyte")

OPEN_TRIES = 32
"""Attempts to append the opening block. Each failed attempt means that another writer has made progress."""

SNAPSHOT_EVERY = 100
"""Blocks after which a Snapshot is due. A reader without a hint folds about this many blocks."""
FILES_PER_BLOCK = 10
"""Most files that a Snapshot lists for each block since the last one. A table of many files thus gets fewer Snapshots: with a constant
distance, the bytes of its chain would grow with the square of its age."""


class WriteDisposition(Enum):
    """The effect of a session on the rows that the table already has."""

    APPEND = "append"
    """The session adds rows to them."""
    TRUNCATE = "truncate"
    """The session's generation replaces all others; existing rows of it stay. Used when `minimum_generation_id` is `generation_id`."""
    OVERWRITE = "overwrite"
    """The session's rows replace all others. Used for sync mode `overwrite` without generations."""
    MAINTAIN = "maintain"
    """The session only cleans up. A pending generation stays pending, and the replay list stays in force."""
    DISCARD = "discard"
    """The session drops the rows of a pending generation."""


@dataclass(frozen=True, slots=True)
class Session:
    """The sync that writes, as one stream's table sees it."""

    sync_id: int
    generation_id: int
    started_at: datetime
    disposition: WriteDisposition = WriteDisposition.APPEND

    @property
    def maintains(self) -> bool:
        """Whether the session is that of a command, which lands no rows."""
        return self.disposition in {WriteDisposition.MAINTAIN, WriteDisposition.DISCARD}

    @property
    def truncates(self) -> bool:
        """Whether the session's generation replaces all others."""
        return self.disposition is WriteDisposition.TRUNCATE


class Settlement(Enum):
    """The outcome for a data block that was not settled."""

    FINISHED = "finished"
    TAKEN_BACK = "taken back"


@dataclass(frozen=True, slots=True)
class Leftovers:
    """Leftovers of dead sessions: the outcome for an unsettled data block, the numbers of aborted uploads and deleted scratch objects.

    `ended_cleanly`: no session came before this one, or the last one wrote Close.
    """

    ended_cleanly: bool
    settlement: Settlement | None
    uploads: int
    scratch: int


def open_table(
    chain: Chain,
    store: ObjectStore,
    session: Session,
    orphans: OrphanUploads,
    publish: Publish,
    precedence: Precedence | None = None,
) -> Leftovers:
    """Begin a session and clean up what earlier sessions left behind.

    Raises TransientError when another writer is first on every attempt. Raises Fenced when another writer takes over the table meanwhile,
    or has taken over the first table of the same sync.
    """
    precedence = precedence or Precedence()
    clean = _open_epoch(chain, session, precedence)
    try:
        settlement = recover(chain, store, publish)
        if settlement is not None:
            # Which generation is pending depends on the table's contents, which are known only now. The block also records the settlement.
            chain.append(_opening_event(chain, session))
        uploads, scratch = 0, list[str]()
        if not clean or session.disposition is WriteDisposition.MAINTAIN:
            uploads = orphans.abort(chain.territory, chain.head.epoch)
            store.delete(scratch := dead_scratch(store, chain, chain.head.epoch))
        take_snapshot_when_due(chain)
    except BlockTaken as taken:
        raise fenced(chain.table.stream, taken.block) from None
    precedence.opened(chain)
    return Leftovers(clean, settlement, uploads, len(scratch))


def recover(chain: Chain, store: ObjectStore, publish: Publish) -> Settlement | None:
    """Roll the unsettled data block forward or take it back. Raises BlockTaken when another writer has opened the table."""
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
    """Return the generation that is pending during the session, or None if the session's rows go straight into the table.

    Rows of a pending generation wait beside the table until they replace it. Generations are only tested for equality with the current
    one, because their numbers restart when a stream is renamed.
    """
    contents = state.contents
    if session.disposition is WriteDisposition.MAINTAIN:
        return contents.pending
    if session.disposition is WriteDisposition.DISCARD:
        return None
    if session.disposition is WriteDisposition.APPEND:
        return contents.pending if contents.pending is not None and contents.pending.complete else None
    if contents.pending is not None and is_published_first(contents.pending, session):
        return contents.pending
    if session.truncates:
        # While the table has rows of other generations, this one stays pending: the others may go only once this one is complete.
        alone = not contents.earlier_rows and not contents.adopted
        goes_on = alone if contents.pending is None else contents.pending.generation == session.generation_id
        same = session.generation_id == contents.generation and goes_on
    else:
        begun_by = contents.begun_by if contents.pending is None else contents.pending.sync_id
        same = session.sync_id == begun_by != 0
    if same:
        return contents.pending
    return None if contents.empty else Pending(session.generation_id, contents.next_offset, session.sync_id)


def is_published_first(pending: Pending, session: Session) -> bool:
    """Tell whether a pending generation has to be published before that of the session begins, because it is complete.

    The session's generation may never be. Without this one the table would be as it was before both.
    """
    if session.truncates:
        goes_on = pending.generation == session.generation_id
    else:
        goes_on = session.disposition is not WriteDisposition.OVERWRITE or session.sync_id == pending.sync_id != 0
    return pending.complete and not goes_on


def new_generation(state: TableState, session: Session) -> OpenEpoch | None:
    """Return the event with which the session's generation begins after another one was published first. None if the session adds rows."""
    pending = pending_in(state, session)
    if session.disposition is WriteDisposition.APPEND or (pending is None and not state.contents.empty):
        return None
    return OpenEpoch(session.sync_id, session.generation_id, session.started_at, pending)


def dead_scratch(store: ObjectStore, chain: Chain, before_epoch: int) -> list[str]:
    """List the keys of scratch objects from sessions before that epoch: rows of merges."""
    number, prefix, dead = chain.head.identity.table_number, chain.table.scratch_prefix, []
    for found in store.list(prefix):
        # Each task has its own folder, named by a token.
        token = parse_token(found.key.removeprefix(prefix).partition("/")[0])
        if token is not None and token.table_number == number and token.epoch < before_epoch:
            dead.append(found.key)
    return dead


def take_snapshot_when_due(chain: Chain) -> None:
    """Append a Snapshot if at least SNAPSHOT_EVERY blocks follow the last one, and more for a table of many files."""
    head = chain.head
    if head.sequence_number - (head.snapshot or 0) >= max(SNAPSHOT_EVERY, head.file_count // FILES_PER_BLOCK):
        live = chain.live_files()
        chain.append(Snapshot(head, live.adopted, live.files, live.dropped))


def fenced(stream: StreamId, block: Block) -> Fenced:
    """Return the error for a writer that found another writer's block."""
    event = block.event
    who = "another sync"
    if isinstance(event, OpenEpoch | Seed):
        started = event.started_at.isoformat(timespec="seconds")
        if isinstance(event, OpenEpoch) and event.maintains:
            return Fenced(
                f"Table {stream} was taken over by a command (started {started}) while this sync was writing to it, so this sync stops. "
                "Nothing is lost; the next attempt goes on.",
                stream=stream,
            )
        who = f"another sync (sync id {event.sync_id}, started {started})"
    return Fenced(
        f"Table {stream} was taken over by {who} while this sync was writing to it, so this sync stops. Two connections write to this "
        "table, or an earlier attempt was still running. Nothing is lost; if two connections have the same destination path, give each "
        "its own.",
        stream=stream,
    )


def _open_epoch(chain: Chain, session: Session, precedence: Precedence) -> bool:
    """Append the block that fences older writers. Return True if no earlier session left anything to clean up."""
    for _ in range(OPEN_TRIES):
        clean = chain.state is None or chain.state.closed
        if chain.state is not None and not clean:
            precedence.check(chain)
        try:
            chain.append(_opening_event(chain, session))
        except BlockTaken:
            chain.catch_up()
        else:
            return clean
    raise TransientError(f"Table {chain.table.stream} could not be opened: another writer was first {OPEN_TRIES} times. Try again later.")


def _opening_event(chain: Chain, session: Session) -> Seed | OpenEpoch:
    table = chain.table
    if chain.state is not None:
        contents = chain.state.contents
        if chain.state.unsettled is not None or session.disposition is WriteDisposition.MAINTAIN:
            maintains = session.maintains
            return OpenEpoch(session.sync_id, contents.generation, session.started_at, contents.pending, maintains=maintains)
        if session.disposition is WriteDisposition.DISCARD:
            return OpenEpoch(session.sync_id, contents.generation, session.started_at, discards=True, maintains=True)
        pending = pending_in(chain.state, session)
        keeps_generation = pending is not None and session.truncates
        if pending is None and session.truncates and contents.is_replaced_again(session.sync_id, session.generation_id):
            logger.warning(
                "stream %s: its table keeps the rows of sync %d, because that one completed the same generation %d. If the connection was "
                "made again since then, its generations began again, too: run a refresh that removes the records",
                table.stream, contents.replaced_by, session.generation_id,
            )  # fmt: skip
        gives_up = pending is None and contents.pending is not None and contents.pending.held_back
        return OpenEpoch(session.sync_id, session.generation_id, session.started_at, pending, keeps_generation, discards=gives_up)
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


class Precedence:
    """The first table that a sync opened, shared by all its tables."""

    def __init__(self) -> None:
        self._first: Chain | None = None

    def opened(self, chain: Chain) -> None:
        """Record that the sync opened this table; only the first one counts."""
        if self._first is None:
            self._first = chain

    def check(self, chain: Chain) -> None:  # noqa: ARG002 (a command's precedence looks at it)
        """Raise Fenced if another session has since opened the first table. Usually takes one or two GET requests.

        `chain`: that of a table which another session has not closed.
        """
        if self._first is None:
            return
        other = self._first.taken_over()
        if other is not None:
            raise fenced(self._first.head.identity.stream, other)


SILENT_FOR = timedelta(hours=24)
"""Age of the last block from which the session of a table that is not closed is taken for dead. A sync writes none to a table while its
source sends records of other streams, and while it merges."""


class SyncsFirst(Precedence):
    """The precedence of a command that leaves a table to the sync that may be writing to it, unless it is to take over."""

    def __init__(self, *, take_over: bool) -> None:
        super().__init__()
        self._take_over = take_over

    def check(self, chain: Chain) -> None:
        """Raise TransientError if a sync may be writing to the table. Sends no request."""
        state, now = chain.head, chain.now()
        if self._take_over or state.closed or state.opener.maintains or now - state.system_time >= SILENT_FOR:
            return
        sync_id, started = state.opener.sync_id, state.opener.started_at.isoformat(timespec="seconds")
        age = duration_text((now - state.system_time).total_seconds())
        raise TransientError(
            f"A sync may be writing to it (sync id {sync_id}, started {started}): it has not closed the table, and its last block is {age} "
            "old. Try again when that sync has ended. If it is dead, its next attempt helps, or --take-over, or to wait: after "
            f"{SILENT_FOR / timedelta(hours=1):.0f} hours without a block a sync counts as dead.",
            stream=chain.table.stream,
        )

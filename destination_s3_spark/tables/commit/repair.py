"""Repairing a table without a sync: what dead sessions left is settled and cleared up, and readers are shown the result.

Nothing a sync goes by changes: the generation, a pending one, and after an unclean end the checkpoints that may be replayed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from destination_s3_spark.chain.events import Close
from destination_s3_spark.chain.log import BlockTaken, Chain
from destination_s3_spark.chain.opening import Leftovers, Session, Table, WriteDisposition, dead_scratch, fenced, open_table
from destination_s3_spark.chain.orphan_uploads import OrphanUploads
from destination_s3_spark.chain.state import TableState
from destination_s3_spark.storage.object_store import ObjectStore
from destination_s3_spark.tables.publishers.publication import Publisher, show_checked

NO_SYNC = 0
"""The sync id of a session that is none."""


@dataclass(frozen=True, slots=True)
class Repair:
    """What was done to a table. `manifest`: it was written."""

    leftovers: Leftovers
    manifest: bool


def repair(
    store: ObjectStore, table: Table, publishers: Sequence[Publisher], orphans: OrphanUploads, started_at: datetime
) -> Repair | None:
    """Repair a table that exists; None when it needs nothing, and then nothing is written.

    A sync that is writing to the table is fenced. Raises Fenced when one takes the table over meanwhile, TransientError, DataError.
    """
    chain = Chain(store, table.chain_prefix, table.stream)
    chain.read()
    chain.catch_up()
    if chain.head.unsettled is None and not _has_leftovers(store, table, publishers, orphans, chain.head):
        return None

    publish = partial(show_checked, publishers, store)
    session = Session(NO_SYNC, chain.head.contents.generation, started_at, WriteDisposition.MAINTAIN)
    leftovers = open_table(chain, store, table, session, orphans, publish)
    try:
        publish(chain)
        if leftovers.ended_cleanly:
            # Otherwise the table stays open: Close would forget what the source may still send again.
            chain.append(Close())
            chain.write_hint()
    except BlockTaken as taken:
        raise fenced(table.stream, taken.block) from None
    return Repair(leftovers, bool(publishers))


def _has_leftovers(store: ObjectStore, table: Table, publishers: Sequence[Publisher], orphans: OrphanUploads, state: TableState) -> bool:
    """Whether a table whose data is settled needs something all the same."""
    epochs = state.epoch + 1
    return (
        not all(publisher.is_current(store, state) for publisher in publishers)
        or orphans.count(state.identity.table_number, epochs) > 0
        or bool(dead_scratch(store, table, state, epochs))
    )

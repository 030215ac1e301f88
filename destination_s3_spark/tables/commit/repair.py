"""Repair of a table without a sync. It settles and removes the leftovers of dead sessions and publishes the result to readers.

A repair preserves all that a later sync relies on: the generation, a pending generation, and after an unclean end the checkpoints that may
be replayed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial

from destination_s3_spark.chain.events import Close
from destination_s3_spark.chain.log import BlockTaken, Chain
from destination_s3_spark.chain.opening import Leftovers, Session, WriteDisposition, dead_scratch, fenced, open_table
from destination_s3_spark.chain.settle import sweep
from destination_s3_spark.chain.table_store import TableStore
from destination_s3_spark.chain.territory import OrphanUploads, Table
from destination_s3_spark.storage.object_store import ObjectStore
from destination_s3_spark.tables.publishers.histories import concerned
from destination_s3_spark.tables.publishers.publication import Publication, Publisher, publication_of, show_checked, withdraw_forgotten

NO_SYNC = 0
"""The sync id of a session outside a sync."""


@dataclass(frozen=True, slots=True)
class Repair:
    """The result of a repair. `published`: the publishers that readers now see the table through. `refused`: the others, with reasons.

    `withdrawn`: whether the Delta log was removed because publish.delta is off.
    """

    leftovers: Leftovers
    published: tuple[str, ...] = ()
    refused: Mapping[str, str] = field(default_factory=dict)
    withdrawn: bool = False


def repair(
    bucket: ObjectStore, table: Table, publishers: Sequence[Publisher], orphans: OrphanUploads, started_at: datetime
) -> Repair | None:
    """Repair an existing table. Return None without writing anything if it needs no repair.

    A table that only lacks publications which their publishers refuse is not written to either. A sync that is writing to the table is
    fenced. Raises Fenced when a sync takes the table over meanwhile, TransientError or DataError.
    """
    chain = Chain(bucket, table)
    store = TableStore(bucket, chain)
    chain.read()
    chain.catch_up()
    publishers = concerned(publishers, chain.head)
    withdrawn = withdraw_forgotten(publishers, store, chain)
    if chain.head.unsettled is None:
        publications = [publication_of(publisher, store, chain.head, chain.live_files()) for publisher in publishers]
        if not chain.head.contents.expired(chain.now()) and not _has_leftovers(store, chain, publications, orphans):
            refused = {found.name: found.refusal for found in publications if found.refusal is not None}
            return Repair(Leftovers(True, None, 0, 0), refused=refused, withdrawn=withdrawn) if refused or withdrawn else None

    publish = partial(show_checked, publishers, store)
    session = Session(NO_SYNC, chain.head.contents.generation, started_at, WriteDisposition.MAINTAIN)
    leftovers = open_table(chain, store, session, orphans, publish)
    try:
        publish(chain)
        swept = sweep(chain, store)
        if leftovers.ended_cleanly:
            # Otherwise the table stays open, because Close would drop the checkpoints that the source may still replay.
            chain.append(Close(swept))
            chain.write_hint()
    except BlockTaken as taken:
        raise fenced(table.stream, taken.block) from None
    published = tuple(publisher.name for publisher in publishers if publisher.name not in chain.not_shown)
    return Repair(leftovers, published, chain.not_shown, withdrawn)


def _has_leftovers(store: ObjectStore, chain: Chain, publications: Sequence[Publication], orphans: OrphanUploads) -> bool:
    """Tell whether a settled table has outdated publications, orphan uploads or dead scratch objects."""
    state = chain.head
    epochs = state.epoch + 1
    return (
        any(found.refusal is None and found.is_behind(state.last_data) for found in publications)
        or orphans.count(chain.territory.number, epochs) > 0
        or bool(dead_scratch(store, chain, epochs))
    )

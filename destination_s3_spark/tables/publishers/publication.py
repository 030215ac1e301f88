"""What readers are shown who do not know a table's chain: its state after a rewrite and at the end of a session, never an older one.

A writer that was paused may still show what it knew, and so may a request of a dead one that was held up. A conditional put refuses that
where the store has it. Otherwise, whoever finds a block after its own shows readers what the chain says then, and a sync without records
for a table looks whether they see its last data. That also finds what no condition can tell: a table that looks as it did once before.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import Protocol

from msgspec.structs import replace

from destination_s3_spark.chain.live_files import LiveFiles
from destination_s3_spark.chain.log import BlockTaken, Chain
from destination_s3_spark.chain.readable import readable
from destination_s3_spark.chain.state import TableState
from destination_s3_spark.errors import SyncError
from destination_s3_spark.storage.object_store import ObjectStore

LOOKS = 8
"""How often a writer that was overtaken shows the newest state, while another one goes on, which shows its own in the end."""

logger = logging.getLogger(__name__)


class Publisher(Protocol):
    """Shows tables to readers that do not know their chains."""

    def publish(self, store: ObjectStore, state: TableState, live: LiveFiles, last: str | None) -> str:
        """Show readers the table in this state, in one step; a newer one that they see already stays, where the store can tell.

        `last` and the result are the publisher's own marks of what readers see. An old mark costs calls, nothing else.
        """

    def is_current(self, store: ObjectStore, state: TableState) -> bool:
        """Whether readers see the table's last data."""


def show(publisher: Publisher | None, store: ObjectStore, chain: Chain) -> None:
    """Show readers the table at the chain's head, all of whose files are visible. Without a publisher there is nobody to show it to."""
    if publisher is not None:
        chain.shown = publisher.publish(store, chain.head, chain.live_files(), chain.shown)


def show_checked(publisher: Publisher | None, store: ObjectStore, chain: Chain) -> None:
    """The same; raises BlockTaken when another writer has opened the table, and readers see its state then."""
    if publisher is None:
        return
    show(publisher, store, chain)
    other = chain.successor()
    if other is not None:
        show_newest(publisher, store, chain)
        raise BlockTaken(other)


def show_if_behind(publisher: Publisher | None, store: ObjectStore, chain: Chain) -> None:
    """Show readers the table at the chain's head if they do not see its last data. For a table that nobody has opened."""
    if publisher is not None and not publisher.is_current(store, chain.head):
        with suppress(BlockTaken):  # nothing of ours is in it
            show_checked(publisher, store, chain)


def show_newest(publisher: Publisher | None, store: ObjectStore, chain: Chain) -> None:
    """Show readers what the chain says by now, after others have written to it. Raises nothing: they show it themselves in the end."""
    if publisher is None:
        return
    try:
        for _ in range(LOOKS):
            newest = chain.anew()
            seen, state = readable(newest, store), newest.head
            if seen.left_out is not None:
                state = replace(state, sequence_number=seen.left_out - 1)
            newest.shown = publisher.publish(store, state, seen.live, newest.shown)
            if newest.successor() is None:
                return
    except SyncError as error:
        logger.warning("readers outside of the chain may see an older state of a table until its next sync: %s", error)

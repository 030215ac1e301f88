"""Publication of tables to readers that do not know their chains: after a rewrite and at the end of a session, never of an older state.

A writer that was paused may still show what it knew, and so may a request of a dead one that was held up. A conditional put refuses that
where the store has it. Otherwise, whoever finds a block after its own shows readers what the chain says then, and a sync without records
for a table looks whether they see its last data. That also finds what no condition can tell: a table that looks as it did once before.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from msgspec.structs import replace

from destination_s3_spark.chain.live_files import LiveFiles
from destination_s3_spark.chain.log import BlockTaken, Chain
from destination_s3_spark.chain.readable import readable
from destination_s3_spark.chain.state import TableState
from destination_s3_spark.errors import SyncError
from destination_s3_spark.storage.object_store import ObjectStore
from destination_s3_spark.storage.paths import PathTemplate
from destination_s3_spark.stream_id import StreamId

if TYPE_CHECKING:  # executors of a cluster have no pydantic
    from destination_s3_spark.config.config import Config

LOOKS = 8
"""How often a writer that was overtaken shows the newest state, while another one goes on, which shows its own in the end."""

logger = logging.getLogger(__name__)


class Publisher(Protocol):
    """Shows tables to readers that do not know their chains."""

    @property
    def name(self) -> str:
        """The name of its mark in the hint of a table."""

    def publish(self, store: ObjectStore, state: TableState, live: LiveFiles, last: str | None) -> str:
        """Show readers the table in this state, in one step; a newer one that they see already stays, where the store can tell.

        `last` and the result are the publisher's own marks of what readers see. An old mark costs calls, nothing else.
        """

    def is_current(self, store: ObjectStore, state: TableState) -> bool:
        """Whether readers see the table's last data."""


@dataclass(frozen=True, slots=True)
class PublisherKind:
    """A way to show tables, of which each publisher's module gives one.

    `of_tables` makes the publisher of each table that has one, given the final roots of all tables that are known. `require` raises
    ConfigError when the user wants it for tables that cannot have it, and logs a warning for tables that go without.
    """

    of_tables: Callable[[Config, Mapping[StreamId, str], PathTemplate], Mapping[StreamId, Publisher]]
    require: Callable[[Config, Mapping[StreamId, str], PathTemplate], None]


def show(publishers: Sequence[Publisher], store: ObjectStore, chain: Chain) -> None:
    """Show readers the table at the chain's head, all of whose files are visible."""
    for publisher in publishers:
        _publish(publisher, store, chain, chain.head, chain.live_files())


def show_checked(publishers: Sequence[Publisher], store: ObjectStore, chain: Chain) -> None:
    """Show readers the table at the chain's head. Raises BlockTaken when another writer has opened it, and readers see its state then."""
    if not publishers:
        return
    show(publishers, store, chain)
    other = chain.successor()
    if other is not None:
        show_newest(publishers, store, chain)
        raise BlockTaken(other)


def show_if_behind(publishers: Sequence[Publisher], store: ObjectStore, chain: Chain) -> None:
    """Show readers the table at the chain's head if they do not see its last data. For a table that nobody has opened."""
    behind = [publisher for publisher in publishers if not publisher.is_current(store, chain.head)]
    with suppress(BlockTaken):  # nothing of ours is in it
        show_checked(behind, store, chain)


def show_newest(publishers: Sequence[Publisher], store: ObjectStore, chain: Chain) -> None:
    """Show readers what the chain says by now, after others have written to it. Raises nothing: they show it themselves in the end."""
    if not publishers:
        return
    try:
        for _ in range(LOOKS):
            newest = chain.anew()
            seen, state = readable(newest, store), newest.head
            if seen.left_out is not None:
                state = replace(state, sequence_number=seen.left_out - 1)
            for publisher in publishers:
                _publish(publisher, store, newest, state, seen.live)
            if newest.successor() is None:
                return
    except SyncError as error:
        logger.warning("readers outside of the chain may see an older state of a table until its next sync: %s", error)


def _publish(publisher: Publisher, store: ObjectStore, chain: Chain, state: TableState, live: LiveFiles) -> None:
    chain.shown[publisher.name] = publisher.publish(store, state, live, chain.shown.get(publisher.name))

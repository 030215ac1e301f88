"""Publication of tables to readers that do not know their chains. It runs after a rewrite and at the end of a session.

Readers must not go back to an older state. However, a paused writer or a delayed request of a dead writer may still publish one. A
conditional put prevents this if the store supports it. Otherwise a writer that finds a later block than its own publishes the newest state
of the chain. A sync without records for a table also checks that readers see its last data. The check even covers a case that no condition
detects: a publication that equals an earlier one.

A publisher never ends a sync. One that refuses a table, or whose catalog fails, raises NotPublished, which becomes one warning. The chain
holds the truth, so the next sync or `repair` brings readers up to date.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from msgspec.structs import replace

from destination_s3_spark.chain.files import FileKind
from destination_s3_spark.chain.hint import PublishedMark
from destination_s3_spark.chain.live_files import LiveFiles
from destination_s3_spark.chain.log import BlockTaken, Chain
from destination_s3_spark.chain.settle import readable
from destination_s3_spark.chain.state import TableState
from destination_s3_spark.delta_log.log import DeltaLog, UnreadableLog
from destination_s3_spark.errors import ConfigError, SyncError, TransientError
from destination_s3_spark.formats.parquet import PARQUET
from destination_s3_spark.formats.registry import format_of
from destination_s3_spark.schema.schema_event import from_event
from destination_s3_spark.schema.table_schema import TableSchema
from destination_s3_spark.storage.object_store import ObjectStore
from destination_s3_spark.storage.paths import PathTemplate
from destination_s3_spark.stream_id import StreamId

if TYPE_CHECKING:  # a cluster's executors have no pydantic
    from destination_s3_spark.config.config import Config
    from destination_s3_spark.tables.rules import MergeRule

MOST_ATTEMPTS = 8
"""Most times that an overtaken writer publishes the newest state while another writer goes on. The other one publishes at its end."""

logger = logging.getLogger(__name__)
users_logger = logging.getLogger("airbyte")
DELTA_PUBLISHER = "delta"
HISTORY_SUFFIX = "_history"
"""What is added to the name of a table for its history, and to the name of a publisher for the one that shows histories."""


class NotPublished(Exception):
    """A publisher does not publish a table: it refuses the table, or its catalog fails. The text is for users: what and what to do."""


def require_parquet(keys: Iterable[str], readers: str) -> None:
    """Raise NotPublished for a file of another format among those that these readers would see."""
    for key in keys:
        if format_of(key) not in (PARQUET, None):
            raise NotPublished(
                f"'{key}' is not a Parquet file. A refresh of the stream replaces the files of its earlier format; until then {readers} "
                "see the table as it was."
            )


class Publisher(Protocol):
    """Publisher of a table to readers that do not know its chain."""

    @property
    def name(self) -> str:
        """The name of the publisher: of its mark in the hint of a table, and in messages."""

    def publish(self, store: ObjectStore, state: TableState, live: LiveFiles, last: PublishedMark | None) -> str:
        """Publish the table in this state atomically, and return the new mark. A newer published state stays if the store can detect it.

        A mark identifies the published state in a form of the publisher's choice. `last` holds the previous mark. If it is outdated, the
        only cost is further requests. Raises NotPublished if the table cannot be published or the catalog fails.
        """

    def published(self, store: ObjectStore, state: TableState) -> int | None:
        """Return the number of the block up to which readers see the table, or None if they do not see it at all.

        Takes few requests, because every idle table is asked in every sync. Raises NotPublished if the catalog fails.
        """

    def require_fitting(self, store: ObjectStore, state: TableState, live: LiveFiles) -> None:
        """Raise NotPublished if the table in this state cannot be published at all. Changes nothing."""


TimeOf = Callable[[int], datetime | None]
"""Tells the time of a block of the chain by its number, None if there is no such block."""


@runtime_checkable
class AsksTheChain(Protocol):
    """A publisher that finds a later block than its own in what is published, and can ask whether the chain has it.

    Whoever writes in the table's folder or its catalog can claim one, and readers would see what they wrote for ever.
    """

    def asking(self, time_of: TimeOf) -> Publisher:
        """Return the publisher for one chain. Without it, later blocks are believed."""


@runtime_checkable
class BeginsAnew(Protocol):
    """A publisher whose metadata keeps values of rows that are gone, until it begins anew."""

    def begin_anew(self, store: ObjectStore, state: TableState) -> None:
        """Withdraw the table with all metadata, so that `publish` makes it again. May be repeated. Raises NotPublished."""


@dataclass(frozen=True, slots=True)
class ShownTable:
    """A table as readers outside the chain know it: that of a stream, or the history beside it.

    `root`: the folder below which its files are. `owner`: a key prefix of its own, by which a catalog's table is known to be this one.
    `neighbour`: what else has files in its folder, for a message, or None.
    """

    stream: StreamId
    root: str
    owner: str
    neighbour: str | None = None
    merge_rule: MergeRule | None = None
    is_history: bool = False

    @property
    def name(self) -> StreamId:
        """The namespace and the name by which catalogs know it."""
        return StreamId(self.stream.namespace, self.stream.name + HISTORY_SUFFIX) if self.is_history else self.stream


def rivals_of(names: Mapping[ShownTable, Hashable]) -> dict[ShownTable, StreamId]:
    """Map each table whose name in a catalog, or place in the bucket, is also another's to that other one's stream.

    A history takes no name from a table.
    """
    owners: dict[Hashable, list[ShownTable]] = {}
    for table in sorted(names, key=lambda table: table.is_history):
        owners.setdefault(names[table], []).append(table)
    return {
        table: next(other.stream for other in sharing if other != table)
        for sharing in owners.values()
        for place, table in enumerate(sharing)
        if len(sharing) > 1 and (place or table.is_history or not sharing[1].is_history)
    }


def overlap_error(option: str, thing: str, shared: Mapping[StreamId, str]) -> ConfigError:
    """Return the error for tables with overlapping folders, each of which would need one of its own for a thing that an option requests."""
    stream, other = min((str(stream), other) for stream, other in shared.items())
    return ConfigError(
        f"{option} is on, but on S3 stream '{stream}' and {other} overlap: the folder of one is, holds or lies in the other's. "
        f"A {thing} needs a folder of its own: put ${{NAMESPACE}} and ${{STREAM_NAME}} into s3_path_format, or, if both tables exist, sync "
        f"one of them into another s3_bucket_path, or switch {option} off."
    )


@dataclass(frozen=True, slots=True)
class PublisherKind:
    """A kind of publication. Each publisher's module provides one."""

    of_tables: Callable[[Config, Sequence[ShownTable]], Mapping[ShownTable, Publisher]]
    """Makes the publisher of each of all known tables that has one. For a history it gets what `histories` makes of the table's state."""
    require: Callable[[Config, Mapping[StreamId, str], PathTemplate], None]
    """Raises ConfigError if the user requests the publication for tables that cannot have it. Warns about tables without it. Takes the
    final roots of all known tables."""
    check: Callable[[Config, ObjectStore, PathTemplate], None] | None = None
    """Tries every call of a catalog that publishing needs, below the given bucket path. Raises SyncError, and leaves nothing behind. None
    if publishing needs the bucket alone."""


@dataclass(frozen=True, slots=True)
class Publication:
    """What readers see through a publisher: the table up to this block, or the reason why it cannot be brought up to date."""

    name: str
    block: int | None
    refusal: str | None = None

    def is_behind(self, last_data: int | None) -> bool:
        """Return whether readers do not see the data up to this block."""
        return self.block is None or self.block < (last_data or 0)


@contextmanager
def undone_by(undo: Callable[[], object]) -> Iterator[None]:
    """Undo at the end what a block did, also one that failed and may have done it all the same. Its own error is the one that is raised."""
    try:
        yield
    except BaseException:
        with suppress(Exception):
            undo()
        raise
    undo()


def publication_of(publisher: Publisher, store: ObjectStore, state: TableState, live: LiveFiles) -> Publication:
    """Return what readers see through a publisher. Raises SyncError when the store fails."""
    try:
        block = publisher.published(store, state)
    except NotPublished as error:
        return Publication(publisher.name, None, str(error))
    found = Publication(publisher.name, block)
    if not found.is_behind(state.last_data):
        return found
    try:
        publisher.require_fitting(store, state, live)
    except NotPublished as error:
        return Publication(publisher.name, block, str(error))
    return found


def show(publishers: Sequence[Publisher], store: ObjectStore, chain: Chain) -> None:
    """Publish the table at the chain's head, and withdraw what is no longer published. All of its files must be visible."""
    _show(publishers, store, chain)
    _withdraw(publishers, store, chain)


def show_checked(publishers: Sequence[Publisher], store: ObjectStore, chain: Chain) -> None:
    """Do the same as `show`. If another writer has opened the table, publish the newest state and raise BlockTaken."""
    show(publishers, store, chain)
    _check_newest(publishers, store, chain)


def show_if_behind(publishers: Sequence[Publisher], store: ObjectStore, chain: Chain) -> None:
    """Publish the table at the chain's head if readers do not see its last data. For a table that this sync has not opened."""
    _withdraw(publishers, store, chain)
    behind = [publisher for publisher in publishers if _is_behind(publisher, store, chain)]
    _show(behind, store, chain)
    with suppress(BlockTaken):  # this sync has written nothing to the table
        _check_newest(behind, store, chain)


def withdraw_forgotten(publishers: Sequence[Publisher], store: ObjectStore, chain: Chain) -> bool:
    """Remove Delta logs that are no longer published, even if the hint does not know of them. Return whether there was one."""
    if _has_delta(publishers):
        return False
    return True in [_withdraw_delta_log(store, chain.head, root) for _, root in _delta_roots(chain)]


def show_newest(publishers: Sequence[Publisher], store: ObjectStore, chain: Chain) -> None:
    """Publish the newest state of the chain after other writers have added blocks.

    Logs errors of the store as a warning, because the other writers publish at their end.
    """
    if not publishers:
        return
    try:
        for _ in range(MOST_ATTEMPTS):
            newest = chain.reread()
            seen, state = readable(newest, store), newest.head
            if seen.left_out is not None:
                state = replace(state, sequence_number=seen.left_out - 1)
            for publisher in publishers:
                _publish(publisher, store, newest, state, seen.live)
            if newest.successor() is None:
                return
    except SyncError as error:
        logger.warning("readers outside of the chain may see an older state of a table until its next sync: %s", error)


def _show(publishers: Sequence[Publisher], store: ObjectStore, chain: Chain) -> None:
    for publisher in publishers:
        _publish(publisher, store, chain, chain.head, chain.live_files())


def _check_newest(publishers: Sequence[Publisher], store: ObjectStore, chain: Chain) -> None:
    """If another writer has opened the table, publish the newest state and raise BlockTaken. Without publishers nothing is checked."""
    other = chain.successor() if publishers else None
    if other is not None:
        show_newest(publishers, store, chain)
        raise BlockTaken(other)


def _withdraw(publishers: Sequence[Publisher], store: ObjectStore, chain: Chain) -> None:
    """Remove the Delta logs of the table and its history if they were, or may have been, shown by one and no longer are.

    A session that died may have written a log without a mark in the hint. Otherwise no request is taken.
    """
    if _has_delta(publishers):
        return
    for name, root in _delta_roots(chain):
        if name not in chain.shown and chain.shown_is_complete:
            continue
        if _withdraw_delta_log(store, chain.head, root) is None:
            chain.shown.setdefault(name, PublishedMark(""))  # later syncs try again
        else:
            chain.shown.pop(name, None)
    chain.shown_is_complete = True


def _delta_roots(chain: Chain) -> Iterator[tuple[str, str]]:
    """Yield the names of the publishers that write Delta logs, each with the folder in which its log lies."""
    yield DELTA_PUBLISHER, chain.head.identity.final_root
    if chain.table.history is not None:
        yield DELTA_PUBLISHER + HISTORY_SUFFIX, chain.table.history


def _has_delta(publishers: Sequence[Publisher]) -> bool:
    return any(publisher.name == DELTA_PUBLISHER for publisher in publishers)


def _is_behind(publisher: Publisher, store: ObjectStore, chain: Chain) -> bool:
    """Return whether readers miss the table's last data. Warn if the publisher does not say."""
    try:
        shown = Publication(publisher.name, publisher.published(store, chain.head))
        claims_more = shown.block is not None and shown.block > chain.head.sequence_number and chain.time_of(shown.block) is None
        return claims_more or shown.is_behind(chain.head.last_data)
    except NotPublished as error:
        _warn(publisher, chain, str(error))
        return False


def _publish(publisher: Publisher, store: ObjectStore, chain: Chain, state: TableState, live: LiveFiles) -> None:
    asking = publisher.asking(chain.time_of) if isinstance(publisher, AsksTheChain) else publisher
    try:
        mark = asking.publish(store, state, live, chain.shown.get(publisher.name))
        if mark:  # otherwise there is nothing to show yet
            chain.shown[publisher.name] = PublishedMark(mark, live)
        chain.not_shown.pop(publisher.name, None)
    except NotPublished as error:
        _warn(publisher, chain, str(error))


def _warn(publisher: Publisher, chain: Chain, reason: str) -> None:
    """Warn that the table is not published. The same reason is logged once per table, although a sync publishes several times."""
    if chain.not_shown.get(publisher.name) != reason:
        chain.not_shown[publisher.name] = reason
        users_logger.warning(
            "table %s is not published for %s: %s Its data is safe, and the next sync tries to publish it again.",
            chain.head.identity.stream,
            publisher.name,
            reason,
        )


def begin_anew(publishers: Sequence[Publisher], store: ObjectStore, chain: Chain, check: Callable[[], None]) -> None:
    """Withdraw what is published of a table and its history with metadata that has values of rows that are gone.

    `check` runs before each publisher that does so, and raises if another session has taken the table over. Raises TransientError.
    """
    for name, root in _delta_roots(chain):
        _remove_delta_log(store, chain.head, root)
        chain.shown.pop(name, None)
    for publisher in publishers:
        if isinstance(publisher, BeginsAnew):
            check()
            try:
                publisher.begin_anew(store, chain.head)
            except NotPublished as error:
                raise TransientError(
                    f"The rows have left the table's files, but not yet what is published of it: {error} Then run forget again.",
                    stream=chain.head.identity.stream,
                ) from error


def _remove_delta_log(store: ObjectStore, state: TableState, root: str) -> bool:
    """Remove a Delta log of the table. Return False if there is none, or another's. Raises UnreadableLog. Takes one LIST without one."""
    log = DeltaLog(store, root)
    found = log.read()
    is_own = found is not None and state.identity.table_id in found.transactions
    if is_own:
        log.remove()
    return is_own


def _withdraw_delta_log(store: ObjectStore, state: TableState, root: str) -> bool | None:
    """Do the same as `_remove_delta_log`, because it is not published any more. Return None, with a warning, if it cannot be read."""
    prefix = DeltaLog(store, root).prefix
    try:
        removed = _remove_delta_log(store, state, root)
    except UnreadableLog as error:
        users_logger.warning(
            "table %s: publish.delta is off, but the Delta log under '%s' stays, because it cannot be read: %s. Remove it.",
            state.identity.stream, prefix, error,
        )  # fmt: skip
        return None
    if removed:
        users_logger.info("table %s: publish.delta is off, so the Delta log under '%s' was removed", state.identity.stream, prefix)
    return removed


def block_time(state: TableState) -> str:
    """Return the time of the chain's newest block, as publications record it."""
    return time_text(state.system_time)


def time_text(time: datetime) -> str:
    return time.astimezone(UTC).isoformat(timespec="microseconds")


def require_current_types(state: TableState, live: LiveFiles) -> None:
    """Raise NotPublished while files hold a column in an older type."""
    if any((file.schema_id or 0) < state.types_since for file in live.settled(FileKind.FINAL)):
        raise NotPublished(
            "Files with columns of an earlier type are live. The next sync that completes rewrites or replaces them; until then, readers "
            "keep the last published state."
        )


def recorded_schema(state: TableState) -> TableSchema:
    """Return the schema of files that are written now. The table must have one. Raises DataError if its record is damaged."""
    return from_event(state.schema or {})

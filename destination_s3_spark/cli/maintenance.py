"""Commands that write to tables without a sync: `rebuild`, `optimize`, `accept` and `discard`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from destination_s3_spark.chain.files import FileKind
from destination_s3_spark.chain.opening import WriteDisposition
from destination_s3_spark.chain.state import Contents
from destination_s3_spark.cli.configuration import read_config
from destination_s3_spark.cli.progress import Progress
from destination_s3_spark.engine.engine import Engine
from destination_s3_spark.errors import SyncError
from destination_s3_spark.storage.configured import s3_settings
from destination_s3_spark.storage.object_store import doubtful_uploads
from destination_s3_spark.stream_id import StreamId
from destination_s3_spark.sync.runtime import runtime_for, task_bytes
from destination_s3_spark.sync.update_runner import UpdateRunner
from destination_s3_spark.tables.factory import TableFactory, table_factory
from destination_s3_spark.tables.found import FoundTable, FoundTables, UnreadTable
from destination_s3_spark.tables.open_table import OpenTable
from destination_s3_spark.tables.stored.row_digests import DigestTask, compared, digested_files, row_digests
from destination_s3_spark.tables.stream_table import StreamTable
from destination_s3_spark.tables.updates import held_back
from destination_s3_spark.tables.updates.choice import compaction_of, may_be_compacted, rebuild_of, update_of
from destination_s3_spark.tables.updates.held_back import held_back_in
from destination_s3_spark.tables.updates.resources import Resources, TaskResources
from destination_s3_spark.tables.updates.steps import Update

CALLS_AT_ONCE = 16
KINDS = (FileKind.FINAL, FileKind.RAW)


@dataclass(frozen=True, slots=True)
class Workshop:
    """The resources of a command, the tables that it works on, and those that it cannot work on."""

    factory: TableFactory
    engine: Engine
    pool: ThreadPoolExecutor
    resources: Resources
    tables: tuple[StreamTable, ...]
    unread: tuple[UnreadTable, ...]

    def run(self, table: OpenTable, update: Update) -> None:
        """Run an update to its end, and show how far it is. Raises SyncError."""
        with Progress(f"rewriting {table.stream.id}") as progress:
            UpdateRunner(self.engine, self.pool, progress=progress.update).run([(table.stream.id, update)])

    @contextmanager
    def opened(self, closed: StreamTable) -> Iterator[OpenTable]:
        """Open a table, and close it afterwards if its last sync ended well. Otherwise the next sync still needs its replay list."""
        writer = closed.writer
        was = writer.catch_up()
        clean = was is not None and was.closed
        try:
            yield closed.open()
        except BaseException:
            writer.abandon()
            raise
        if clean:
            lost_attempts = self.engine.lost_attempts or doubtful_uploads() > 0
            writer.close(self.factory.orphans() if lost_attempts else None)
        else:
            writer.abandon()


@contextmanager
def workshop(config_path: str, name: str | None, namespace: str | None) -> Iterator[Workshop]:
    """Start Spark for the tables of a stream, or of all streams without a name. Raises ConfigError."""
    config = read_config(Path(config_path))
    factory = table_factory(config)
    every = factory.find()
    found = every.tables if name is None else factory.choose(every, name, namespace)
    with ExitStack() as stack:
        pool = stack.enter_context(ThreadPoolExecutor(CALLS_AT_ONCE))
        engine = stack.enter_context(runtime_for(config)).engine
        engine.start()
        factory = replace(factory, map_files=pool.map)
        publishers = factory.publishers(every)
        resources = Resources(TaskResources(s3_settings(config), task_bytes(config)), engine.cores, disk=None)
        tables = tuple(factory.of_found(table, publishers[table.stream]) for table in found)
        yield Workshop(factory, engine, pool, resources, tables, every.unread if name is None else ())


def rebuild(config_path: str, name: str, namespace: str | None) -> int:
    """Rebuild the tables of a stream and return 1 if rows changed. Raises ConfigError when a raw table does not have every row."""
    with workshop(config_path, name, namespace) as tools:
        return max(_rebuild(tools, table) for table in tools.tables)


def _rebuild(tools: Workshop, closed: StreamTable) -> int:
    """Rebuild one table and return 1 if its rows changed, otherwise 0."""
    with tools.opened(closed) as table:
        writer = table.writer
        update = rebuild_of(table, tools.resources)
        before = _digests(tools, table)
        rows_before = writer.open().contents.rows
        tools.run(table, update)
        after = _digests(tools, table)
        rows = writer.open().contents.rows
    result = compared(before, after)
    sys.stdout.write(f"{closed.stream.id}: rebuilt from the raw table, {rows:,} rows ({rows_before:,} before)\n")
    if before or after:
        sys.stdout.write(f"  {result.equal:,} rows are as before, {result.gone:,} are gone, {result.new:,} are new\n")
    return 1 if result.gone or result.new or rows != rows_before else 0


def _digests(tools: Workshop, table: OpenTable) -> list[bytes]:
    tasks = [DigestTask(file, tools.resources.task.s3) for file in digested_files(table.writer.live_files())]
    return [digest for group in tools.engine.run(row_digests, [[task] for task in tasks]) for digest in group]


def optimize(config_path: str, name: str | None, namespace: str | None) -> int:
    """Join the small files of the tables of a stream, or of all tables, also where syncs do not. Return 1 if a table cannot be read.

    Raises SyncError.
    """
    with workshop(config_path, name, namespace) as tools:
        for table in tools.tables:
            _optimize(tools, table)
        for unread in tools.unread:
            sys.stdout.write(f"{unread.table}: failed. {unread.reason}\n")
    return 1 if tools.unread else 0


def _optimize(tools: Workshop, closed: StreamTable) -> None:
    state = closed.writer.catch_up()
    if state is None or not may_be_compacted(state.contents, closed.rules.target_file_bytes):
        sys.stdout.write(f"{closed.stream.id}: nothing to join\n")
        return
    with tools.opened(closed) as table:
        before = table.writer.open().contents
        update = compaction_of(table, tools.resources)
        if update is not None:
            tools.run(table, update)
        after = table.writer.open().contents
    sys.stdout.write(f"{closed.stream.id}: {_files(after)} ({_files(before)} before)\n")


def _files(contents: Contents) -> str:
    return ", ".join(f"{contents.files(kind):,} {kind.value}" for kind in KINDS) + " files"


def accept(config_path: str, name: str | None, namespace: str | None) -> int:
    """Let the rows held back for a stream, or for all streams, replace those of their tables. Raises SyncError."""
    factory = table_factory(read_config(Path(config_path)))
    held, failed = _held_back(factory, factory.find(), name, namespace)
    if held:
        streams = {found.stream for found in held}
        with workshop(config_path, name, namespace) as tools:
            for table in tools.tables:
                if table.stream.id in streams:
                    failed |= not _succeeds(table.stream.id, partial(_accept, tools, table))
    return _outcome(held, failed=failed)


def discard(config_path: str, name: str | None, namespace: str | None) -> int:
    """Drop the rows held back for a stream, or for all streams. The tables keep their rows. Raises SyncError."""
    factory = table_factory(read_config(Path(config_path)))
    every = factory.find()
    held, failed = _held_back(factory, every, name, namespace)
    publishers = factory.publishers(every) if held else {}
    for found in held:
        table = factory.of_found(found, publishers[found.stream], WriteDisposition.DISCARD)
        failed |= not _succeeds(found.stream, partial(_discard, table))
    return _outcome(held, failed=failed)


def _held_back(factory: TableFactory, every: FoundTables, name: str | None, namespace: str | None) -> tuple[list[FoundTable], bool]:
    """Return the tables with rows that are held back, and whether there is a table that cannot be read, of which the reason is printed.

    No block tells more than the head of the chain.
    """
    chosen = every.tables if name is None else factory.choose(every, name, namespace)
    unread = every.unread if name is None else ()
    for table in unread:
        sys.stdout.write(f"{table.table}: failed. {table.reason}\n")
    held: list[FoundTable] = []

    def look(found: FoundTable) -> None:
        if held_back_in(factory.read_chain(found).head) is not None:
            held.append(found)

    succeeded = [_succeeds(found.stream, partial(look, found)) for found in chosen]
    return held, bool(unread) or not all(succeeded)


def _succeeds(stream: StreamId, work: Callable[[], None]) -> bool:
    """Do the work on one table, and print why it failed: the other tables do not wait for that one."""
    try:
        work()
    except SyncError as error:
        _say(stream, f"failed. {error.message}")
        return False
    return True


def _outcome(held: Sequence[FoundTable], *, failed: bool) -> int:
    if not held and not failed:
        sys.stdout.write("nothing is held back\n")
    return 1 if failed else 0


def _discard(table: StreamTable) -> None:
    _say(table.stream.id, f"discarded: {held_back.discard(table.writer)}")


def _accept(tools: Workshop, closed: StreamTable) -> None:
    if held_back_in(closed.writer.catch_up()) is None:
        return
    with tools.opened(closed) as table:
        # A sync may have begun another generation just before. It is stopped, and the next one begins anew.
        found = held_back_in(table.writer.open())
        update = None if found is None else update_of(table, lambda: tools.resources)
        if update is not None:
            tools.run(table, update)
    _say(closed.stream.id, f"accepted: {found}" if found is not None else "nothing is held back any more")


def _say(stream: StreamId, text: str) -> None:
    sys.stdout.write(f"{stream}: {text}\n")
    sys.stdout.flush()

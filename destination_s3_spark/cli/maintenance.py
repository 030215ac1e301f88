"""Commands that write to tables without a sync: their common ground, `rebuild`, `optimize`, `merge`, `accept` and `discard`.

For `merge` a sync goes first: a table that one may be writing to is left to it, and one that begins during a merge takes the table over.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from math import inf

from destination_s3_spark.chain.files import FileKind
from destination_s3_spark.chain.opening import SyncsFirst, WriteDisposition
from destination_s3_spark.chain.state import Contents
from destination_s3_spark.chain.territory import Table
from destination_s3_spark.cli.configuration import read_config
from destination_s3_spark.cli.terminal import Progress
from destination_s3_spark.engine.engine import Engine
from destination_s3_spark.errors import ConfigError, Fenced, SyncError, TransientError
from destination_s3_spark.protocol.catalog import DestinationSyncMode
from destination_s3_spark.storage.configured import s3_settings
from destination_s3_spark.storage.object_store import doubtful_uploads
from destination_s3_spark.stream_id import StreamId
from destination_s3_spark.sync.runtime import runtime_for, task_bytes
from destination_s3_spark.sync.update_runner import UpdateRunner
from destination_s3_spark.tables.commit.writer import TableWriter
from destination_s3_spark.tables.factory import TableFactory, table_factory
from destination_s3_spark.tables.found import FoundTables
from destination_s3_spark.tables.open_table import OpenTable
from destination_s3_spark.tables.publishers.publication import Publisher
from destination_s3_spark.tables.stored.row_digests import DigestedFiles, digested_files, digests_counted, row_digests
from destination_s3_spark.tables.stream_table import StreamTable
from destination_s3_spark.tables.updates import held_back
from destination_s3_spark.tables.updates.choice import compaction_of, may_be_compacted, merge_of, rebuild_of, update_of
from destination_s3_spark.tables.updates.held_back import held_back_in
from destination_s3_spark.tables.updates.resources import Resources, TaskResources
from destination_s3_spark.tables.updates.steps import Update
from destination_s3_spark.wording import counted, duration_text, size_text

CALLS_AT_ONCE = 16
OWNER_CHECK_EVERY_S = 30.0
"""Shortest interval between looks whether another session has taken over the table of a running job."""
KINDS = (FileKind.FINAL, FileKind.RAW)


@dataclass(frozen=True, slots=True)
class Workshop:
    """The resources of a command that works on tables."""

    factory: TableFactory
    engine: Engine
    pool: ThreadPoolExecutor
    resources: Resources
    publishers: Mapping[StreamId, Sequence[Publisher]]

    def table(self, found: Table) -> StreamTable:
        """Make a table as the head of its chain is now. Raises DataError when the chain is damaged."""
        return self.factory.of_found(found, self.publishers[found.stream])

    def run(self, table: OpenTable, update: Update, doing: str = "rewriting") -> None:
        """Run an update to its end, and show how far it is. Raises SyncError, and Fenced soon after another session took the table over."""
        with Progress(f"{doing} {table.stream.id}") as progress:
            look = _lookout(table.writer)

            def report(done: int, total: int) -> None:
                progress.update(done, total)
                look()

            UpdateRunner(self.engine, self.pool, progress=report, limit_s=inf).run([(table.stream.id, update)])

    @contextmanager
    def opened(self, closed: StreamTable) -> Iterator[OpenTable]:
        """Open a table, and close it afterwards if its last sync ended well. Otherwise the next sync still needs its replay list.

        Raises Fenced if another session takes the table over. What this one has left in the bucket is dropped then.
        """
        writer = closed.writer
        _open_unchanged(closed)
        try:
            yield closed.open()
        except SyncError as error:
            writer.abandon()
            if (fenced := overtaken(writer, error)) is None:
                raise
            writer.clear_up(self.factory.orphans())
            raise fenced from error
        except BaseException:
            writer.abandon()
            raise
        if writer.ended_cleanly:
            lost_attempts = self.engine.lost_attempts or doubtful_uploads() > 0
            writer.close(self.factory.orphans() if lost_attempts else None)
        else:
            writer.abandon()


def _open_unchanged(closed: StreamTable) -> None:
    """Open a table for writing. Raises TransientError if a sync changed its columns or its generation after they were read."""
    read = closed.writer.state
    now = closed.writer.open()
    if read is None or (read.schema, read.contents.generation) != (now.schema, now.contents.generation):
        raise TransientError("A sync has just written to it. Try again.", stream=closed.stream.id)


def overtaken(writer: TableWriter, error: SyncError) -> Fenced | None:
    """Return the error if it says that another session has taken the table over, or that error if it explains the other one."""
    if isinstance(error, Fenced):
        return error
    try:
        writer.check_not_fenced()
    except Fenced as fenced:
        return fenced
    except SyncError:
        pass
    return None


def _lookout(writer: TableWriter) -> Callable[[], None]:
    """Return what to call often during a long job: now and then it looks, and raises Fenced if another session took the table over."""
    next_look = time.monotonic() + OWNER_CHECK_EVERY_S

    def look() -> None:
        nonlocal next_look
        if time.monotonic() >= next_look:
            next_look = time.monotonic() + OWNER_CHECK_EVERY_S
            with suppress(TransientError):  # the job may not need the store at this moment
                writer.check_not_fenced()

    return look


@contextmanager
def workshop(factory: TableFactory, every: FoundTables) -> Iterator[Workshop]:
    """Start Spark for tables of a bucket path. Raises ConfigError."""
    config = factory.config
    with ExitStack() as stack:
        pool = stack.enter_context(ThreadPoolExecutor(CALLS_AT_ONCE))
        engine = stack.enter_context(runtime_for(config)).engine
        engine.start()
        resources = Resources(TaskResources(s3_settings(config), task_bytes(config)), engine.cores, disk=None)
        yield Workshop(replace(factory, map_files=pool.map), engine, pool, resources, factory.publishers(every))


def chosen(
    factory: TableFactory, every: FoundTables, name: str | None, namespace: str | None, is_wanted: Callable[[Table], bool]
) -> tuple[list[Table], bool]:
    """Return the tables of a stream, or all without a name, that are wanted, and whether one failed, of which the reason is printed."""
    found = factory.choose(every, name, namespace)
    unread = every.unread if name is None else ()
    for table in unread:
        sys.stdout.write(f"{table.table}: failed. {table.reason}\n")
    wanted: set[StreamId] = set()

    def look(table: Table) -> None:
        if is_wanted(table):
            wanted.add(table.stream)

    with ThreadPoolExecutor(CALLS_AT_ONCE, "tables") as pool:
        succeeded = list(pool.map(lambda table: succeeds(table.stream, partial(look, table)), found))
    return [table for table in found if table.stream in wanted], bool(unread) or not all(succeeded)


def require_one_or_pattern(name: str | None, found: Sequence[Table]) -> None:
    """Raise ConfigError if streams of several namespaces have just this name: rows that go in the wrong one are lost."""
    if len(found) > 1 and any(name in (table.stream.name, str(table.stream)) for table in found):
        names = ", ".join(sorted(str(table.stream) for table in found))
        raise ConfigError(
            f"There are {len(found)} tables of streams of the name {name}: {names}. Nothing was changed. Say which with --namespace, "
            "which is '' for a stream without one."
        )


def succeeds(stream: StreamId, work: Callable[[], None]) -> bool:
    """Do the work on one table, and print why it failed: the other tables do not wait for that one."""
    try:
        work()
    except SyncError as error:
        say(stream, f"failed. {error.message}")
        return False
    return True


def say(stream: StreamId, text: str) -> None:
    sys.stdout.write(f"{stream}: {text}\n")
    sys.stdout.flush()


def rebuild(config_path: str, name: str, namespace: str | None) -> int:
    """Rebuild the tables of a stream and return 1 if rows changed. Raises ConfigError when a raw table does not have every row."""
    factory = table_factory(read_config(config_path))
    every = factory.find()
    found = factory.choose(every, name, namespace)
    with workshop(factory, every) as tools:
        return max(_rebuild(tools, tools.table(table)) for table in found)


def _rebuild(tools: Workshop, closed: StreamTable) -> int:
    """Rebuild one table and return 1 if its rows changed, otherwise 0."""
    with tools.opened(closed) as table:
        writer = table.writer
        update = rebuild_of(table, tools.resources)
        found, rows_before = digested_files(writer.live_files()), writer.open().contents.rows
        before = _digests(tools, found)
        tools.run(table, update)
        made, rows = digested_files(writer.live_files()), writer.open().contents.rows
        after = _digests(tools, made)
        if None in after:
            raise TransientError("A new file of the table cannot be read. Run verify, which says why.", stream=closed.stream.id)
    sys.stdout.write(f"{closed.stream.id}: rebuilt from the raw table, {rows:,} rows ({rows_before:,} before)\n")
    if found is None or made is None or not found.comparable_with(made):
        sys.stdout.write("  the rows were not compared, because not all are in Parquet files, or only some are text\n")
        return 1 if rows != rows_before else 0
    earlier, later = digests_counted(before), digests_counted(after)
    gone, new = (earlier - later).total(), (later - earlier).total()
    if before or after:
        sys.stdout.write(f"  {(earlier & later).total():,} rows are as before, {gone:,} are gone, {new:,} are new\n")
    if unread := before.count(None):
        sys.stdout.write(f"  {counted(unread, 'file')} of the table could not be read before, so the rows of it are new\n")
    return 1 if gone or new or rows != rows_before else 0


def _digests(tools: Workshop, found: DigestedFiles | None) -> list[bytes | None]:
    files = () if found is None else found.files
    digested = tools.engine.run(partial(row_digests, s3=tools.resources.task.s3), [[file] for file in files])
    return [digest for group in digested for digest in group]


def optimize(config_path: str, name: str | None, namespace: str | None) -> int:
    """Join the small files of the tables of a stream, or of all tables, also where syncs do not. Return 1 if a table cannot be read.

    Raises SyncError.
    """
    factory = table_factory(read_config(config_path))
    every = factory.find()
    # A table whose first sync died at once has no schema, and nothing to join.
    tables, failed = chosen(factory, every, name, namespace, lambda found: factory.read_chain(found).head.schema is not None)
    with workshop(factory, every) as tools:
        for table in tables:
            _optimize(tools, tools.table(table))
    return _outcome(tables, failed, "nothing to join")


def _optimize(tools: Workshop, closed: StreamTable) -> None:
    state = closed.writer.state
    if state is None or not may_be_compacted(state.contents, closed.rules.target_file_bytes):
        sys.stdout.write(f"{closed.stream.id}: nothing to join\n")
        return
    with tools.opened(closed) as table:
        before = table.writer.open().contents
        update = compaction_of(table, lambda: tools.resources)
        if update is not None:
            tools.run(table, update)
        after = table.writer.open().contents
    sys.stdout.write(f"{closed.stream.id}: {_files(after)} ({_files(before)} before)\n")


def _files(contents: Contents) -> str:
    return ", ".join(f"{contents.files(kind):,} {kind.value}" for kind in KINDS) + " files"


def accept(config_path: str, name: str | None, namespace: str | None) -> int:
    """Let the rows held back for a stream, or for all streams, replace those of their tables. Raises SyncError."""
    factory = table_factory(read_config(config_path))
    every = factory.find()
    return _each(factory, every, _held_back(factory, every, name, namespace), _accept, "nothing is held back")


def discard(config_path: str, name: str | None, namespace: str | None) -> int:
    """Drop the rows held back for a stream, or for all streams. The tables keep their rows. Raises SyncError."""
    factory = table_factory(read_config(config_path))
    every = factory.find()
    held, failed = _held_back(factory, every, name, namespace)
    publishers = factory.publishers(every) if held else {}
    for found in held:
        table = factory.of_found(found, publishers[found.stream], WriteDisposition.DISCARD)
        failed |= not succeeds(found.stream, partial(_discard, table))
    return _outcome(held, failed, "nothing is held back")


def _held_back(factory: TableFactory, every: FoundTables, name: str | None, namespace: str | None) -> tuple[list[Table], bool]:
    """Return the tables with rows that are held back, and whether one failed, as `chosen`. Raises ConfigError for several streams."""
    require_one_or_pattern(name, factory.choose(every, name, namespace))
    return chosen(factory, every, name, namespace, lambda found: held_back_in(factory.read_chain(found).head) is not None)


def _each(
    factory: TableFactory, every: FoundTables, found: tuple[list[Table], bool], work: Callable[[Workshop, Table], None], none: str
) -> int:
    """Work on the tables that `chosen` has found, one after the other, and return the exit code. Without one, say so in these words."""
    tables, failed = found
    if tables:
        with workshop(factory, every) as tools:
            for table in tables:
                failed |= not succeeds(table.stream, partial(work, tools, table))
    return _outcome(tables, failed, none)


def _outcome(tables: Sequence[Table], failed: bool, none: str) -> int:
    if not tables and not failed:
        sys.stdout.write(f"{none}\n")
    return 1 if failed else 0


def _discard(table: StreamTable) -> None:
    say(table.stream.id, f"discarded: {held_back.discard(table.writer, table.restore_schema)}")


def _accept(tools: Workshop, found: Table) -> None:
    closed = tools.table(found)
    if held_back_in(closed.writer.state) is None:
        say(found.stream, "nothing is held back any more")
        return
    with tools.opened(closed) as table:
        held = held_back_in(table.writer.open())
        update = None if held is None else update_of(table, lambda: tools.resources)
        if update is not None:
            tools.run(table, update)
    say(found.stream, f"accepted: {held}" if held is not None else "nothing is held back any more")


def merge(config_path: str, name: str | None, namespace: str | None, *, take_over: bool) -> int:
    """Merge the waiting runs of the tables of a stream, or of all tables, one table after the other.

    Return 1 if a table failed or was left to a sync; the others are merged all the same. Raises SyncError when nothing can be merged.
    """
    factory = replace(table_factory(read_config(config_path)), precedence=SyncsFirst(take_over=take_over))
    every = factory.find()
    return _each(factory, every, chosen(factory, every, name, namespace, partial(_waits, factory)), _merge, "nothing to merge")


def _waits(factory: TableFactory, found: Table) -> bool:
    """Tell whether the table has runs to merge, or a merge to finish. Writes nothing. Raises TransientError if it is left to a sync."""
    chain = factory.read_chain(found)
    state = chain.state_of_rows()
    is_deduplicated = (state.schema or {}).get("mode") == DestinationSyncMode.APPEND_DEDUP.value
    if not is_deduplicated or not (state.contents.files(FileKind.DELTA) or state.unsettled):
        return False
    if state.contents.pending is not None and not state.contents.pending.complete:
        say(found.stream, "not merged: a refresh of it is not finished, and what it brings will replace what waits")
        return False
    factory.precedence.check(chain)
    return True


def _merge(tools: Workshop, found: Table) -> None:
    began = time.monotonic()
    closed = tools.table(found)
    is_cut_off = closed.writer.state is not None and closed.writer.state.unsettled is not None
    try:
        with tools.opened(closed) as table:
            waiting = table.writer.open().contents.waiting
            update = merge_of(table, tools.resources)
            if update is not None:
                tools.run(table, update, "merging")
            rows = table.writer.open().contents.rows
    except Fenced as fenced:
        raise TransientError(
            "A sync has begun and taken the table over: syncs go first. Nothing is lost. What still waits is merged by that sync, or by "
            "this command once the sync has ended.",
            stream=found.stream,
        ) from fenced
    if update is None:
        say(found.stream, "a commit that was cut off is finished" if is_cut_off else "nothing to merge any more")
        return
    took = duration_text(time.monotonic() - began)
    runs = f"{counted(waiting.rows, 'row')} of {counted(waiting.files, 'run')} ({size_text(waiting.bytes)})"
    say(found.stream, f"merged {runs} in {took}, {counted(rows, 'row')} in the table")

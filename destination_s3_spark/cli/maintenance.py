"""Common parts of the commands that write to a table without a sync."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from destination_s3_spark.cli.configuration import read_config
from destination_s3_spark.cli.progress import Progress
from destination_s3_spark.engine.engine import Engine
from destination_s3_spark.storage.configured import s3_settings
from destination_s3_spark.storage.object_store import doubtful_uploads
from destination_s3_spark.sync.runtime import runtime_for, task_bytes
from destination_s3_spark.sync.update_runner import UpdateRunner
from destination_s3_spark.tables.factory import TableFactory, table_factory
from destination_s3_spark.tables.found import UnreadTable
from destination_s3_spark.tables.open_table import OpenTable
from destination_s3_spark.tables.stream_table import StreamTable
from destination_s3_spark.tables.updates.resources import Resources, TaskResources
from destination_s3_spark.tables.updates.steps import Update

CALLS_AT_ONCE = 16


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

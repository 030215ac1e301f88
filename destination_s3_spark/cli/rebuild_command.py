"""Command `rebuild`: rebuilds a final table from its raw table, and reports whether its rows changed."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from destination_s3_spark.cli.configuration import read_config
from destination_s3_spark.cli.progress import Progress
from destination_s3_spark.engine.session import Engine
from destination_s3_spark.storage import doubtful_uploads
from destination_s3_spark.storage.configured import s3_settings
from destination_s3_spark.sync.runtime import runtime_for, task_bytes
from destination_s3_spark.sync.updates import Updates
from destination_s3_spark.tables.due import rebuild_of
from destination_s3_spark.tables.factory import TableFactory, table_factory
from destination_s3_spark.tables.merge.update import Resources
from destination_s3_spark.tables.open_table import OpenTable
from destination_s3_spark.tables.row_digests import DigestTask, compared, digested_files, row_digests
from destination_s3_spark.tables.stream_table import StreamTable

CALLS_AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class _Tools:
    """The resources shared by the rebuilds of all tables."""

    factory: TableFactory
    engine: Engine
    pool: ThreadPoolExecutor
    resources: Resources


def run(config_path: str, name: str, namespace: str | None) -> int:
    """Rebuild the tables of a stream and return 1 if rows changed. Raises ConfigError when a raw table does not have every row."""
    config = read_config(Path(config_path))
    factory = table_factory(config)
    every = factory.find()
    found = factory.choose(every, name, namespace)
    with ExitStack() as stack:
        pool = stack.enter_context(ThreadPoolExecutor(CALLS_AT_ONCE))
        engine = stack.enter_context(runtime_for(config)).engine
        engine.start()
        factory = replace(factory, map_files=pool.map)
        publishers = factory.publishers(every)
        tools = _Tools(factory, engine, pool, Resources(s3_settings(config), task_bytes(config), engine.cores, disk=None))
        return max(_rebuild(tools, factory.of_found(table, publishers[table.stream])) for table in found)


def _rebuild(tools: _Tools, closed: StreamTable) -> int:
    """Rebuild one table and return 1 if its rows changed, otherwise 0."""
    writer, name = closed.writer, str(closed.stream.id)
    was = writer.catch_up()
    clean = was is not None and was.closed
    try:
        table = closed.open()
        update = rebuild_of(table, tools.resources)
        with Progress(f"rebuilding {name}") as progress:
            before = _digests(tools, table)
            rows_before = writer.open().contents.rows
            Updates(tools.engine, tools.pool, told=progress.update).run([(name, update)])
            after = _digests(tools, table)
        rows = writer.open().contents.rows
    except BaseException:
        writer.abandon()
        raise
    if clean:
        lost_attempts = tools.engine.lost_attempts or doubtful_uploads.count() > 0
        writer.close(tools.factory.orphans() if lost_attempts else None)
    else:
        writer.abandon()  # closing would clear the replay list, which the next sync needs
    result = compared(before, after)
    sys.stdout.write(f"{name}: rebuilt from the raw table, {rows:,} rows ({rows_before:,} before)\n")
    if before or after:
        sys.stdout.write(f"  {result.equal:,} rows are as before, {result.gone:,} are gone, {result.new:,} are new\n")
    return 1 if result.gone or result.new or rows != rows_before else 0


def _digests(tools: _Tools, table: OpenTable) -> list[bytes]:
    tasks = [DigestTask(file, tools.resources.s3) for file in digested_files(table.writer.live_files())]
    return [digest for group in tools.engine.run(row_digests, [[task] for task in tasks]) for digest in group]

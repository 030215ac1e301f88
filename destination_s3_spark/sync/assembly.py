"""Assembly of a sync from the configuration and the catalog, its execution and its clean-up. Only this module builds the parts."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager

from destination_s3_spark.chain.territory import OrphanUploads
from destination_s3_spark.config.config import MIB, Config
from destination_s3_spark.protocol.catalog import Catalog
from destination_s3_spark.protocol.messages import InputCounts
from destination_s3_spark.protocol.reader import ProtocolReader
from destination_s3_spark.protocol.state import StateMessage
from destination_s3_spark.protocol.writer import ProtocolWriter
from destination_s3_spark.storage.configured import path_template, s3_settings
from destination_s3_spark.storage.s3 import S3Store
from destination_s3_spark.storage.settings import USUAL_LIMITS, ClientLimits, S3Settings
from destination_s3_spark.sync.checkpoints import Checkpoints
from destination_s3_spark.sync.commits import Commits, Emit
from destination_s3_spark.sync.pipeline import Pipeline
from destination_s3_spark.sync.runtime import Runtime
from destination_s3_spark.sync.spool import Spool
from destination_s3_spark.sync.story.phases import Phase, Phases
from destination_s3_spark.sync.story.story import Story
from destination_s3_spark.sync.sync import Sync
from destination_s3_spark.sync.update_runner import UpdateRunner
from destination_s3_spark.tables.factory import TableFactory
from destination_s3_spark.tables.open_table import OpenTable

TABLES_AT_ONCE = 16
"""Tables that are read, committed or closed in parallel."""
FILES_AT_ONCE = 16
"""Uploads that are completed in parallel, over all tables."""

logger = logging.getLogger("airbyte")


def write(
    config: Config,
    catalog: Catalog,
    blocks: Iterable[bytes],
    output: ProtocolWriter,
    runtime: Runtime,
    s3_limits: ClientLimits = USUAL_LIMITS,
) -> None:
    """Sync the messages in blocks of the input and emit STATEs on `output`. Raises SyncError."""
    reader = ProtocolReader(catalog, config.batching.max_line_mb * MIB)
    s3 = s3_settings(config, s3_limits)
    story = Story(catalog, reader.counts, Phases())

    def emit(message: StateMessage, records: int) -> None:
        output.state(message.echo(records))
        story.states_acknowledged += 1

    with story.logged(config, _place(s3, path_template(config, runtime.started_at, sync_id=0).base)):
        try:
            with _assembled(config, s3, catalog, emit, runtime, story) as sync:
                sync.run(reader.events(blocks))
        finally:
            _warn_of_lines_without_message(reader.counts)


def _place(s3: S3Settings, base: str) -> str:
    return f"s3://{s3.bucket}/{base}" + (f" at {s3.endpoint}" if s3.endpoint else "")


def _warn_of_lines_without_message(counts: InputCounts) -> None:
    if counts.first_without_message is not None:
        logger.warning(
            "lines of the input without a message, which were ignored: %d (%d of them blank), the first at byte %d. Find out what else the "
            "source, or a program between it and this connector, writes to its output.",
            counts.blank + counts.noise, counts.blank, counts.first_without_message,
        )  # fmt: skip


@contextmanager
def _assembled(config: Config, s3: S3Settings, catalog: Catalog, emit: Emit, runtime: Runtime, story: Story) -> Iterator[Sync]:
    """Provide the parts of a sync. On exit, always stop Spark and all threads."""
    engine, workers, started_at, phases, store = runtime.engine, runtime.workers, runtime.started_at, story.phases, S3Store(s3)
    with ExitStack() as stack:
        tables_pool = stack.enter_context(ThreadPoolExecutor(TABLES_AT_ONCE, "tables"))
        files_pool = stack.enter_context(ThreadPoolExecutor(FILES_AT_ONCE, "files"))
        with phases.during(Phase.OPENING):
            tables = TableFactory(config, store, started_at, tables_pool.map, files_pool.map).of_catalog(catalog)
        open_tables: dict[int, OpenTable] = {}
        spool = stack.enter_context(closing(Spool(runtime.scratch / "spool", runtime.limits.spool_bytes)))
        story.watch(tables, spool, engine)
        checkpoints = Checkpoints()
        commits = Commits({i: table.writer for i, table in tables.items()}, checkpoints, emit, tables_pool.map)
        pipeline = Pipeline(open_tables, spool, workers, commits, s3, phases)
        stack.callback(pipeline.stop)
        stack.callback(workers.stop)
        stack.callback(engine.stop)  # runs first: ends any job that the pipeline still waits for
        try:
            base = path_template(config, started_at, sync_id=0).base
            yield Sync(
                catalog,
                tables,
                open_tables,
                checkpoints,
                commits,
                spool,
                engine,
                workers,
                pipeline,
                UpdateRunner(engine, tables_pool, progress=phases.progress),
                phases,
                lambda: runtime.resources(s3),
                runtime.landing_bytes,
                runtime.limits,
                tables_pool,
                lambda: OrphanUploads(store, base),
                end_completes=config.batching.end_of_input == "completes",
            )
        except Exception as error:
            engine.stop()
            pipeline.stop()
            commits.abandon()
            commits.clear_up(error, OrphanUploads(store, base))
            raise

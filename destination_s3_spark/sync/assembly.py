"""Assembly of a sync from the configuration and the catalog, its execution and its clean-up. Only this module builds the parts."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from datetime import UTC, datetime, timedelta

from destination_s3_spark.chain.territory import OrphanUploads
from destination_s3_spark.config.config import MIB, Config
from destination_s3_spark.config.spark_conf import is_local
from destination_s3_spark.engine.local_workers import LocalWorkers
from destination_s3_spark.protocol.catalog import Catalog
from destination_s3_spark.protocol.messages import InputCounts
from destination_s3_spark.protocol.reader import ProtocolReader, read_blocks
from destination_s3_spark.protocol.state import StateMessage
from destination_s3_spark.protocol.writer import ProtocolWriter
from destination_s3_spark.storage.configured import path_template, s3_settings
from destination_s3_spark.storage.s3 import S3Store
from destination_s3_spark.storage.settings import USUAL_LIMITS, ClientLimits, S3Settings
from destination_s3_spark.sync.batches import limits
from destination_s3_spark.sync.checkpoints import Checkpoints
from destination_s3_spark.sync.commits import Commits, Emit
from destination_s3_spark.sync.pipeline import Pipeline
from destination_s3_spark.sync.runtime import TASKS, Runtime, landing_bytes, landing_cores, task_bytes
from destination_s3_spark.sync.spool import Spool
from destination_s3_spark.sync.story.phases import Phase, Phases
from destination_s3_spark.sync.story.story import Story
from destination_s3_spark.sync.sync import Sync
from destination_s3_spark.sync.update_runner import UpdateRunner
from destination_s3_spark.tables.factory import TableFactory
from destination_s3_spark.tables.open_table import OpenTable
from destination_s3_spark.tables.updates.resources import LocalDisk, MergeTime, Resources, TaskResources

IDLE_S = 0.2
"""Interval between checks of the clock while the input is silent."""
TABLES_AT_ONCE = 16
"""Tables that are read, committed or closed in parallel."""
FILES_AT_ONCE = 16
"""Uploads that are completed in parallel, over all tables."""

logger = logging.getLogger("airbyte")


def write(
    config: Config, catalog: Catalog, fd: int, output: ProtocolWriter, runtime: Runtime, s3_limits: ClientLimits = USUAL_LIMITS
) -> None:
    """Sync the messages from the file descriptor and emit STATEs on `output`. Raises SyncError."""
    reader = ProtocolReader(catalog, config.batching.max_line_mb * MIB)
    s3 = s3_settings(config, s3_limits)
    started_at = datetime.now(UTC)
    story = Story(catalog, reader.counts, Phases())

    def emit(message: StateMessage, records: int) -> None:
        output.state(message.echo(records))
        story.states_acknowledged += 1

    with story.logged(config, _place(s3, path_template(config, started_at, sync_id=0).base)):
        try:
            with _assembled(config, s3, catalog, emit, runtime, started_at, story) as sync:
                sync.run(reader.events(read_blocks(fd, IDLE_S)))
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
def _assembled(
    config: Config, s3: S3Settings, catalog: Catalog, emit: Emit, runtime: Runtime, started_at: datetime, story: Story
) -> Iterator[Sync]:
    """Provide the parts of a sync. On exit, always stop Spark and all threads."""
    engine, phases, store = runtime.engine, story.phases, S3Store(s3)
    with ExitStack() as stack:
        tables_pool = stack.enter_context(ThreadPoolExecutor(TABLES_AT_ONCE, "tables"))
        files_pool = stack.enter_context(ThreadPoolExecutor(FILES_AT_ONCE, "files"))
        with phases.during(Phase.OPENING):
            tables = TableFactory(config, store, started_at, tables_pool.map, files_pool.map).of_catalog(catalog)
        open_tables: dict[int, OpenTable] = {}
        spool = stack.enter_context(closing(Spool(runtime.scratch / "spool", limits(config).spool_bytes)))
        story.watch(tables, spool, engine)
        checkpoints = Checkpoints()
        commits = Commits({i: table.writer for i, table in tables.items()}, checkpoints, emit, tables_pool.map)
        workers = engine if (local := is_local(config.spark.master)) else LocalWorkers(TASKS, landing_cores(config))
        # The spool is empty when tables are merged, so change events may take its disk space.
        disk = LocalDisk(runtime.scratch / "events", limits(config).spool_bytes) if local else None
        merge_time = MergeTime(timedelta(minutes=config.tables.merge_limit_minutes))
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
                lambda: Resources(TaskResources(s3, task_bytes(config)), engine.cores, disk, merge_time),
                landing_bytes(config),
                limits(config),
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

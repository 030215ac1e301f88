"""`rebuild`: makes a final table anew from its raw table, and tells whether a row of it is another one now."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from destination_s3_spark.chain.opening import Session, Table, WriteDisposition
from destination_s3_spark.chain.orphan_uploads import OrphanUploads
from destination_s3_spark.cli import inspection
from destination_s3_spark.cli.configuration import read_config
from destination_s3_spark.cli.inspection import FoundTable
from destination_s3_spark.config.config import Config
from destination_s3_spark.engine.session import Engine
from destination_s3_spark.protocol.catalog import DestinationSyncMode, Stream
from destination_s3_spark.schema.airbyte_type import Field
from destination_s3_spark.schema.json_schema import StreamFields
from destination_s3_spark.schema.schema_event import from_event
from destination_s3_spark.storage import doubtful_uploads
from destination_s3_spark.storage.configured import path_template, s3_settings
from destination_s3_spark.storage.s3 import S3Store
from destination_s3_spark.storage.table_paths import changes_root
from destination_s3_spark.stream_id import StreamId
from destination_s3_spark.sync.runtime import runtime_for, task_bytes
from destination_s3_spark.sync.updates import Updates
from destination_s3_spark.tables.commit.writer import TableWriter, WriterDependencies
from destination_s3_spark.tables.configured import RAW_PARQUET, final_options, rules
from destination_s3_spark.tables.due import rebuild_of
from destination_s3_spark.tables.layout import Layout
from destination_s3_spark.tables.merge.update import Resources
from destination_s3_spark.tables.publishers.symlink import SymlinkManifest
from destination_s3_spark.tables.row_digests import DigestTask, compared, digested_files, row_digests
from destination_s3_spark.tables.stream_table import StreamTable

CALLS_AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class _Tools:
    """What every table is rebuilt with."""

    config: Config
    store: S3Store
    engine: Engine
    pool: ThreadPoolExecutor
    shown_by: Mapping[StreamId, SymlinkManifest]


def run(config_path: str, name: str, namespace: str | None) -> int:
    """Rebuild the tables of a stream. Raises ConfigError where the raw table does not have every row."""
    config = read_config(Path(config_path))
    store = S3Store(s3_settings(config))
    folder = inspection.tables_folder(config)
    every = inspection.find_tables(store, folder)
    found = inspection.choose(every, name, namespace, f"s3://{config.s3_bucket_name}/{folder}")
    logging.getLogger("airbyte").addHandler(logging.StreamHandler(sys.stderr))
    logging.getLogger("airbyte").setLevel(logging.INFO)
    with ExitStack() as stack:
        pool = stack.enter_context(ThreadPoolExecutor(CALLS_AT_ONCE))
        engine = stack.enter_context(runtime_for(config)).engine
        engine.start()
        tools = _Tools(config, store, engine, pool, inspection.publishers_of(config, every))
        return max(_rebuild(tools, table) for table in found)


def _rebuild(tools: _Tools, found: FoundTable) -> int:
    """Rebuild one table; 1 when rows differ afterwards."""
    table = _stream_table(tools, found)
    writer = table.writer
    was = writer.catch_up()
    clean = was is not None and was.closed
    try:
        table.open()
        resources = Resources(tools.store.settings, task_bytes(tools.config), tools.engine.cores, disk=None)
        update = rebuild_of(table, resources)
        before = _digests(tools, table)
        rows_before = writer.open().contents.rows
        Updates(tools.engine, tools.pool).run([(str(found.stream), update)])
        after = _digests(tools, table)
        rows = writer.open().contents.rows
    except BaseException:
        writer.abandon()
        raise
    if clean:
        lost_attempts = tools.engine.lost_attempts or doubtful_uploads.count() > 0
        writer.close(_uploads(tools) if lost_attempts else None)
    else:
        writer.abandon()  # the next sync has to know which checkpoints it may see again
    result = compared(before, after)
    sys.stdout.write(f"{found.stream}: made anew from the raw table, {rows:,} rows ({rows_before:,} before)\n")
    if before or after:
        sys.stdout.write(f"  {result.equal:,} rows are as before, {result.gone:,} are gone, {result.new:,} are new\n")
    return 1 if result.gone or result.new or rows != rows_before else 0


def _digests(tools: _Tools, table: StreamTable) -> list[bytes]:
    tasks = [DigestTask(file, tools.store.settings) for file in digested_files(table.writer.live_files())]
    return [digest for group in tools.engine.run(row_digests, [[task] for task in tasks]) for digest in group]


def _uploads(tools: _Tools) -> OrphanUploads:
    return OrphanUploads(tools.store, path_template(tools.config, datetime.now(UTC), sync_id=0).base)


def _stream_table(tools: _Tools, found: FoundTable) -> StreamTable:
    """The table as its last sync had it, without that sync's catalog."""
    config, started_at = tools.config, datetime.now(UTC)
    template = path_template(config, started_at, sync_id=0)
    chain_folder = found.chain_prefix.removesuffix("chain/")
    identity = Table(found.stream, found.seed.table_id, chain_folder, found.seed.final_root)
    state = inspection.read_table(tools.store, found).state
    session = Session(0, state.contents.generation, started_at, WriteDisposition.MAINTAIN)
    publisher = tools.shown_by.get(found.stream)
    writer = TableWriter(tools.store, identity, session, _uploads(tools), WriterDependencies(map_files=tools.pool.map, publisher=publisher))
    writer.read()
    changes = changes_root(template, found.stream)
    layout = Layout(template, found.seed.final_root, chain_folder, changes, final_options(config), RAW_PARQUET)
    stream, fields = _declared(found, state.schema or {}, state.contents.generation)
    return StreamTable(stream, fields, writer, layout, rules(config), session)


def _declared(found: FoundTable, schema: Mapping[str, Any], generation: int) -> tuple[Stream, StreamFields]:
    columns = [column for column in from_event(schema).fields if column.present]
    fields = StreamFields(
        tuple(Field(column.source, column.name, column.type) for column in columns),
        frozenset(column.source for column in columns if column.required),
    )
    stream = Stream(
        id=found.stream,
        json_schema={},
        sync_mode="full_refresh",
        destination_sync_mode=DestinationSyncMode(schema["mode"]),
        primary_key=tuple(tuple(path) for path in schema["primaryKey"]),
        cursor_field=tuple(schema["cursor"]),
        generation_id=generation,
        minimum_generation_id=0,
        sync_id=0,
    )
    return stream, fields

"""Command `rebuild`: rebuilds a final table from its raw table, and reports whether its rows changed."""

from __future__ import annotations

import sys

from destination_s3_spark.cli.maintenance import Workshop, workshop
from destination_s3_spark.tables.open_table import OpenTable
from destination_s3_spark.tables.stored.row_digests import DigestTask, compared, digested_files, row_digests
from destination_s3_spark.tables.stream_table import StreamTable
from destination_s3_spark.tables.updates.choice import rebuild_of


def run(config_path: str, name: str, namespace: str | None) -> int:
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

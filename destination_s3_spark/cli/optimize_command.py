"""Command `optimize`: joins the small files of tables, and reports how many files they had and have."""

from __future__ import annotations

import sys

from destination_s3_spark.chain.files import FileKind
from destination_s3_spark.chain.state import Contents
from destination_s3_spark.cli.maintenance import Workshop, workshop
from destination_s3_spark.tables.stream_table import StreamTable
from destination_s3_spark.tables.updates.choice import compaction_of, may_be_compacted

KINDS = (FileKind.FINAL, FileKind.RAW)


def run(config_path: str, name: str | None, namespace: str | None) -> int:
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

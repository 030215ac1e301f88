"""Commands `accept` and `discard`: the operator's decision about replacements that a sync held back."""

from __future__ import annotations

import sys
from pathlib import Path

from destination_s3_spark.chain.opening import WriteDisposition
from destination_s3_spark.cli.configuration import read_config
from destination_s3_spark.cli.maintenance import Workshop, workshop
from destination_s3_spark.tables.factory import TableFactory, table_factory
from destination_s3_spark.tables.found import FoundTable, FoundTables
from destination_s3_spark.tables.stream_table import StreamTable
from destination_s3_spark.tables.updates import held_back
from destination_s3_spark.tables.updates.choice import update_of
from destination_s3_spark.tables.updates.held_back import held_back_in


def accept(config_path: str, name: str | None, namespace: str | None) -> int:
    """Let the rows held back for a stream, or for all streams, replace those of their tables. Raises SyncError."""
    factory = table_factory(read_config(Path(config_path)))
    if not _held_back(factory, factory.find(), name, namespace):
        return _nothing()
    with workshop(config_path, name, namespace) as tools:
        for table in tools.tables:
            _accept(tools, table)
    return 0


def discard(config_path: str, name: str | None, namespace: str | None) -> int:
    """Drop the rows held back for a stream, or for all streams. The tables keep their rows. Raises SyncError."""
    factory = table_factory(read_config(Path(config_path)))
    every = factory.find()
    held = _held_back(factory, every, name, namespace)
    publishers = factory.publishers(every) if held else {}
    for found in held:
        table = factory.of_found(found, publishers[found.stream], WriteDisposition.DISCARD)
        _say(table, f"discarded: {held_back.discard(table.writer)}")
    return 0 if held else _nothing()


def _held_back(factory: TableFactory, every: FoundTables, name: str | None, namespace: str | None) -> list[FoundTable]:
    """Choose the tables with rows that are held back. No block tells more than the head of the chain."""
    chosen = every.tables if name is None else factory.choose(every, name, namespace)
    return [found for found in chosen if held_back_in(factory.read_chain(found).head) is not None]


def _nothing() -> int:
    sys.stdout.write("nothing is held back\n")
    return 0


def _accept(tools: Workshop, closed: StreamTable) -> None:
    if held_back_in(closed.writer.catch_up()) is None:
        return
    with tools.opened(closed) as table:
        # A sync may have begun another generation just before. It is stopped, and the next one begins anew.
        found = held_back_in(table.writer.open())
        update = None if found is None else update_of(table, lambda: tools.resources)
        if update is not None:
            tools.run(table, update)
    _say(closed, f"accepted: {found}" if found is not None else "nothing is held back any more")


def _say(table: StreamTable, text: str) -> None:
    sys.stdout.write(f"{table.stream.id}: {text}\n")
    sys.stdout.flush()

"""Command `merge`: merges the runs of deduplicated tables that wait, outside of a sync and without a limit of time.

A sync goes first: a table that one may be writing to is left to it, and one that begins during a merge takes the table over.
"""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

from destination_s3_spark.chain.files import FileKind
from destination_s3_spark.chain.opening import SyncsFirst
from destination_s3_spark.cli.configuration import read_config
from destination_s3_spark.cli.maintenance import Workshop, chosen, say, succeeds, workshop
from destination_s3_spark.errors import Fenced, TransientError
from destination_s3_spark.protocol.catalog import DestinationSyncMode
from destination_s3_spark.tables.factory import TableFactory, table_factory
from destination_s3_spark.tables.found import FoundTable
from destination_s3_spark.tables.updates.choice import merge_of
from destination_s3_spark.wording import counted, duration_text, size_text


def run(config_path: str, name: str | None, namespace: str | None, *, take_over: bool) -> int:
    """Merge the waiting runs of the tables of a stream, or of all tables, one table after the other.

    Return 1 if a table failed or was left to a sync; the others are merged all the same. Raises SyncError when nothing can be merged.
    """
    factory = replace(table_factory(read_config(Path(config_path))), precedence=SyncsFirst(take_over=take_over))
    every = factory.find()
    waiting, failed = chosen(factory, every, name, namespace, partial(_waits, factory))
    if waiting:
        with workshop(factory, every) as tools:
            for found in waiting:
                failed |= not succeeds(found.stream, partial(_merge, tools, found))
    elif not failed:
        sys.stdout.write("nothing to merge\n")
    return 1 if failed else 0


def _waits(factory: TableFactory, found: FoundTable) -> bool:
    """Tell whether the table has runs to merge, or a merge to finish. Writes nothing. Raises TransientError if it is left to a sync."""
    chain = factory.read_chain(found)
    state = chain.head
    is_deduplicated = (state.schema or {}).get("mode") == DestinationSyncMode.APPEND_DEDUP.value
    if not is_deduplicated or not (state.contents.files(FileKind.DELTA) or state.unsettled):
        return False
    if state.contents.pending is not None and not state.contents.pending.complete:
        say(found.stream, "not merged: a refresh of it is not finished, and what it brings will replace what waits")
        return False
    factory.precedence.check(chain)
    return True


def _merge(tools: Workshop, found: FoundTable) -> None:
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

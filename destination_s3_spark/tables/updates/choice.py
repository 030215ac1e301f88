"""Choice of the update that a table needs: at the end of a sync, before rows land, and for a command."""

from __future__ import annotations

from collections.abc import Callable

from destination_s3_spark.chain.files import FileKind
from destination_s3_spark.chain.opening import WriteDisposition
from destination_s3_spark.chain.state import Contents, Counters
from destination_s3_spark.formats.registry import format_of
from destination_s3_spark.tables.compaction.groups import LEAST_FILES
from destination_s3_spark.tables.open_table import OpenTable
from destination_s3_spark.tables.rules import Compaction
from destination_s3_spark.tables.runs.keys import KeySpec
from destination_s3_spark.tables.stream_table import StreamTable
from destination_s3_spark.tables.updates.appended import publish_deltas, rebuild_from_raw, retype_final_files
from destination_s3_spark.tables.updates.compacted import compact
from destination_s3_spark.tables.updates.inputs import pairs_of
from destination_s3_spark.tables.updates.merged import combine_runs, merge_runs
from destination_s3_spark.tables.updates.resources import Resources
from destination_s3_spark.tables.updates.steps import Update
from destination_s3_spark.tables.updates.waiting import MOST_RUNS
from destination_s3_spark.wording import counted


def may_be_updated(table: StreamTable, *, complete: bool) -> bool:
    """Tell whether the table has to be opened for an update after its stream has ended. Catches up with the table's chain first.

    Appended rows are published whether or not the stream is complete. A generation that replaces the table is published only when the
    stream is complete.
    """
    state = table.writer.catch_up()
    if table.session.disposition is not WriteDisposition.APPEND:
        return complete and (state is not None or bool(table.writer.chain.table.adopt()))
    if state is None:
        return False
    rule = table.rules.merges_of(table.stream.id) if table.deduplicated else None
    idle = not table.writer.is_open and state.contents.pending is None and state.contents.waiting.files <= MOST_RUNS
    waits = idle and rule is not None and not rule.is_due(state.contents, table.writer.chain.now())
    return state.contents.files(FileKind.DELTA) > 0 and not waits


def update_of(table: OpenTable, resources: Callable[[], Resources]) -> Update | None:
    """Choose the update that publishes a table's deltas. Return None, without calling `resources`, if there is nothing to publish."""
    contents = table.writer.open().contents
    if contents.pending is None and not contents.files(FileKind.DELTA):
        return None
    if table.spec is None:
        return publish_deltas(table, resources())
    if not merge_waits(table, table.spec):
        return merge_runs(table, table.spec, resources())
    return combine_runs(table, table.spec, resources()) if contents.waiting.files > MOST_RUNS else None


def merge_waits(table: OpenTable, spec: KeySpec) -> bool:
    """Tell whether the user's rule lets the runs of an open table wait.

    They do not unless the whole table has the order of today's key, today's types and today's format.
    """
    rule, contents = table.rules.merges_of(table.stream.id), table.writer.open().contents
    if rule is None or contents.pending is not None or rule.is_due(contents, table.writer.chain.now()):
        return False
    live = table.writer.live_files()
    pairs, todays = list(pairs_of(live)), format_of(table.layout.final.extension)
    if any(format_of(final.key) is not todays for _, final in pairs):
        return False
    sorted_files = (*live.of(FileKind.DELTA), *(rows for rows, _ in pairs))
    return all(file.sorted_by == spec.fingerprint and not table.is_outdated(file) for file in sorted_files)


def merge_of(table: OpenTable, resources: Resources) -> Update | None:
    """Choose the update that merges the waiting runs of an open table, or publishes a complete generation, due or not.

    Return None if there are none.
    """
    contents = table.writer.open().contents
    waits = contents.waiting.files > 0 or (contents.pending is not None and contents.pending.complete)
    return merge_runs(table, table.spec, resources) if waits and table.spec is not None else None


def rebuild_of(table: OpenTable, resources: Resources) -> Update:
    """Choose the update that rebuilds the final table from the raw table. Raises ConfigError if the raw table lacks rows."""
    live = table.writer.live_files()
    state = table.writer.open()
    pending = state.contents.pending
    if pending is not None:
        way_out = "Accept or discard it" if pending.held_back else "Run merge" if pending.complete else "Finish the refresh"
        raise table.refuse(f"a refresh of it has not replaced its rows, so its raw rows are of two generations. {way_out} first.")
    if live.adopted or not table.raw_covers(live):
        kept = sum(file.rows for file in live.of(FileKind.RAW))
        raise table.refuse(
            f"its final table cannot be rebuilt from its raw table, which has {kept:,} of the {state.contents.came_in:,} records that "
            f"came in, and {counted(len(live.adopted), 'file')} of an earlier connector. Run a refresh, which sends all records again."
        )
    if table.spec is None:
        return rebuild_from_raw(table, resources)
    if not table.raw_replays(live):
        raise table.refuse(
            "some of its raw rows landed while it was deduplicated by another primary key or cursor, and do not tell which of them it "
            "has kept. Run a refresh, which sends all records again."
        )
    return merge_runs(table, table.spec, resources, from_raw=True)


def rewrite_of(table: OpenTable, resources: Resources) -> Update:
    """Choose the update that converts the rows of an open table to its current types."""
    return retype_final_files(table, resources) if table.spec is None else merge_runs(table, table.spec, resources)


def is_compacted(table: OpenTable) -> bool:
    """Tell whether a sync joins small files of the table. Raw files of a deduplicated table have no readers besides the connector."""
    if table.rules.compaction is Compaction.AUTO:
        return table.spec is not None or bool(table.writer.publishers)
    return table.rules.compaction is Compaction.ON


def may_be_compacted(contents: Contents, target_bytes: int) -> bool:
    """Tell, without reading the list of files, whether there can be files to join. There are none while a generation is pending."""
    held = [contents.held.get(kind.value, Counters()) for kind in (FileKind.FINAL, FileKind.RAW)]
    enough = any(one.files >= LEAST_FILES or (one.files > 1 and one.bytes >= target_bytes / 2) for one in held)
    return enough and contents.pending is None


def compaction_of(table: OpenTable, resources: Callable[[], Resources]) -> Update | None:
    """Return the compaction of an open table, or None if there is nothing to join."""
    contents = table.writer.open().contents
    return compact(table, resources) if may_be_compacted(contents, table.rules.target_file_bytes) else None

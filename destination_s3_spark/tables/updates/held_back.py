"""Replacements that are held back: pending generations with suspiciously few rows, which may be what a source sent before it died."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from destination_s3_spark.chain.state import Contents, TableState
from destination_s3_spark.tables.commit.writer import TableWriter
from destination_s3_spark.tables.open_table import OpenTable
from destination_s3_spark.wording import counted


@dataclass(frozen=True, slots=True)
class Replacement:
    """The rows of a pending generation, and those of the table that it is to replace.

    `adopted`: the number of the table's files of destination-s3, which have more rows that nobody has counted.
    """

    rows: int
    replaced: int
    adopted: int

    def __str__(self) -> str:
        more = f" and those of {counted(self.adopted, 'file')} of an earlier connector" if self.adopted else ""
        return f"{counted(self.rows, 'row')} in place of {self.replaced:,}{more}"


def held_back_in(state: TableState | None) -> Replacement | None:
    """Return the replacement that a sync held back beside the table, or None if there is none."""
    if state is None or state.contents.pending is None or not state.contents.pending.held_back:
        return None
    return _replacement(state.contents)


def suspicious_replacement(table: OpenTable) -> Replacement | None:
    """Return the pending replacement of an open table if it has fewer rows than the user's rule allows without proof; else None.

    A replacement that an earlier sync completed is proved.
    """
    least = table.rules.least_unproven_percent
    contents = table.writer.open().contents
    found = _replacement(contents)
    if contents.pending is None or contents.pending.complete or not least or not (found.replaced or found.adopted):
        return None
    enough = not found.adopted and found.rows and found.rows * 100 >= found.replaced * least
    return None if enough else found


def discard(writer: TableWriter, restore_schema: Callable[[], object]) -> Replacement | None:
    """Drop the replacement that was held back, and return it. Return None, without opening the table, if there is none.

    The writer's session must be of the disposition DISCARD. If the process dies after the first block, the replacement is dropped, and the
    next sync that replaces the table deletes its files. Raises SyncError.
    """
    found = held_back_in(writer.catch_up())
    if found is None:
        return None
    contents = writer.open().contents
    dropped = writer.live_files().dropped
    if dropped:
        writer.merge([], dropped, None, contents.operation_count, contents.history)
    restore_schema()
    writer.close()
    return found


def _replacement(contents: Contents) -> Replacement:
    return Replacement(contents.pending_rows, contents.rows, contents.adopted)

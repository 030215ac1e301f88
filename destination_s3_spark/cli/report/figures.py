"""Figures of one table, by the queries of `inspect`."""

from __future__ import annotations

from dataclasses import dataclass

from destination_s3_spark.chain.orphan_uploads import OrphanUploads
from destination_s3_spark.cli.inspection.commits import Commit, commits
from destination_s3_spark.cli.inspection.files import TableFile, table_files
from destination_s3_spark.cli.inspection.readers import PublisherState, readers
from destination_s3_spark.cli.inspection.schemas import RecordedChange, schema_changes
from destination_s3_spark.cli.inspection.summary import TableSummary, summary
from destination_s3_spark.cli.inspection.syncs import RecordedSync, syncs
from destination_s3_spark.cli.inspection.table import InspectedTable
from destination_s3_spark.cli.inspection.values import ChangedValue, changed_values
from destination_s3_spark.errors import SyncError


@dataclass(frozen=True, slots=True)
class TableFigures:
    """The rows of every view of a table.

    `first_block` is the first block that was read. `open_uploads` is None if the store did not list them.
    """

    summary: TableSummary
    readers: tuple[PublisherState, ...]
    files: tuple[TableFile, ...]
    syncs: tuple[RecordedSync, ...]
    commits: tuple[Commit, ...]
    values: tuple[ChangedValue, ...]
    schemas: tuple[RecordedChange, ...]
    first_block: int
    open_uploads: int | None


def table_figures(table: InspectedTable, uploads: OrphanUploads) -> TableFigures:
    """Return the figures of a table."""
    return TableFigures(
        summary(table),
        readers(table),
        table_files(table),
        syncs(table.blocks),
        commits(table),
        changed_values(table.blocks),
        schema_changes(table.schemas),
        table.blocks[0].sequence_number if table.blocks else 0,
        _open_uploads(table, uploads),
    )


def _open_uploads(table: InspectedTable, uploads: OrphanUploads) -> int | None:
    """Count the uploads of all sessions so far. The page is worth having where the credentials may not list them."""
    try:
        return uploads.count(table.state.identity.table_number, table.state.epoch + 1)
    except SyncError:
        return None

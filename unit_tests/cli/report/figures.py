"""Made-up figures of tables for tests of the page."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from destination_s3_spark.chain.files import FileKind
from destination_s3_spark.cli.inspection.commits import ChangedValue, Commit, RecordedSync, SyncEnd
from destination_s3_spark.cli.inspection.summary import TableSummary
from destination_s3_spark.cli.inspection.table import FileStatus, RecordedChange, TableFile
from destination_s3_spark.cli.report.figures import TableFigures

START = datetime(2026, 3, 1, 12, 30, tzinfo=UTC)
ROWS = 1_000
"""Rows of each sync. Each brings as many kilobytes."""


def at(sync: int) -> datetime:
    """The start of a sync, counted from 0: one a day."""
    return START + timedelta(days=sync)


def commit(number: int, rows: int, *, taken_back: bool = False, kind: str = "AddData") -> Commit:
    return Commit(number, at(number), kind, 1, number + 1, ROWS, 2, 0, ROWS, 1, 0, rows, rows * 1_000, taken_back, "")


def sync(number: int, end: SyncEnd = SyncEnd.CLEAN, changed: int = 0, duration_s: float | None = 10.0) -> RecordedSync:
    size = ROWS * 1_000
    return RecordedSync(number + 1, at(number), at(number), duration_s, end, 1, ROWS, 1, 1, size, changed, 0, 0, 0, number, number)


def file(size: int | None, kind: FileKind = FileKind.FINAL, standing: FileStatus = FileStatus.LIVE) -> TableFile:
    return TableFile(kind, standing, "key", 1, size, None, None, None, 1, 0, 1, START)


def value(number: int, field: str | None, values: int) -> ChangedValue:
    return ChangedValue(number + 1, at(number), field, "NULLED", "DESTINATION_SERIALIZATION_ERROR", values, ROWS, values / ROWS)


def summary(name: str, syncs: int) -> TableSummary:
    size = syncs * ROWS * 1_000
    return TableSummary(
        namespace="shop",
        stream=name,
        table_id=name,
        final_root=f"lake/shop/{name}/",
        mode="append",
        primary_key=("id",),
        generation=1,
        pending_generation=None,
        pending_since_sync=None,
        pending_rows=0,
        held_back=False,
        rows=syncs * ROWS,
        columns=5,
        files=syncs,
        bytes=size,
        raw_files=syncs,
        raw_bytes=size,
        adopted_files=0,
        replaced_files=0,
        replaced_bytes=0,
        epoch=1,
        last_sync_id=syncs or None,
        last_sync_started_at=at(syncs - 1) if syncs else None,
        last_session_end=SyncEnd.CLEAN,
        last_data_block=syncs,
        unsettled_block=None,
        unsettled_is_read=True,
    )


def figures(name: str = "orders", syncs: int = 3, values: Sequence[ChangedValue] = ()) -> TableFigures:
    """Figures of a table with a sync a day, each with one commit and one file."""
    changed = [sum(found.values for found in values if found.sync_id == number + 1) for number in range(syncs)]
    return TableFigures(
        summary(name, syncs),
        (),
        tuple(file(ROWS * 1_000) for _ in range(syncs)),
        tuple(sync(number, changed=changed[number]) for number in range(syncs)),
        tuple(commit(number, (number + 1) * ROWS) for number in range(syncs)),
        {number: [found for found in values if found.sync_id == number + 1] for number in range(syncs)},
        (RecordedChange(0, "1-0-0", START, 1, 5, None, None, None, None),),
        0,
        0,
    )

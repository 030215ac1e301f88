"""Schema history of a table as a timeline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from destination_s3_spark.cli.inspection.schemas import RecordedChange
from destination_s3_spark.cli.words import moment
from destination_s3_spark.counted import counted

SCHEMAS_SHOWN = 12
"""Most schemas on a timeline, the newest ones."""
CHANGES_SHOWN = 8
"""Most changes of one schema that are named."""


@dataclass(frozen=True, slots=True)
class SchemaEvent:
    """A schema: when it came, and in words what it changed."""

    version: str
    time: str
    columns: str
    changes: tuple[str, ...]
    more: int


@dataclass(frozen=True, slots=True)
class Timeline:
    """The newest schemas, newest first. `remark` says how many are left out."""

    events: tuple[SchemaEvent, ...]
    remark: str


def timeline(changes: Sequence[RecordedChange]) -> Timeline:
    """Return the timeline of schema changes."""
    events = [_event(list(rows)) for _, rows in groupby(changes, key=lambda change: change.schema_id)]
    left = len(events) - SCHEMAS_SHOWN
    return Timeline(tuple(reversed(events[-SCHEMAS_SHOWN:])), f"{counted(left, 'earlier schema')} not shown." if left > 0 else "")


def _event(rows: list[RecordedChange]) -> SchemaEvent:
    first = rows[0]
    said = tuple(_change_text(row) for row in rows if row.change is not None)
    return SchemaEvent(
        f"version {first.version}" if first.version else f"schema {first.schema_id}",
        f"{moment(first.time)} UTC, block {first.block}",
        counted(first.columns, "column"),
        said[:CHANGES_SHOWN],
        max(0, len(said) - CHANGES_SHOWN),
    )


def _change_text(row: RecordedChange) -> str:
    types = " → ".join(text for text in (row.old, row.new) if text)
    return f"{row.change} {row.path}: {types}" if types else f"{row.change} {row.path}"

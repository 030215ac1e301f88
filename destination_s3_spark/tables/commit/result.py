"""The result of a commit."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CommitResult:
    """The block and the totals of a commit."""

    sequence_number: int | None
    """The number of the data block, or None if all records were replays."""
    rows: int
    files: int
    bytes: int
    replayed: int
    """The number of records that were dropped as replays."""

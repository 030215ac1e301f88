"""The result of a commit."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CommitResult:
    """What a commit did. `sequence_number`: its data block, None when all of it was a replay; `replayed`: records dropped as such."""

    sequence_number: int | None
    rows: int
    files: int
    bytes: int
    replayed: int

"""Results of commits, and their totals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from destination_s3_spark.decoding.changes import ChangedField


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
    changed_values: Mapping[ChangedField, int] = field(default_factory=dict)
    """The values that typing changed, by field."""


@dataclass(frozen=True, slots=True)
class Written:
    """The totals of a writer's session: commits of records, and rewrites (merges, publications, compactions)."""

    records: int = 0
    replayed: int = 0
    commits: int = 0
    rewrites: int = 0
    files: int = 0
    bytes: int = 0
    changed_values: Mapping[ChangedField, int] = field(default_factory=dict)

    def after_commit(self, result: CommitResult) -> Written:
        """Return the totals with those of a commit of records."""
        return Written(
            self.records + result.rows,
            self.replayed + result.replayed,
            self.commits + (result.sequence_number is not None),
            self.rewrites,
            self.files + result.files,
            self.bytes + result.bytes,
            Counter(self.changed_values) + Counter(result.changed_values),
        )

    def after_rewrite(self, result: CommitResult) -> Written:
        """Return the totals with those of a rewrite."""
        return Written(
            self.records,
            self.replayed,
            self.commits,
            self.rewrites + 1,
            self.files + result.files,
            self.bytes + result.bytes,
            self.changed_values,
        )

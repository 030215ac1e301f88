"""The slices of one commit and the checkpoints that they cover, and the results of commits."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import NamedTuple

from msgspec.structs import replace

from destination_s3_spark.chain.files import FileKind
from destination_s3_spark.chain.fold import REPLAY_LIMIT
from destination_s3_spark.chain.opening import Session
from destination_s3_spark.chain.state import Checkpoint, ReplayGuard
from destination_s3_spark.decoding.changes import ChangedField, most_changed
from destination_s3_spark.errors import Bug
from destination_s3_spark.tables.landing.slices import Segment, StagedSlice

MULTISET_MODULUS = 2**128
_YEAR_1_MS = int(datetime.min.replace(tzinfo=UTC).timestamp()) * 1000


class ForgottenRows(NamedTuple):
    """Numbers of rows that landed and are forgotten: all but pending ones, those of earlier generations among them, and pending ones."""

    landed: int
    earlier: int
    pending: int


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
    barred: int = 0
    """The number of records that were left out because of their key."""


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
    barred: int = 0

    @property
    def handled(self) -> int:
        """The records that were committed, or left out for good."""
        return self.records + self.replayed + self.barred

    def after_commit(self, result: CommitResult) -> Written:
        return Written(
            self.records + result.rows,
            self.replayed + result.replayed,
            self.commits + (result.sequence_number is not None),
            self.rewrites,
            self.files + result.files,
            self.bytes + result.bytes,
            Counter(self.changed_values) + Counter(result.changed_values),
            self.barred + result.barred,
        )

    def after_rewrite(self, result: CommitResult) -> Written:
        return dataclasses.replace(self, rewrites=self.rewrites + 1, files=self.files + result.files, bytes=self.bytes + result.bytes)


@dataclass(frozen=True, slots=True)
class TableCheckpoint:
    """A checkpoint of one stream: the byte offset of its end in the spool, and the hash of its state blob.

    The hash is None for the tail of a complete stream.
    """

    end: int
    state_hash: str | None


@dataclass(frozen=True, slots=True)
class Batch:
    """Staged slices and the checkpoints that they cover exactly. `ends[i]` is the spool offset at which `checkpoints[i]` ends."""

    slices: tuple[StagedSlice, ...]
    ends: tuple[int, ...]
    checkpoints: tuple[Checkpoint, ...]

    @classmethod
    def cut(cls, slices: Sequence[StagedSlice], checkpoints: Sequence[TableCheckpoint], session: Session, start: int) -> Batch:
        """Make the batch of these slices, which begin at `start`. Checkpoints without records of this table are left out."""
        segments = [segment for staged in slices for segment in staged.segments]
        ends: list[int] = []
        found: list[Checkpoint] = []
        used = 0
        for checkpoint in checkpoints:
            first = used
            while used < len(segments) and segments[used].end <= checkpoint.end:
                used += 1
            reached = segments[used - 1].end if used else start
            if reached != checkpoint.end:
                raise Bug(f"A checkpoint ends at byte {checkpoint.end} of the spool, the staged slices reach {reached}.")
            records, multiset = _count(segments[first:used])
            if records:
                ends.append(checkpoint.end)
                found.append(Checkpoint(checkpoint.state_hash, records, f"{multiset:032x}", session.generation_id, session.sync_id))
        return cls(tuple(slices), tuple(ends), tuple(found))

    @property
    def records(self) -> int:
        return sum(checkpoint.records for checkpoint in self.checkpoints)

    @property
    def barred(self) -> int:
        return sum(staged.barred for staged in self.slices)

    def changed_values(self) -> dict[ChangedField, int]:
        """Count the values that were nulled or truncated, by field."""
        counts: Counter[ChangedField] = Counter()
        for staged in self.slices:
            counts.update(staged.changed_values)
        return most_changed(counts)

    def recorded(self) -> tuple[Checkpoint, ...]:
        """Return the checkpoints to record in the chain. If the replay list cannot hold all, the oldest are merged into one."""
        excess = len(self.checkpoints) - REPLAY_LIMIT
        if excess <= 0:
            return self.checkpoints
        return (_sum(self.checkpoints[: excess + 1]), *self.checkpoints[excess + 1 :])

    def split_replayed(self, guard: ReplayGuard) -> Batch:
        """Return the leading part that is already in the table. A slice that is only partly a replay is not included and lands again."""
        if not guard.active:
            return self.first(0)
        replayed = guard.count_replayed(self.checkpoints)
        whole = {staged.end for staged in self.slices}
        while replayed and self.ends[replayed - 1] not in whole:
            replayed -= 1
        guard.accept(self.checkpoints, replayed)
        return self.first(replayed)

    def first(self, count: int) -> Batch:
        end = self.ends[count - 1] if count else -1
        return Batch(tuple(staged for staged in self.slices if staged.end <= end), self.ends[:count], self.checkpoints[:count])

    def after(self, part: Batch) -> Batch:
        """Return the rest after a leading part."""
        return Batch(self.slices[len(part.slices) :], self.ends[len(part.ends) :], self.checkpoints[len(part.checkpoints) :])


class SnapshotWatch:
    """The beginning of a snapshot whose records have no position in the source's log, found among the slices of a session."""

    def __init__(self, started_at: datetime) -> None:
        self._since = started_at  # by another clock than the source's, and before later records as a rule
        self._found = False

    def add(self, staged: StagedSlice) -> None:
        """Take note of a slice, before `begun_in` of its batch."""
        since = staged.extracted_from
        if since is not None and since < self._since.timestamp() * 1000:
            self._since = datetime.fromtimestamp(max(since, _YEAR_1_MS) / 1000, UTC)

    def begun_in(self, batch: Batch) -> datetime | None:
        """Return the session's start or earliest extraction for the first batch that has such records. Return None for all others."""
        if self._found or not any(staged.without_position for staged in batch.slices):
            return None
        self._found = True
        return self._since


def flaw_of(staged: StagedSlice, start: int, schema_id: int | None) -> str | None:
    """Return why a slice cannot be the next one, which must begin at `start` and have this schema, or None."""
    if staged.start != start or staged.end <= staged.start:
        return f"staged bytes {staged.start} to {staged.end} of the spool after {start}"
    if staged.schema_id != schema_id:
        return f"staged a slice of schema {staged.schema_id}, the table has {schema_id}"
    for kind in FileKind:
        rows = [file.rows for file in staged.files if file.kind is kind]
        if rows and sum(rows) != staged.records:
            return f"{staged.records} records became {sum(rows)} rows in {kind.value} files"
    return None


def _count(segments: Sequence[Segment]) -> tuple[int, int]:
    records = sum(segment.records for segment in segments)
    return records, sum(segment.multiset for segment in segments) % MULTISET_MODULUS


def _sum(checkpoints: Sequence[Checkpoint]) -> Checkpoint:
    multiset = sum(int(checkpoint.multiset_hash, 16) for checkpoint in checkpoints) % MULTISET_MODULUS
    return replace(checkpoints[-1], records=sum(checkpoint.records for checkpoint in checkpoints), multiset_hash=f"{multiset:032x}")

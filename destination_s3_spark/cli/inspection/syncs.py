"""Sessions that opened a table: its syncs, and the maintenance by operators between them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum

from destination_s3_spark.chain.blocks import Block
from destination_s3_spark.chain.events import AddData, Close, MergeData, OpenEpoch, ReplaceData, Seed
from destination_s3_spark.cli.inspection.commits import rows_of, taken_back
from destination_s3_spark.decoding.changes import ChangedField


class SyncEnd(Enum):
    """The end of a session, as far as the table's chain tells."""

    CLEAN = "cleanly"
    """It closed the table."""
    UNCLEAN = "not cleanly"
    """Another session opened the table before it was closed."""
    OPEN = "still open"
    """It is running, or it died or failed and nothing has opened the table since."""


@dataclass(frozen=True, slots=True)
class RecordedSync:
    """A session and what it brought into the table.

    `sync_id` is None for maintenance, and 0 for a sync without an id in its catalog. `started_at` is None if the session began before the
    blocks that were read; the numbers then cover only the rest of it. `ended_at` is the time of its last block. `rows`, `files` and
    `bytes` are those that came in, `rewrites` the merges and replacements.
    """

    sync_id: int | None
    started_at: datetime | None
    ended_at: datetime
    duration_s: float | None
    end: SyncEnd
    generation: int | None
    rows: int
    commits: int
    files: int
    bytes: int
    values_changed: int
    rewrites: int
    bytes_rewritten: int
    commits_taken_back: int
    first_block: int
    last_block: int


def syncs(blocks: Sequence[Block]) -> tuple[RecordedSync, ...]:
    """Return the sessions that wrote the blocks, oldest first."""
    sessions = list(sessions_of(blocks))
    voided = taken_back(blocks)
    return tuple(_sync(session, voided, is_last=session is sessions[-1]) for session in sessions)


def sessions_of(blocks: Sequence[Block]) -> Iterator[list[Block]]:
    """Yield the blocks of one session after the other."""
    session: list[Block] = []
    for block in blocks:
        if isinstance(block.event, OpenEpoch) and session and not _continues(session, block.event):
            yield session
            session = []
        session.append(block)
    if session:
        yield session


def opened_by(session: Sequence[Block]) -> Seed | OpenEpoch | None:
    """Return the event that began the session, or None if it is not among its blocks."""
    return session[0].event if isinstance(session[0].event, Seed | OpenEpoch) else None


def sync_id_of(session: Sequence[Block]) -> int | None:
    """Return the session's sync id, or None for maintenance.

    Maintenance has the id 0, as has a sync without an id in its catalog. Only a sync begins a table or adds data.
    """
    events = [block.event for block in session]
    sync_id = next((event.sync_id for event in events if isinstance(event, Seed | OpenEpoch | AddData | MergeData | ReplaceData)), 0)
    return sync_id if sync_id or any(isinstance(event, Seed | AddData) for event in events) else None


def _continues(session: Sequence[Block], event: OpenEpoch) -> bool:
    """Return whether a session that found an unsettled block opens the table for the second time."""
    began = opened_by(session)
    return began is not None and began.opener == event.opener and not isinstance(session[-1].event, Close)


def _sync(session: Sequence[Block], voided: frozenset[int], *, is_last: bool) -> RecordedSync:
    began = opened_by(session)
    events = [block.event for block in session if block.sequence_number not in voided]
    added = [event for event in events if isinstance(event, AddData)]
    rewrites = [event for event in events if isinstance(event, MergeData | ReplaceData)]
    ended_at = session[-1].system_time
    clean = any(isinstance(event, Close) for event in events)
    started_at = None if began is None else began.started_at
    return RecordedSync(
        sync_id_of(session),
        started_at,
        ended_at,
        None if started_at is None else max(0.0, (ended_at - started_at).total_seconds()),
        SyncEnd.CLEAN if clean else SyncEnd.OPEN if is_last else SyncEnd.UNCLEAN,
        next((event.generation_id for event in [began, *added, *rewrites] if event is not None), None),
        sum(event.offset_interval.end - event.offset_interval.start + 1 for event in added),
        len(added),
        sum(len(event.files) for event in added),
        sum(file.bytes for event in added for file in event.files),
        sum(event.values_changed for event in added),
        len(rewrites),
        sum(file.bytes for event in rewrites for file in event.files),
        len(session) - len(events),
        session[0].sequence_number,
        session[-1].sequence_number,
    )


@dataclass(frozen=True, slots=True)
class ChangedValue:
    """The values of a field that one sync changed in one way for one reason.

    `field`, `change` and `reason` are as in the chain. `rows` are the rows of the sync. `share` is the number of values per row.
    """

    sync_id: int | None
    time: datetime
    field: str | None
    change: str | None
    reason: str | None
    values: int
    rows: int
    share: float


def changed_values(blocks: Sequence[Block]) -> tuple[ChangedValue, ...]:
    """Return the changed values, oldest sync first, within a sync the most frequent first."""
    voided = taken_back(blocks)
    return tuple(found for session in sessions_of(blocks) for found in _of_session(session, voided))


def _of_session(session: Sequence[Block], voided: frozenset[int]) -> list[ChangedValue]:
    added = [(b, b.event) for b in session if isinstance(b.event, AddData) and b.sequence_number not in voided]
    counts: Counter[ChangedField] = Counter()
    for _, event in added:
        counts.update({ChangedField(found.field, found.change, found.reason): found.values for found in event.changed_values})
    if not counts:
        return []
    began, rows = opened_by(session), sum(rows_of(event) for _, event in added)
    time = added[0][0].system_time if began is None else began.started_at
    sync_id = sync_id_of(session)
    return [ChangedValue(sync_id, time, *changed, values, rows, values / rows) for changed, values in counts.most_common()]

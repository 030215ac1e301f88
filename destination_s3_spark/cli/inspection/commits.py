"""Blocks of a table's chain, one row each, and the sessions that wrote them: syncs, and the maintenance by operators between them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Literal

from destination_s3_spark.chain.blocks import Block
from destination_s3_spark.chain.events import (
    AddData,
    BarKeys,
    Close,
    MergeData,
    OpenEpoch,
    ReplaceData,
    Seed,
    SetDataSchema,
    Snapshot,
    UnknownEvent,
    Void,
)
from destination_s3_spark.chain.files import FileKind
from destination_s3_spark.chain.state import Counters
from destination_s3_spark.cli.inspection.table import InspectedTable
from destination_s3_spark.decoding.changes import ChangedField
from destination_s3_spark.wording import counted, size_text


@dataclass(frozen=True, slots=True)
class Commit:
    """A block: what it added and removed, and in words what it says.

    `rows` are the rows that came in, or for a merge or replacement the final rows it wrote. `taken_back`: a later Void withdrew the block.
    `table_rows` and `table_bytes` are the size of the final table after the block, without adopted files.
    """

    block: int
    time: datetime
    kind: str
    epoch: int
    sync_id: int | None
    rows: int
    files_added: int
    files_removed: int
    bytes_added: int
    checkpoints: int
    values_changed: int
    table_rows: int
    table_bytes: int
    taken_back: bool
    summary: str


def commits(table: InspectedTable) -> tuple[Commit, ...]:
    voided, unseen = taken_back(table.blocks), table.readable.left_out
    final = table.readable.contents.held.get(FileKind.FINAL.value, Counters())
    rows, size = final.rows, final.bytes
    found = []
    # The head's totals are known and older blocks may not have been read, so the totals are counted backwards.
    for block in reversed(table.blocks):
        number = block.sequence_number
        found.append(_commit(block, number in voided, rows, size))
        if number not in voided and number != unseen:
            rows, size = rows - _growth(block, "rows"), size - _growth(block, "bytes")
    return tuple(reversed(found))


def _growth(block: Block, what: Literal["rows", "bytes"]) -> int:
    """Return by how much the block made the final table grow."""
    if not isinstance(block.event, AddData | MergeData | ReplaceData):
        return 0
    removed = () if isinstance(block.event, AddData) else block.event.files_removed
    added, gone = (
        sum(file.rows if what == "rows" else file.bytes for file in files if file.kind is FileKind.FINAL)
        for files in (block.event.files, removed)
    )
    return added - gone


def taken_back(blocks: Sequence[Block]) -> frozenset[int]:
    """Return the numbers of the data blocks that one of the blocks withdraws."""
    return frozenset(block.event.voided_sequence_number for block in blocks if isinstance(block.event, Void))


def rows_of(event: AddData | MergeData | ReplaceData) -> int:
    """Return the rows that came in, or the final rows that a rewrite wrote."""
    if isinstance(event, AddData):
        return event.offset_interval.end - event.offset_interval.start + 1
    return sum(file.rows for file in event.files if file.kind is FileKind.FINAL)


def _commit(block: Block, voided: bool, table_rows: int, table_bytes: int) -> Commit:
    event = block.event
    data = event if isinstance(event, AddData | MergeData | ReplaceData) else None
    added = event if isinstance(event, AddData) else None
    files = () if data is None else data.files
    removed = event.files_removed if isinstance(event, MergeData | ReplaceData) else ()
    sync = event.sync_id if isinstance(event, Seed | OpenEpoch | AddData | MergeData | ReplaceData) else None
    return Commit(
        block.sequence_number,
        block.system_time,
        event.kind if isinstance(event, UnknownEvent) else type(event).__name__,
        block.epoch,
        sync or None,
        0 if data is None else rows_of(data),
        len(files),
        len(removed),
        sum(file.bytes for file in files),
        0 if added is None else len(added.checkpoints),
        0 if added is None else added.values_changed,
        table_rows,
        table_bytes,
        voided,
        _summary(block),
    )


def _summary(block: Block) -> str:
    match block.event:
        case Seed() as event:
            adopted = f", {counted(len(event.adopted), 'file')} adopted" if event.adopted else ""
            return f"table {event.stream} begins, {session_text(event.sync_id)}, generation {event.generation_id}{adopted}"
        case OpenEpoch() as event:
            return f"epoch {block.epoch}, {session_text(event.sync_id)}, generation {event.generation_id}"
        case SetDataSchema() as event:
            return _schema_summary(event)
        case AddData() as event:
            return _add_data_summary(event)
        case MergeData() | ReplaceData() as event:
            return _rewrite_summary(event)
        case Void() | Close() | BarKeys() as event:
            return _short_summary(event)
        case Snapshot() as event:
            return f"all blocks before: {counted(event.state.contents.rows, 'row')} in {counted(len(event.files), 'file')}"
        case UnknownEvent():
            return "written by a newer version"


def _short_summary(event: Void | Close | BarKeys) -> str:
    match event:
        case Void():
            return f"takes back block {event.voided_sequence_number}"
        case Close():
            return f"the session ended cleanly{_barred_text(event)}"
        case BarKeys():
            return f"records with {counted(event.count, 'forgotten key')} land no more"


def session_text(sync_id: int | None) -> str:
    """Name the session of this sync id. The operators' commands open tables without one, and a catalog without ids gives 0."""
    if sync_id is None:
        return "maintenance"
    return f"sync {sync_id}" if sync_id else "no sync id"


def session_label(sync_id: int | None) -> str:
    """Name the session where the word sync stands already: above a column or under an axis."""
    return session_text(sync_id).removeprefix("sync ")


def _schema_summary(event: SetDataSchema) -> str:
    columns = counted(len(event.schema.get("fields", ())), "data column")
    evolved = [f"{change['kind']} {change['path']}" for change in event.schema.get("changes", ())]
    return "; ".join([f"schema {event.schema_id}, version {event.schema.get('version')}: {columns}", *evolved])


def _add_data_summary(event: AddData) -> str:
    size = size_text(sum(file.bytes for file in event.files))
    files, checkpoints = counted(len(event.files), "file"), counted(len(event.checkpoints), "checkpoint")
    text = f"{counted(rows_of(event), 'row')}, {files} ({size}), {checkpoints}{_barred_text(event)}"
    return f"{text}, {counted(event.values_changed, 'value')} changed" if event.values_changed else text


def _barred_text(event: AddData | Close) -> str:
    return f", {counted(event.records_barred, 'record')} with forgotten keys left out" if event.records_barred else ""


def _rewrite_summary(event: MergeData | ReplaceData) -> str:
    what = f"generation {event.generation_id} is published" if isinstance(event, ReplaceData) else "rows come into the final table"
    if isinstance(event, MergeData) and event.rows_forgotten:
        what = f"{counted(event.rows_forgotten, 'record')} forgotten"
    files = counted(len(event.files), "file")
    return f"{what}: {files} with {counted(rows_of(event), 'final row')} in, {counted(len(event.files_removed), 'file')} out"


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
    `bytes` are those that came in, `rewrites` the merges, replacements and compactions, and `bytes_rewritten` what they wrote of the
    table, without its change log.
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
        sum(map(rows_of, added)),
        len(added),
        sum(len(event.files) for event in added),
        sum(file.bytes for event in added for file in event.files),
        sum(event.values_changed for event in added),
        len(rewrites),
        sum(map(_bytes_rewritten, rewrites)),
        len(session) - len(events),
        session[0].sequence_number,
        session[-1].sequence_number,
    )


def _bytes_rewritten(event: MergeData | ReplaceData) -> int:
    return sum(file.bytes for file in event.files if file.kind is not FileKind.CHANGES)


MERGES_COUNTED = 10
"""Most merges whose cost is summed up, the newest ones."""
MUCH = 20
"""Bytes written for each byte of new rows above which the user is told how to lower them."""


@dataclass(frozen=True, slots=True)
class MergeCost:
    """The cost of a table's newest merges, without those into an empty table and those of refreshes.

    `bytes_merged`: the files of new rows that they took in. `bytes_written`: the files of the table that they wrote for them, and runs that
    were combined. `amplification`: the second by the first. `advice`: the setting that lowers it, if it is above MUCH.
    """

    merges: int
    bytes_merged: int
    bytes_written: int
    amplification: float
    advice: str | None

    @property
    def figures(self) -> str:
        which = "the last one" if self.merges == 1 else f"the last {self.merges}"
        sizes = f"{size_text(self.bytes_written)} for {size_text(self.bytes_merged)} of new rows"
        return f"{which} wrote {sizes}: {self.amplification:,.{0 if self.amplification >= 10 else 1}f} bytes for each byte"

    def __str__(self) -> str:
        return self.figures if self.advice is None else f"{self.figures}. {self.advice}"


def merge_cost(table: InspectedTable) -> MergeCost | None:
    """Return the cost of the table's newest merges among the blocks that were read, or None if there is none."""
    merges = merged = written = 0
    for block, commit in zip(reversed(table.blocks), reversed(commits(table)), strict=True):
        event, had_rows = block.event, commit.table_rows > _growth(block, "rows")
        if not isinstance(event, MergeData) or not had_rows or commit.taken_back or commit.block == table.readable.left_out:
            continue
        runs = sum(file.bytes for file in event.files_removed if file.kind is FileKind.DELTA)
        if event.data_change and runs and not event.rows_forgotten:
            if merges == MERGES_COUNTED:
                break
            merged += runs
            merges += 1
        written += _bytes_rewritten(event) if runs else 0
    if not merges:
        return None
    amplification = written / merged
    return MergeCost(merges, merged, written, amplification, _advice(table) if amplification > MUCH else None)


def _advice(table: InspectedTable) -> str:
    if table.merge_rule is None:
        return "The setting tables.merge lets new rows wait, so that more of them share a merge"
    return "Higher bounds in tables.merge let more rows share a merge"


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
    return tuple(found for of_session in changed_values_by_session(blocks).values() for found in of_session)


def changed_values_by_session(blocks: Sequence[Block]) -> dict[int, list[ChangedValue]]:
    """Return the changed values in the same order, by the first block of their session."""
    voided = taken_back(blocks)
    return {session[0].sequence_number: _of_session(session, voided) for session in sessions_of(blocks)}


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

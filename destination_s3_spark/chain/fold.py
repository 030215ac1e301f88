"""Fold of blocks into a table's state, and the rules of every chain.

The same function validates blocks that were read and blocks that are about to be written.
"""

from __future__ import annotations

from datetime import datetime
from enum import Enum

from msgspec.structs import replace

from destination_s3_spark.chain.blocks import Block
from destination_s3_spark.chain.events import (
    AddData,
    BarKeys,
    Close,
    Event,
    MergeData,
    OpenEpoch,
    ReplaceData,
    Seed,
    SetDataSchema,
    Snapshot,
    UnknownEvent,
    Void,
)
from destination_s3_spark.chain.files import HISTORY_KINDS, FileEntry, FileKind
from destination_s3_spark.chain.state import (
    BarredMark,
    Contents,
    Counters,
    EarlierSchema,
    Identity,
    Leaving,
    Pending,
    TableState,
    Unsettled,
)

SNAPSHOT_LIMIT = 1_000
"""Beginnings of snapshots that a state has. Older ones only matter to a rebuild, and to runs that have waited since then."""
REPLAY_LIMIT = 10_000
"""Checkpoints kept in the replay list. Dropping the oldest cannot lose records, because the list only suppresses replays: a replay of a
dropped checkpoint lands twice. A source rarely goes back further than the STATEs of one batch."""

SEEN_BY_READERS = frozenset({FileKind.FINAL, FileKind.ADOPTED, *HISTORY_KINDS})
"""Kinds of files that queries of the table read. Only these are kept for a while after they were replaced."""


class Rule(Enum):
    """The rules of a chain."""

    FIRST_BLOCK_MUST_BE_SEED = "the first block must be the Seed"
    SEED_ONLY_FIRST = "a Seed can only be the first block"
    SEQUENCE = "sequence numbers are contiguous from 0"
    HASH = "prevBlockHash must be the hash of the block before"
    SYSTEM_TIME = "systemTime must not go backwards"
    EPOCH = "only OpenEpoch changes the epoch, by one"
    CLOSED = "after Close only OpenEpoch may follow"
    SETTLED = "settled names the last data block known to be done and never goes back"
    ONE_UNSETTLED = "no data block, Close or Snapshot while an earlier data block is not settled"
    GENERATION = "a pending generation begins with a session on a settled table, after all existing rows, and keeps no more than these"
    SCHEMA_FIRST = "data needs its SetDataSchema to be the last one before it"
    SCHEMA_ID = "schemaIds ascend"
    OFFSETS = "offsets are contiguous from 0 and match the rows of the files and checkpoints"
    EMPTY_EVENT = "AddData without rows, files or checkpoints"
    FILES_REMOVED = "only files that are there can be removed"
    FORGOTTEN = "only rows that landed can be forgotten"
    BARRED = "barred keys stay barred"
    NO_OP = "the event changes nothing"
    VOID = "Void takes back the unsettled data block before it"
    TERRITORY = "a chain is that of the folder it lies in, and names only files of its own table"
    SNAPSHOT = "a Snapshot carries the fold of the blocks before it"


class InvalidChain(Exception):
    """A block breaks a rule."""

    def __init__(self, rule: Rule, detail: str) -> None:
        super().__init__(f"{rule.value} ({detail})")
        self.rule = rule


def fold(state: TableState | None, block: Block, block_hash: str) -> TableState:  # noqa: C901, PLR0912 (one case for each event)
    """Return the state after `block`. Raises InvalidChain when the block breaks a rule.

    `state`: that before the block, which for a Snapshot is the one that it holds.
    """
    event = block.event
    if state is None:
        return _begin(block, block_hash)
    _check_link(state, block)
    state, number = _settle(state, block), block.sequence_number
    match event:
        case Seed():
            raise InvalidChain(Rule.SEED_ONLY_FIRST, f"block {number}")
        case OpenEpoch():
            changed = _open(state, block, event)
        case SetDataSchema():
            changed = _set_schema(state, number, event)
        case BarKeys():
            changed = _bar(state, number, event)
        case AddData():
            changed = _add_data(state, block, event)
        case MergeData():
            changed = _merge_data(state, number, event)
        case ReplaceData():
            changed = _replace_data(state, number, event)
        case Void():
            changed = _void(state, number, event)
        case Close():
            changed = replace(state, contents=_closed(state, event, block.system_time), closed=True, replay=())
        case Snapshot():
            if event.state != state:
                raise InvalidChain(Rule.SNAPSHOT, f"block {number}")
            changed = replace(state, snapshot=number)
        case UnknownEvent():
            changed = state
    return replace(changed, sequence_number=number, block_hash=block_hash, system_time=block.system_time)


def _begin(block: Block, block_hash: str) -> TableState:
    seed = block.event
    if not isinstance(seed, Seed):
        raise InvalidChain(Rule.FIRST_BLOCK_MUST_BE_SEED, type(seed).__name__)
    if block.sequence_number != 0:
        raise InvalidChain(Rule.SEQUENCE, f"{block.sequence_number} instead of 0")
    if block.prev_block_hash is not None:
        raise InvalidChain(Rule.HASH, "block 0 has none before it")
    if block.epoch != 1:
        raise InvalidChain(Rule.EPOCH, f"{block.epoch} instead of 1")
    if block.settled is not None:
        raise InvalidChain(Rule.SETTLED, "there is no data block yet")
    identity = Identity(seed.stream, seed.table_id, seed.table_number, seed.final_root, seed.format_version)
    if seed.pending not in (None, Pending(seed.generation_id, 0, seed.sync_id)):
        raise InvalidChain(Rule.GENERATION, "block 0")
    begun_by = 0 if seed.adopted else seed.sync_id
    contents = Contents(seed.generation_id, adopted=len(seed.adopted), pending=seed.pending, begun_by=begun_by)
    return TableState(identity, 0, block_hash, block.system_time, 1, seed.opener, contents)


def _check_link(state: TableState, block: Block) -> None:
    opens = isinstance(block.event, OpenEpoch)
    epoch = state.epoch + 1 if opens else state.epoch
    if block.sequence_number != state.sequence_number + 1:
        raise InvalidChain(Rule.SEQUENCE, f"{block.sequence_number} after {state.sequence_number}")
    if block.prev_block_hash != state.block_hash:
        raise InvalidChain(Rule.HASH, f"block {block.sequence_number}")
    if block.system_time < state.system_time:
        raise InvalidChain(Rule.SYSTEM_TIME, f"{block.system_time.isoformat()} after {state.system_time.isoformat()}")
    if block.epoch != epoch:
        raise InvalidChain(Rule.EPOCH, f"{block.epoch} instead of {epoch}")
    if state.closed and not opens:
        raise InvalidChain(Rule.CLOSED, type(block.event).__name__)


def _settle(state: TableState, block: Block) -> TableState:
    if block.settled != state.settled:
        if block.settled is None or block.settled != state.last_data:
            raise InvalidChain(Rule.SETTLED, f"{block.settled}, last data block {state.last_data}, settled before {state.settled}")
        state = replace(state, settled=block.settled, unsettled=None)
    if state.unsettled is not None and isinstance(block.event, AddData | MergeData | ReplaceData | Close | Snapshot):
        raise InvalidChain(Rule.ONE_UNSETTLED, f"block {state.unsettled.sequence_number}")
    return state


def _open(state: TableState, block: Block, event: OpenEpoch) -> TableState:
    contents = _opened(state.contents, event)
    if event.pending not in (None, state.contents.pending, Pending(event.generation_id, state.contents.next_offset, event.sync_id)):
        raise InvalidChain(Rule.GENERATION, f"block {block.sequence_number}")
    if state.unsettled is None:
        contents = replace(contents, begun_by=event.sync_id) if contents.empty else contents
        if contents.waiting_since is None and contents.waiting.files:
            contents = replace(contents, waiting_since=block.system_time)  # rows of a generation that is no longer pending
    elif contents != state.contents:
        raise InvalidChain(Rule.GENERATION, f"block {state.unsettled.sequence_number} is not settled")
    # A new pending generation has no rows yet, so earlier commits must not suppress its records, unless it keeps the earlier rows.
    keeps = event.keeps_generation and event.generation_id == state.contents.generation
    replay = state.replay if keeps or event.pending in (None, state.contents.pending) else ()
    return replace(state, epoch=block.epoch, opener=event.opener, contents=contents, closed=False, replay=replay)


def _opened(before: Contents, event: OpenEpoch) -> Contents:
    contents = replace(before, generation=event.generation_id, pending=event.pending)
    if event.discards:
        contents = replace(contents, pending_rows=0)
    elif event.pending is None:
        earlier = before.earlier_schema
        if earlier is not None and before.pending_rows:
            earlier = replace(earlier, joined=True)
        contents = replace(contents, landed=before.landed + before.pending_rows, pending_rows=0, earlier_schema=earlier)
    elif event.pending != before.pending:
        contents = replace(contents, pending_rows=0)
    if event.generation_id != before.generation:
        contents = replace(contents, earlier_rows=contents.landed, current_from=before.next_offset, replaced_by=0)
    return contents


def _set_schema(state: TableState, number: int, event: SetDataSchema) -> TableState:
    if event.schema == state.schema:
        raise InvalidChain(Rule.NO_OP, f"schema {event.schema_id} is the current one")
    if state.schema_id is not None and event.schema_id <= state.schema_id:
        raise InvalidChain(Rule.SCHEMA_ID, f"{event.schema_id} after {state.schema_id}")
    blocks = (*state.schema_blocks, (event.schema_id, number))
    types_since = event.schema_id if event.retypes else state.types_since
    contents = replace(state.contents, earlier_schema=_earlier_schema(state))
    if state.schema is not None and SetDataSchema(state.schema).column_rules != event.column_rules:
        rows_from = contents.next_offset if contents.empty else contents.rows_from
        contents = replace(contents, rules_from=contents.next_offset, rows_from=rows_from)
    return replace(state, schema=event.schema, types_since=types_since, schema_blocks=blocks, contents=contents)


def _earlier_schema(state: TableState) -> EarlierSchema | None:
    contents = state.contents
    if contents.pending is None or state.schema_id is None:
        return None
    return contents.earlier_schema or EarlierSchema(state.schema_id)


def _bar(state: TableState, number: int, event: BarKeys) -> TableState:
    before = 0 if state.barred is None else state.barred.keys
    if event.count <= before:
        raise InvalidChain(Rule.BARRED, f"{event.count} in block {number} after {before}")
    return replace(state, barred=BarredMark(number, event.count))


def _add_data(state: TableState, block: Block, event: AddData) -> TableState:
    number, before = block.sequence_number, state.contents
    _check_schema(state, event.schema_id)
    if not event.files or not event.checkpoints:
        raise InvalidChain(Rule.EMPTY_EVENT, f"block {number}")
    start, end = event.offset_interval.start, event.offset_interval.end
    prev_offset = before.next_offset - 1 if before.next_offset else None
    if start != before.next_offset or event.prev_offset != prev_offset or end < start:
        raise InvalidChain(Rule.OFFSETS, f"prevOffset {event.prev_offset}, {start} to {end}; next offset {before.next_offset}")
    _check_rows(event, end - start + 1)
    undo = Unsettled(number, False, event.files, None, len(event.checkpoints), before)
    barred = before.records_barred + event.records_barred
    snapshots = before.snapshots
    if event.snapshot_from is not None:
        snapshots = tuple(sorted({*snapshots, event.snapshot_from}))[-SNAPSHOT_LIMIT:]
    contents = replace(_exchanged(before, event.files, ()), next_offset=end + 1, records_barred=barred, snapshots=snapshots)
    rows = end - start + 1
    if before.pending is None:
        appends = any(file.kind is FileKind.FINAL for file in event.files)
        count, history = (None, None) if appends else (before.operation_count, before.history)
        since = (before.waiting_since or block.system_time) if contents.waiting.files else None
        contents = replace(contents, landed=before.landed + rows, operation_count=count, waiting_since=since, history=history)
    else:
        contents = replace(contents, pending_rows=before.pending_rows + rows)
    replay = (state.replay + event.checkpoints)[-REPLAY_LIMIT:]
    return replace(state, last_data=number, unsettled=undo, contents=contents, replay=replay)


def _merge_data(state: TableState, number: int, event: MergeData) -> TableState:
    _check_schema(state, event.schema_id)
    if not event.files and not event.files_removed:
        raise InvalidChain(Rule.NO_OP, f"block {number}")
    contents = _forgotten(_exchanged(state.contents, event.files, event.files_removed), event)
    since = contents.waiting_since if contents.pending is not None or contents.waiting.files else None
    leaving = _leaving(contents, number, event)
    contents = replace(contents, operation_count=event.operation_count, leaving=leaving, waiting_since=since, history=event.history)
    return _rewritten(state, number, event, contents)


def _forgotten(contents: Contents, event: MergeData) -> Contents:
    rows, earlier = event.rows_forgotten, event.earlier_rows_forgotten
    landed, left = contents.landed - rows, contents.earlier_rows - earlier
    if earlier > rows or left < 0 or landed < left:
        raise InvalidChain(Rule.FORGOTTEN, f"{rows}, {earlier} of them earlier; there are {contents.landed} and {contents.earlier_rows}")
    pending = contents.pending_rows - event.pending_rows_forgotten
    if pending < 0:
        raise InvalidChain(Rule.FORGOTTEN, f"{event.pending_rows_forgotten} pending ones; there are {contents.pending_rows}")
    return replace(contents, landed=landed, earlier_rows=left, pending_rows=pending)


def _replace_data(state: TableState, number: int, event: ReplaceData) -> TableState:
    if event.schema_id is not None:
        _check_schema(state, event.schema_id)
    if not event.files and not event.files_removed and state.contents.pending is None:
        raise InvalidChain(Rule.NO_OP, f"block {number}")
    if not 0 <= event.rows_kept <= state.contents.landed:
        raise InvalidChain(Rule.GENERATION, f"{event.rows_kept} rows are kept, there are {state.contents.landed}")
    left = _exchanged(state.contents, event.files, event.files_removed)
    landed = left.pending_rows + event.rows_kept
    is_earlier = left.pending is not None and left.pending.generation != event.generation_id  # it was complete before this session
    contents = Contents(
        event.generation_id,
        left.next_offset,
        left.held,
        left.adopted,
        landed=landed,
        earlier_rows=landed if is_earlier else 0,
        current_from=left.next_offset if is_earlier else 0,
        begun_by=event.sync_id if left.pending is None else left.pending.sync_id,
        operation_count=event.operation_count,
        leaving=_leaving(left, number, event),
        history=event.history,
        rows_lacked=event.rows_lacked,
        rows_from=left.rows_from if event.rows_kept or event.rows_lacked or left.pending is None else left.pending.from_offset,
        rules_from=left.rules_from,
        records_barred=left.records_barred,
        snapshots=left.snapshots,
    )
    return _rewritten(state, number, event, contents)


def _rewritten(state: TableState, number: int, event: MergeData | ReplaceData, contents: Contents) -> TableState:
    removed = tuple(file.key for file in event.files_removed)
    data_change = not isinstance(event, MergeData) or event.data_change
    undo = Unsettled(number, False, event.files, removed, 0, state.contents, data_change)
    return replace(state, last_data=number, unsettled=undo, contents=contents)


def _exchanged(before: Contents, files: tuple[FileEntry, ...], removed: tuple[FileEntry, ...]) -> Contents:
    held, adopted = dict(before.held), before.adopted
    for sign, entries in ((1, files), (-1, removed)):
        for file in entries:
            if file.kind is FileKind.CHANGES:
                continue
            if file.kind is FileKind.ADOPTED:
                adopted += sign
                continue
            old = held.get(file.kind.value, Counters())
            held[file.kind.value] = Counters(old.rows + sign * file.rows, old.files + sign, old.bytes + sign * file.bytes)
    if adopted < 0 or any(min(counters.rows, counters.files, counters.bytes) < 0 for counters in held.values()):
        raise InvalidChain(Rule.FILES_REMOVED, "more files or rows than the table holds")
    return replace(before, held={kind: counters for kind, counters in held.items() if counters.files}, adopted=adopted)


def files_kept(event: Event) -> tuple[FileEntry, ...]:
    """Return the files that an event replaces and keeps for a while."""
    if not isinstance(event, MergeData | ReplaceData) or event.keep_until is None:
        return ()
    return tuple(file for file in event.files_removed if file.kind in SEEN_BY_READERS)


def _leaving(before: Contents, number: int, event: MergeData | ReplaceData) -> tuple[Leaving, ...]:
    kept = files_kept(event)
    if event.keep_until is None or not kept:
        return before.leaving
    return (*before.leaving, Leaving(event.keep_until, tuple(file.key for file in kept), sum(file.bytes for file in kept), number))


def _closed(state: TableState, event: Close, time: datetime) -> Contents:
    before, until = state.contents, event.swept_until
    contents = replace(
        before,
        leaving=before.leaving if until is None else tuple(one for one in before.leaving if one.until > until),
        records_barred=before.records_barred + event.records_barred,
        replaced_by=state.opener.sync_id if event.replaces else before.replaced_by,
    )
    if not (event.holds_back or event.completes):
        return contents
    if contents.pending is None:
        raise InvalidChain(Rule.GENERATION, f"no generation to hold back or to complete at the end of epoch {state.epoch}")
    contents = replace(contents, pending=event.ended(contents.pending))
    waits = event.completes and contents.waiting.files and contents.waiting_since is None
    return replace(contents, waiting_since=time) if waits else contents


def _check_schema(state: TableState, schema_id: int) -> None:
    if schema_id != state.schema_id:
        raise InvalidChain(Rule.SCHEMA_FIRST, f"schema {schema_id}, last SetDataSchema {state.schema_id}")


def _check_rows(event: AddData, rows: int) -> None:
    if sum(checkpoint.records for checkpoint in event.checkpoints) != rows:
        raise InvalidChain(Rule.OFFSETS, f"{rows} rows, the checkpoints count otherwise")
    for kind in FileKind:
        counted = [file.rows for file in event.files if file.kind is kind]
        if counted and sum(counted) != rows:
            raise InvalidChain(Rule.OFFSETS, f"{rows} rows, the {kind.value} files hold {sum(counted)}")


def _void(state: TableState, number: int, event: Void) -> TableState:
    undo = state.unsettled
    if undo is None or undo.voided or undo.sequence_number != event.voided_sequence_number:
        raise InvalidChain(Rule.VOID, f"block {event.voided_sequence_number}")
    return replace(
        state,
        last_data=number,
        unsettled=replace(undo, sequence_number=number, voided=True),
        contents=undo.before,
        replay=state.replay[: -undo.checkpoints] if undo.checkpoints else state.replay,
    )

"""Audit of a whole chain: every rule and hash link from the Seed to the head, and the copies that Snapshots and the hint hold."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from msgspec.structs import replace

from destination_s3_spark.chain.blocks import Block
from destination_s3_spark.chain.events import Snapshot
from destination_s3_spark.chain.files import FileEntry
from destination_s3_spark.chain.fold import InvalidChain, Rule, fold
from destination_s3_spark.chain.hint import HINT_NAME, BadHint, Known, read_hint
from destination_s3_spark.chain.live_files import LiveFiles, LiveFilesFold
from destination_s3_spark.chain.log import Chain
from destination_s3_spark.chain.state import TableState
from destination_s3_spark.errors import DataError
from destination_s3_spark.storage.object_store import ObjectStore


@dataclass(slots=True)
class Audit:
    """The result of reading a whole chain. After the first problem of a block, later blocks are not read.

    `problems` and `remarks` are for users; only problems call for action. `hinted`: the state and files at the block of the hint.
    """

    hint: Known | None = None
    hinted: tuple[TableState, LiveFiles] | None = None
    blocks: int = 0
    state: TableState | None = None
    live: LiveFilesFold = field(default_factory=LiveFilesFold)
    problems: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)


def audit(chain: Chain, store: ObjectStore) -> Audit:
    """Read the hint, and fold every block up to the head of a chain that has been read. One GET per block.

    Raises TransientError or ConfigError.
    """
    found = Audit()
    try:
        found.hint = read_hint(store, chain.prefix)
        if found.hint is None:
            found.remarks.append("there is no hint; the next sync writes one")
    except BadHint as error:
        found.remarks.append(f"the hint {error}; readers ignore it")
    try:
        for block, digest in chain.all_blocks():
            _add(found, block, digest)
    except InvalidChain as error:
        found.problems.append(f"block {found.blocks} breaks a rule of the chain: {error}")
    except DataError as error:
        found.problems.append(error.message)
    if not found.problems and found.state is not None:
        found.problems += _differences(found.state, found.live.now, chain)
    found.problems += list(_hint_problems(found, chain))
    return found


def _hint_problems(found: Audit, chain: Chain) -> Iterator[str]:
    """Yield what the hint says about the table that its chain does not. Sessions begin with the hint, so this is a problem."""
    hint, place = found.hint, f"{chain.prefix}{HINT_NAME}"
    if hint is None or (found.hinted is None and not found.problems):
        return  # there is none, or it was written after the audit
    if found.hinted is None:
        yield (
            f"{place} names block {hint.state.sequence_number}; if the chain never had the blocks from {found.blocks} on, somebody else "
            "wrote it, and readers do without it once it is deleted"
        )
        return
    state, files = found.hinted
    if not _agree(state, hint.state) or (hint.live is not None and hint.live.without_values() != files):
        yield f"{place} describes another table than the chain does. It is only a copy: delete it before the next sync"


def _agree(state: TableState, theirs: TableState) -> bool:
    # A writer's own state names the kind of its schema's event, a state read from blocks does not.
    state, theirs = _without_kind(state), _without_kind(theirs)
    # The block itself may say that the last data block is settled.
    return theirs in (state, replace(state, settled=state.last_data, unsettled=None))


def _add(found: Audit, block: Block, digest: str) -> None:
    event = block.event
    if isinstance(event, Snapshot) and found.state is not None:
        _check_snapshot(found.state, found.live.now, block, event)
        found.state = event.state  # those who wrote on started from this Snapshot, not from the blocks before it
    found.state = fold(found.state, block, digest)
    found.live.add(block)
    found.blocks += 1
    if found.hint is not None and found.hint.state.sequence_number == block.sequence_number:
        found.hinted = found.state, found.live.now


def _check_snapshot(state: TableState, live: LiveFiles, block: Block, event: Snapshot) -> None:
    """Raise InvalidChain unless the Snapshot holds the fold of the blocks before it."""
    if not _agree(state, event.state):
        raise InvalidChain(Rule.SNAPSHOT, f"block {block.sequence_number}: its state differs")
    if (_names(event.files), event.adopted, _names(event.dropped)) != (_names(live.files), live.adopted, _names(live.dropped)):
        raise InvalidChain(Rule.SNAPSHOT, f"block {block.sequence_number}: its files differ")


def _without_kind(state: TableState) -> TableState:
    if state.schema is None:
        return state
    return replace(state, schema={name: value for name, value in state.schema.items() if name != "kind"})


def _names(files: tuple[FileEntry, ...]) -> list[tuple[str, int, int]]:
    return [(file.key, file.rows, file.bytes) for file in files]


def _differences(state: TableState, live: LiveFiles, chain: Chain) -> Iterator[str]:
    """Yield how the chain read from its hint or its last Snapshot differs from the whole one."""
    if state.block_hash != chain.head.block_hash or state.contents != chain.head.contents:
        yield "the state that sessions read differs from that of the whole chain"
    if _names(live.files) != _names(chain.live_files().files):
        yield "the files that sessions read differ from those of the whole chain"

"""Audit of a whole chain: every rule and hash link from the Seed to the head, and the copies that Snapshots and the hint hold."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from msgspec.structs import replace

from destination_s3_spark.chain.blocks import Block
from destination_s3_spark.chain.events import Snapshot
from destination_s3_spark.chain.files import FileEntry
from destination_s3_spark.chain.fold import InvalidChain, Rule, fold, resume
from destination_s3_spark.chain.hint import BadHint, decode_hint
from destination_s3_spark.chain.live_files import LiveFiles, LiveFilesFold, with_generations
from destination_s3_spark.chain.log import Chain
from destination_s3_spark.chain.state import TableState
from destination_s3_spark.errors import DataError


@dataclass(slots=True)
class Audit:
    """The result of reading a whole chain. `problems` are for users. After the first problem of a block, later blocks are not read."""

    blocks: int = 0
    state: TableState | None = None
    live: LiveFilesFold = field(default_factory=LiveFilesFold)
    hashes: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def audit(chain: Chain) -> Audit:
    """Fold every block up to the head of a chain that has been read. One GET per block. Raises TransientError or ConfigError."""
    found = Audit()
    try:
        for block, digest in chain.all_blocks():
            _add(found, block, digest)
    except InvalidChain as error:
        found.problems.append(f"block {found.blocks} breaks a rule of the chain: {error}")
    except DataError as error:
        found.problems.append(error.message)
    if not found.problems and found.state is not None:
        found.problems += _differences(found.state, found.live.now, chain)
    return found


def check_hint(body: bytes, found: Audit) -> list[str]:
    """Return what is wrong with a hint. A wrong hint is harmless: the next session that closes replaces it."""
    try:
        hinted = decode_hint(body).state
    except BadHint:
        return ["the hint is damaged; readers ignore it"]
    if hinted.sequence_number >= len(found.hashes):
        return []  # written after the audit
    if hinted.block_hash != found.hashes[hinted.sequence_number]:
        return [f"the hint names another block {hinted.sequence_number} than the chain has"]
    return []


def _add(found: Audit, block: Block, digest: str) -> None:
    event = block.event
    if isinstance(event, Snapshot) and found.state is not None:
        _check_snapshot(found.state, found.live.now, block, event)
        found.live.add(block)
        # Those who wrote on started from this Snapshot, not from the blocks before it.
        found.state = with_generations(resume(block, event, digest), found.live.now)
    else:
        found.state = fold(found.state, block, digest)
        found.live.add(block)
    found.hashes.append(digest)
    found.blocks += 1


def _check_snapshot(state: TableState, live: LiveFiles, block: Block, event: Snapshot) -> None:
    """Raise InvalidChain unless the Snapshot holds the fold of the blocks before it, as far as the version that wrote it knew it."""
    theirs = event.state
    if None in (state.schema_blocks, theirs.schema_blocks):
        state, theirs = replace(state, schema_blocks=None), replace(theirs, schema_blocks=None)
    if theirs.contents.current_from is None:
        contents = replace(state.contents, current_from=None, earlier_rows=theirs.contents.earlier_rows)
        state = replace(state, contents=contents)
    # A writer's own state names the kind of its schema's event, a state read from blocks does not.
    state, theirs = _without_kind(state), _without_kind(theirs)
    # The block itself may say that the last data block is settled.
    settled = replace(state, settled=block.settled, unsettled=None) if block.settled == state.last_data else state
    if theirs not in (state, settled):
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

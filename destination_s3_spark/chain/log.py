"""Access to a table's chain on S3: finding its head, reading it and appending to it.

Creating a block with `If-None-Match: *` is the only commit. Block numbers are contiguous, so the head is the block without a successor.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

from msgspec.structs import replace

from destination_s3_spark.chain.blocks import MOST_BLOCK_BYTES, Block, UnreadableBlock, block_hash, block_name, decode, encode
from destination_s3_spark.chain.events import BarKeys, Event, OpenEpoch, Seed, SetDataSchema, Snapshot, without_values
from destination_s3_spark.chain.files import FileEntry
from destination_s3_spark.chain.fold import InvalidChain, Rule, fold
from destination_s3_spark.chain.hint import HINT_NAME, MOST_HINT_BYTES, BadHint, PublishedMark, encode_hint, read_hint, require_plausible
from destination_s3_spark.chain.live_files import LiveFiles, LiveFilesFold
from destination_s3_spark.chain.state import Identity, TableState
from destination_s3_spark.chain.territory import Table, Territory, keys_of_event
from destination_s3_spark.errors import Bug, DataError, SyncError
from destination_s3_spark.storage.object_store import ObjectNotFound, ObjectStore, OutcomeUnknown, create_or_read

NO_BLOCK = 10**20
"""Number beyond those that a block's name can have."""
PARALLEL_FROM = 8
"""Number of blocks from which reads run in parallel."""
GETS_AT_ONCE = 16
"""Parallel GET requests when blocks are read."""
BLOCKS_IN_MEMORY = 1000
"""Most blocks in memory when a whole chain is read."""

Clock = Callable[[], datetime]

logger = logging.getLogger(__name__)


def utc_now() -> datetime:
    return datetime.now(UTC)


class BlockTaken(Exception):
    """Another writer created a block with the number ours would have had."""

    def __init__(self, block: Block) -> None:
        super().__init__(f"block {block.sequence_number} was written by another session")
        self.block = block


class Chain:
    """The chain of a table. `state` is the fold of the blocks read or written so far, None if no block is known."""

    def __init__(self, store: ObjectStore, table: Table, clock: Clock = utc_now) -> None:
        self.bucket = store
        """The whole bucket. A `TableStore` keeps to the objects of the table."""
        self.table = table
        self.prefix = table.chain_prefix
        """The key prefix of the blocks, ending in `/`."""
        self._stream = table.stream
        self._clock = clock
        self._territory = table.territory(table.final_root)
        self.state: TableState | None = None
        self.shown: dict[str, PublishedMark] = {}
        """The state that each publisher last showed readers, by publisher name. The marks are stored in the hint."""
        self.shown_is_complete = True
        """False if sessions wrote blocks after the hint: `shown` lacks what they showed readers."""
        self.not_shown: dict[str, str] = {}
        """The reasons of the publishers that did not show readers the table the last time, by publisher name."""
        self.merge_rate: float | None = None
        """Bytes per second and core of the table's merges so far. Only the hint has it."""
        self._live: LiveFilesFold | None = None
        self._from_hint = False
        self._at_head = False
        """Whether the next block was looked for, or follows one that this session wrote."""
        self.hint_number: int | None = None
        """Number of the last block that the hint covers, if the state began with a hint."""
        self.confirmed = True
        """Whether the state follows from blocks alone. What only a hint says must not be the reason to delete anything."""

    @property
    def territory(self) -> Territory:
        """The keys that are the table's."""
        if self.state is not None and self.state.identity.final_root != self._territory.root:
            self._territory = self.table.territory(self.state.identity.final_root)
        return self._territory

    @property
    def head(self) -> TableState:
        """State of a chain that has blocks. Raises Bug when no block is known."""
        if self.state is None:
            raise Bug(f"The chain of table {self._stream} was used before it was opened.")
        return self.state

    def read(self) -> None:
        """Load the state from the hint. Without a hint the state stays unknown.

        The hint of a closed session may be out of date; `catch_up` and `append` detect that, unless the store may overwrite the next block.
        From any other hint, read on to the head.
        """
        try:
            known = read_hint(self.bucket, self.prefix)
            if known is None:
                return
            require_plausible(known, self.table)
        except BadHint as error:
            self._distrust_hint(str(error))
        else:
            self.state, self.merge_rate = known.state, known.merge_rate
            self._live = None if known.live is None else LiveFilesFold(known.live)
            self.shown = {name: PublishedMark(mark, known.live) for name, mark in known.shown.items()}
            self._from_hint, self.confirmed = True, False
            self.hint_number = known.state.sequence_number
            if not known.state.closed or self.bucket.may_overwrite:
                self.catch_up()

    def _distrust_hint(self, flaw: str) -> None:
        # The blocks are the source of truth; the hint is only a copy.
        logger.warning("the hint of table %s %s and is ignored", self._stream, flaw)
        self.state = self._live = None
        self._from_hint, self.confirmed = False, True
        self.catch_up()

    def catch_up(self) -> None:
        """Read the blocks after the last known one, up to the head. Raises DataError when the chain is damaged."""
        try:
            self._read_on()
        except InvalidChain as error:
            if self._from_hint:
                self._distrust_hint("does not agree with its chain")
                return
            raise self._damaged(str(error)) from error

    def append(self, event: Event) -> None:
        """Create the next block.

        Raises BlockTaken when another writer created it first, TransientError when the store does not report the outcome.
        """
        state = self.state
        block = Block(
            sequence_number=0 if state is None else state.sequence_number + 1,
            prev_block_hash=None if state is None else state.block_hash,
            system_time=self.now(),
            epoch=1 if state is None else state.epoch + (1 if isinstance(event, OpenEpoch) else 0),
            nonce=secrets.token_hex(8),
            settled=None if state is None else state.settled,
            event=without_values(event),
        )
        body = encode(block)
        if len(body) > MOST_BLOCK_BYTES:
            raise Bug(f"Table {self._stream}: a block of {len(body):,} bytes is too large.")
        try:
            after = fold(state, block, block_hash(body))
        except InvalidChain as error:
            raise Bug(f"Table {self._stream}: refused to append an invalid block: {error}.") from error
        self._create(block.sequence_number, body)
        self.state = after
        self._from_hint = False
        if isinstance(event, Seed):
            self._live = LiveFilesFold()
        if self._live is not None:
            self._live.add(replace(block, event=event))

    def now(self) -> datetime:
        """Return the time of a block that is written now. It never goes back, whatever the clock does."""
        return self._clock() if self.state is None else max(self._clock(), self.state.system_time)

    def reread(self) -> Chain:
        """Return a separate copy of this chain, read up to the current head, for a caller that only reads."""
        chain = Chain(self.bucket, self.table, self._clock)
        chain.shown, chain.not_shown = dict(self.shown), self.not_shown
        chain.read()
        chain.catch_up()
        return chain

    def of_blocks_alone(self) -> Chain:
        """Return a separate copy of this chain, read without the hint. One GET per block since the last Snapshot."""
        chain = Chain(self.bucket, self.table, self._clock)
        chain.catch_up()
        return chain

    def mark_settled(self) -> None:
        """Mark the last data block's uploads and deletes as done. The next block records it."""
        self.state = replace(self.head, settled=self.head.last_data, unsettled=None)

    def successor(self) -> Block | None:
        """Return the block after the known head, or None. Another writer created it, or this one without learning of it."""
        body = self._get(self.head.sequence_number + 1)
        return None if body is None else self._decode(self.head.sequence_number + 1, body)

    def time_of(self, number: int) -> datetime | None:
        """Return the time of a block, None if there is no such block. Takes no request for the head."""
        if number == self.head.sequence_number:
            return self.head.system_time
        body = self._get(number) if 0 <= number < NO_BLOCK else None
        return None if body is None else self._decode(number, body).system_time

    def taken_over(self) -> Block | None:
        """Return the block with which another session opened the table after the known head, or None.

        May be called while this session appends to the chain.
        """
        state = self.head
        number = state.sequence_number + 1
        while (body := self._get(number)) is not None:
            block = self._decode(number, body)
            if block.epoch != state.epoch:
                return block
            number += 1
        return None

    def write_hint(self) -> None:
        """Store the state as a hint for the next reader. A failure is only logged: it costs that reader time and nothing else."""
        live = None if self._live is None else self._live.now
        marks = {name: shown.mark for name, shown in self.shown.items()}
        body = encode_hint(self.head, live, marks, self.merge_rate)
        if len(body) > MOST_HINT_BYTES:
            logger.debug("hint of table %s not written: %d bytes are too many", self._stream, len(body))
            return
        try:
            self.bucket.put(self.prefix + HINT_NAME, body)
        except (SyncError, OutcomeUnknown) as error:
            logger.debug("hint of table %s not written: %s", self._stream, error)

    def live_files(self) -> LiveFiles:
        """Return the table's files at the head. If they are not known yet, read the blocks since the last Snapshot."""
        return self._live_fold().now

    def learn(self, files: Iterable[FileEntry]) -> None:
        """Keep what the footers of live files say, for this session and for the hint."""
        self._live_fold().learn(files)

    def live_files_before(self) -> LiveFiles:
        """Return the table's files without the last data block. Valid only while that block is unsettled."""
        return self._live_fold().before

    def blocks(self, numbers: Sequence[int] | None = None) -> Iterator[Block]:
        """Yield the blocks with these numbers, by default from the last Snapshot (or the Seed) to the head, as `with_hashes` does."""
        numbers = range(self.head.snapshot or 0, self.head.sequence_number + 1) if numbers is None else numbers
        return (block for block, _ in self.with_hashes(numbers))

    def all_blocks(self) -> Iterator[tuple[Block, str]]:
        """Yield every block from the Seed to the head, each with its hash."""
        return self.with_hashes(range(self.head.sequence_number + 1))

    def with_hashes(self, numbers: Sequence[int]) -> Iterator[tuple[Block, str]]:
        """Yield the blocks with these numbers, each with its hash. Sends one GET per block, in parallel for longer ranges.

        Raises DataError when one is missing or unreadable.
        """
        with ThreadPoolExecutor(GETS_AT_ONCE, "blocks") as pool:
            for start in range(0, len(numbers), BLOCKS_IN_MEMORY):
                some = numbers[start : start + BLOCKS_IN_MEMORY]
                bodies = pool.map(self._need, some) if len(numbers) >= PARALLEL_FROM else map(self._need, some)
                for number, body in zip(some, bodies, strict=True):
                    yield self._decode_own(number, body), block_hash(body)

    def schema_history(self) -> list[Block]:
        """Return the blocks that set a schema, oldest first, with one GET each."""
        return list(self.blocks([number for _, number in self.head.schema_blocks]))

    def schemas(self, ids: Collection[int]) -> dict[int, dict[str, Any]]:
        """Return the SetDataSchema payloads of these schema ids.

        Sends one GET per schema older than the current one. Raises DataError when one is missing.
        """
        current = self.head.schema
        found = {int(current["schemaId"]): current} if current is not None else {}
        wanted = set(ids) - found.keys()
        numbers = [number for schema_id, number in self.head.schema_blocks if schema_id in wanted]
        found |= {event.schema_id: event.schema for block in self.blocks(numbers) if isinstance(event := block.event, SetDataSchema)}
        if missing := set(ids) - found.keys():
            raise self._damaged(f"schema {min(missing)} is missing")
        return {schema_id: found[schema_id] for schema_id in ids}

    def schema_at(self, schema_id: int) -> tuple[dict[str, Any], int]:
        """Return the payload of a schema, and the id of the last schema up to it that changed a type in place, 0 for none.

        Sends one GET per schema of the table. Raises DataError when the schema is missing.
        """
        events = [event for block in self.schema_history() if isinstance(event := block.event, SetDataSchema)]
        until = [event for event in events if event.schema_id <= schema_id]
        if not until or until[-1].schema_id != schema_id:
            raise self._damaged(f"schema {schema_id} is missing")
        return until[-1].schema, max((event.schema_id for event in until if event.retypes), default=0)

    def state_of_rows(self, *, without_pending: bool = False) -> TableState:
        """Return the state with the schema of the table's rows, if a generation that was given up has recorded another, with `schema_at`.

        `without_pending`: whether the pending generation, if there is one, counts as given up.
        """
        head, earlier = self.head, self.head.contents.earlier_schema
        if earlier is None or not head.contents.has_earlier_schema(without_pending=without_pending):
            return head
        payload, types_since = self.schema_at(earlier.schema_id)
        return replace(head, schema=payload, types_since=types_since)

    def barred(self) -> BarKeys | None:
        """Return the barred keys of the table, with one GET if there are any. Raises DataError when they are missing."""
        mark = self.head.barred
        if mark is None:
            return None
        (block,) = self.blocks([mark.block])
        if not isinstance(block.event, BarKeys) or block.event.count != mark.keys:
            raise self._damaged(f"the barred keys are not in block {mark.block}")
        return block.event

    def _live_fold(self) -> LiveFilesFold:
        if self._live is None:
            fold = LiveFilesFold()
            for block in self.blocks():
                fold.add(block)
                if block.sequence_number == self.hint_number:
                    self.shown = {name: PublishedMark(shown.mark, shown.live or fold.now) for name, shown in self.shown.items()}
            self._live = fold
        return self._live

    def _read_on(self) -> None:
        known = -1 if self.state is None else self.state.sequence_number
        bodies: dict[int, bytes] = {}
        head = self._find_head(known, bodies)
        self.shown_is_complete = self.shown_is_complete and head == known
        state = self.state
        live = LiveFilesFold() if state is None else self._live
        blocks: list[tuple[Block, str]] = []
        for number in range(head, known, -1):
            body = bodies.pop(number, None) or self._need(number)
            blocks.append((block := self._decode(number, body), block_hash(body)))
            if isinstance(block.event, Snapshot):
                state, live = block.event.state, LiveFilesFold()
                break
        blocks.reverse()
        for block, digest in blocks:
            state = fold(state, block, digest)
        if state is not None and blocks:
            self._require_own(state.identity, (block for block, _ in blocks))
            self.confirmed = self.confirmed or isinstance(blocks[0][0].event, Snapshot)
        for block, _ in blocks:
            if live is not None:
                live.add(block)
        self.state = state
        self._live = live
        self._from_hint, self._at_head = False, True

    def _find_head(self, known: int, bodies: dict[int, bytes]) -> int:
        """Return the head's number by galloping from block `known` (-1: none) and bisecting. Bodies read on the way go into `bodies`."""

        def exists(number: int) -> bool:
            body = self._get(number)
            if body is not None:
                bodies[number] = body
            return body is not None

        low, step = known, 1
        while exists(low + step):
            low, step = low + step, step * 2
        high = low + step
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if exists(middle) else (low, middle)
        return low

    def _create(self, number: int, body: bytes) -> None:
        key, what = self.prefix + block_name(number), f"block {number} of table {self._stream}"
        found = create_or_read(self.bucket, key, body, MOST_BLOCK_BYTES, what=what)
        if found != body:
            raise BlockTaken(self._decode(number, found))
        if not self._at_head and self.bucket.may_overwrite:
            self._restore_overwritten(number)
        self._at_head = True

    def _restore_overwritten(self, number: int) -> None:
        """Bring a block back that the store has overwritten with the one just created, and raise BlockTaken.

        Only its successor tells that there was one, and which: a session that died in here has overwritten it, too. Without a successor
        it began a session that wrote nothing.
        """
        body = self._get(number + 1)
        if body is not None:
            before = self._decode(number + 1, body).prev_block_hash
            self.bucket.restore(self.prefix + block_name(number), lambda version: block_hash(version) == before)
            raise BlockTaken(self._decode(number, self._need(number)))

    def _get(self, number: int) -> bytes | None:
        try:
            return self.bucket.get(self.prefix + block_name(number), MOST_BLOCK_BYTES)
        except ObjectNotFound:
            return None

    def _need(self, number: int) -> bytes:
        body = self._get(number)
        if body is None:
            raise self._damaged(f"block {number} is missing")
        return body

    def _decode(self, number: int, body: bytes) -> Block:
        try:
            return decode(body)
        except UnreadableBlock as error:
            raise self._damaged(f"block {number} cannot be read: {error}") from error

    def _decode_own(self, number: int, body: bytes) -> Block:
        block = self._decode(number, body)
        try:
            self._require_own(self.head.identity, (block,))
        except InvalidChain as error:
            raise self._damaged(str(error)) from error
        return block

    def _require_own(self, identity: Identity, blocks: Iterable[Block]) -> None:
        """Raise InvalidChain if the chain is not that of its folder, or if a block names a key that is not the table's."""
        if flaw := self.table.flaw(identity):
            raise InvalidChain(Rule.TERRITORY, flaw)
        territory = self.table.territory(identity.final_root)
        for block in blocks:
            key = territory.foreign_key(keys_of_event(block.event))
            if key is not None:
                raise InvalidChain(Rule.TERRITORY, f"block {block.sequence_number} names '{key}'")

    def _damaged(self, what: str) -> DataError:
        return DataError(
            f"The chain of table {self._stream} under {self.prefix} is damaged: {what}. Only this connector may write there. Restore the "
            "objects from a backup or an older version of them; or remove the table's folders and run a refresh."
        )

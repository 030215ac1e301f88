"""A table's chain on S3: find its head, read it, append to it.

A block is created with `If-None-Match: *`: that is the commit, and the only one. Numbers are contiguous, so the head is the number whose
successor does not exist.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

from msgspec.structs import replace

from destination_s3_spark.chain.blocks import Block, UnreadableBlock, block_hash, block_name, decode, encode
from destination_s3_spark.chain.events import Event, OpenEpoch, Snapshot
from destination_s3_spark.chain.fold import InvalidChain, fold, resume
from destination_s3_spark.chain.hint import HINT_NAME, BadHint, decode_hint, encode_hint
from destination_s3_spark.chain.state import StreamName, TableState
from destination_s3_spark.errors import Bug, DataError, SyncError, TransientError
from destination_s3_spark.storage.object_store import ObjectExists, ObjectNotFound, ObjectStore, OutcomeUnknown

CREATE_TRIES = 8
"""How often a create is repeated whose outcome was unknown and whose object is not there."""

Clock = Callable[[], datetime]

logger = logging.getLogger(__name__)


def utc_now() -> datetime:
    """The wall clock."""
    return datetime.now(UTC)


class BlockTaken(Exception):
    """Another writer's block stands where ours should go."""

    def __init__(self, block: Block) -> None:
        super().__init__(f"block {block.sequence_number} was written by another session")
        self.block = block


class Chain:
    """The chain under `prefix` (ends in `/`). `state` is what was read or written so far; None: no block is known."""

    def __init__(self, store: ObjectStore, prefix: str, stream: StreamName, clock: Clock = utc_now) -> None:
        self._store = store
        self._prefix = prefix
        self._stream = stream
        self._clock = clock
        self.state: TableState | None = None

    @property
    def head(self) -> TableState:
        """The state of a chain that has blocks."""
        if self.state is None:
            raise Bug(f"The chain of table {self._stream} was used before it was opened.")
        return self.state

    def read(self) -> None:
        """Read up to the head, starting from the hint. Without a hint nothing is known yet: no session of the table ever closed."""
        try:
            hint = self._store.get(self._prefix + HINT_NAME)
        except ObjectNotFound:
            return
        try:
            self.state = decode_hint(hint)
            self._read_on()
        except (BadHint, InvalidChain):
            # The blocks are the truth, whatever the hint says.
            logger.warning("the hint of table %s does not agree with its chain and is ignored", self._stream)
            self.state = None
            self.catch_up()

    def catch_up(self) -> None:
        """Read the blocks after the known ones, up to the head. Raises DataError when the chain is damaged."""
        try:
            self._read_on()
        except InvalidChain as error:
            raise self._damaged(str(error)) from error

    def append(self, event: Event) -> None:
        """Create the next block. Raises BlockTaken when another writer was first, TransientError when the store does not say."""
        state = self.state
        now = self._clock()
        block = Block(
            sequence_number=0 if state is None else state.sequence_number + 1,
            prev_block_hash=None if state is None else state.block_hash,
            system_time=now if state is None else max(now, state.system_time),
            epoch=1 if state is None else state.epoch + (1 if isinstance(event, OpenEpoch) else 0),
            nonce=secrets.token_hex(8),
            settled=None if state is None else state.settled,
            event=event,
        )
        body = encode(block)
        try:
            after = fold(state, block, block_hash(body))
        except InvalidChain as error:
            raise Bug(f"Table {self._stream}: refused to append an invalid block: {error}. Please report this.") from error
        self._create(block.sequence_number, body)
        self.state = after

    def mark_settled(self) -> None:
        """The last data block's uploads or deletes are done; the next block will say so."""
        self.state = replace(self.head, settled=self.head.last_data, unsettled=None)

    def successor(self) -> Block | None:
        """The block after the known head, which only another writer can have written."""
        body = self._get(self.head.sequence_number + 1)
        return None if body is None else self._decode(self.head.sequence_number + 1, body)

    def write_hint(self) -> None:
        """Leave the state for the next reader. Failing costs that reader time, nothing else."""
        try:
            self._store.put(self._prefix + HINT_NAME, encode_hint(self.head))
        except (SyncError, OutcomeUnknown) as error:
            logger.debug("hint of table %s not written: %s", self._stream, error)

    def blocks(self) -> Iterator[Block]:
        """The blocks from the last Snapshot (or the Seed) to the head, one GET each."""
        for number in range(self.head.snapshot or 0, self.head.sequence_number + 1):
            yield self._decode(number, self._need(number))

    def _read_on(self) -> None:
        known = -1 if self.state is None else self.state.sequence_number
        bodies: dict[int, bytes] = {}
        head = self._find_head(known, bodies)
        pending: list[tuple[Block, str]] = []
        state = self.state
        for number in range(head, known, -1):
            body = bodies.pop(number, None) or self._need(number)
            block, digest = self._decode(number, body), block_hash(body)
            if isinstance(block.event, Snapshot):
                state = resume(block, block.event, digest)
                break
            pending.append((block, digest))
        for block, digest in reversed(pending):
            state = fold(state, block, digest)
        self.state = state

    def _find_head(self, known: int, bodies: dict[int, bytes]) -> int:
        """Gallop from the block `known` (-1: none) and bisect; what was read on the way is kept in `bodies`."""

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
        key = self._prefix + block_name(number)
        for _ in range(CREATE_TRIES):
            try:
                self._store.create(key, body)
            except (ObjectExists, OutcomeUnknown):
                # Either may be the answer to an earlier try of ours that did land: only the bytes tell.
                found = self._get(number)
                if found is None:
                    continue
                if found != body:
                    raise BlockTaken(self._decode(number, found)) from None
            return
        raise TransientError(
            f"The store did not say whether block {number} of table {self._stream} was written ({key}), after {CREATE_TRIES} tries. "
            "Nothing is lost: run the sync again."
        )

    def _get(self, number: int) -> bytes | None:
        try:
            return self._store.get(self._prefix + block_name(number))
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

    def _damaged(self, what: str) -> DataError:
        return DataError(
            f"The chain of table {self._stream} under {self._prefix} is damaged: {what}. Only this connector may write there. Restore the "
            "objects from a backup or an older version of them; or remove the table's folders and run a refresh."
        )

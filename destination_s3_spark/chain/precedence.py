"""Which of two syncs that open the same tables at the same time goes on.

Each table goes to whoever opens it last, so over several tables each sync might lose one. The first table decides: every sync opens the
same one first and the others once it has it. Before it takes one of these from a session that may be alive, it makes sure that nobody has
taken the first one from it. The sync that opened the first table last is then never disturbed by the others.
"""

from __future__ import annotations

from destination_s3_spark.chain.blocks import Block
from destination_s3_spark.chain.log import Chain
from destination_s3_spark.stream_id import StreamId


class TakenOver(Exception):
    """Another session has opened the sync's first table, which is `stream`'s."""

    def __init__(self, stream: StreamId, block: Block) -> None:
        super().__init__(f"the table of {stream} was opened by another session")
        self.stream = stream
        self.block = block


class Precedence:
    """The first table that a sync opened, shared by all its tables."""

    def __init__(self) -> None:
        self._first: Chain | None = None

    def opened(self, chain: Chain) -> None:
        """The sync has opened the table."""
        if self._first is None:
            self._first = chain

    def check(self) -> None:
        """Raise TakenOver when another session has opened the first table meanwhile; a call or two."""
        if self._first is None:
            return
        other = self._first.taken_over()
        if other is not None:
            raise TakenOver(self._first.head.identity.stream, other)

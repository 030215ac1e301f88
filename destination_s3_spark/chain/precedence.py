"""Precedence between syncs that open the same tables at the same time.

The last session to open a table owns it, so two syncs over several tables could each lose one. The first table decides: every sync opens
the same table first, and the others only while it owns that one. Before a sync takes another table from a session that may be alive, it
checks that no other session has taken over its first table. The sync that opened the first table last therefore keeps all its tables.
"""

from __future__ import annotations

from destination_s3_spark.chain.blocks import Block
from destination_s3_spark.chain.log import Chain
from destination_s3_spark.stream_id import StreamId


class TakenOver(Exception):
    """Another session took over the sync's first table, which belongs to `stream`."""

    def __init__(self, stream: StreamId, block: Block) -> None:
        super().__init__(f"the table of {stream} was opened by another session")
        self.stream = stream
        self.block = block


class Precedence:
    """The first table that a sync opened, shared by all its tables."""

    def __init__(self) -> None:
        self._first: Chain | None = None

    def opened(self, chain: Chain) -> None:
        """Record that the sync opened this table; only the first one counts."""
        if self._first is None:
            self._first = chain

    def check(self) -> None:
        """Raise TakenOver if another session has since opened the first table. Usually takes one or two GET requests."""
        if self._first is None:
            return
        other = self._first.taken_over()
        if other is not None:
            raise TakenOver(self._first.head.identity.stream, other)

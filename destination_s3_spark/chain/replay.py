"""Detection of replayed checkpoints: committed by a session that ended uncleanly, so their STATE may never have arrived."""

from __future__ import annotations

from collections.abc import Sequence

from destination_s3_spark.chain.state import Checkpoint


class ReplayGuard:
    """In-order comparison of a table's incoming checkpoints with the committed ones. The first mismatch ends the comparison.

    The first incoming checkpoint may match at any position, because the last STATE that the platform received is unknown. The rightmost
    match is used: it leaves the fewest further records to drop when a source repeats itself.
    """

    def __init__(self, committed: Sequence[Checkpoint]) -> None:
        self._committed = committed
        self._position: int | None = None

    @property
    def active(self) -> bool:
        """Whether the next checkpoint may be a replay."""
        return (-1 if self._position is None else self._position) + 1 < len(self._committed)

    def count_replayed(self, incoming: Sequence[Checkpoint]) -> int:
        """Return the number of leading incoming checkpoints that the table already contains."""
        position = self._position
        for count, checkpoint in enumerate(incoming):
            position = self._find(checkpoint) if position is None else position + 1
            if position >= len(self._committed) or not checkpoint.is_replay_of(self._committed[position]):
                return count
        return len(incoming)

    def accept(self, incoming: Sequence[Checkpoint], replayed: int) -> None:
        """Advance past the first `replayed` incoming checkpoints. Deactivate the guard if any others follow."""
        if replayed < len(incoming):
            self._committed = ()
            self._position = None
        elif incoming:
            first = self._find(incoming[0]) if self._position is None else self._position + 1
            self._position = first + replayed - 1

    def _find(self, checkpoint: Checkpoint) -> int:
        """Return the rightmost position of the checkpoint, or the length of the list if it is absent."""
        for position in range(len(self._committed) - 1, -1, -1):
            if checkpoint.is_replay_of(self._committed[position]):
                return position
        return len(self._committed)

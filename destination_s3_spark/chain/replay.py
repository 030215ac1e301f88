"""The replay guard: recognises checkpoints that an unclean session committed and whose STATE may never have arrived."""

from __future__ import annotations

from collections.abc import Sequence

from destination_s3_spark.chain.state import Checkpoint


class ReplayGuard:
    """Compares a table's incoming checkpoints with the committed ones, in order. The first mismatch ends it.

    The first incoming one may match anywhere: the platform's last acknowledgement is not known. The rightmost match is taken, since it
    leaves the fewest further records to be dropped when a source repeats itself.
    """

    def __init__(self, committed: Sequence[Checkpoint]) -> None:
        self._committed = committed
        self._position: int | None = None

    @property
    def active(self) -> bool:
        """Whether the next checkpoint may be a replay."""
        return (-1 if self._position is None else self._position) + 1 < len(self._committed)

    def count_replayed(self, incoming: Sequence[Checkpoint]) -> int:
        """How many of the incoming checkpoints, from the first on, are already in the table."""
        position = self._position
        for count, checkpoint in enumerate(incoming):
            position = self._find(checkpoint) if position is None else position + 1
            if position >= len(self._committed) or self._committed[position] != checkpoint:
                return count
        return len(incoming)

    def accept(self, incoming: Sequence[Checkpoint], replayed: int) -> None:
        """Go on after the first `replayed` of the incoming checkpoints; the end when there are others."""
        if replayed < len(incoming):
            self._committed = ()
            self._position = None
        elif incoming:
            first = self._find(incoming[0]) if self._position is None else self._position + 1
            self._position = first + replayed - 1

    def _find(self, checkpoint: Checkpoint) -> int:
        """The rightmost position of the checkpoint, or the end of the list."""
        for position in range(len(self._committed) - 1, -1, -1):
            if self._committed[position] == checkpoint:
                return position
        return len(self._committed)

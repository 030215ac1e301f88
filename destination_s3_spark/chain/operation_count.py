"""The number of change events of each kind, as the chain and the change log both record it."""

from __future__ import annotations

import msgspec


class OperationCount(msgspec.Struct, frozen=True, rename="camel"):
    """How many events of each kind the log had since its last snapshot, whose rows count as inserts."""

    insert_count: int = 0
    update_count: int = 0
    delete_count: int = 0
    replace_count: int = 0

    @property
    def total(self) -> int:
        """The sequence number of the last event counted."""
        return self.insert_count + self.update_count + self.delete_count + self.replace_count

    def __add__(self, other: OperationCount) -> OperationCount:
        return OperationCount(
            self.insert_count + other.insert_count,
            self.update_count + other.update_count,
            self.delete_count + other.delete_count,
            self.replace_count + other.replace_count,
        )

"""Counts of change events by kind, as recorded in both the chain and the change log."""

from __future__ import annotations

import msgspec


class OperationCount(msgspec.Struct, frozen=True, rename="camel"):
    """The number of events of each kind since the change log's last snapshot. The snapshot's rows count as inserts."""

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

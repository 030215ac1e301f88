"""The interface of publishers."""

from __future__ import annotations

from typing import Protocol

from destination_s3_spark.chain.live_files import LiveFiles
from destination_s3_spark.chain.state import TableState
from destination_s3_spark.storage.object_store import ObjectStore


class Publisher(Protocol):
    """Shows a table to readers that do not know its chain."""

    def publish(self, store: ObjectStore, state: TableState, live: LiveFiles) -> None:
        """Show the table in this state, in one step."""

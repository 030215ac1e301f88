"""Publishers of a table, and whether readers see its last data through them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from destination_s3_spark.cli.inspection.table import InspectedTable
from destination_s3_spark.tables.publishers.publication import Standing


class ReaderState(Enum):
    """What readers see through a publisher."""

    CURRENT = "current"
    BEHIND = "behind"
    UNPUBLISHED = "nothing is published yet"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class PublisherState:
    """A publisher of a table. `blocks_behind` is the number of blocks that readers lack, `reason` why the publisher refuses the table."""

    table: str
    publisher: str
    state: ReaderState
    blocks_behind: int | None
    reason: str | None


def readers(table: InspectedTable) -> tuple[PublisherState, ...]:
    """Return one row per publisher of the table."""
    return tuple(_state(table, found) for found in table.standings)


def _state(table: InspectedTable, found: Standing) -> PublisherState:
    name = str(table.stream)
    if found.refusal is not None:
        return PublisherState(name, found.name, ReaderState.REFUSED, None, str(found.refusal))
    if found.block is None:
        return PublisherState(name, found.name, ReaderState.UNPUBLISHED, None, None)
    if found.is_behind(table.last_data):
        return PublisherState(name, found.name, ReaderState.BEHIND, table.last_data - found.block, None)
    return PublisherState(name, found.name, ReaderState.CURRENT, 0, None)

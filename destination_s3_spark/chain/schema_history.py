"""Schema history of a table: the SetDataSchema blocks of its whole chain."""

from __future__ import annotations

from msgspec.structs import replace

from destination_s3_spark.chain.blocks import Block
from destination_s3_spark.chain.events import SetDataSchema, Snapshot
from destination_s3_spark.chain.log import Chain
from destination_s3_spark.chain.state import TableState
from destination_s3_spark.errors import Bug


def schema_history(chain: Chain) -> list[Block]:
    """Return the blocks that set a schema, oldest first, with one GET each.

    If the state does not tell their numbers, the chain is searched. Blocks between two Snapshots with the same schema are not read, because
    none of them can set a schema.
    """
    if chain.head.schema_blocks is not None:
        return list(chain.blocks([number for _, number in chain.head.schema_blocks]))
    found: list[Block] = []
    state: TableState | None = chain.head
    end = chain.head.sequence_number + 1
    while state is not None and state.schema_id is not None:
        begin = _at_snapshot(chain, state.snapshot)
        if begin is None or begin.schema_id != state.schema_id:
            stretch = chain.blocks(range(state.snapshot or 0, end))
            found[:0] = [block for block in stretch if isinstance(block.event, SetDataSchema)]
        end = state.snapshot or 0
        state = begin
    return found


def with_schema_blocks(chain: Chain) -> TableState:
    """Return the state at the head with the blocks of its schemas. If an earlier version wrote the state, find them in the chain."""
    state = chain.head
    if state.schema_blocks is not None:
        return state
    found = [(block.event.schema_id, block.sequence_number) for block in schema_history(chain) if isinstance(block.event, SetDataSchema)]
    return replace(state, schema_blocks=tuple(found))


def _at_snapshot(chain: Chain, number: int | None) -> TableState | None:
    """Return the state that the Snapshot block with this number holds, or None without a number."""
    if number is None:
        return None
    (block,) = chain.blocks(range(number, number + 1))
    if not isinstance(block.event, Snapshot):
        raise Bug(f"block {number} is a {type(block.event).__name__} and not the Snapshot the state says it is.")
    return block.event.state

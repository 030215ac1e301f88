"""Read-only inspection of tables for operators: the chain, the live files, and the values that did not fit their type."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from destination_s3_spark.chain.blocks import Block
from destination_s3_spark.chain.files import FileEntry, FileKind
from destination_s3_spark.chain.readable import Readable, readable
from destination_s3_spark.chain.schema_history import schema_history
from destination_s3_spark.chain.state import TableState
from destination_s3_spark.schema.arrow import schema_from_text
from destination_s3_spark.storage.object_store import ObjectStore
from destination_s3_spark.stream_id import StreamId
from destination_s3_spark.tables.factory import TableFactory
from destination_s3_spark.tables.found import FoundTable
from destination_s3_spark.tables.publishers.publication import Publisher, Standing, standing

HEADS_AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class InspectedTable:
    """A table as described by its chain.

    `readable`: the table as readers see it, without a last data block with missing files. `blocks`: from the last Snapshot (or the Seed) to
    the head. `schemas`: all blocks of the chain that set a schema. `standings`: one per publisher, as far as they are asked for.
    """

    state: TableState
    readable: Readable
    blocks: tuple[Block, ...]
    schemas: tuple[Block, ...]
    standings: tuple[Standing, ...] = ()

    @property
    def last_data(self) -> int:
        """Number of the last data block that readers can see."""
        return (self.state.last_data if self.readable.left_out is None else self.state.settled) or 0

    @property
    def stream(self) -> StreamId:
        """Stream of the table."""
        return self.state.identity.stream

    @property
    def columns(self) -> pa.Schema | None:
        """Schema of the final table, or None before the first schema."""
        return None if self.state.schema is None else schema_from_text(self.state.schema["arrowSchema"])

    def files_of(self, kind: FileKind) -> tuple[FileEntry, ...]:
        """Return the live files of a kind."""
        return self.readable.live.of(kind)


@dataclass(frozen=True, slots=True)
class ValueChange:
    """A change that values of one field underwent. `field` has `[]` for any array index; `example` is one full path."""

    field: str
    change: str
    reason: str
    example: str
    count: int


def read_table(factory: TableFactory, found: FoundTable, publishers: Sequence[Publisher] = ()) -> InspectedTable:
    """Read the table's chain, and ask the publishers what readers see. Raises DataError when the chain is damaged."""
    chain = factory.read_chain(found)
    with ThreadPoolExecutor(HEADS_AT_ONCE, "heads") as pool:
        seen = readable(chain, factory.store, pool.map)
    standings = tuple(standing(publisher, factory.store, chain.head, seen.live) for publisher in publishers)
    return InspectedTable(chain.head, seen, tuple(chain.blocks()), tuple(schema_history(chain)), standings)


def read_file(store: ObjectStore, file: FileEntry) -> pa.Table:
    """Read the rows of one Parquet file."""
    return pq.read_table(pa.BufferReader(store.get(file.key)))


def value_changes(rows: pa.Table) -> list[ValueChange]:
    """Count the entries of `_airbyte_meta.changes` in the rows by field, change and reason, the most frequent first."""
    counts: Counter[tuple[str, str, str]] = Counter()
    examples: dict[tuple[str, str, str], str] = {}
    for changes in pc.struct_field(rows["_airbyte_meta"], "changes").to_pylist():
        for change in changes or ():
            group = (_any_index(change["field"]), change["change"], change["reason"])
            counts[group] += 1
            examples.setdefault(group, change["field"])
    return [ValueChange(*group, examples[group], count) for group, count in counts.most_common()]


def _any_index(path: str) -> str:
    return ".".join("[]" if part.startswith("[") else part for part in path.split("."))

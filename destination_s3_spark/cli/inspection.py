"""Reading tables the way an operator looks at them: the whole chain, the live files, the values that did not fit. Changes nothing."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from destination_s3_spark.chain.blocks import Block, UnreadableBlock, block_name, decode
from destination_s3_spark.chain.events import Seed
from destination_s3_spark.chain.files import FileEntry, FileKind
from destination_s3_spark.chain.live_files import live_files
from destination_s3_spark.chain.log import Chain
from destination_s3_spark.chain.state import StreamName, TableState
from destination_s3_spark.config import Config
from destination_s3_spark.errors import DataError
from destination_s3_spark.schema.arrow import schema_from_text
from destination_s3_spark.storage.object_store import ObjectStore
from destination_s3_spark.storage.paths import PathTemplate
from destination_s3_spark.storage.table_paths import INTERNAL_FOLDER


@dataclass(frozen=True, slots=True)
class InspectedTable:
    """A table as its chain tells: `blocks` from the last Snapshot (or the Seed) to the head, `files` those that are live."""

    state: TableState
    blocks: tuple[Block, ...]
    files: tuple[FileEntry, ...]

    @property
    def stream(self) -> StreamName:
        """The stream the table holds."""
        return self.state.identity.stream

    @property
    def columns(self) -> pa.Schema | None:
        """The final table's columns, or None before the first schema."""
        return None if self.state.schema is None else schema_from_text(self.state.schema["arrowSchema"])

    def files_of(self, kind: FileKind) -> tuple[FileEntry, ...]:
        """The live files of one of the two tables."""
        return tuple(file for file in self.files if file.kind is kind)


@dataclass(frozen=True, slots=True)
class ValueChange:
    """What happened to values of one field. `field` has `[]` for any array index, `example` is one full path."""

    field: str
    change: str
    reason: str
    example: str
    count: int


def tables_folder(config: Config) -> str:
    """The folder in which every table of the configuration has its own, ending in `/`."""
    template = PathTemplate(config.s3_bucket_path, config.s3_path_format, config.file_name_pattern, datetime.now(UTC), sync_id=0)
    return f"{template.base}{INTERNAL_FOLDER}/"


def find_tables(store: ObjectStore, folder: str) -> list[tuple[str, StreamName]]:
    """The prefix of every chain below the folder, with the stream its Seed names, in the order of the prefixes."""
    seeds = [found.key for found in store.list(folder) if found.key.endswith(f"/chain/{block_name(0)}")]
    return [(key.removesuffix(block_name(0)), _stream_of(store, key)) for key in seeds]


def read_table(store: ObjectStore, chain_prefix: str) -> InspectedTable:
    """The table whose chain is under the prefix. Raises DataError when the chain is damaged."""
    chain = Chain(store, chain_prefix, _stream_of(store, chain_prefix + block_name(0)))
    chain.read()
    if chain.state is None:
        chain.catch_up()
    blocks = tuple(chain.blocks())
    return InspectedTable(chain.head, blocks, live_files(blocks).files)


def read_file(store: ObjectStore, file: FileEntry) -> pa.Table:
    """The rows of one Parquet file."""
    return pq.read_table(pa.BufferReader(store.get(file.key)))


def value_changes(rows: pa.Table) -> list[ValueChange]:
    """What `_airbyte_meta.changes` of the rows says, grouped by field, change and reason, the most frequent first."""
    counts: Counter[tuple[str, str, str]] = Counter()
    examples: dict[tuple[str, str, str], str] = {}
    for changes in pc.struct_field(rows["_airbyte_meta"], "changes").to_pylist():
        for change in changes or ():
            group = (_any_index(change["field"]), change["change"], change["reason"])
            counts[group] += 1
            examples.setdefault(group, change["field"])
    return [ValueChange(*group, examples[group], count) for group, count in counts.most_common()]


def _stream_of(store: ObjectStore, seed_key: str) -> StreamName:
    try:
        seed = decode(store.get(seed_key)).event
    except UnreadableBlock:
        seed = None
    if not isinstance(seed, Seed):
        raise DataError(
            f"{seed_key} is not the first block of a chain. Only this connector may write there; restore an older version of it."
        )
    return seed.stream


def _any_index(path: str) -> str:
    return ".".join("[]" if part.startswith("[") else part for part in path.split("."))

"""Live files of a table, one row each, and their totals by kind."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum

from msgspec.structs import replace

from destination_s3_spark.chain.blocks import Block
from destination_s3_spark.chain.events import AddData, MergeData, ReplaceData
from destination_s3_spark.chain.files import FileEntry, FileKind
from destination_s3_spark.cli.inspection.table import InspectedTable
from destination_s3_spark.errors import DataError
from destination_s3_spark.schema.airbyte_type import Field
from destination_s3_spark.schema.partitioning import Partitioning
from destination_s3_spark.schema.schema_event import from_event
from destination_s3_spark.tables.runs.keys import CdcDeletion, KeySpec, key_bounds


class FileStatus(Enum):
    """Whether readers of the chain see a file's rows."""

    LIVE = "live"
    PENDING = "pending"
    """The file belongs to a generation that is to replace the table."""
    GIVEN_UP = "given up"
    """The file belongs to a generation that was never published. The next merge deletes it."""


@dataclass(frozen=True, slots=True)
class TableFile:
    """A live file.

    `rows` and `bytes` are None for files that destination-s3 wrote. `first_key` and `last_key` bound the keys of a file that is sorted by
    key. `partition` is the value in the name of the file's folder. `block` and `committed_at` are None if a block older than those read
    added the file.
    """

    kind: FileKind
    standing: FileStatus
    key: str
    rows: int | None
    bytes: int | None
    first_key: str | None
    last_key: str | None
    partition: str | None
    generation: int | None
    schema_id: int | None
    block: int | None
    committed_at: datetime | None


@dataclass(frozen=True, slots=True)
class FileTotals:
    """The totals of the files of one kind and standing. `rows` and `bytes` are None for files that destination-s3 wrote."""

    kind: FileKind
    standing: FileStatus
    files: int
    rows: int | None
    bytes: int | None


def table_files(table: InspectedTable) -> tuple[TableFile, ...]:
    """Return the live files in the order in which they were added, those of destination-s3 first."""
    live, added, specs = table.readable.live, _blocks_of_files(table), _key_specs(table)
    of_states = {state.copy_of: state.keys for state in live.of(FileKind.STATE)}
    adopted = [TableFile(FileKind.ADOPTED, FileStatus.LIVE, key, *[None] * 9) for key in live.adopted]

    def shown(file: FileEntry, standing: FileStatus) -> TableFile:
        return _file(replace(file, keys=file.keys or of_states.get(file.key)), standing, added, specs)

    ours = [shown(file, FileStatus.PENDING if live.is_pending(file) else FileStatus.LIVE) for file in live.files]
    return (*adopted, *ours, *(shown(file, FileStatus.GIVEN_UP) for file in live.dropped))


def file_totals(table: InspectedTable) -> tuple[FileTotals, ...]:
    """Return the totals of the live files by kind and standing."""
    live = table.readable.live
    groups: dict[tuple[FileKind, FileStatus], list[FileEntry]] = {}
    for kind in FileKind:
        for standing in (FileStatus.LIVE, FileStatus.PENDING):
            groups[kind, standing] = [file for file in live.of(kind) if live.is_pending(file) is (standing is FileStatus.PENDING)]
        groups[kind, FileStatus.GIVEN_UP] = [file for file in live.dropped if file.kind is kind]
    totals = [
        FileTotals(kind, standing, len(files), sum(file.rows for file in files), sum(file.bytes for file in files))
        for (kind, standing), files in groups.items()
        if files
    ]
    if live.adopted:
        totals.append(FileTotals(FileKind.ADOPTED, FileStatus.LIVE, len(live.adopted), None, None))
    return tuple(totals)


def _file(file: FileEntry, standing: FileStatus, added: Mapping[str, Block], specs: tuple[KeySpec, ...]) -> TableFile:
    block = added.get(file.key)
    bounds = None if file.keys is None else key_bounds(file.keys, specs)
    first, last = bounds or (None, None)
    return TableFile(
        file.kind,
        standing,
        file.key,
        file.rows,
        file.bytes,
        first,
        last,
        file.partition,
        file.generation_id,
        file.schema_id,
        None if block is None else block.sequence_number,
        None if block is None else block.system_time,
    )


def _blocks_of_files(table: InspectedTable) -> dict[str, Block]:
    return {
        file.key: block
        for block in table.blocks
        if isinstance(block.event, AddData | MergeData | ReplaceData)
        for file in block.event.files
    }


def _key_specs(table: InspectedTable) -> tuple[KeySpec, ...]:
    """Return the specs that the table's sorted files may have been written with, as far as its current schema tells."""
    return tuple(_specs(table))


def _specs(table: InspectedTable) -> Iterator[KeySpec]:
    recorded = table.state.schema or {}
    try:
        columns = from_event(recorded) if recorded else None
    except DataError:
        return
    if columns is None or not recorded.get("primaryKey"):
        return

    def field(source: str) -> Field | None:
        column = columns.column(source)
        return None if column is None else Field(source, column.name, column.type)

    key = tuple(found for path in recorded["primaryKey"] if (found := field(path[0])) is not None)
    cursor = field(recorded["cursor"][0]) if recorded.get("cursor") else None
    yield KeySpec(key, cursor, None, CdcDeletion.HARD)
    yield KeySpec(key, cursor, None, CdcDeletion.HARD, cursor_in_text=True)
    partition = columns.partition
    if partition is not None and (by := field(partition.source)) is not None:
        yield KeySpec(key, cursor, None, CdcDeletion.HARD, partitioning=Partitioning(partition, by))

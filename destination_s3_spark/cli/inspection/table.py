"""Table as its chain describes it, read without changing anything: its columns, the history of its schemas, and its live files."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import TypeVar

import msgspec
import pyarrow as pa

from destination_s3_spark.chain.blocks import Block
from destination_s3_spark.chain.events import AddData, MergeData, ReplaceData, SetDataSchema
from destination_s3_spark.chain.files import FileEntry, FileKind
from destination_s3_spark.chain.log import Chain
from destination_s3_spark.chain.settle import Readable, readable
from destination_s3_spark.chain.state import TableState
from destination_s3_spark.chain.table_store import TableStore
from destination_s3_spark.chain.territory import Table
from destination_s3_spark.cli.terminal import Progress, arrow_text
from destination_s3_spark.errors import REPORT, Bug, DataError, SyncError
from destination_s3_spark.schema.airbyte_type import Field, type_label
from destination_s3_spark.schema.schema_event import arrow_from_event, from_event
from destination_s3_spark.stream_id import StreamId
from destination_s3_spark.tables.configured import rules
from destination_s3_spark.tables.factory import TableFactory
from destination_s3_spark.tables.found import FoundTables, UnreadTable
from destination_s3_spark.tables.publishers.histories import concerned, history_files, history_state
from destination_s3_spark.tables.publishers.publication import Publication, Publisher, publication_of
from destination_s3_spark.tables.rules import MergeRule
from destination_s3_spark.tables.runs.footers import with_keys
from destination_s3_spark.tables.runs.keys import CdcDeletion, KeySpec, key_bounds

TABLES_AT_ONCE = HEADS_AT_ONCE = FOOTERS_AT_ONCE = 16
MOST_BLOCKS = 1_000
"""Newest blocks of a chain that are read. Each takes one request; older ones stay out of the history."""
Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class InspectedTable:
    """A table as described by its chain.

    `readable`: the table as readers see it, without a last data block with missing files. `blocks`: the newest blocks, up to the head.
    `schemas`: all blocks of the chain that set a schema. `publications`: one per publisher.
    `merge_rule`: when the configuration lets rows be merged, None for every sync. `histories`: the folder of the table's histories.
    `history_days`: the days that the configuration keeps versions that have ended, None for ever.
    """

    state: TableState
    readable: Readable
    blocks: tuple[Block, ...]
    schemas: tuple[Block, ...]
    publications: tuple[Publication, ...] = ()
    merge_rule: MergeRule | None = None
    histories: str = ""
    history_days: int | None = None

    @property
    def last_data(self) -> int:
        """Number of the last data block that readers can see."""
        return (self.state.last_data if self.readable.left_out is None else self.state.settled) or 0

    @property
    def stream(self) -> StreamId:
        return self.state.identity.stream

    @property
    def columns(self) -> pa.Schema | None:
        """Schema of the final table, or None before the first schema."""
        return None if self.state.schema is None else arrow_from_event(self.state.schema)

    def files_of(self, *kinds: FileKind) -> tuple[FileEntry, ...]:
        return self.readable.live.of(*kinds)

    def history(self) -> InspectedTable | None:
        """Return the history that goes on with the table as a table of its own, or None if there is none."""
        state = msgspec.structs.replace(self.state, contents=self.readable.contents)
        if state.contents.history is None:
            return None
        shown = replace(self.readable, live=history_files(state, self.readable.live))
        return replace(self, state=history_state(state, self.histories), readable=shown)


def read_table(
    factory: TableFactory, found: Table, publishers: Sequence[Publisher] = (), most_blocks: int = MOST_BLOCKS, *, keys: bool = False
) -> InspectedTable:
    """Read the table's chain with its newest blocks and all its schemas, and ask the publishers what readers see.

    With `keys`, footers tell the bounds of keys that the hint does not. Raises DataError when the chain is damaged.
    """
    chain = factory.read_chain(found)
    end = chain.head.sequence_number + 1
    blocks = tuple(chain.blocks(range(max(0, end - most_blocks), end)))
    seen = _seen(factory, chain)
    if keys:
        with ThreadPoolExecutor(FOOTERS_AT_ONCE, "footers") as pool:
            files = tuple(with_keys(seen.live.files, TableStore(factory.store, chain), pool.map))
        seen = replace(seen, live=msgspec.structs.replace(seen.live, files=files))
    return _inspected(factory, chain, seen, publishers, blocks, tuple(chain.schema_history()))


def read_head(factory: TableFactory, found: Table, publishers: Sequence[Publisher] = ()) -> InspectedTable:
    """Read what the head of the table's chain says, without blocks and schemas, and ask the publishers what readers see.

    After maintenance, or a sync without an id, the blocks since the last Snapshot are read too: they tell the last sync. Raises
    DataError when the chain is damaged.
    """
    chain = factory.read_chain(found)
    blocks = () if chain.head.opener.sync_id else tuple(chain.blocks())
    return _inspected(factory, chain, _seen(factory, chain), publishers, blocks, ())


def _inspected(
    factory: TableFactory,
    chain: Chain,
    seen: Readable,
    publishers: Sequence[Publisher],
    blocks: tuple[Block, ...],
    schemas: tuple[Block, ...],
) -> InspectedTable:
    store, chosen = TableStore(factory.store, chain), rules(factory.config)
    shown = tuple(publication_of(publisher, store, chain.head, seen.live) for publisher in concerned(publishers, chain.head))
    rule, folder = chosen.merges_of(chain.table.stream), chain.table.history or ""
    return InspectedTable(chain.head, seen, blocks, schemas, shown, rule, folder, chosen.history_days)


def _seen(factory: TableFactory, chain: Chain) -> Readable:
    with ThreadPoolExecutor(HEADS_AT_ONCE, "heads") as pool:
        return readable(chain, TableStore(factory.store, chain), pool.map)


def shown_or_unread(table: Table, show: Callable[[Table], Found]) -> Found | UnreadTable:
    """Return what the function makes of the table, or why it could not. Raises SyncError for what is no fault of the table."""
    try:
        return show(table)
    except (DataError, Bug) as error:
        return UnreadTable(str(table.stream), error.message)
    except SyncError:
        raise
    except Exception as error:  # noqa: BLE001 (a fault in the code that shows one table)
        return UnreadTable(str(table.stream), f"an error that was not foreseen, {_place(error)}. {REPORT}")


def find_tables(factory: TableFactory) -> FoundTables:
    with ThreadPoolExecutor(TABLES_AT_ONCE, "tables") as pool:
        return replace(factory, map_tables=pool.map).find()


def read_all(found: FoundTables, read: Callable[[Table], Found], at_once: int) -> tuple[list[Found], list[UnreadTable]]:
    """Return what the function makes of the tables, and those of which it can make nothing. Shows the progress."""
    with ThreadPoolExecutor(at_once, "tables") as pool, Progress("reading tables", len(found.tables)) as progress:

        def counted(table: Table) -> Found | UnreadTable:
            shown = shown_or_unread(table, read)
            progress.advance()
            return shown

        every = list(pool.map(counted, found.tables))
    unread = [one for one in every if isinstance(one, UnreadTable)]
    return [one for one in every if not isinstance(one, UnreadTable)], [*found.unread, *unread]


def report_unread(unread: Sequence[UnreadTable]) -> int:
    """Say on stderr which tables could not be read, and return the exit code."""
    for table in unread:
        sys.stderr.write(f"{table.table}: {table.reason}\n")
    return 1 if unread else 0


def _place(error: Exception) -> str:
    """Return the type and the place of an error, without its text, which may quote a record."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__qualname__} in {Path(frame.filename).name}, line {frame.lineno}"


@dataclass(frozen=True, slots=True)
class InspectedColumn:
    """A column of the final table.

    `airbyte_type`, `field` and `since_schema` are None for the connector's own columns. `recovered_from` names the column whose values this
    one holds since that column's type changed. `declared` is whether the source still has the field.
    """

    column: str
    type: str
    airbyte_type: str | None
    field: str | None
    since_schema: int | None
    recovered_from: str | None
    declared: bool


@dataclass(frozen=True, slots=True)
class RecordedChange:
    """A change that a schema brought. `change`, `path`, `old` and `new` are None for a schema without changes, such as the first one."""

    schema_id: int
    version: str | None
    time: datetime
    block: int
    columns: int
    change: str | None
    path: str | None
    old: str | None
    new: str | None


def columns(table: InspectedTable) -> tuple[InspectedColumn, ...]:
    """Return the columns in their order, or nothing before the first schema."""
    fields = {field["name"]: field for field in (table.state.schema or {}).get("fields", ())}
    names = {field.get("id"): name for name, field in fields.items()}
    found = []
    for column in table.columns or ():
        field = fields.get(column.name, {})
        recorded = field.get("type")
        found.append(
            InspectedColumn(
                column.name,
                arrow_text(column.type),
                None if recorded is None else type_label(recorded),
                field.get("source"),
                field.get("addedIn"),
                None if field.get("recoveredFrom") is None else names.get(field["recoveredFrom"]),
                bool(field.get("present", True)),
            )
        )
    return tuple(found)


def schema_changes(schemas: Sequence[Block]) -> tuple[RecordedChange, ...]:
    """Return each schema with its changes, oldest first. A schema without changes is one row."""
    return tuple(change for block in schemas if isinstance(block.event, SetDataSchema) for change in _changes(block, block.event))


def _changes(block: Block, event: SetDataSchema) -> list[RecordedChange]:
    schema = event.schema
    head = (event.schema_id, schema.get("version"), block.system_time, block.sequence_number, len(schema.get("fields", ())))
    changes = [
        RecordedChange(
            *head, change["kind"], change["path"], *(type_label(change[side]) if side in change else None for side in ("old", "new"))
        )
        for change in schema.get("changes", ())
    ]
    return changes or [RecordedChange(*head, None, None, None, None)]


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
    live, added, specs = table.readable.live, _blocks_of_files(table), tuple(_key_specs(table))
    of_states = {state.copy_of: state.keys for state in live.of(FileKind.STATE)}
    adopted = [TableFile(FileKind.ADOPTED, FileStatus.LIVE, key, *[None] * 9) for key in live.adopted]

    def shown(file: FileEntry, standing: FileStatus) -> TableFile:
        return _file(msgspec.structs.replace(file, keys=file.keys or of_states.get(file.key)), standing, added, specs)

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


def _key_specs(table: InspectedTable) -> Iterator[KeySpec]:
    """Yield the specs that the table's sorted files may have been written with, as far as its current schema tells."""
    recorded = table.state.schema or {}
    try:
        columns = from_event(recorded) if recorded else None
    except DataError:
        return
    if columns is None or not recorded.get("primaryKey"):
        return

    def field(source: str) -> Field | None:
        column = columns.column(source)
        return None if column is None else column.field

    key = tuple(found for path in recorded["primaryKey"] if (found := field(path[0])) is not None)
    cursor = field(recorded["cursor"][0]) if recorded.get("cursor") else None
    yield KeySpec(key, cursor, None, CdcDeletion.HARD)
    yield KeySpec(key, cursor, None, CdcDeletion.HARD, cursor_in_text=True)
    if columns.partitioning is not None:
        yield KeySpec(key, cursor, None, CdcDeletion.HARD, partitioning=columns.partitioning)

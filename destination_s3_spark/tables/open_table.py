"""A stream's open table: its columns, the tasks that land slices in it, and the keys of its files."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

from destination_s3_spark.chain.files import FileEntry, FileKind
from destination_s3_spark.chain.live_files import LiveFiles
from destination_s3_spark.chain.opening import Session
from destination_s3_spark.decoding.plan import RowPlan, Values
from destination_s3_spark.errors import ConfigError
from destination_s3_spark.formats.file_format import FileColumns, FileOptions
from destination_s3_spark.formats.parquet import ParquetOptions
from destination_s3_spark.protocol.catalog import DestinationSyncMode, Stream
from destination_s3_spark.schema.airbyte_type import AirbyteType, Field, Scalar
from destination_s3_spark.schema.arrow import RAW_SCHEMA, arrow_columns
from destination_s3_spark.schema.column_rules import Treatment
from destination_s3_spark.schema.encodings import Encodings
from destination_s3_spark.schema.partitioning import Partitioning
from destination_s3_spark.schema.schema_event import from_event
from destination_s3_spark.schema.table_schema import TableSchema, replayed_fields
from destination_s3_spark.storage.paths import PathTemplate
from destination_s3_spark.storage.settings import S3Settings
from destination_s3_spark.tables.columns.row_plan import control_plan, file_columns, refusal, row_plan
from destination_s3_spark.tables.commit.generation import NOTHING, Kept
from destination_s3_spark.tables.commit.writer import TableWriter
from destination_s3_spark.tables.landing.barred import Barred
from destination_s3_spark.tables.landing.land import LandTask, Target
from destination_s3_spark.tables.landing.slices import Slice
from destination_s3_spark.tables.rules import Rules
from destination_s3_spark.tables.runs.footers import with_keys
from destination_s3_spark.tables.runs.keys import KeySpec


@dataclass(frozen=True, slots=True)
class Layout:
    """The folders of a table and the formats of its files. Each folder is "" or ends in "/"."""

    template: PathTemplate
    root: str
    """The folder of the final files."""
    folder: str
    """The connector's own folder for the table."""
    changes: str
    """The folder of the table's change log."""
    histories: str
    """The folder of the folders of the table's histories."""
    final: FileOptions
    raw: ParquetOptions | None
    """The format of raw files, or None to keep no raw table."""

    @property
    def of_text(self) -> bool:
        """Whether final files hold the values as text from the source. Their columns then have no types."""
        return self.final.values is not Values.TYPED

    def encoded(self, encodings: Encodings) -> Layout:
        """Return the layout of a table with these encodings in its final and raw files, where these are Parquet."""
        final = replace(self.final, encodings=encodings) if isinstance(self.final, ParquetOptions) else self.final
        raw = None if self.raw is None else replace(self.raw, encodings=encodings)
        return replace(self, final=final, raw=raw)


COMPRESSED_LINES = 2
"""Target sizes of lines in a slice whose file is compressed. Hardly any records become more than three quarters of their lines."""


@dataclass(frozen=True, slots=True)
class OpenTable:
    """A stream's table that this sync has opened for writing."""

    stream: Stream
    declared: tuple[Field, ...]
    """The fields that the stream declares, as columns."""
    writer: TableWriter
    layout: Layout
    rules: Rules
    session: Session
    schema: TableSchema
    types_since: int
    """The first schema id with today's types. Files of earlier schemas have columns of other types."""
    key_spec: KeySpec | None
    """The key of a deduplicated table's rows, without the snapshots that its chain records. None for an append table."""
    partitioning: Partitioning | None
    """The division of the table's files. None for a table without partitions."""
    to_record: dict[str, Any] | None = None
    """The SetDataSchema payload to record, or None if the chain already has it."""
    valid_from: str | None = None
    """The field with the time of a change, by which versions of a history begin. None for the time of extraction."""
    pending: bool = False
    """Whether rows land beside the table until they replace it."""
    kept: Kept = NOTHING
    """The rows that stay in the table when the pending generation replaces it."""
    outdated: bool = False
    """Whether final files have to be rewritten before anything lands."""
    treatment: Treatment | None = None
    """What of the stream's records never lands. None in a session that lands none."""
    barred: Barred | None = None
    """The keys of which no record lands. None if there are none."""
    _numbers: Iterator[int] = field(default_factory=count)

    @property
    def spec(self) -> KeySpec | None:
        """The key of a deduplicated table's rows. None for an append table."""
        if self.key_spec is None or not self.key_spec.by_position:
            return self.key_spec
        snapshots = self.writer.chain.head.contents.snapshots
        return replace(self.key_spec, snapshots=tuple(round(since.timestamp() * 1000) for since in snapshots))

    def most_slice_bytes(self, budget_bytes: int) -> int:
        """Return the most lines for a slice, in bytes. `budget_bytes` is the memory for the rows of a task.

        A slice of an appended table becomes one file, which must not be much larger than the target size. If rows are sorted or divided,
        all of them are in memory at once, with about three copies of each row, none larger than its line. A merge task takes as much.
        """
        if self.spec is not None or self.partitioning is not None:
            return budget_bytes
        return self.rules.target_file_bytes * (COMPRESSED_LINES if self.layout.final.compressed else 1)

    @property
    def plan(self) -> RowPlan:
        """The plan that turns records into rows of the final files, regardless of the form in which they land."""
        return row_plan(self.stream, self.schema, self.declared, self.layout.final)

    def plan_of(self, then: TableSchema, *, and_before: bool = False) -> RowPlan:
        """Make the plan for raw rows that landed under an earlier schema, or, with `and_before`, also under those before it.

        Each value goes to the same column as at that time.
        """
        plan = self.plan
        if plan.values is Values.CELLS and not and_before:
            return row_plan(self.stream, self.schema, [column.field for column in then.fields if column.present], self.layout.final)
        if plan.values is not Values.TYPED:
            return self.plan_of_all
        return replace(plan, fields=replayed_fields(then, self.schema, and_before=and_before))

    def declared_in(self, schema: TableSchema) -> frozenset[str] | None:
        """Return the fields of which merges may show values of records that landed under a schema. None if all of a record is shown."""
        if self.layout.final.values is not Values.CELLS:
            return None
        deciding = () if self.key_spec is None else self.key_spec.fields
        return frozenset((*(column.source for column in schema.fields if column.present), *(field.source for field in deciding)))

    @property
    def plan_of_all(self) -> RowPlan:
        """The plan for rows of any schema in a text format. It covers every field the table has ever had."""
        sources = dict.fromkeys(column.source for column in self.schema.fields)
        declared = tuple(Field(source, source, Scalar.STRING) for source in sources)
        return row_plan(self.stream, self.schema, declared, self.layout.final)

    def schemas(self, ids: Collection[int]) -> dict[int, TableSchema]:
        """Return the table's schemas with these ids from the chain. The current schema takes no request."""
        return {schema_id: from_event(payload) for schema_id, payload in self.writer.chain.schemas(ids).items()}

    def with_keys(self, files: Iterable[FileEntry]) -> list[FileEntry]:
        """Return the files with the bounds of their keys, as `footers.with_keys`, and keep these for the session and the hint."""
        found = with_keys(files, self.writer.store, self.writer.map_files)
        self.writer.chain.learn(found)
        return found

    def record_schema(self) -> None:
        """Record the columns in the chain, unless it already has them."""
        if self.to_record is not None:
            self.writer.ensure_schema(self.to_record)

    def is_outdated(self, file: FileEntry) -> bool:
        """Tell whether columns of the file have other types than the table has now."""
        return file.schema_id is not None and file.schema_id < self.types_since

    def raw_covers(self, live: LiveFiles) -> bool:
        """Tell whether the raw table has every row that landed in the table since it was last replaced."""
        rows = sum(file.rows for file in live.settled(FileKind.RAW))
        return not live.adopted and rows == self.writer.chain.head.contents.came_in

    def raw_replays(self, live: LiveFiles) -> bool:
        """Tell whether the raw rows make the table: all are there, and none landed while it was deduplicated by another key or cursor.

        Such rows replaced and deleted others under that key and cursor. Under today's, or none, those would come back.
        """
        if not self.raw_covers(live):
            return False
        ids = {file.schema_id for file in live.settled(FileKind.RAW) if file.schema_id is not None}
        key, cursor = ((), None) if self.spec is None else (self.spec.key, self.spec.cursor)
        now = sorted([field.source] for field in key), [] if cursor is None else [cursor.source]
        then = [one for one in self.writer.chain.schemas(ids).values() if one["mode"] == DestinationSyncMode.APPEND_DEDUP.value]
        return all((sorted(one["primaryKey"]), one["cursor"][:1]) == now for one in then)

    def land_tasks(self, slices: Sequence[Slice], s3: S3Settings) -> list[LandTask]:
        """Make a task for each slice and assign the keys of its files."""
        if self.spec is not None and self.layout.of_text:
            plan, columns = control_plan(self.stream, self.spec), FileColumns(self.stream.id, (), RAW_SCHEMA)
        else:
            plan = self.plan
            columns = file_columns(self.schema, plan)
        plan = replace(plan, treatment=self.treatment)
        barred = None if self.barred is None else self._bar(self.barred, plan)
        return [LandTask(piece, plan, self.schema.schema_id, self._targets(columns), s3, barred) for piece in slices]

    def _bar(self, barred: Barred, plan: RowPlan) -> Barred:
        """Return the barred keys with a plan that types their fields, declared or not, if that of the rows does not."""
        if plan.values is Values.TYPED and barred.fields <= {field.source for field in plan.fields}:
            return barred
        known: dict[str, AirbyteType] = {}
        for column in self.schema.fields:
            if not column.emptied:  # of a field with several columns, text holds any value
                known[column.source] = Scalar.STRING if column.source in known else column.type
        sources = enumerate(sorted(barred.fields))
        fields = tuple(Field(source, f"field_{number}", known.get(source, Scalar.STRING)) for number, source in sources)
        return replace(barred, plan=replace(plan, fields=fields, table_schema=arrow_columns(fields), values=Values.TYPED, key=()))

    def final_key(self, extension: str | None = None) -> str:
        """Make the key of the next final file. `extension` defaults to that of the table's format."""
        return self._final_key(next(self._numbers), extension or self.layout.final.extension)

    def delta_key(self, extension: str = ParquetOptions.extension) -> str:
        """Make the key of the next file of rows that are not in the final table yet."""
        return self._landed_key("delta", next(self._numbers), extension)

    def key_beside(self, file: FileEntry) -> str:
        """Make the key of the next file of this file's kind, in the same folder."""
        raw = file.kind is FileKind.RAW
        return file.beside(self._landed_key("raw", next(self._numbers), ParquetOptions.extension) if raw else self.final_key())

    def state_key(self) -> str:
        """Make the key of a merge state: the Parquet copy that the next merge reads instead of a final file of another format."""
        return f"{self.layout.folder}state/{self.writer.next_token()}{ParquetOptions.extension}"

    def tombstone_key(self) -> str:
        return f"{self.layout.folder}tombstones/{self.writer.next_token()}{ParquetOptions.extension}"

    def version_key(self, history: int, kind: FileKind) -> str:
        return f"{self.layout.histories}{history}/{kind.value}-{self.writer.next_token()}{ParquetOptions.extension}"

    def scratch_prefix(self) -> str:
        """Make the prefix of a task's temporary objects: rows being sorted for a merge. No block names them."""
        return f"{self.layout.folder}scratch/{self.writer.next_token()}/"

    def scratch_key(self) -> str:
        """Make the key of a task's only temporary object."""
        return f"{self.layout.folder}scratch/{self.writer.next_token()}{ParquetOptions.extension}"

    def refuse(self, problem: str) -> ConfigError:
        return refusal(self.stream, problem)

    def _targets(self, columns: FileColumns) -> tuple[Target, ...]:
        layout, number = self.layout, next(self._numbers)
        if self.spec is not None:
            key = self._landed_key("delta", number, ParquetOptions.extension)
            declared = self.declared_in(self.schema) if layout.of_text else None
            targets = [Target(FileKind.DELTA, key, columns, ParquetOptions(), self.spec, declared=declared)]
        elif self.pending:
            key = self._landed_key("delta", number, layout.final.extension)
            targets = [Target(FileKind.DELTA, key, columns, layout.final, partitioning=self.partitioning)]
        else:
            key = self._final_key(number, layout.final.extension)
            targets = [Target(FileKind.FINAL, key, columns, layout.final, partitioning=self.partitioning)]
        if layout.raw is not None:
            raw_key = self._landed_key("raw", number, ParquetOptions.extension)
            targets.append(Target(FileKind.RAW, raw_key, FileColumns(self.stream.id, (), RAW_SCHEMA), layout.raw))
        return tuple(targets)

    def _landed_key(self, folder: str, number: int, extension: str) -> str:
        return f"{self.layout.folder}{folder}/{number}-{self.writer.next_token()}{extension}"

    def _final_key(self, number: int, extension: str) -> str:
        return self.layout.template.key(self.stream.id, extension, int(self.writer.next_token()), number, self.layout.root)

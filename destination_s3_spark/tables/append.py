"""A stream's table in append mode: what its slices become, under which keys and which columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from destination_s3_spark.chain.files import FileKind
from destination_s3_spark.errors import Bug
from destination_s3_spark.formats.file_writer import FileColumns
from destination_s3_spark.formats.options import FileOptions, require_fitting
from destination_s3_spark.formats.parquet import ParquetOptions
from destination_s3_spark.protocol.catalog import Stream
from destination_s3_spark.schema.arrow import RAW_SCHEMA
from destination_s3_spark.schema.json_schema import StreamFields
from destination_s3_spark.schema.schema_event import from_event, to_event
from destination_s3_spark.schema.table_schema import Evolution, TableSchema, evolve
from destination_s3_spark.storage.paths import PathTemplate
from destination_s3_spark.storage.settings import S3Settings
from destination_s3_spark.tables.land import LandTask, Target
from destination_s3_spark.tables.row_plan import file_columns, row_plan
from destination_s3_spark.tables.slices import Slice
from destination_s3_spark.tables.writer import TableWriter
from destination_s3_spark.typing.plan import RowPlan


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the table's files go and how they are encoded. `raw` None: no raw table is kept. `raw_folder` ends in "/"."""

    template: PathTemplate
    root: str
    raw_folder: str
    final: FileOptions
    raw: ParquetOptions | None


class AppendTable:
    """One stream's table during a sync."""

    def __init__(self, stream: Stream, fields: StreamFields, writer: TableWriter, layout: Layout) -> None:
        self.stream = stream
        self.writer = writer
        self._fields = fields
        self._layout = layout
        self._files = 0
        self._plan: RowPlan | None = None
        self._schema = TableSchema(0, ())

    def check_schema(self) -> None:
        """Compare the declared columns with the table as it was read, and with what its format can hold. Raises ConfigError."""
        evolution, _ = self._evolve()
        plan = row_plan(self.stream, evolution.schema, self._fields.fields, self._layout.final)
        require_fitting(file_columns(evolution.schema, plan), self._layout.final)

    def open(self) -> None:
        """Open the table and record its columns, once: only now, since only now there is data to land."""
        if self._plan is not None:
            return
        state = self.writer.open()
        self._layout = replace(self._layout, root=state.identity.final_root)
        evolution, payload = self._evolve()
        if payload is not None:
            self.writer.ensure_schema(payload)
        self._schema = evolution.schema
        self._plan = row_plan(self.stream, self._schema, self._fields.fields, self._layout.final)

    def land_tasks(self, slices: Sequence[Slice], s3: S3Settings) -> list[LandTask]:
        """A task for each slice, its keys assigned. The table must be open."""
        if self._plan is None:
            raise Bug(f"Stream {self.stream.id}: a slice was cut before its table was open. Please report this.", stream=self.stream.id)
        plan, columns = self._plan, file_columns(self._schema, self._plan)
        return [LandTask(piece, plan, self._schema.schema_id, self._targets(columns), s3) for piece in slices]

    def _targets(self, columns: FileColumns) -> tuple[Target, ...]:
        layout = self._layout
        token = int(self.writer.next_token())
        key = layout.template.key(self.stream.id, layout.final.extension, token, self._files, layout.root)
        targets = [Target(FileKind.FINAL, key, columns, layout.final)]
        if layout.raw is not None:
            raw_key = f"{layout.raw_folder}{self._files}-{self.writer.next_token()}{layout.raw.extension}"
            targets.append(Target(FileKind.RAW, raw_key, FileColumns(self.stream.id, (), RAW_SCHEMA), layout.raw))
        self._files += 1
        return tuple(targets)

    def _evolve(self) -> tuple[Evolution, dict[str, object] | None]:
        """The columns this sync lands in, and the SetDataSchema payload that records them, None when the chain has it already."""
        state = self.writer.state
        recorded = state.schema if state is not None else None
        previous = from_event(recorded) if recorded is not None else None
        evolution = evolve(previous, self._fields, self.stream.id)
        payload = self._payload(evolution)
        if recorded is None or evolution.changes:
            return evolution, payload
        if all(recorded.get(key) == payload[key] for key in ("mode", "primaryKey", "cursor")):
            return evolution, None
        # Same columns under another key, cursor or mode: a schema of its own, since readers of the chain go by it.
        evolution = Evolution(_renumbered(evolution.schema), ())
        return evolution, self._payload(evolution)

    def _payload(self, evolution: Evolution) -> dict[str, object]:
        stream = self.stream
        return to_event(evolution, stream.destination_sync_mode.value, stream.primary_key, stream.cursor_field)


def _renumbered(schema: TableSchema) -> TableSchema:
    return replace(schema, schema_id=schema.schema_id + 1)

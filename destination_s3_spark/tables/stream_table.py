"""A stream's table during a sync: which columns it has, what its slices become, and under which keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from destination_s3_spark.chain.files import FileEntry, FileKind
from destination_s3_spark.chain.opening import Session, WriteDisposition, pending_in
from destination_s3_spark.chain.state import Counters, TableState
from destination_s3_spark.change_log.options import ChangeLogOptions
from destination_s3_spark.decoding.plan import RowPlan, Values
from destination_s3_spark.errors import Bug, ConfigError
from destination_s3_spark.formats.file_writer import FileColumns
from destination_s3_spark.formats.parquet import ParquetOptions
from destination_s3_spark.formats.registry import format_of
from destination_s3_spark.protocol.catalog import DestinationSyncMode, Stream
from destination_s3_spark.schema.airbyte_type import Field, Scalar
from destination_s3_spark.schema.arrow import RAW_SCHEMA
from destination_s3_spark.schema.json_schema import StreamFields
from destination_s3_spark.schema.policy import SchemaChange
from destination_s3_spark.schema.schema_event import from_event, to_event
from destination_s3_spark.schema.table_schema import Evolution, TableSchema, evolve, replayed_fields
from destination_s3_spark.storage.settings import S3Settings
from destination_s3_spark.tables.commit.generation import NOTHING, Kept, kept_rows
from destination_s3_spark.tables.commit.writer import TableWriter
from destination_s3_spark.tables.dedup import deciding_fields, is_deduplicated, key_spec
from destination_s3_spark.tables.landing.land import LandTask, Target
from destination_s3_spark.tables.landing.slices import Slice
from destination_s3_spark.tables.layout import Layout
from destination_s3_spark.tables.row_plan import control_plan, file_columns, row_plan, schema_policy
from destination_s3_spark.tables.runs.keys import CdcDeletion, KeySpec


@dataclass(frozen=True, slots=True)
class Rules:
    """What the user decided about tables. `target_file_bytes`: size of the final files of a deduplicated table.

    `change_log`: what the log of its changes looks like, None for none.
    """

    schema_change: SchemaChange
    deletion: CdcDeletion
    target_file_bytes: int
    change_log: ChangeLogOptions | None = None


def write_disposition(stream: Stream) -> WriteDisposition:
    """What a sync of the stream does to the rows its table has."""
    if stream.minimum_generation_id:
        return WriteDisposition.TRUNCATE
    return WriteDisposition.OVERWRITE if stream.destination_sync_mode is DestinationSyncMode.OVERWRITE else WriteDisposition.APPEND


@dataclass(frozen=True, slots=True)
class _Landing:
    """How slices are landed, settled when the table is open. `spec`: their rows are sorted into runs. `pending`: nobody reads them yet."""

    schema: TableSchema
    plan: RowPlan
    columns: FileColumns
    spec: KeySpec | None
    pending: bool


class StreamTable:
    """One stream's table during a sync. `session` is the one the writer was made with."""

    def __init__(self, stream: Stream, fields: StreamFields, writer: TableWriter, layout: Layout, rules: Rules, session: Session) -> None:
        self.stream = stream
        self.writer = writer
        self.layout = layout
        self.rules = rules
        self.session = session
        self._fields = fields
        self._files = 0
        self._landing: _Landing | None = None
        self._unrecorded: dict[str, object] | None = None
        self.types_since = 0
        self.kept = NOTHING
        """What the open table has of the generation that is to replace it."""

    @property
    def deduplicated(self) -> bool:
        """Whether the table has one row per key."""
        return is_deduplicated(self.stream)

    @property
    def schema(self) -> TableSchema:
        """The columns of the open table."""
        return self._landed_as().schema

    @property
    def spec(self) -> KeySpec | None:
        """By what the open table tells its rows apart."""
        return self._landed_as().spec

    @property
    def plan(self) -> RowPlan:
        """The plan by which records become rows of the final files, whatever they are landed as."""
        return row_plan(self.stream, self.schema, self._fields.fields, self.layout.final)

    def plan_of(self, then: TableSchema) -> RowPlan:
        """The plan for raw rows that landed under an earlier schema of the table: each value goes to the column it went to then."""
        plan = self.plan
        if plan.values is not Values.TYPED:
            return self.plan_of_all
        return replace(plan, fields=replayed_fields(then, self.schema))

    @property
    def plan_of_all(self) -> RowPlan:
        """The plan for rows of any age in a format of text: every field the table has ever had."""
        sources = dict.fromkeys(column.source for column in self.schema.fields)
        declared = tuple(Field(source, source, Scalar.STRING) for source in sources)
        return row_plan(self.stream, self.schema, declared, self.layout.final)

    def check_schema(self) -> None:
        """Compare the declared columns with the table as it was read, and with what its format can hold. Raises ConfigError."""
        state = self.writer.state
        replaces = state is not None and pending_in(state, self.session) is not None
        evolution, _ = self._evolve(state, replaces=replaces)
        if self.deduplicated:
            key_spec(self.stream, evolution.schema, self.rules.deletion, of_text=self.layout.of_text)
        plan = row_plan(self.stream, evolution.schema, self._fields.fields, self.layout.final)
        self.layout.final.require_fitting(file_columns(evolution.schema, plan))

    def open(self) -> bool:
        """Open the table, once: only now, since only now there is data to land. True when it has to be rewritten before it is landed to.

        Its columns are recorded at once, unless they first have to be tried on the rows there are: then `record_schema` is the
        rewriting's to call.
        """
        if self._landing is not None:
            return False
        state = self.writer.open()
        self.kept = self._kept()
        self._refuse_adopted(state)
        self.layout = replace(self.layout, root=state.identity.final_root)
        pending = state.contents.pending is not None
        evolution, self._unrecorded = self._evolve(state, replaces=pending)
        self._landing = self._landing_of(evolution.schema, pending)
        self.types_since = evolution.schema.schema_id if evolution.retyped else state.types_since
        if self.deduplicated and not pending:
            self._refuse_unreadable(state)
        rewrite = not pending and self._has_rows_of_other_types()
        if not rewrite:
            self.record_schema()
        return rewrite

    def record_schema(self) -> None:
        """Record the columns in the chain, if that is still to be done."""
        if self._unrecorded is not None:
            self.writer.ensure_schema(self._unrecorded)
            self._unrecorded = None

    def is_outdated(self, file: FileEntry) -> bool:
        """Whether columns of the file have other types than the table has now."""
        return file.schema_id is not None and file.schema_id < self.types_since

    def _has_rows_of_other_types(self) -> bool:
        if not self.types_since or self.layout.of_text:
            return False
        return any(self.is_outdated(file) for file in self.writer.live_files().of(FileKind.FINAL, FileKind.STATE))

    def _landing_of(self, schema: TableSchema, pending: bool) -> _Landing:
        spec = key_spec(self.stream, schema, self.rules.deletion, of_text=self.layout.of_text) if self.deduplicated else None
        if spec is not None and self.layout.of_text:
            return _Landing(schema, control_plan(self.stream, spec), FileColumns(self.stream.id, (), RAW_SCHEMA), spec, pending)
        plan = row_plan(self.stream, schema, self._fields.fields, self.layout.final)
        return _Landing(schema, plan, file_columns(schema, plan), spec, pending)

    def land_tasks(self, slices: Sequence[Slice], s3: S3Settings) -> list[LandTask]:
        """A task for each slice, its keys assigned. The table must be open."""
        landing = self._landed_as()
        return [LandTask(piece, landing.plan, landing.schema.schema_id, self._targets(landing), s3) for piece in slices]

    def final_key(self, token: str, extension: str | None = None) -> str:
        """The key of the next final file; `extension` if not that of the table's format."""
        layout = self.layout
        key = layout.template.key(self.stream.id, extension or layout.final.extension, int(token), self._files, layout.root)
        self._files += 1
        return key

    def refuse(self, problem: str) -> ConfigError:
        """An error about this stream that ends the sync."""
        return ConfigError(f"Stream '{self.stream.id}': {problem}", stream=self.stream.id)

    def _targets(self, landing: _Landing) -> tuple[Target, ...]:
        layout, number = self.layout, self._files
        token = self.writer.next_token()
        if landing.spec is not None:
            self._files += 1
            key = layout.delta_key(number, token, ParquetOptions.extension)
            targets = [Target(FileKind.DELTA, key, landing.columns, ParquetOptions(), landing.spec)]
        elif landing.pending:
            self._files += 1
            targets = [Target(FileKind.DELTA, layout.delta_key(number, token, layout.final.extension), landing.columns, layout.final)]
        else:
            targets = [Target(FileKind.FINAL, self.final_key(token), landing.columns, layout.final)]
        if layout.raw is not None:
            raw_key = layout.raw_key(number, self.writer.next_token())
            targets.append(Target(FileKind.RAW, raw_key, FileColumns(self.stream.id, (), RAW_SCHEMA), layout.raw))
        return tuple(targets)

    def _landed_as(self) -> _Landing:
        if self._landing is None:
            raise Bug(f"Stream {self.stream.id}: its table was used before it was open. Please report this.", stream=self.stream.id)
        return self._landing

    def _kept(self) -> Kept:
        kept = kept_rows(self.writer, self.session.disposition)
        if kept is None:
            raise self.refuse(
                f"its refresh (generation {self.session.generation_id}) goes on over records of the same generation that were merged with "
                "older ones, and they can only be told apart by its raw table, which does not have all of them. Run a new refresh that "
                "removes the records."
            )
        return kept

    def _refuse_adopted(self, state: TableState) -> None:
        """Files that destination-s3 wrote have rows without an order; a deduplicated table cannot begin with them, nor go on."""
        if not (self.deduplicated and state.contents.adopted):
            return
        refreshed = state.contents.pending is not None
        staying = self.kept.adopted if refreshed else self.writer.live_files().adopted
        if staying:
            which = f" and belong to the refresh that is running (generation {state.contents.generation})" if refreshed else ""
            raise self.refuse(
                f"{len(staying):,} files of an earlier connector are part of its table{which}, from '{min(staying)}' on, and "
                "append_dedup cannot tell their rows apart. Run a new refresh that removes the records, or choose another path."
            )

    def _refuse_unreadable(self, state: TableState) -> None:
        """A merge reads the rows there are as those of today's format: from the files themselves, or else all from the raw table."""
        contents = state.contents
        if contents.held.get(FileKind.RAW.value, Counters()).rows == contents.landed:
            return
        live = self.writer.live_files()
        states = {file.keys for file in live.of(FileKind.STATE)}
        unreadable = [file.key for file in live.of(FileKind.FINAL) if not self._is_mergeable(file.key, has_state=file.keys in states)]
        if unreadable:
            raise self.refuse(
                f"{len(unreadable):,} files of its table are of another format than {self.layout.final.extension}, from '{unreadable[0]}' "
                "on, and merges could only go on from its raw table, which does not have all rows. Take the earlier format, or run a "
                "refresh that removes the records."
            )

    def _is_mergeable(self, key: str, *, has_state: bool) -> bool:
        found = format_of(key)
        if self.layout.of_text:
            return has_state and found is not None and not found.typed
        return has_state or (found is not None and found.sorted_rows)

    def _evolve(self, state: TableState | None, *, replaces: bool) -> tuple[Evolution, dict[str, object] | None]:
        """The columns this sync lands in, and the SetDataSchema payload that records them, None when the chain has it already."""
        policy = schema_policy(self.layout.final, self.rules.schema_change, deciding_fields(self.stream), replace=replaces)
        recorded = state.schema if state is not None else None
        previous = from_event(recorded) if recorded is not None else None
        evolution = evolve(previous, self._fields, self.stream.id, policy)
        payload = self._payload(evolution)
        if recorded is None or evolution.changes:
            return evolution, payload
        if all(recorded.get(key) == payload[key] for key in ("mode", "primaryKey", "cursor")):
            return evolution, None
        # Same columns under another key, cursor or mode: a schema of its own, since readers of the chain go by it.
        evolution = Evolution(replace(evolution.schema, schema_id=evolution.schema.schema_id + 1), ())
        return evolution, self._payload(evolution)

    def _payload(self, evolution: Evolution) -> dict[str, object]:
        stream = self.stream
        return to_event(evolution, stream.destination_sync_mode.value, stream.primary_key, stream.cursor_field)

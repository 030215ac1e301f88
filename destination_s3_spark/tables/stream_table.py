"""A stream's table before it is opened: the check of the stream's columns against it, and the opening."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from destination_s3_spark.chain.files import FileKind
from destination_s3_spark.chain.opening import Session, WriteDisposition, is_published_first, pending_in
from destination_s3_spark.chain.state import TableState
from destination_s3_spark.formats.parquet import ParquetOptions
from destination_s3_spark.formats.registry import format_of
from destination_s3_spark.protocol.catalog import DestinationSyncMode, Stream
from destination_s3_spark.schema.column_rules import Treatment
from destination_s3_spark.schema.encodings import DESTINATION_S3, EXTRACTED_AT
from destination_s3_spark.schema.json_schema import StreamFields
from destination_s3_spark.schema.partitioning import Partitioning, PartitionSpec
from destination_s3_spark.schema.schema_event import from_event, to_event
from destination_s3_spark.schema.table_schema import Evolution, TableSchema, evolve, restored
from destination_s3_spark.stream_id import StreamId
from destination_s3_spark.tables.columns.partitioning import (
    begins_generation,
    choose,
    partitioning_of,
    recorded_partition,
    warn_of_recorded,
)
from destination_s3_spark.tables.columns.row_plan import (
    deciding_fields,
    file_columns,
    is_deduplicated,
    key_spec,
    refusal,
    row_plan,
    schema_policy,
    valid_from,
)
from destination_s3_spark.tables.columns.treated import recorded_rules, require_same_keys, require_treatable, warn_of_other_rules
from destination_s3_spark.tables.columns.validity import VALIDITY
from destination_s3_spark.tables.commit.generation import Kept, kept_rows
from destination_s3_spark.tables.commit.writer import TableWriter
from destination_s3_spark.tables.landing.barred import Barred
from destination_s3_spark.tables.open_table import Layout, OpenTable
from destination_s3_spark.tables.rules import Rules
from destination_s3_spark.tables.runs.keys import KeySpec
from destination_s3_spark.wording import counted

logger = logging.getLogger("airbyte")


def write_disposition(stream: Stream) -> WriteDisposition:
    """Return what a sync of the stream does to the rows already in its table."""
    if stream.minimum_generation_id:
        return WriteDisposition.TRUNCATE
    return WriteDisposition.OVERWRITE if stream.destination_sync_mode is DestinationSyncMode.OVERWRITE else WriteDisposition.APPEND


def recorded_stream(of: StreamId, schema: Mapping[str, Any], generation: int) -> tuple[Stream, StreamFields]:
    """Restore the stream and the fields that the table's last sync declared."""
    stream = Stream(
        id=of,
        json_schema={},
        sync_mode="full_refresh",
        destination_sync_mode=DestinationSyncMode(schema["mode"]),
        primary_key=tuple(tuple(path) for path in schema["primaryKey"]),
        cursor_field=tuple(schema["cursor"]),
        generation_id=generation,
        minimum_generation_id=0,
        sync_id=0,
    )
    return stream, _declared(from_event(schema))


def _order(stream: Stream) -> tuple[Any, ...]:
    """Return what decides which version of a row stays. The order of the key's parts does not."""
    return stream.destination_sync_mode, frozenset(stream.primary_key), stream.cursor_field


def in_recorded_order(stream: Stream, recorded: Iterable[Mapping[str, Any] | None]) -> Stream:
    """Return the stream with the parts of its key in the order of the first recorded schema that has the same parts.

    Catalogs may list them in any order, and files are sorted by the one that was recorded first.
    """
    keys = (tuple(tuple(path) for path in schema["primaryKey"]) for schema in recorded if schema is not None)
    return replace(stream, primary_key=next((key for key in keys if {*key} == {*stream.primary_key}), stream.primary_key))


def _declared(schema: TableSchema) -> StreamFields:
    columns = [column for column in schema.fields if column.present]
    return StreamFields(tuple(column.field for column in columns), frozenset(column.source for column in columns if column.required))


@dataclass(frozen=True, slots=True)
class StreamTable:
    """A stream's table before this sync writes to it. `session` is the session of its writer.

    The final format of `layout` has the encodings of new tables.
    """

    stream: Stream
    fields: StreamFields
    writer: TableWriter
    layout: Layout
    rules: Rules
    session: Session
    treatment: Treatment | None = None
    """What of the records never lands. None for a session that lands none; `fields` are what is left."""

    @property
    def deduplicated(self) -> bool:
        return is_deduplicated(self.stream)

    def before_this_sync(self) -> StreamTable | None:
        """Return the table as its last sync declared it, if what waits there has to be merged before rows of this sync land.

        That is so if this sync has another key, cursor or mode: merged later, versions of a row that the earlier key would have replaced
        would stay. A complete refresh is published first if this sync is of another generation, because nobody could tell their rows
        apart later, or changes a column's type, because a refresh makes values null that do not fit. It is published before another
        refresh begins, which may not end.
        """
        state = self._recorded()
        if state is None or state.schema is None:
            return None
        pending = state.contents.pending
        if not (state.contents.waiting.files or (pending is not None and pending.complete)):
            return None
        stream, fields = recorded_stream(self.stream.id, state.schema, state.contents.generation)
        if self._lands_in(state):
            goes_on = _order(stream) == _order(self.stream) and self._may_add_to(state)
        else:
            goes_on = pending is None or not is_published_first(pending, self.session)
        if goes_on or not is_deduplicated(stream):
            return None
        adding = replace(self.session, disposition=WriteDisposition.APPEND)
        return replace(self, stream=stream, fields=fields, session=adding, treatment=None)

    def _recorded(self) -> TableState | None:
        """Return the state as read, with the schema of the rows that those of this session are added to. None without a table."""
        state = self.writer.state
        return state and self.writer.chain.state_of_rows(without_pending=pending_in(state, self.session) is None)

    def _lands_in(self, state: TableState) -> bool:
        """Tell whether rows of this sync are added to those that wait. A generation does so that has begun in an empty table."""
        if self.session.disposition is WriteDisposition.APPEND:
            return True
        return state.contents.pending is None and pending_in(state, self.session) is None

    def _may_add_to(self, state: TableState) -> bool:
        """Tell whether rows of this sync may be added to what waits in the table under the same key, cursor and mode."""
        pending = state.contents.pending
        if pending is None:
            return True
        same = pending.generation == self.session.generation_id
        return same and not self._evolve(state, recorded_partition(state), replaces=False).retyped

    @property
    def _begins_columns(self) -> bool:
        """Whether a pending generation has the columns of this sync alone. Those of a complete one stay when rows are added to it."""
        return self.session.disposition is not WriteDisposition.APPEND

    def check_schema(self) -> None:
        """Raise ConfigError unless the declared columns fit the table as read and the format of its files."""
        state = self._recorded()
        replaces = state is not None and pending_in(state, self.session) is not None and self._begins_columns
        configured = self.rules.partition_of(self.stream.id)
        takes_configured = state is None or replaces or state.contents.empty
        partition = configured if takes_configured else recorded_partition(state)
        if self.treatment is not None:
            require_treatable(self.stream, self.treatment, (partition, configured))
            if not takes_configured:
                require_same_keys(self.stream, recorded_rules(state), self.treatment.recorded())
        evolution = self._evolve(state, partition, replaces=replaces)
        for spec in dict.fromkeys((partition, configured)):  # a configured one that has to wait for a refresh should fit too
            partitioning_of(self.stream, replace(evolution.schema, partition=spec), self.layout.final)
        self.key_spec_of(evolution.schema, None)
        self._check_history(evolution.schema)
        plan = row_plan(self.stream, evolution.schema, self.fields.fields, self.layout.final)
        self.layout.final.require_fitting(file_columns(evolution.schema, plan))

    def _check_history(self, schema: TableSchema) -> None:
        """Raise ConfigError if the columns do not allow the history that the user wants."""
        rule = self.rules.history_of(self.stream.id) if self.deduplicated else None
        if rule is None:
            return
        own = {field.name for field in VALIDITY}
        taken = sorted(own & {field.name.casefold() for field in schema.fields})
        if taken:
            raise refusal(self.stream, f"its history has a column '{taken[0]}' of its own. Leave the stream out of tables.history.")
        unknown = sorted((rule.columns or frozenset()) - {field.source for field in schema.fields})
        if unknown:
            raise refusal(
                self.stream,
                f"tables.history names the column '{unknown[0]}', which the stream does not have. Name fields at the top level of its "
                "records, as the source spells them.",
            )

    def open(self) -> OpenTable:
        """Open the table for writing. Call it once, when there is data to land or an update to run.

        The columns are recorded at once, unless the table is outdated. An outdated table's rows first have to be converted to them, and
        the update that rewrites them calls `OpenTable.record_schema`. Raises ConfigError, Fenced or TransientError.
        """
        state = self.restore_schema()
        of_rows = self.writer.chain.state_of_rows().schema if state.contents.earlier_schema is not None else None
        return replace(self, stream=in_recorded_order(self.stream, (state.schema, of_rows)))._opened(state)

    def _opened(self, state: TableState) -> OpenTable:
        self._warn_of_mixed_orders(state)
        kept = self._kept()
        self._refuse_adopted(state, kept)
        pending = state.contents.pending is not None
        configured = self.layout.final.encodings if isinstance(self.layout.final, ParquetOptions) else None
        encodings = choose(self.writer, configured, self.session.disposition, kept)
        partition = self._partition(state, kept)
        before = partition if state.contents.empty else recorded_partition(state)
        evolution = self._evolve(state, partition, replaces=pending and self._begins_columns).partitioned(before, partition)
        self._refuse_other_types(state, evolution)
        evolution = self._treated(state, evolution, kept)
        evolution, to_record = self._to_record(state, evolution if encodings is None else evolution.encoded(*encodings))
        types_since = evolution.schema.schema_id if evolution.retyped else state.types_since
        made = self.as_recorded(evolution.schema, types_since)
        table = replace(
            made,
            to_record=to_record,
            valid_from=valid_from(self.stream, evolution.schema),
            pending=pending,
            kept=kept,
            outdated=not pending and self._has_rows_of_other_types(made),
            treatment=self.treatment,
            barred=self._barred(),
        )
        if self.deduplicated and not pending:
            self._refuse_unreadable(table)
        if not table.outdated:
            table.record_schema()
        return table

    def restore_schema(self) -> TableState:
        """Open the table's chain and return its state. If a refresh that was given up has recorded another schema, record that of the rows.

        Columns that the refresh added stay.
        """
        state = self.writer.open()
        if not state.contents.has_earlier_schema():
            return state
        of_rows = self.writer.chain.state_of_rows().schema or {}
        rows, last = from_event(of_rows), from_event(state.schema or {})
        evolution = restored(last, rows)
        schema = replace(
            evolution.schema,
            schema_id=last.schema_id + 1,
            encodings=rows.encodings,
            partition=rows.partition,
            column_rules=rows.column_rules,
        )
        stream, _ = recorded_stream(self.stream.id, of_rows, state.contents.generation)
        self.writer.ensure_schema(replace(self, stream=stream)._payload(replace(evolution, schema=schema)))
        return self.writer.open()

    def _warn_of_mixed_orders(self, state: TableState) -> None:
        """Warn if rows of a refresh that ended early joined others that wait for a merge under another key, cursor or mode."""
        earlier = state.contents.earlier_schema
        if earlier is None or not earlier.joined or state.schema is None:
            return
        schemas = self.writer.chain.schema_at(earlier.schema_id)[0], state.schema
        before, now = (_order(recorded_stream(self.stream.id, schema, 0)[0]) for schema in schemas)
        runs = [file for file in self.writer.live_files().of(FileKind.DELTA) if (file.schema_id or 0) <= earlier.schema_id]
        if before != now and runs and before[0] is DestinationSyncMode.APPEND_DEDUP:
            logger.warning(
                "stream %s: a refresh under another mode, primary key or cursor ended early, and its rows are now among those of the "
                "table. %s that waited for a merge before it are not merged by the key that they landed under, so older versions may "
                "stay. Run a refresh that removes the records.",
                self.stream.id, counted(sum(file.rows for file in runs), "row"),
            )  # fmt: skip

    def as_recorded(self, schema: TableSchema, types_since: int) -> OpenTable:
        """Return the table with columns that its chain records, without opening it. It takes no rows. Raises ConfigError."""
        layout = replace(self.layout.encoded(schema.encodings or DESTINATION_S3), root=self.writer.chain.head.identity.final_root)
        partitioning = partitioning_of(self.stream, schema, layout.final)
        return OpenTable(
            stream=self.stream,
            declared=self.fields.fields,
            writer=self.writer,
            layout=layout,
            rules=self.rules,
            session=self.session,
            schema=schema,
            types_since=types_since,
            key_spec=self.key_spec_of(schema, partitioning),
            partitioning=partitioning,
        )

    def _barred(self) -> Barred | None:
        found = self.writer.chain.barred()
        if found is None:
            return None
        return Barred(bytes.fromhex(found.salt), {one.fields: frozenset(map(bytes.fromhex, one.digests)) for one in found.keys})

    def _partition(self, state: TableState, kept: Kept) -> PartitionSpec | None:
        recorded, disposition = recorded_partition(state), self.session.disposition
        if disposition is WriteDisposition.MAINTAIN:
            return recorded
        configured = self.rules.partition_of(self.stream.id)
        if state.contents.empty or begins_generation(state.contents, disposition, kept):
            return configured
        warn_of_recorded(self.stream, recorded, configured)
        return recorded

    def _treated(self, state: TableState, evolution: Evolution, kept: Kept) -> Evolution:
        """Return the evolution with this session's column rules. Raises ConfigError if rows stay whose keys were treated by others."""
        if self.treatment is None:
            return evolution
        before, now = recorded_rules(state), self.treatment.recorded()
        if before != now and not state.contents.empty and not begins_generation(state.contents, self.session.disposition, kept):
            require_same_keys(self.stream, before, now)
            warn_of_other_rules(self.stream, before, now)
        return evolution.treated(now)

    def key_spec_of(self, schema: TableSchema, partitioning: Partitioning | None) -> KeySpec | None:
        """Return the key of the rows of a deduplicated table with this schema, None for an append table. Raises ConfigError."""
        if not self.deduplicated:
            return None
        return key_spec(self.stream, schema, self.rules.deletion, of_text=self.layout.of_text, partitioning=partitioning)

    def _has_rows_of_other_types(self, table: OpenTable) -> bool:
        if not table.types_since or self.layout.of_text:
            return False
        return any(table.is_outdated(file) for file in self.writer.live_files().of(FileKind.FINAL, FileKind.STATE))

    def _kept(self) -> Kept:
        kept = kept_rows(self.writer, self.session.disposition)
        if kept is None:
            raise refusal(
                self.stream,
                f"its refresh (generation {self.session.generation_id}) continues, but a merge has mixed its earlier records with older "
                "ones. Only the raw table can separate them, and it does not have all of them. Run a new refresh that removes the records.",
            )
        return kept

    def _refuse_adopted(self, state: TableState, kept: Kept) -> None:
        """Raise ConfigError if a deduplicated table has files of destination-s3, because their rows have no order."""
        if not (self.deduplicated and state.contents.adopted):
            return
        refreshed = state.contents.pending is not None
        staying = kept.adopted if refreshed else self.writer.live_files().adopted
        if staying:
            which = f" that belong to the refresh that is running (generation {state.contents.generation})" if refreshed else ""
            raise refusal(
                self.stream,
                f"its table has {counted(len(staying), 'file')} of an earlier connector{which}, from '{min(staying)}' on, and "
                "append_dedup cannot tell their rows apart. Run a new refresh that removes the records, or choose another path.",
            )

    def _refuse_other_types(self, state: TableState, evolution: Evolution) -> None:
        """Raise ConfigError if a column takes another type in place and files of destination-s3 stay: they are never rewritten."""
        retyped = evolution.schema.retyped if evolution.changes and not self.layout.of_text else ()
        if retyped and state.contents.adopted and state.contents.pending is None:
            raise refusal(
                self.stream,
                f"the column '{retyped[0]}' takes another type in place, and {counted(state.contents.adopted, 'file')} of an earlier "
                "connector may have the old one. Undo the change in the source, set tables.schema_change to recover, or run a refresh that "
                "removes the records.",
            )

    def _refuse_unreadable(self, table: OpenTable) -> None:
        """Raise ConfigError if a merge could read the existing rows neither from their files nor from the raw table."""
        live, maintains = self.writer.live_files(), self.session.disposition is WriteDisposition.MAINTAIN
        covered = table.raw_covers(live)
        if covered and maintains:
            return
        states = {file.copy_of for file in live.of(FileKind.STATE)}
        others = [file for file in live.of(FileKind.FINAL) if not self._is_mergeable(file.key, has_state=file.key in states)]
        unreadable = [key for key, twin in live.raw_twins(others).items() if twin is None]
        if not unreadable:
            return
        if not covered:
            raw = "which does not have all of them. Go"
        elif self.layout.raw is None:
            raw = "which tables.raw_tables turns off. Leave it on until a merge has rewritten the table, go"
        elif not table.raw_replays(live):
            raw = "where some landed under another primary key or cursor. Go"
        else:
            return
        raise refusal(
            self.stream,
            f"its table has {counted(len(unreadable), 'file')} in another format than {self.layout.final.extension}, or in a format of "
            f"text without an order, from '{unreadable[0]}' on, and a merge can only read their rows from the raw table, {raw} back to the "
            "earlier format and mode, or run a refresh that removes the records.",
        )

    def _is_mergeable(self, key: str, *, has_state: bool) -> bool:
        found = format_of(key)
        if self.layout.of_text:
            return has_state and found is not None and not found.typed
        return has_state or (found is not None and found.sorted_rows)

    def _evolve(self, state: TableState | None, partition: PartitionSpec | None, *, replaces: bool) -> Evolution:
        fixed = deciding_fields(self.stream) | ({partition.source} if partition is not None else set())
        policy = schema_policy(self.layout.final, self.rules.schema_change, fixed, replace=replaces)
        if state is None or state.schema is None:
            return evolve(None, self.fields, self.stream.id, policy)
        last = from_event(state.schema)
        earlier = state.contents.earlier_schema
        own = pending_in(state, self.session) is not None or state.contents.has_earlier_schema(without_pending=True)
        if earlier is None or own:
            return evolve(last, self.fields, self.stream.id, policy)
        # Rows of the refresh that the last schema is of are added to the table, so they must not change the types of those that are there.
        evolution = restored(last, from_event(self.writer.chain.schemas([earlier.schema_id])[earlier.schema_id]))
        if evolution.changes:
            evolution = evolution.then(_declared(last), self.stream.id, policy)
        return evolution.then(self.fields, self.stream.id, policy)

    def _to_record(self, state: TableState, evolution: Evolution) -> tuple[Evolution, dict[str, object] | None]:
        """Return the evolution and the SetDataSchema payload to record, or None if the chain has it."""
        recorded = state.schema
        payload = self._payload(evolution)
        if recorded is None or evolution.changes:
            return evolution, payload
        keys = ("mode", "primaryKey", "cursor", "encodings", "partition", "columnRules", "history")
        # Rows of a refresh that joined the table have another schema than the others, until one is recorded for both.
        joined = state.contents.earlier_schema is not None and state.contents.pending is None
        if not joined and all(recorded.get(key) == payload.get(key) for key in keys):
            return evolution, None
        # The same columns under another key, cursor, mode or encoding are a new schema, because readers of the chain rely on these values.
        evolution = replace(evolution, schema=replace(evolution.schema, schema_id=evolution.schema.schema_id + 1))
        return evolution, self._payload(evolution)

    def _payload(self, evolution: Evolution) -> dict[str, object]:
        stream = self.stream
        payload = to_event(evolution, stream.destination_sync_mode.value, stream.primary_key, stream.cursor_field)
        rule = self.rules.history_of(stream.id) if self.deduplicated else None
        if rule is None:
            return payload
        columns = None if rule.columns is None else sorted(rule.columns)
        return payload | {"history": {"columns": columns, "validFrom": valid_from(stream, evolution.schema) or EXTRACTED_AT}}

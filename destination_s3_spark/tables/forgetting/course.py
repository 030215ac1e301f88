"""The course of forgetting rows of one table: whether it is possible, the search, and the one step that exchanges files.

The table is that which its chain records, so a search opens nothing and writes nothing. Rows are looked for in every file that the chain
names; what it does not name any more is deleted by the command.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import pyarrow as pa

from destination_s3_spark.chain.files import HISTORY_KINDS, FileEntry, FileKind
from destination_s3_spark.chain.live_files import LiveFiles
from destination_s3_spark.chain.state import TableState
from destination_s3_spark.decoding.plan import Values
from destination_s3_spark.delta_log.log import DeltaLog, UnreadableLog
from destination_s3_spark.errors import Bug, TransientError
from destination_s3_spark.formats.file_format import FileColumns
from destination_s3_spark.formats.parquet import ParquetOptions
from destination_s3_spark.schema.arrow import META_FIELDS, RAW_SCHEMA
from destination_s3_spark.schema.encodings import DESTINATION_S3
from destination_s3_spark.schema.schema_event import from_event
from destination_s3_spark.tables.columns.partitioning import partitioning_of
from destination_s3_spark.tables.columns.row_plan import file_columns, key_spec
from destination_s3_spark.tables.commit.generation import NOTHING
from destination_s3_spark.tables.configured import RAW_PARQUET
from destination_s3_spark.tables.forgetting.erasure import EraseTask, SortedEraseTask, erase, erase_sorted
from destination_s3_spark.tables.forgetting.search import Found, SearchTask, SortedSearchTask, search, search_sorted
from destination_s3_spark.tables.forgetting.wanted import ByKeys, ByValues, Wanted
from destination_s3_spark.tables.merge.task import form_of_deletions
from destination_s3_spark.tables.open_table import Columns, OpenTable
from destination_s3_spark.tables.runs.footers import with_keys
from destination_s3_spark.tables.runs.keys import KeySpec, keys_of, lower, upper
from destination_s3_spark.tables.runs.sorted_file import MergeForm
from destination_s3_spark.tables.runs.table_format import TableFormat
from destination_s3_spark.tables.stored.conversion import UnfitValues, project
from destination_s3_spark.tables.stored.rewrite import Stored
from destination_s3_spark.tables.stream_table import StreamTable
from destination_s3_spark.tables.updates.merged import table_format
from destination_s3_spark.tables.updates.resources import Resources
from destination_s3_spark.tables.updates.steps import Steps, Update, Work

SEARCHED = frozenset({FileKind.FINAL, FileKind.RAW, FileKind.DELTA, FileKind.TOMBSTONE})
"""Kinds of files in which rows are looked for. A table that has others is refused."""
ICEBERG_FOLDER = "_iceberg/"
"""The folder of Iceberg's metadata in that of a table."""


def recorded_table(closed: StreamTable) -> OpenTable:
    """Return a table as its chain records it, without opening it. Raises ConfigError or TransientError if it cannot forget rows now."""
    state = closed.writer.state
    if state is None or state.schema is None:
        raise Bug(f"Table {closed.stream.id} has no schema.")
    schema = from_event(state.schema)
    encoded = closed.layout.encoded(schema.encodings or DESTINATION_S3)
    partitioning = partitioning_of(closed.stream, schema, encoded.final)
    spec = key_spec(closed.stream, schema, closed.rules.deletion, of_text=False, partitioning=partitioning) if closed.deduplicated else None
    table = OpenTable(
        stream=closed.stream,
        declared=closed.fields.fields,
        writer=closed.writer,
        layout=replace(encoded, root=state.identity.final_root),
        rules=closed.rules,
        session=closed.session,
        columns=Columns(schema, None, state.types_since),
        spec=spec,
        partitioning=partitioning,
        pending=False,
        kept=NOTHING,
        outdated=False,
    )
    _require_quiet(table, state)
    _require_readable(table)
    return table


def _require_quiet(table: OpenTable, state: TableState) -> None:
    """Raise TransientError if a sync has to come first."""
    if not state.closed:
        raise TransientError(
            "A sync is writing to it, or has died, and its records may come again. Nothing was changed. Try again when the next sync has "
            "ended.",
            stream=table.stream.id,
        )
    if state.contents.pending is not None:
        raise TransientError(
            "A refresh of it is not finished, or is held back, and has rows of its own. Nothing was changed. Try again when it is complete "
            "or discarded.",
            stream=table.stream.id,
        )


def _require_no_history(table: OpenTable, live: LiveFiles) -> None:
    if live.of(*HISTORY_KINDS):
        raise table.refuse(
            "it has a history (tables.history), from which rows cannot be removed, nor does a refresh remove them. Nothing was changed. To "
            "drop all versions, delete the table's files and its folders under airbyte_internal and airbyte_history, and run a refresh."
        )


def _require_readable(table: OpenTable) -> None:
    """Raise ConfigError if rows of the table are where they cannot be looked for or removed from."""
    live, layout = table.writer.live_files(), table.layout
    _require_no_history(table, live)
    refresh = "Nothing was changed. A refresh that removes the records, once they are gone in the source, replaces all of it."
    if layout.final.values is not Values.TYPED or not isinstance(layout.final, ParquetOptions):
        raise table.refuse(f"rows can be forgotten in Parquet tables only, and this one is not configured so. {refresh}")
    unknown = {file.kind for file in live.files} - SEARCHED
    if unknown - {FileKind.STATE}:
        names = ", ".join(sorted(kind.value for kind in unknown))
        raise table.refuse(f"it has files of the kind {names}, from which rows cannot be removed yet. {refresh}")
    if live.adopted:
        raise table.refuse(f"it has files of destination-s3, which this connector does not change. {refresh}")
    other = next((file.key for file in live.files if not file.key.endswith(ParquetOptions.extension)), None)
    if other is not None or any(table.is_outdated(file) for file in live.files if file.kind is not FileKind.RAW):
        raise table.refuse(f"it has files of another format or type than today's, which its next merge or sync rewrites. {refresh}")
    sorted_kinds = (FileKind.FINAL, FileKind.DELTA)
    if table.spec is None and live.of(FileKind.DELTA):
        raise table.refuse("it has rows that the next sync publishes. Nothing was changed. Try again when that sync has ended.")
    if table.spec is not None and any(file.sorted_by != table.spec.fingerprint for file in live.of(*sorted_kinds)):
        raise table.refuse(f"it has files in the order of another key, which its next merge sorts: run `merge`. {refresh}")
    if any("/" not in found.key.removeprefix(layout.changes) for found in table.writer.store.list(layout.changes)):
        raise table.refuse(
            "it has a change log, which holds values of rows, and from which rows cannot be removed yet. Nothing was changed. Delete the "
            f"log's objects under '{layout.changes}' once its readers need them no more, with change_log.enabled off, or wait for their "
            "retention."
        )
    if next(iter(table.writer.store.list(f"{layout.root}{ICEBERG_FOLDER}")), None) is not None:
        raise table.refuse(
            "it is published for Iceberg, whose metadata has bounds of values, also of older versions. Nothing was changed. Switch the "
            f"publication off, drop the table in the catalog, delete what is under '{layout.root}{ICEBERG_FOLDER}', forget, and switch it "
            "on again."
        )


def has_delta_log(table: OpenTable, state: TableState) -> bool:
    """Tell whether the table has a Delta log. Raises ConfigError for one that is not the table's or cannot be read."""
    log = DeltaLog(table.writer.store, table.layout.root)
    try:
        found = log.read()
    except UnreadableLog:
        found = None
    if found is not None and state.identity.table_id in found.transactions:
        return True
    if next(iter(table.writer.store.list(log.prefix)), None) is not None:
        raise table.refuse(
            f"'{log.prefix}' has the Delta log of another program, or one that cannot be read, and may have bounds of values. Nothing was "
            "changed. Remove it; the next sync writes it again."
        )
    return False


@dataclass(slots=True)
class Forgetting:
    """The forgetting of rows of one table. `found` has the files with such rows once `searched` has ended."""

    table: OpenTable
    wanted: Wanted
    resources: Resources
    found: dict[str, int] = field(default_factory=dict)
    """The number of rows to forget by the key of their file."""
    live: LiveFiles = field(init=False)
    form: TableFormat | None = field(init=False)

    def __post_init__(self) -> None:
        self.live = self.table.writer.live_files()
        spec = self.table.spec
        self.form = None if spec is None else table_format(self.table, spec, self.live, self.resources.least_file_bytes)

    @property
    def files(self) -> tuple[FileEntry, ...]:
        """The live files with rows to forget."""
        return tuple(file for file in self.live.files if file.key in self.found)

    def rows(self, kind: FileKind) -> int:
        """Return the number of rows to forget in files of a kind."""
        return sum(self.found[file.key] for file in self.files if file.kind is kind)

    def to_read(self) -> int:
        """Return the bytes of the files that the search reads whole."""
        kinds = (FileKind.RAW,) if isinstance(self.wanted, ByKeys) else (FileKind.RAW, FileKind.FINAL, FileKind.DELTA)
        return sum(file.bytes for file in self.live.of(*kinds))

    def searched(self) -> Update:
        """Look for the rows in every live file. In a deduplicated table they are all rows of every key that has a row with the values."""
        wanted, spec = self.wanted, self.table.spec
        if spec is not None and isinstance(wanted, ByValues):
            files = self.live.of(FileKind.FINAL, FileKind.DELTA, FileKind.RAW)
            keys = yield from self._found_in(files, wanted, spec)
            wanted = ByKeys(spec, frozenset(key for one in keys.values() for key in one.keys))
        self.wanted = wanted
        if isinstance(wanted, ByKeys):
            if wanted.keys:
                yield from self._counted(wanted)
        else:
            found = yield from self._found_in(self.live.of(FileKind.FINAL, FileKind.RAW), wanted, None)
            self.found = {key: one.rows for key, one in found.items() if one.rows}
        return None

    def _found_in(self, files: Sequence[FileEntry], wanted: Wanted, spec: KeySpec | None) -> Steps[Mapping[str, Found]]:
        s3 = self.resources.task.s3
        tasks = [SearchTask(stored, wanted, spec, s3) for stored in self._stored(files)]
        done = (yield from Work(search, tasks, lambda task: task.bytes).results()) if tasks else []
        return {file.key: one for file, one in zip(files, done, strict=True)}

    def _counted(self, wanted: ByKeys) -> Steps[None]:
        """Count the rows of the keys in each file. Of sorted files only those are read whose range has a key."""
        s3, form = self.resources.task.s3, self._form()
        kinds = (FileKind.FINAL, FileKind.DELTA, FileKind.TOMBSTONE)
        having = [file for file in self.live.of(*kinds) if file.rows]
        known = with_keys(having, self.table.writer.store, self.table.writer.map_files)
        keys = sorted(wanted.keys)
        within = {file.key: keys[bisect_left(keys, lower(keys_of(file))) : bisect_right(keys, upper(keys_of(file)))] for file in known}
        near = [file for file in known if within[file.key]]
        tasks = [SortedSearchTask(file, self._narrow(form, file.kind), frozenset(within[file.key]), s3) for file in near]
        done = (yield from Work(search_sorted, tasks, lambda task: task.bytes).results()) if tasks else []
        raw = yield from self._found_in(self.live.of(FileKind.RAW), wanted, None)
        counts = {**{file.key: one for file, one in zip(near, done, strict=True)}, **raw}
        self.found = {key: one.rows for key, one in counts.items() if one.rows}

    def _form(self) -> TableFormat:
        if self.form is None:
            raise Bug(f"Table {self.table.stream.id} has no keys.")
        return self.form

    def _narrow(self, form: TableFormat, kind: FileKind) -> MergeForm:
        """Return the merge form with the columns alone that make the key."""
        if kind is FileKind.TOMBSTONE:
            return form_of_deletions(form.spec)
        deciding = (*META_FIELDS, *form.spec.key, form.spec.cursor, form.spec.deleted_at)
        names = {one.name for one in deciding if one is not None}
        payload = pa.schema([one for one in form.form.payload if one.name in names])
        return MergeForm(payload, form.spec, partial(project, schema=payload))

    def _stored(self, files: Sequence[FileEntry]) -> list[Stored]:
        """Return how files are read as rows of the table's columns."""
        table = self.table
        schemas = table.writer.schemas({file.schema_id or 0 for file in files})
        return [
            Stored(file, table.plan_of(schemas[file.schema_id or 0]), None, table.schema, UnfitValues.NULL)
            if file.kind is FileKind.RAW
            else Stored(file, table.plan, schemas[file.schema_id or 0], table.schema, UnfitValues.NULL)
            for file in files
        ]

    def erased(self) -> Update:
        """Stage the files without the rows, and exchange them for those with the rows in one block. The table must be open."""
        tasks, sorted_tasks = list(self._tasks()), list(self._sorted_tasks())
        made: list[FileEntry] = (yield from Work(erase, tasks, lambda task: task.bytes).results()) if tasks else []
        made += (yield from Work(erase_sorted, sorted_tasks, lambda task: task.bytes).results()) if sorted_tasks else []
        return self.table.writer.forget(made, [*self.files, *self.live.dropped], *self._landed())

    def _landed(self) -> tuple[int, int]:
        """Return the number of records that landed and are forgotten, as far as files still tell, and those of earlier generations."""
        contents = self.table.writer.open().contents
        kind = FileKind.FINAL if self.table.spec is None else FileKind.RAW
        files = [file for file in self.files if file.kind is kind]
        rows = sum(self.found[file.key] for file in files)
        earlier = sum(self.found[file.key] for file in files if file.offset is None or file.offset < contents.current_from)
        return rows, max(min(earlier, contents.earlier_rows), rows - contents.current_rows)

    def _left(self) -> Iterator[tuple[FileEntry, int]]:
        """Yield the files that keep rows, and how many."""
        for file in self.files:
            if file.rows > self.found[file.key]:
                yield file, file.rows - self.found[file.key]

    def _tasks(self) -> Iterator[EraseTask]:
        table, s3 = self.table, self.resources.task.s3
        left = [(file, rows) for file, rows in self._left() if table.spec is None or file.kind is FileKind.RAW]
        final = file_columns(table.schema, table.plan)
        for stored, (file, rows) in zip(self._stored([file for file, _ in left]), left, strict=True):
            is_raw = file.kind is FileKind.RAW
            columns = FileColumns(table.stream.id, (), RAW_SCHEMA) if is_raw else final
            options = table.layout.raw or RAW_PARQUET if is_raw else table.layout.final
            yield EraseTask(stored, self.wanted, rows, table.key_beside(file), columns, options, s3)

    def _sorted_tasks(self) -> Iterator[SortedEraseTask]:
        if not isinstance(self.wanted, ByKeys) or self.form is None:
            return
        for file, rows in self._left():
            if file.kind is not FileKind.RAW:
                yield SortedEraseTask(file, self.wanted.keys, rows, self._key(file), self.form, self.resources.task.s3)

    def _key(self, file: FileEntry) -> str:
        """Make the key of the file that replaces a sorted one."""
        match file.kind:
            case FileKind.DELTA:
                return self.table.delta_key()
            case FileKind.TOMBSTONE:
                return self.table.layout.tombstone_key(self.table.writer.next_token())
        return self.table.key_beside(file)

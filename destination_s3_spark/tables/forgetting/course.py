"""The course of forgetting rows of one table: the search, and the one step that exchanges files.

Rows are looked for in every file that the chain names; what it does not name any more is deleted by the command.
"""

from __future__ import annotations

import dataclasses
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from msgspec.structs import replace

from destination_s3_spark.chain.files import HISTORY_KINDS, FileEntry, FileKind
from destination_s3_spark.chain.live_files import LiveFiles
from destination_s3_spark.chain.state import Contents
from destination_s3_spark.formats.avro import AvroOptions
from destination_s3_spark.formats.avro_rows import StoredAvro
from destination_s3_spark.formats.parquet import ParquetOptions
from destination_s3_spark.formats.read_back import StoredText
from destination_s3_spark.formats.registry import extension_of
from destination_s3_spark.schema.airbyte_type import Field, Scalar
from destination_s3_spark.schema.arrow import META_FIELDS
from destination_s3_spark.tables.columns.row_plan import plans_of_columns
from destination_s3_spark.tables.commit.batch import ForgottenRows
from destination_s3_spark.tables.commit.generation import generation_of
from destination_s3_spark.tables.configured import RAW_PARQUET
from destination_s3_spark.tables.forgetting.change_log import LogForgetting
from destination_s3_spark.tables.forgetting.erasure import EraseTask, SortedEraseTask, erase, erase_sorted
from destination_s3_spark.tables.forgetting.search import (
    CollectTask,
    Found,
    SearchTask,
    SortedSearchTask,
    collect,
    search,
    search_sorted,
)
from destination_s3_spark.tables.forgetting.wanted import ByKeys, FieldTexts, Wanted
from destination_s3_spark.tables.merge.task import form_of_deletions
from destination_s3_spark.tables.open_table import OpenTable
from destination_s3_spark.tables.runs.keys import KeySpec, keys_of, lower, upper
from destination_s3_spark.tables.runs.sorted_file import MergeForm
from destination_s3_spark.tables.runs.table_format import TableFormat
from destination_s3_spark.tables.stored.conversion import UnfitValues
from destination_s3_spark.tables.stored.foreign import Source, StoredForeign, StoredLines
from destination_s3_spark.tables.stored.rewrite import Stored
from destination_s3_spark.tables.updates.merged import table_format
from destination_s3_spark.tables.updates.resources import Resources
from destination_s3_spark.tables.updates.steps import Steps, Update, Work

Meaning: TypeAlias = Callable[[FileEntry], Wanted | None]
"""Returns which rows are looked for in a file, None for a file that cannot have them."""


@dataclass(slots=True)
class Forgetting:
    """The forgetting of rows of one table. `found` has the files with such rows once `searched` has ended."""

    table: OpenTable
    wanted: Wanted
    resources: Resources
    found: dict[str, int] = field(default_factory=dict)
    """The number of rows to forget by the key of their file."""
    keys: ByKeys | None = None
    """The keys of the rows to forget of a deduplicated table, once they are known."""
    live: LiveFiles = field(init=False)
    read: tuple[FileEntry, ...] = field(init=False)
    """The live files that are read: all but final files whose rows a merge state has. How many rows adopted ones have is not known yet."""
    finals: dict[str, FileEntry] = field(init=False)
    """The final file of each merge state, by the key of the state."""
    log: LogForgetting = field(init=False)
    form: TableFormat | None = field(init=False)

    def __post_init__(self) -> None:
        self.live = self.table.writer.live_files()
        by_key = {file.key: file for file in self.live.files}
        self.finals = {state.key: by_key[state.copy_of] for state in self.live.of(FileKind.STATE) if state.copy_of in by_key}
        twins = {final.key for final in self.finals.values()}
        adopted = self.table.writer.map_files(self._adopted, self.live.adopted)
        self.read = (*(file for file in self.live.files if file.key not in twins), *adopted)
        self.log = LogForgetting(self.table, self.resources)
        spec = self.table.spec
        self.form = None if spec is None else table_format(self.table, spec, self.live, self.resources.least_file_bytes)

    def _adopted(self, key: str) -> FileEntry:
        found = self.table.writer.store.head(key)
        return FileEntry(FileKind.ADOPTED, key, 0, 0 if found is None else found.size, generation_id=generation_of(found))

    @property
    def files(self) -> tuple[FileEntry, ...]:
        """The files that were read and have rows to forget."""
        return tuple(file for file in self.read if file.key in self.found)

    @property
    def objects(self) -> int:
        """The number of files with rows to forget, those of the change log included."""
        return len(self.files) + len(self.log.places)

    @property
    def changes(self) -> bool:
        """Whether files are to be exchanged or deleted."""
        return bool(self.files or self.live.dropped or self.log.changes)

    def rows(self, kind: FileKind) -> int:
        """Return the number of rows to forget in files of a kind."""
        if kind is FileKind.CHANGES:
            return self.log.rows
        kinds = (FileKind.FINAL, FileKind.STATE) if kind is FileKind.FINAL else (kind,)
        return sum(self.found[file.key] for file in self.files if file.kind in kinds)

    def to_read(self) -> int:
        """Return the bytes of the files that the search reads whole."""
        by_keys = isinstance(self.wanted, ByKeys)
        return self.log.size + sum(
            file.bytes for file in self.read if file.kind is not FileKind.TOMBSTONE and not (by_keys and self._is_sorted(file))
        )

    def _is_sorted(self, file: FileEntry) -> bool:
        """Tell whether merges of today find the rows of a key in the file. They do not read histories of another key or other types."""
        spec = self.table.spec
        if spec is None or file.kind is FileKind.RAW:
            return False
        if file.kind in HISTORY_KINDS and not isinstance(self.table.layout.final, ParquetOptions):
            return False  # it has the columns that the table had as Parquet
        if file.kind is FileKind.TOMBSTONE:
            return file.sorted_by == spec.of_deletions.fingerprint
        return file.sorted_by == spec.fingerprint and not self.table.is_outdated(file)

    def searched(self) -> Update:
        """Look for the rows in every live file. In a deduplicated table they are all rows of every key that has a row with the values."""
        wanted, spec = self.wanted, self.table.spec
        if isinstance(wanted, ByKeys):
            self.keys = wanted
        elif spec is not None:
            files = [file for file in self.read if file.kind is not FileKind.TOMBSTONE]
            having = yield from self._found_in(files, lambda _: wanted, spec)
            logged = yield from self.log.keys_with(wanted)
            self.keys = ByKeys(spec, logged.union(*(one.keys for one in having.values())))
        near = yield from self._found_sorted(self.keys)
        whole = yield from self._found_in([file for file in self.read if not self._is_sorted(file)], self.meant, None)
        self.found = {key: one.rows for key, one in {**near, **whole}.items() if one.rows}
        self.read = tuple(replace(file, rows=whole[file.key].read) if file.kind is FileKind.ADOPTED else file for file in self.read)
        yield from self.log.searched(None if isinstance(wanted, ByKeys) else wanted, self.keys)
        return None

    def meant(self, file: FileEntry) -> Wanted | None:
        """Return which rows of a file that is read whole are to be forgotten, or None if it has none."""
        if self.keys is None:
            return self.wanted
        keys = self.keys if self.keys.keys and self._has_key(file) else None
        if file.kind not in HISTORY_KINDS or isinstance(self.wanted, ByKeys):
            return keys
        return self.wanted if keys is None else dataclasses.replace(keys, other=self.wanted)

    def _has_key(self, file: FileEntry) -> bool:
        """Tell whether the rows of a file have today's key. A history of another key may lack its columns."""
        table = self.table
        if table.spec is None or file.kind not in HISTORY_KINDS:
            return table.spec is not None
        names = {field.name for field in table.spec.key}
        ids = {field.id for field in table.schemas({file.schema_id or 0})[file.schema_id or 0].fields}
        return all(field.id in ids for field in table.schema.fields if field.name in names)

    def _found_in(self, files: Sequence[FileEntry], meaning: Meaning, spec: KeySpec | None) -> Steps[Mapping[str, Found]]:
        s3 = self.resources.task.s3
        meant = [(file, wanted) for file in files if (file.rows or file.kind is FileKind.ADOPTED) and (wanted := meaning(file)) is not None]
        tasks = [
            SearchTask(stored, wanted, spec if self._has_key(file) else None, s3)
            for stored, (file, wanted) in zip(self.stored([file for file, _ in meant]), meant, strict=True)
        ]
        done = yield from Work(search, tasks, lambda task: task.stored.file.bytes).results()
        return {file.key: one for (file, _), one in zip(meant, done, strict=True)}

    def _found_sorted(self, wanted: ByKeys | None) -> Steps[Mapping[str, Found]]:
        """Count the rows of the keys in each sorted file. Only those are read whose range has a key."""
        if wanted is None or self.form is None or not wanted.keys:
            return {}
        s3, form = self.resources.task.s3, self.form
        having = [file for file in self.read if file.rows and self._is_sorted(file)]
        known = self.table.with_keys(having)
        keys = sorted(wanted.keys)
        within = {file.key: keys[bisect_left(keys, lower(keys_of(file))) : bisect_right(keys, upper(keys_of(file)))] for file in known}
        near = [file for file in known if within[file.key]]
        tasks = [SortedSearchTask(file, self._narrow(form, file.kind), frozenset(within[file.key]), s3) for file in near]
        done = yield from Work(search_sorted, tasks, lambda task: task.file.bytes).results()
        return {file.key: one for file, one in zip(near, done, strict=True)}

    def _narrow(self, form: TableFormat, kind: FileKind) -> MergeForm:
        """Return the merge form with the columns alone that make the key."""
        if kind is FileKind.TOMBSTONE:
            return form_of_deletions(form.spec)
        return form.form.narrowed({one.name for one in (*META_FIELDS, *form.spec.fields)})

    def stored(self, files: Sequence[FileEntry]) -> list[Source]:
        """Return how files are read as rows of the table's columns."""
        table, of_text = self.table, self.table.layout.of_text
        plans = plans_of_columns(table.stream, table.schema)
        schemas = table.schemas({file.schema_id or 0 for file in files})
        booleans = frozenset(column.source for column in table.schema.fields if column.type is Scalar.BOOLEAN)
        sources = {column.name: column.source for column in table.schema.fields}
        found: list[Source] = []
        for file in files:
            then = schemas[file.schema_id or 0]
            if not file.key.endswith(ParquetOptions.extension):
                is_avro = file.key.endswith(AvroOptions.extension)
                lines = StoredAvro(sources) if is_avro else StoredText(file.key, booleans)
                found.append(StoredLines(file, lines, (table.plan_of(then),) if is_avro and not of_text else plans))
            elif file.kind is FileKind.ADOPTED:
                found.append(StoredForeign(file, plans))
            elif file.kind is FileKind.RAW or (of_text and file.kind in (FileKind.STATE, FileKind.DELTA)):
                of_then = plans if of_text else (table.plan_of(then),)
                found.append(Stored(file, of_then, None, table.schema, UnfitValues.NULL))
            else:
                found.append(Stored(file, plans, then, table.schema, UnfitValues.NULL))
        return found

    def erased(self) -> Update:
        """Stage the files without the rows, and exchange them for those with the rows in one block. The table must be open."""
        made: list[FileEntry] = []
        made += yield from Work(erase, list(self._whole_tasks()), lambda task: task.stored.file.bytes).results()
        near = yield from Work(erase_sorted, list(self._sorted_tasks()), lambda task: sum(file.bytes for file in task.replaced)).results()
        made += (file for files in near for file in files)
        logged, replaced = yield from self.log.replaced()
        finals = [self.finals[file.key] for file in self.files if file.key in self.finals]
        return self.table.writer.forget([*made, *logged], [*self.files, *finals, *replaced, *self.live.dropped], self._landed())

    def _landed(self) -> ForgottenRows:
        """Return the numbers of records that landed and are forgotten, as far as files still tell."""
        contents = self.table.writer.open().contents
        appended = self.table.spec is None
        waiting = [file for file in self.files if file.kind is (FileKind.DELTA if appended else FileKind.RAW)]
        pending = sum(self.found[file.key] for file in waiting if self.live.is_pending(file))
        unmerged = self._left_unmerged()
        if unmerged is None:
            of_table = [file for file in self.files if file.kind is (FileKind.FINAL if appended else FileKind.RAW)]
            lost = [(file, self.found[file.key]) for file in of_table if not self.live.is_pending(file)]
            rows, earlier = sum(rows for _, rows in lost), _earlier(lost, contents)
        else:
            rows = contents.landed - sum(rows for _, rows in unmerged)
            earlier = contents.earlier_rows - _earlier(unmerged, contents)
        return ForgottenRows(rows, max(min(earlier, contents.earlier_rows), rows - contents.current_rows), pending)

    def _left_unmerged(self) -> list[tuple[FileEntry, int]] | None:
        """Return the files with rows that are left of the table, and how many, or None if a merge made some of these rows.

        If none did, every record but these is forgotten: also those that a merge replaced, of which no file may tell.
        """
        settled = self.live.settled(FileKind.FINAL, FileKind.DELTA, FileKind.TOMBSTONE)
        lost = {self.finals[key].key if key in self.finals else key: rows for key, rows in self.found.items()}
        left = [(file, file.rows - lost.get(file.key, 0)) for file in settled if file.rows > lost.get(file.key, 0)]
        return None if any(file.sorted_by is not None or file.offset is None for file, _ in left) else left

    def _left(self) -> Iterator[tuple[FileEntry, int]]:
        """Yield the files that keep rows, and how many."""
        for file in self.files:
            if file.rows > self.found[file.key]:
                yield file, file.rows - self.found[file.key]

    def _whole_tasks(self) -> Iterator[EraseTask]:
        layout = self.table.layout
        final = layout.final if isinstance(layout.final, ParquetOptions) else ParquetOptions()
        left = [(file, rows) for file, rows in self._left() if not self._is_sorted(file)]
        for stored, (file, rows) in zip(self.stored([file for file, _ in left]), left, strict=True):
            wanted = self.meant(file) or self.wanted
            options = layout.raw or RAW_PARQUET if file.kind is FileKind.RAW else final
            yield EraseTask(stored, wanted, rows, self._key(file), options, self.resources.task.s3)

    def _sorted_tasks(self) -> Iterator[SortedEraseTask]:
        if self.keys is None or self.form is None:
            return
        for file, rows in self._left():
            if self._is_sorted(file):
                replaced = (self.finals[file.key], file) if file.key in self.finals else (file,)
                yield SortedEraseTask(replaced, self.keys.keys, rows, tuple(map(self._key, replaced)), self.form, self.resources.task.s3)

    def _key(self, file: FileEntry) -> str:
        """Make the key of the file that replaces another one."""
        match file.kind:
            case FileKind.DELTA:
                return file.beside(self.table.delta_key(extension_of(file.key)))
            case FileKind.TOMBSTONE:
                return self.table.tombstone_key()
            case FileKind.STATE:
                return file.beside(self.table.state_key())
            case FileKind.CURRENT | FileKind.CLOSED:
                return self.table.version_key(file.history or 0, file.kind)
            case FileKind.ADOPTED:
                return file.beside(self.table.final_key(extension_of(file.key)))
            case FileKind.FINAL:
                same = file.key not in {final.key for final in self.finals.values()}  # rendered again in today's form
                return file.beside(self.table.final_key(extension_of(file.key) if same else None))
        return self.table.key_beside(file)


def referenced(forgetting: Forgetting, columns: Sequence[tuple[Field, ...]]) -> Steps[FieldTexts]:
    """Collect the values that the rows to forget have, or had in an earlier version. The search must have ended."""
    files = [(file, wanted) for file in forgetting.files if file.kind is not FileKind.TOMBSTONE and (wanted := forgetting.meant(file))]
    stored = forgetting.stored([file for file, _ in files])
    tasks = [CollectTask(one, wanted, columns, forgetting.resources.task.s3) for one, (_, wanted) in zip(stored, files, strict=True)]
    values: FieldTexts = {tuple(field.source for field in fields): set() for fields in columns}
    done = yield from Work(collect, tasks, lambda task: task.stored.file.bytes).results()
    for found in (*done, *(yield from forgetting.log.values(columns))):
        for names, texts in found.items():
            values[names] |= texts
    return values


def _earlier(files: Sequence[tuple[FileEntry, int]], contents: Contents) -> int:
    """Return how many of these rows of files came in under a generation other than the current one, as far as the files tell."""
    return sum(rows for file, rows in files if file.offset is None or file.offset < contents.current_from)

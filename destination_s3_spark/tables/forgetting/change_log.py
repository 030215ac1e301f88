"""Forgetting of rows of a table's change log: the groups with events of theirs are replaced by groups without.

A group that takes the place of another one has its offset and a token that rises, so later groups of the same offset are renamed with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import msgspec

from destination_s3_spark.chain.files import FileEntry, FileKind
from destination_s3_spark.change_log.manifest import MOST_MANIFEST_BYTES, GroupName, LogKind, LogName, Manifest, ManifestFile, log_objects
from destination_s3_spark.errors import DataError
from destination_s3_spark.schema.airbyte_type import Field
from destination_s3_spark.storage.object_store import ObjectInfo
from destination_s3_spark.storage.staging import StagedFileSink
from destination_s3_spark.tables.forgetting.log_search import (
    LoggedFile,
    LogHits,
    LogPlacesTask,
    LogSearchTask,
    LogValuesTask,
    RedactTask,
    collect_from_log,
    find_places,
    redact,
    search_log,
)
from destination_s3_spark.tables.forgetting.wanted import ByKeys, ByValues, FieldTexts, plan_by_name
from destination_s3_spark.tables.open_table import OpenTable
from destination_s3_spark.tables.runs.keys import is_unfit
from destination_s3_spark.tables.staged.staged_file import StagedFile
from destination_s3_spark.tables.updates.resources import Resources
from destination_s3_spark.tables.updates.steps import Steps, Work

Identity: TypeAlias = tuple[tuple[str, str], ...]
"""The columns and types of a log's key. Keys of groups with the same are comparable."""


@dataclass(frozen=True, slots=True)
class _Group:
    name: GroupName
    manifest: Manifest
    entry: FileEntry
    """The manifest's object."""
    files: tuple[LoggedFile, ...]

    @property
    def identity(self) -> Identity:
        types = {column.name: column.type for column in self.manifest.columns}
        return tuple((name, types[name]) for name in self.manifest.primary_key)

    @property
    def entries(self) -> tuple[FileEntry, ...]:
        """The group's objects as a block names them."""
        rows = [file.rows for file in self.manifest.files]
        files = (_entry(file.key, file.bytes, count) for file, count in zip(self.files, rows, strict=True))
        return (*files, self.entry)


@dataclass(slots=True)
class LogForgetting:
    """The forgetting of rows of one table's change log. `places` has them by the key of their file once `searched` has ended."""

    table: OpenTable
    resources: Resources
    places: dict[str, frozenset[int]] = field(default_factory=dict)
    groups: list[_Group] = field(init=False)
    strays: tuple[FileEntry, ...] = field(init=False)
    """Data files without a manifest: what is left of groups that were deleted."""

    def __post_init__(self) -> None:
        found = log_objects(self.table.writer.store, self.table.layout.changes)
        self.groups = [self._read(group, found) for name in sorted(found) if (group := GroupName.of_manifest(name)) is not None]
        named = {entry.key for group in self.groups for entry in group.entries}
        others = (info for name, info in found.items() if info.key not in named and LogName.parse(name) is not None)
        self.strays = tuple(_entry(info.key, info.size) for info in others)

    def _read(self, name: GroupName, found: dict[str, ObjectInfo]) -> _Group:
        info = found[name.manifest]
        manifest = Manifest.from_bytes(self.table.writer.store.get(info.key, MOST_MANIFEST_BYTES), info.key)
        gone = next((file.key for file in manifest.files if file.key not in found), None)
        if gone is not None:
            raise DataError(
                f"The file {self.table.layout.changes}{gone} of the change log is gone. Nothing was changed. Restore it, or delete its "
                f"group's manifest, {info.key}, so that the group no longer counts.",
                stream=self.table.stream.id,
            )
        s3 = self.resources.task.s3
        files = (LoggedFile(manifest, found[file.key].key, found[file.key].size, s3) for file in manifest.files)
        return _Group(name, manifest, _entry(info.key, info.size), tuple(files))

    @property
    def rows(self) -> int:
        return sum(map(len, self.places.values()))

    @property
    def size(self) -> int:
        return sum(file.bytes for group in self.groups for file in group.files)

    @property
    def changes(self) -> bool:
        """Whether objects are to be replaced or deleted."""
        return bool(self.places or self.strays)

    def keys_with(self, values: ByValues) -> Steps[frozenset[bytes]]:
        """Return the keys of the table's rows that had the values, as far as the log tells."""
        if self.table.spec is None:
            return frozenset()
        hits = yield from self._hits(values, ByKeys(self.table.spec, frozenset()))
        return frozenset(key for _, one in hits for key in one.of_table)

    def searched(self, values: ByValues | None, keys: ByKeys | None) -> Steps[None]:
        """Find the places of all events of rows with the values or the keys."""
        if self.groups and keys is not None and any(is_unfit(key, keys.spec) for key in keys.keys):
            raise self.table.refuse(
                "some of the rows have a key that does not fit its type, and its change log does not tell such rows apart. Nothing was "
                f"changed. Delete the log's objects under '{self.table.layout.changes}' once its readers need them no more."
            )
        of_identity: dict[Identity, set[bytes]] = {}
        for group, one in (yield from self._hits(values, keys)):
            of_identity.setdefault(group.identity, set()).update(one.in_log)
        tasks = [
            LogPlacesTask(file, frozenset(keys_in_log))
            for group in self.groups
            if (keys_in_log := of_identity.get(group.identity))
            for file in group.files
        ]
        done = yield from Work(find_places, tasks, lambda task: task.file.bytes).results()
        self.places = {task.file.key: places for task, places in zip(tasks, done, strict=True) if places}

    def replaced(self) -> Steps[tuple[list[FileEntry], list[FileEntry]]]:
        """Stage the groups without the rows. Return their objects, and those that they take the place of. The table must be open."""
        chosen = list(self._to_replace())
        names = {group.name: GroupName(group.name.offset, self.table.writer.next_token()) for group in chosen}
        tasks = [
            RedactTask(file, self.places.get(file.key, frozenset()), self._renamed(file.key, names[group.name]))
            for group in chosen
            for file in group.files
        ]
        made = yield from Work(redact, tasks, lambda task: task.file.bytes).results()
        by_key = {file.key: file for file in made}
        for group in chosen:
            made.append(self._manifest(group, names[group.name], by_key))
        return made, [*(entry for group in chosen for entry in group.entries), *self.strays]

    def _to_replace(self) -> Iterator[_Group]:
        offsets: set[int] = set()
        for group in self.groups:
            if group.name.offset in offsets or any(file.key in self.places for file in group.files):
                offsets.add(group.name.offset)
                yield group

    def _renamed(self, key: str, name: GroupName) -> str:
        folder = self.table.layout.changes
        return f"{folder}{name}{key.removeprefix(folder)[len(str(name)) :]}"

    def _manifest(self, group: _Group, name: GroupName, made: dict[str, FileEntry]) -> FileEntry:
        """Stage the manifest of a group that takes the place of another one. Raises Bug if its files lack other rows than they should."""
        files = []
        for file, before in zip(group.files, group.manifest.files, strict=True):
            now, gone = made[self._renamed(file.key, name)], self.places.get(file.key, frozenset())
            if now.rows != before.rows - len(gone):
                raise DataError(
                    f"The file {file.key} of the change log has other rows than its manifest says. Nothing was changed.",
                    stream=self.table.stream.id,
                )
            is_numbered = group.manifest.kind is LogKind.CHANGES
            files.append(before.redacted_to(now.key.rpartition("/")[2], gone, numbered=is_numbered))
        manifest = msgspec.structs.replace(group.manifest, files=tuple(files), replaces=str(group.name))
        sink = StagedFileSink(self.resources.task.s3, f"{self.table.layout.changes}{name.manifest}")
        with StagedFile(FileKind.CHANGES, sink, ManifestFile(sink)) as staged:
            staged.write(manifest)
            return staged.stage()

    def values(self, columns: Sequence[tuple[Field, ...]]) -> Steps[Sequence[FieldTexts]]:
        """Collect the values of these columns that the rows to forget have in each file. The search must have ended."""
        plan = plan_by_name(self.table.stream, {field.name: field for fields in columns for field in fields}.values())
        tasks = [
            LogValuesTask(file, self.places[file.key], columns, plan)
            for group in self.groups
            for file in group.files
            if file.key in self.places
        ]
        return (yield from Work(collect_from_log, tasks, lambda task: task.file.bytes).results())

    def _hits(self, values: ByValues | None, keys: ByKeys | None) -> Steps[list[tuple[_Group, LogHits]]]:
        plan = plan_by_name(self.table.stream, _deciding(values, keys))
        of_tasks = [(group, LogSearchTask(file, plan, values, keys)) for group in self.groups for file in group.files]
        tasks: Sequence[LogSearchTask] = [task for _, task in of_tasks]
        done = yield from Work(search_log, tasks, lambda task: task.file.bytes).results()
        return [(group, hits) for (group, _), hits in zip(of_tasks, done, strict=True)]


def _deciding(values: ByValues | None, keys: ByKeys | None) -> Iterable[Field]:
    """Return the columns that decide whether a row is looked for."""
    conditions = () if values is None else values.conditions
    of_key = () if keys is None else keys.spec.key
    return {column.name: column for column in (*of_key, *(column for columns, _ in conditions for column in columns))}.values()


def _entry(key: str, size: int, rows: int = 0) -> FileEntry:
    return FileEntry(FileKind.CHANGES, key, rows, size)

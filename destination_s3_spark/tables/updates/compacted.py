"""Compaction of a table as an update: each group of files is replaced by one block.

A compaction changes no row. So an error of its work is logged, and the files stay as they are.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

from destination_s3_spark.chain.files import FileEntry, FileKind
from destination_s3_spark.chain.live_files import LiveFiles
from destination_s3_spark.errors import SyncError
from destination_s3_spark.formats.file_format import FileOptions
from destination_s3_spark.storage.object_store import ObjectNotFound
from destination_s3_spark.storage.settings import S3Settings
from destination_s3_spark.tables.commit.batch import CommitResult
from destination_s3_spark.tables.compaction.groups import Group, groups
from destination_s3_spark.tables.compaction.join import JoinTask, join_files, joined_in_store
from destination_s3_spark.tables.configured import RAW_PARQUET
from destination_s3_spark.tables.open_table import OpenTable
from destination_s3_spark.tables.updates.resources import Resources
from destination_s3_spark.tables.updates.steps import Steps, Update, Work

logger = logging.getLogger("airbyte")


def compact(table: OpenTable, resources: Callable[[], Resources]) -> Update | None:
    """Return the update that joins small files of an open table, or None if there are none to join."""
    chosen = _chosen(table, table.writer.live_files())
    return _compacted(table, chosen, resources().task.s3) if chosen else None


def _chosen(table: OpenTable, live: LiveFiles) -> list[tuple[Group, ...]]:
    """Choose the groups of files to join, each group of final files together with that of the raw files of their rows.

    Raw files of a partitioned table are joined by themselves, because each has rows of several final files.
    """
    target = table.rules.target_file_bytes
    raw = {file.offset: file for file in _of_kind(table, live, FileKind.RAW)}
    if table.spec is not None or table.partitioning is not None:
        final = _of_kind(table, live, FileKind.FINAL) if table.spec is None else []
        return [(group,) for files in (list(raw.values()), final) for group in groups(files, target)]

    def twin(file: FileEntry) -> FileEntry | None:
        found = raw.get(file.offset)
        return found if found is not None and found.rows == file.rows else None

    found = []
    for group in groups(_of_kind(table, live, FileKind.FINAL), target, lambda file: twin(file) is not None):
        twins = tuple(other for file in group if (other := twin(file)) is not None)
        found.append(tuple(files for files in (group, twins) if files))
    return found


def _of_kind(table: OpenTable, live: LiveFiles, kind: FileKind) -> list[FileEntry]:
    """List the live files of a kind that have today's format."""
    options = _options(table, kind)
    return [file for file in live.of(kind) if file.key.endswith(options.extension)]


def _options(table: OpenTable, kind: FileKind) -> FileOptions:
    return table.layout.final if kind is FileKind.FINAL else table.layout.raw or RAW_PARQUET


def _compacted(table: OpenTable, chosen: Sequence[tuple[Group, ...]], s3: S3Settings) -> Update:
    result: CommitResult | None = None
    tasks = [tuple(JoinTask(one, table.key_beside(one[0]), _options(table, one[0].kind), s3) for one in groups) for groups in chosen]
    made = yield from _made(table, [join for joins in tasks for join in joins])
    if table.spec is None:
        table.writer.publish()  # the rows of this sync, so that a reader of changes takes no joined file for new rows
    for joins in tasks:
        files = [made[join.key] for join in joins if join.key in made]
        if len(files) < len(joins):
            table.writer.drop(files)
            continue
        result = table.writer.compact(files, [file for join in joins for file in join.group])
    return result


def _made(table: OpenTable, joins: Sequence[JoinTask]) -> Steps[Mapping[str, FileEntry]]:
    """Stage the files that can be made, by key."""
    copied = table.writer.map_files(lambda join: _copied(table, join), joins)
    made = {join.key: file for join, file in zip(joins, copied, strict=True) if file is not None}
    tasks = [join for join in joins if join.key not in made]
    if tasks:
        try:
            done = yield from Work(join_files, tasks, lambda task: sum(file.bytes for file in task.group)).results()
        except SyncError as error:
            _warn(table, f"{type(error).__name__}: {error}")
            return made
        for task, file in zip(tasks, done, strict=True):
            if isinstance(file, str):
                _warn(table, file)
            else:
                made[task.key] = file
    return made


def _copied(table: OpenTable, join: JoinTask) -> FileEntry | None:
    if join.s3.equal_parts:
        return None
    try:
        return joined_in_store(join.group, join.key, table.writer.store)
    except (ObjectNotFound, SyncError) as error:
        _warn(table, f"{type(error).__name__}: {error}")
        return None


def _warn(table: OpenTable, reason: str) -> None:
    logger.warning("stream %s: small files were not joined and stay as they are; the next sync tries again. %s", table.stream.id, reason)

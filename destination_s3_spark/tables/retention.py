"""Retention: the deletion of raw files and of parts of a change log that are older than the user wants to keep them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import takewhile

from destination_s3_spark.chain.files import FileEntry, FileKind
from destination_s3_spark.chain.live_files import LiveFiles, day
from destination_s3_spark.change_log.manifest import GroupName, LogKind, LogName, log_objects
from destination_s3_spark.storage.object_store import ObjectInfo, ObjectStore
from destination_s3_spark.tables.commit.writer import TableWriter
from destination_s3_spark.tables.open_table import OpenTable


def delete_expired(table: OpenTable) -> None:
    """Delete what has expired of an open table. Call it after the updates of a sync. Raises Fenced, ConfigError or TransientError."""
    rules = table.rules
    if rules.raw_days is not None:
        delete_expired_raw(table.writer, rules.raw_days)
    if rules.history_days is not None:
        delete_expired_versions(table.writer, rules.history_days)
    if rules.change_log is not None and rules.change_log_days is not None and table.writer.first_of_day:
        limit = table.writer.open().system_time - timedelta(days=rules.change_log_days)
        delete_log_before(table.writer.store, table.layout.changes, limit)


def delete_expired_raw(writer: TableWriter, days: int) -> None:
    """Delete the raw files of an open table that are older than this number of days.

    They leave with a block of the chain, like files that a merge replaces, so a crash at any point leaves nothing half done. Ages count in
    whole days of UTC, so an hourly sync writes such a block once a day.
    """
    until_day = day(writer.open().system_time) - days
    _delete(writer, expired_raw(writer.live_files(), until_day))


def delete_expired_versions(writer: TableWriter, days: int) -> None:
    """Delete the files of ended versions of an open table that were written more than this number of days ago, as raw files are."""
    until_day = day(writer.open().system_time) - days
    _delete(writer, [file for file in writer.live_files().of(FileKind.CLOSED) if file.landed_on is not None and file.landed_on < until_day])


def _delete(writer: TableWriter, expired: Sequence[FileEntry]) -> None:
    contents = writer.open().contents
    if expired:
        writer.merge((), (*expired, *writer.live_files().dropped), None, contents.operation_count, contents.history)


def expired_raw(live: LiveFiles, until_day: int) -> tuple[FileEntry, ...]:
    """Return the raw files that landed before this day and whose rows are in the final table.

    Rows of a delta or of a pending generation are not in the final table yet. While a generation is pending, everything stays.
    """
    if live.pending is not None:
        return ()
    waiting = min((file.offset for file in live.of(FileKind.DELTA) if file.offset is not None), default=None)
    old = (file for file in live.of(FileKind.RAW) if file.landed_on is not None and file.landed_on < until_day)
    return tuple(file for file in old if waiting is None or (file.offset is not None and file.offset + file.rows <= waiting))


def delete_log_before(store: ObjectStore, folder: str, limit: datetime) -> int:
    """Delete the groups of a change log that are complete before `limit` and come before its newest snapshot. Return their number.

    The log keeps its newest snapshot and everything after it, from which its reader can build the table. Manifests go first: a group
    without one is no longer part of the log, and the next call deletes what is left of it.
    """
    objects = log_objects(store, folder)
    groups = expired_groups(objects, limit)
    manifests = {group.manifest for group in groups}
    gone = {name: info.key for name, info in objects.items() if _group(name) in groups}
    store.delete([key for name, key in gone.items() if name in manifests])
    store.delete([key for name, key in gone.items() if name not in manifests])
    return len(groups)


def expired_groups(objects: dict[str, ObjectInfo], limit: datetime) -> frozenset[GroupName]:
    """Return the groups that may go: the longest beginning of the log before its newest snapshot in which every object is old enough."""
    snapshots = [found.group for name in objects if (found := LogName.parse(name)) is not None and found.kind is LogKind.SNAPSHOT]
    newest = max((group for group in snapshots if group.manifest in objects), default=None)
    if newest is None:
        return frozenset()
    by_group: dict[GroupName, list[datetime | None]] = {}
    for name, info in objects.items():
        group = _group(name)
        if group is not None and group < newest:
            by_group.setdefault(group, []).append(info.modified)
    return frozenset(takewhile(lambda group: all(time is not None and time < limit for time in by_group[group]), sorted(by_group)))


def _group(name: str) -> GroupName | None:
    parsed = LogName.parse(name)
    return parsed.group if parsed is not None else GroupName.of_manifest(name)

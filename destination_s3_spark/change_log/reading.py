"""Reading of a change log in any format as records, one file at a time, from its manifests and files alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from destination_s3_spark.change_log.manifest import MOST_MANIFEST_BYTES, GroupName, LogFile, LogKind, LogName, Manifest, log_objects
from destination_s3_spark.change_log.parsing import ROW, BinarySource, Event, read_events
from destination_s3_spark.errors import DataError
from destination_s3_spark.formats.bounded import reading
from destination_s3_spark.storage.object_store import ObjectNotFound, ObjectStore


@dataclass(frozen=True, slots=True)
class Interval:
    """A range of sequence numbers, both ends inclusive. None means no limit."""

    first: int | None = None
    last: int | None = None

    def meets(self, first: int, last: int) -> bool:
        """Return whether this interval overlaps the one from `first` to `last`."""
        return (self.first is None or self.first <= last) and (self.last is None or first <= self.last)


class ChangeLogFolder:
    """The change log in a folder (ending in `/`) of a bucket. `open_file` opens an object by its key and size."""

    def __init__(self, store: ObjectStore, folder: str, open_file: Callable[[str, int], BinarySource]) -> None:
        self._store = store
        self._folder = folder
        self._open_file = open_file
        self._objects = log_objects(store, folder)

    @property
    def groups(self) -> list[GroupName]:
        """Groups whose manifest exists, in log order, without those in whose place others are."""
        named = [group for name in self._objects if (group := GroupName.of_manifest(name)) is not None]
        at = Counter(group.offset for group in named)
        replaced = {self.manifest(group).replaces for group in named if at[group.offset] > 1}
        return [group for group in named if str(group) not in replaced]

    def from_last_snapshot(self) -> list[GroupName]:
        """Return the groups from the last snapshot on, which suffice to build the table. Without a snapshot, return all groups."""
        snapshots = {found.group for name in self._objects if (found := LogName.parse(name)) and found.kind is LogKind.SNAPSHOT}
        groups = self.groups
        starts = [index for index, group in enumerate(groups) if group in snapshots]
        return groups[starts[-1] :] if starts else groups

    def manifest(self, group: GroupName) -> Manifest:
        """Return the group's manifest. Raises DataError when it does not exist or cannot be read."""
        key = self._folder + group.manifest
        try:
            return Manifest.from_bytes(self._store.get(key, MOST_MANIFEST_BYTES), key)
        except ObjectNotFound as error:
            raise _gone(key) from error

    def records(self, manifest: Manifest, interval: Interval) -> Iterator[dict[str, Any]]:
        """Yield the group's records with a sequence number in the interval, in log order.

        Events have `generation, sequence, op, key, new, old, cursor, operationCount`, rows `generation, sequence, op, key, new`. `new` and
        `old` hold the columns that are in the image. Raises DataError when a file is damaged or missing.
        """
        before = manifest.operation_count_before.total
        for file in manifest.files:
            last = before + file.rows + file.redacted
            if file.rows and interval.meets(before + 1, last):
                for record, place in zip(self._file_records(manifest, file), file.places(), strict=False):
                    sequence = sum(record["operationCount"].values()) if "operationCount" in record else before + 1 + place
                    if interval.meets(sequence, sequence):
                        yield {"generation": manifest.generation_id, "sequence": sequence, **record}
            before = last

    def _file_records(self, manifest: Manifest, file: LogFile) -> Iterator[dict[str, Any]]:
        key = self._folder + file.key
        if file.key not in self._objects:
            raise _gone(key)
        rows = 0
        with reading(lambda fault: DataError(f"The file {key} of a change log is damaged: {fault} after {rows:,} rows.")):
            try:
                content = self._open_file(key, self._objects[file.key].size)
                for rows, event in enumerate(read_events(manifest, content), start=1):  # noqa: B007 (counted for the check below)
                    yield _record(event, manifest.primary_key)
            except ObjectNotFound as error:
                raise _gone(key) from error
        if rows != file.rows:
            raise DataError(f"The file {key} of a change log is damaged: it has {rows:,} rows, its manifest says {file.rows:,}.")


def _record(event: Event, key: tuple[str, ...]) -> dict[str, Any]:
    record = {"op": event.op, "key": event.of_key(key), "new": event.new}
    if event.op == ROW:
        return record
    return {**record, "old": event.old, "cursor": event.cursor, "operationCount": event.operation_count}


def _gone(key: str) -> DataError:
    return DataError(
        f"The object {key} of a change log is not there. If a commit is still running, it appears shortly. If a commit died, the next sync "
        "or `repair` completes it. An object that was deleted is not written again."
    )

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pytest

from destination_s3_spark.chain.files import OperationCount
from destination_s3_spark.change_log.manifest import GroupName, LogFile, LogKind, LogName, manifest_of
from destination_s3_spark.change_log.options import ChangeLogFormat, ChangeLogOptions
from destination_s3_spark.change_log.reading import ChangeLogFolder, Interval
from destination_s3_spark.errors import DataError
from destination_s3_spark.storage.ranged import RangedFile
from destination_s3_spark.storage.s3 import S3Store
from destination_s3_spark.storage.settings import S3Settings

FOLDER = "lake/airbyte_changes/orders/"
FIELDS = [("id", pa.int64()), ("name", pa.string())]
EVERYTHING = Interval()

EventRow = tuple[str, dict[str, Any], dict[str, Any], str]
"""Op, new image, old image, cursor."""


def counted_events(events: Sequence[EventRow]) -> OperationCount:
    ops = [op for op, *_ in events]
    return OperationCount(ops.count("I"), ops.count("U"), ops.count("D"))


class WrittenLog:
    """A log in the bucket, group by group."""

    def __init__(self, store: S3Store, log: Callable[..., Any], form: ChangeLogFormat) -> None:
        self.store = store
        self._log = log(FIELDS, ["id"], ChangeLogOptions(form))
        self._offset = 0
        self._count = OperationCount()

    def snapshot(self, parts: Sequence[list[dict[str, Any]]]) -> GroupName:
        self._count = OperationCount()
        rows = sum(map(len, parts))
        return self._put(LogKind.SNAPSHOT, parts, OperationCount(insert_count=rows))

    def upserts(self, parts: Sequence[list[dict[str, Any]]]) -> GroupName:
        return self._put(LogKind.UPSERTS, parts, OperationCount(replace_count=sum(map(len, parts))))

    def changes(self, parts: Sequence[list[EventRow]]) -> GroupName:
        return self._put(LogKind.CHANGES, parts, counted_events([event for part in parts for event in part]))

    def read(self) -> ChangeLogFolder:
        return ChangeLogFolder(self.store, FOLDER, lambda key, size: RangedFile(self.store.settings, key, size))

    def records(self, interval: Interval = EVERYTHING) -> list[dict[str, Any]]:
        log = self.read()
        return [record for group in log.groups for record in log.records(log.manifest(group), interval)]

    def _put(self, kind: LogKind, parts: Sequence[list[Any]], counted: OperationCount) -> GroupName:
        group = GroupName(self._offset, f"{self._offset:026d}")
        files, start = [], self._count
        for number, part in enumerate(parts):
            if kind is LogKind.CHANGES:
                body = self._log.changes_file([self._log.events(part)], start)
                start += counted_events(part)
            else:
                body = self._log.snapshot_file([self._log.rows(part)])
            name = LogName(*group, number, kind).file_name(self._log.options.extension)
            self.store.put(FOLDER + name, body)
            files.append(LogFile(name, len(part)))
        before, after = self._count, self._count + counted
        manifest = manifest_of(self._log.columns, self._log.options, kind, (3, 0), files, before, after)
        self.store.put(FOLDER + group.manifest, manifest.to_bytes())
        self._offset += 100
        self._count = after
        return group


@pytest.fixture
def written(s3_settings: S3Settings, log: Callable[..., Any]) -> Callable[[ChangeLogFormat], WrittenLog]:
    return lambda form: WrittenLog(S3Store(s3_settings), log, form)


def insertion(number: int) -> EventRow:
    return "I", {"id": number, "name": f"n{number}"}, {}, f'{{"lsn":{number}}}'


@pytest.mark.parametrize("form", ChangeLogFormat, ids=lambda form: form.value)
def test_a_log_is_read_in_order_with_one_sequence(written: Callable[[ChangeLogFormat], WrittenLog], form: ChangeLogFormat) -> None:
    log = written(form)
    log.snapshot([[{"id": 1, "name": "a"}], [{"id": 2, "name": None}]])
    log.changes([[insertion(3), ("U", {"name": "b"}, {"id": 1}, "{}")], [], [("D", {}, {"id": 2}, "{}")]])
    log.upserts([[{"id": 9, "name": "z"}]])

    assert log.records() == [
        {"generation": 3, "sequence": 1, "op": "S", "key": {"id": 1}, "new": {"id": 1, "name": "a"}},
        {"generation": 3, "sequence": 2, "op": "S", "key": {"id": 2}, "new": {"id": 2, "name": None}},
        {
            "generation": 3,
            "sequence": 3,
            "op": "I",
            "key": {"id": 3},
            "new": {"id": 3, "name": "n3"},
            "old": {},
            "cursor": {"lsn": 3},
            "operationCount": {"insertCount": 3, "updateCount": 0, "deleteCount": 0, "replaceCount": 0},
        },
        {
            "generation": 3,
            "sequence": 4,
            "op": "U",
            "key": {"id": 1},
            "new": {"name": "b"},
            "old": {"id": 1},
            "cursor": {},
            "operationCount": {"insertCount": 3, "updateCount": 1, "deleteCount": 0, "replaceCount": 0},
        },
        {
            "generation": 3,
            "sequence": 5,
            "op": "D",
            "key": {"id": 2},
            "new": {},
            "old": {"id": 2},
            "cursor": {},
            "operationCount": {"insertCount": 3, "updateCount": 1, "deleteCount": 1, "replaceCount": 0},
        },
        {"generation": 3, "sequence": 6, "op": "S", "key": {"id": 9}, "new": {"id": 9, "name": "z"}},
    ]


def test_only_files_with_wanted_sequence_numbers_are_read(written: Callable[[ChangeLogFormat], WrittenLog]) -> None:
    log = written(ChangeLogFormat.JSONL)
    group = log.changes([[insertion(1), insertion(2)], [insertion(3), insertion(4)], [insertion(5)]])
    for part in (0, 2):
        log.store.put(FOLDER + LogName(*group, part, LogKind.CHANGES).file_name(".jsonl.gz"), b"damaged")

    assert [record["sequence"] for record in log.records(Interval(3, 4))] == [3, 4]
    assert [record["sequence"] for record in log.records(Interval(4, 4))] == [4]
    with pytest.raises(DataError, match=r"00002-changes\.jsonl\.gz of a change log is damaged"):
        log.records(Interval(first=3))


def test_the_log_can_be_read_from_its_last_snapshot(written: Callable[[ChangeLogFormat], WrittenLog]) -> None:
    log = written(ChangeLogFormat.REPLICANT_CSV)
    log.snapshot([[{"id": 1}]])
    log.changes([[insertion(2)]])
    last = [log.snapshot([[]]), log.changes([[insertion(3)]])]

    assert log.read().from_last_snapshot() == last
    assert len(log.read().groups) == 4


def test_other_objects_in_the_folder_are_passed_over(written: Callable[[ChangeLogFormat], WrittenLog]) -> None:
    log = written(ChangeLogFormat.JSONL)
    log.changes([[insertion(1)]])
    uncommitted = LogName(500, "9" * 26, 0, LogKind.SNAPSHOT)
    for name in (
        uncommitted.file_name(".jsonl.gz"),
        "notes.txt",
        f"items/{GroupName(0, '0' * 26).manifest}",  # of the stream `items` in a namespace `orders`
    ):
        log.store.put(FOLDER + name, b"")

    assert [record["key"] for record in log.records()] == [{"id": 1}]
    assert len(log.read().from_last_snapshot()) == 1


@pytest.mark.parametrize("form", ChangeLogFormat, ids=lambda form: form.value)
def test_a_damaged_file_is_named(written: Callable[[ChangeLogFormat], WrittenLog], form: ChangeLogFormat) -> None:
    log = written(form)
    group = log.changes([[insertion(n) for n in range(50)]])
    key = FOLDER + LogName(*group, 0, LogKind.CHANGES).file_name(ChangeLogOptions(form).extension)
    log.store.put(key, log.store.get(key)[:-20])

    with pytest.raises(DataError, match=rf"{key}.*damaged"):
        log.records()


def test_a_file_with_another_number_of_rows_than_its_manifest_says_is_damaged(written: Callable[[ChangeLogFormat], WrittenLog]) -> None:
    log = written(ChangeLogFormat.JSONL)
    first, second = log.changes([[insertion(1)]]), log.changes([[insertion(2), insertion(3)]])
    name = LogName(*first, 0, LogKind.CHANGES).file_name(".jsonl.gz")
    log.store.put(FOLDER + LogName(*second, 0, LogKind.CHANGES).file_name(".jsonl.gz"), log.store.get(FOLDER + name))

    with pytest.raises(DataError, match="it has 1 rows, its manifest says 2"):
        log.records()


def test_a_missing_file_is_named_with_what_to_do(written: Callable[[ChangeLogFormat], WrittenLog]) -> None:
    log = written(ChangeLogFormat.JSONL)
    group = log.changes([[insertion(1)]])
    log.store.delete([FOLDER + LogName(*group, 0, LogKind.CHANGES).file_name(".jsonl.gz")])

    with pytest.raises(DataError, match=r"00000-changes\.jsonl\.gz of a change log is not there.*repair"):
        log.records()

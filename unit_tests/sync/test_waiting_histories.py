"""Random histories of a table whose merges are put off, beside the same table merged in every sync. In the end tables and logs are equal.

Rows get ascending times of extraction, so none tie over two syncs.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from destination_s3_spark.chain.files import FileKind
from destination_s3_spark.storage.settings import S3Settings
from destination_s3_spark.tables.updates.resources import MergeTime
from unit_tests.lake.lake import Lake
from unit_tests.lake.messages import JsonObject, catalog, complete, records, state, stream
from unit_tests.sampling import sample
from unit_tests.sync.logged_lake import CDC, COLUMNS, DATA, cdc_catalog, lines, manifests, records_of, stored
from unit_tests.sync.process_ends import ends, ends_at
from unit_tests.sync.reference_changes import Record, Row, replayed

HISTORIES = 12
STEP = 9
"""With each commit, one end of a process in so many is tried."""
SYNCS = 14
KEYS = 12
NEVER = [{"stream": "*", "when_runs_mb": 1_000_000}]
NOW = [{"stream": "*", "at_least_every_hours": 0}]
FORMATS = ("Parquet", "Parquet", "JSONL")


class Twins:
    """Two lakes with the same syncs: one merges in every sync, the other one when it is told to."""

    def __init__(self, settings: S3Settings, directory: Path, chance: random.Random, make_bucket: Callable[[], S3Settings]) -> None:
        self.chance = chance
        form = {"format_type": chance.choice(FORMATS)}
        log = {"change_log": {"enabled": True, "format": "jsonl", "before_image": "ALL"}} if chance.random() < 0.5 else {}
        self.tables: dict[str, Any] = {
            "cdc_deletion_mode": chance.choice(["hard", "soft"]),
            "raw_tables": chance.random() < 0.5,
            "compaction": chance.choice(["on", "off"]),
            "schema_change": "rewrite",
        }
        if form["format_type"] == "Parquet" and chance.random() < 0.5:
            self.tables["partition_by"] = [{"stream": "*", "column": "id", "transform": "identity"}]
        self.options = log
        self.lakes = [Lake(one, directory / str(n), format=form) for n, one in enumerate((settings, make_bucket()))]
        for lake in self.lakes:
            lake.directory.mkdir()
        self.count = self.number = 0
        self.generation = 1
        self.properties = DATA | CDC
        self.recent: bytes = b""
        self.skipped = False

    def sync(self, records: list[Record], *, waits: bool, minimum: int = 0) -> None:
        self.number += 1
        self.recent = lines(records) + state(self.number) + complete()
        self.send(waits=waits, minimum=minimum)

    def send(self, *, waits: bool, minimum: int = 0) -> None:
        for lake, merge in zip(self.lakes, ([], NEVER if waits else NOW), strict=True):
            lake.options = self.options | {"tables": self.tables | {"merge": merge}}
            # A refresh that waits is in no log if another one takes its place.
            self.skipped |= bool(self.options and minimum and pending(lake))
            has_begun = not self.options or manifests(lake)
            no_time = waits and merge and has_begun and self.chance.random() < 0.5
            lake.merge_limits = {"time": MergeTime(timedelta())} if no_time else {}
            lake.sync(self.catalog(minimum), [self.recent])

    def catalog(self, minimum: int = 0) -> JsonObject:
        return cdc_catalog(self.generation, minimum, self.properties)

    def records(self, count: int) -> list[Record]:
        """Records of which the later ones are not always newer.

        With a log they are: one that comes late to its own merge is no event, and one that is merged with newer ones is.
        """
        found = []
        for _ in range(count):
            self.count += 1
            lsn = self.count if self.options else max(0, self.count - self.chance.choice((0, 0, 0, 5, 20)))
            values = {"amount": self.chance.choice([None, 1.5, 2]), "name": f"n{self.count}", "tags": self.chance.choice([None, ["x"]])}
            deleted = self.chance.random() < 0.2
            if deleted:  # soft deletions that differ and have no other row of their key depend on the order of arrival
                values = dict.fromkeys(values)
            found.append(Record(self.chance.randrange(KEYS), values, lsn, deleted, 1_000 + self.count, self.count - 1))
        return found

    def step(self) -> None:
        waits = self.chance.random() < 0.8
        match self.chance.randrange(12):
            case 0:
                self.generation += 1
                self.sync(self.records(8), waits=waits, minimum=self.chance.choice((0, self.generation, self.generation)))
            case 1 if not self.options:  # in a log, a version that comes twice is an event or none, depending on what it is merged with
                self.send(waits=waits)
            case 2:
                self.properties = self.properties | {f"extra{self.number}": {"type": ["null", "string"]}}
                self.sync(self.records(5), waits=waits)
            case 3 if not self.options:  # a column gets another type, which rewrites the table and begins a log anew
                self.properties = self.properties | {"amount": {"type": ["null", "string"]}}
                self.sync(self.records(4), waits=waits)
            case 4:
                self.number += 1
                self.recent = complete()
                self.send(waits=waits)
            case _:
                self.sync(self.records(self.chance.choice((1, 4, 15))), waits=waits)


@pytest.fixture
def few_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let three runs wait, so that short histories combine some."""
    for module in ("waiting", "choice"):
        monkeypatch.setattr(f"destination_s3_spark.tables.updates.{module}.MOST_RUNS", 3)


@pytest.mark.usefixtures("few_runs")
@pytest.mark.parametrize("seed", sample(range(HISTORIES), 6))
def test_a_table_whose_merges_wait_ends_as_one_that_is_merged_in_every_sync(
    s3_settings: S3Settings, make_bucket: Callable[[], S3Settings], tmp_path: Path, seed: int
) -> None:
    twins = Twins(s3_settings, tmp_path, random.Random(seed), make_bucket)
    for _ in range(SYNCS):
        twins.step()
    twins.sync(twins.records(3), waits=False)

    always, waited = twins.lakes
    assert stored(waited) == stored(always)
    assert marked(waited) == marked(always)
    assert not waited.live(FileKind.DELTA)
    for lake in twins.lakes if twins.options else ():
        rows = logged(lake)
        assert rows == {id_: row for id_, row in stored(lake).items() if id_ in rows}
        if lake.format["format_type"] == "Parquet":
            assert rows.keys() == {id_ for id_, is_deleted in marked(lake) if not is_deleted}
    if twins.options and not twins.skipped:
        assert events(waited) == events(always)
    for lake in twins.lakes:
        assert lake.verified().problems == ()


@pytest.mark.usefixtures("few_runs")
@pytest.mark.parametrize("merge", [NEVER, NOW], ids=["combining", "merging"])
def test_a_sync_of_a_table_with_waiting_rows_may_die_at_any_request(s3_settings: S3Settings, tmp_path: Path, merge: list[Any]) -> None:
    lake, number = Lake(s3_settings, tmp_path), 0
    for call, end in ends(STEP):
        for _ in range(3):  # the fourth run is one too many
            number += 1
            sync(lake, NEVER if number > 1 else NOW, number)
        number += 1
        with ends_at(lake, call, end) as seen:
            sync(lake, merge, number)
        acknowledged = {one["state"]["stream"]["stream_state"]["cursor"] for one in lake.states}
        sync(lake, NOW, number)  # the next attempt
        ids = lake.ids_in_folder()
        assert acknowledged | {0, number} <= set(ids), f"{end} at call {call} ({seen[-1]}): an acknowledged row is lost"
        assert len(set(ids)) == len(ids)
        assert not lake.live(FileKind.DELTA)
        assert lake.memory.uploads == {}
        if len(seen) < call:
            break
    assert call > 12
    assert lake.verified().problems == ()


def sync(lake: Lake, merge: list[Any], number: int) -> None:
    """A sync with one record of its own, and one that all send."""
    lake.options = {"tables": {"raw_tables": False, "merge": merge}}
    one = stream(mode="append_dedup", key="id", generation=1, sync_id=1)
    lake.sync(catalog(one), [records([{"id": 0}, {"id": number}]), state(number), complete()])


def marked(lake: Lake) -> Counter[tuple[int, bool]]:
    """Which rows are marked as deleted."""
    return Counter((row["id"], row["_ab_cdc_deleted_at"] is not None) for row in lake.glob())


def logged(lake: Lake) -> dict[int, Row]:
    """The rows that the whole log makes."""
    rows: dict[int, Row] = {}
    for manifest in manifests(lake):
        found = records_of(lake, manifest)
        rows = replayed({} if any(record["op"] == "S" for record in found) else rows, found, COLUMNS)
    return {id_: {name: row[name] for name in COLUMNS} for id_, row in rows.items()}


def pending(lake: Lake) -> bool:
    return bool(lake.states) and lake.own_chain().head.contents.pending is not None


def events(lake: Lake) -> dict[int, list[Any]]:
    """The events of the log since its last snapshot, by key, each with its operation and its images."""
    found: dict[int, list[Any]] = {}
    for manifest in manifests(lake):
        records = records_of(lake, manifest)
        if any(record["op"] == "S" for record in records):
            found = {}
        for record in records:
            images = [{name: image[name] for name in DATA if name in image} for image in (record.get("new", {}), record.get("old", {}))]
            found.setdefault(record["key"]["id"], []).append((record["op"], *images))
    return found

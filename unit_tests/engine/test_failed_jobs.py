"""Whole syncs on Spark in which a job fails after its tasks have staged their files: no upload is left open for ever."""

from __future__ import annotations

import gzip
import inspect
import json
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from typing import Any, get_type_hints

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from destination_s3_spark import tables
from destination_s3_spark.chain.territory import Table
from destination_s3_spark.cli.forget_command import Link, Request, forget
from destination_s3_spark.cli.maintenance import Workshop
from destination_s3_spark.engine.engine import Engine, Groups
from destination_s3_spark.engine.session import SparkSettings
from destination_s3_spark.errors import Bug, TransientError
from destination_s3_spark.storage.settings import S3Settings
from destination_s3_spark.sync.batches import Limits
from destination_s3_spark.tables.capture.group import RenderTask, SnapshotTask
from destination_s3_spark.tables.compaction.groups import LEAST_FILES
from destination_s3_spark.tables.compaction.join import JoinTask
from destination_s3_spark.tables.forgetting.erasure import EraseTask, SortedEraseTask
from destination_s3_spark.tables.forgetting.log_search import LogPlacesTask, LogSearchTask, LogValuesTask, RedactTask
from destination_s3_spark.tables.forgetting.search import CollectTask, SearchTask, SortedSearchTask
from destination_s3_spark.tables.forgetting.wanted import Subject
from destination_s3_spark.tables.history.task import ClosingTask, HistoryTask
from destination_s3_spark.tables.landing.land import LandTask
from destination_s3_spark.tables.merge.scratch_runs import CombineTask, SortTask
from destination_s3_spark.tables.merge.task import CompactTask, MergeTask
from destination_s3_spark.tables.stored.rewrite import RewriteTask
from destination_s3_spark.tables.updates.choice import rebuild_of
from destination_s3_spark.tables.updates.resources import Resources, TaskResources
from unit_tests.lake.lake import Lake
from unit_tests.lake.messages import JsonObject, catalog, record, schema_of, state, status, stream
from unit_tests.sampling import sample

pytestmark = pytest.mark.slow

STREAMS = ("orders", "users")
APPEND, DEDUP = "append", "append_dedup"
LOGGED = {"change_log": {"enabled": True, "format": "jsonl"}}
COMPACTED = {"tables": {"compaction": "on"}}
VERSIONED = {"tables": {"history": [{"stream": "*"}]}}
REWRITING = {"tables": {"schema_change": "rewrite"}}
VERSIONED_REWRITING = {"tables": {**VERSIONED["tables"], **REWRITING["tables"]}}
TEXT = {"format": {"format_type": "JSONL"}}
BY_ID = {"partition_by": [{"stream": name, "column": "id", "transform": "identity"} for name in STREAMS]}
PARTITIONED, PARTITIONED_REWRITING = {"tables": BY_ID}, {"tables": {**BY_ID, "schema_change": "rewrite"}}
MANY_RUNS = {"limits": Limits(batch_bytes=100, age_s=900, spool_bytes=100), "merge_budget_bytes": 1}
"""Fields of a lake whose merges find more runs than fit into memory."""
EVERY_TIME = 1_000


@dataclass(frozen=True)
class Step:
    """A sync of both streams. `note`: the type of a column; `deleted`: ids whose rows the source has deleted."""

    ids: Sequence[int]
    mode: str = APPEND
    generation: int = 1
    minimum: int = 0
    note: str = "string"
    deleted: Sequence[int] = ()
    complete: bool = True
    options: dict[str, Any] = field(default_factory=dict)

    def catalog(self) -> JsonObject:
        deletion = {"type": "string", "format": "date-time"}
        schema = schema_of({"id": {"type": "integer"}, "note": {"type": self.note}, "_ab_cdc_deleted_at": deletion})
        ids: dict[str, Any] = {"generation": self.generation, "minimum_generation": self.minimum, "sync_id": 1}
        return catalog(*(stream(name, schema=schema, mode=self.mode, key="id", **ids) for name in STREAMS))

    def messages(self) -> Iterator[bytes]:
        for name in STREAMS:
            for id_ in (*self.ids, *self.deleted):
                data = {"id": id_, "note": noise(id_) if self.note == "string" else id_}
                gone = {"_ab_cdc_deleted_at": "2026-01-01T00:00:00Z"} if id_ in self.deleted else {}
                yield record(data | gone, name, emitted_at=2 if gone else 1)
            yield state(len(self.ids), name)
            yield status("COMPLETE" if self.complete else "INCOMPLETE", name)


@dataclass(frozen=True)
class Case:
    """Syncs before the one with the failure, that one, and the ids that both tables have afterwards."""

    kind: type
    before: Sequence[Step]
    last: Step
    ids: Sequence[int]
    given_up: bool = False
    """Whether a sync goes on without what fails."""
    command: Callable[[Workshop, Table], None] | None = None
    """What fails instead of the last sync, which then follows."""
    lake: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the lake in the last sync."""


def rebuild(tools: Workshop, table: Table) -> None:
    with tools.opened(tools.table(table)) as opened:
        tools.run(opened, rebuild_of(opened, tools.resources))


def forget_two(tools: Workshop, table: Table, *links: Link) -> None:
    request = Request([Subject.parse(b'{"id": 2}', "number 1")], dry_run=False, links=links)
    forget(tools, [table], request, lambda _: None)


def forget_two_and_what_hangs_on_it(tools: Workshop, table: Table) -> None:
    forget_two(tools, table, Link(table, "id", table, "id"))


OF_CHANGES: dict[str, Any] = {
    "before": [Step([1, 2], DEDUP, options=LOGGED)],
    "last": Step([3], DEDUP, options=LOGGED),
    "ids": [1, 2, 3],
    "command": forget_two,
}
CASES = {
    "landing": Case(LandTask, [], Step([1, 2]), [1, 2]),
    "landing in partitions": Case(LandTask, [], Step([1, 2], options=PARTITIONED), [1, 2]),
    "merge": Case(MergeTask, [Step([1, 2], DEDUP)], Step([2, 3], DEDUP), [1, 2, 3]),
    "merge of what was an append table": Case(SortTask, [Step([1, 2])], Step([2, 3], DEDUP), [1, 2, 3]),
    "merge in partitions": Case(MergeTask, [Step([1, 2], DEDUP, options=PARTITIONED)], Step([2, 3], DEDUP, options=PARTITIONED), [1, 2, 3]),
    "merge of many runs": Case(CombineTask, [Step([1], DEDUP)], Step([2, 3] * 3, DEDUP), [1, 2, 3], lake=MANY_RUNS),
    "tombstones": Case(
        CompactTask,
        [Step([1, 2, 3, 4], DEDUP), Step([], DEDUP, deleted=[1]), Step([], DEDUP, deleted=[4])],
        Step([], DEDUP, deleted=[2]),
        [3],
    ),
    "refresh of a deduplicated table": Case(MergeTask, [Step([1, 2], DEDUP)], Step([3], DEDUP, 2, 2), [3]),
    "refresh of an append table": Case(
        RewriteTask, [Step([1]), Step([2], APPEND, 2, 2, "integer", complete=False)], Step([3], APPEND, 2, 2), [2, 3]
    ),
    "change of a type": Case(RewriteTask, [Step([1], note="integer")], Step([2], options=REWRITING), [1, 2]),
    "change of a type in partitions": Case(
        RewriteTask, [Step([1], note="integer", options=PARTITIONED)], Step([2], options=PARTITIONED_REWRITING), [1, 2]
    ),
    "rebuild of an append table": Case(RewriteTask, [Step([1, 2])], Step([3]), [1, 2, 3], command=rebuild),
    "rebuild that sorts raw rows": Case(SortTask, [Step([1, 2], DEDUP)], Step([2, 3], DEDUP), [1, 2, 3], command=rebuild),
    "rebuild that merges raw rows": Case(MergeTask, [Step([1, 2], DEDUP)], Step([2, 3], DEDUP), [1, 2, 3], command=rebuild),
    "append update": Case(RewriteTask, [Step([1]), Step([2], APPEND, 2, 2, "integer", complete=False)], Step([3], APPEND, 2), [1, 2, 3]),
    "compaction": Case(
        JoinTask, [Step([n]) for n in range(1, LEAST_FILES)], Step([99], options=COMPACTED), [*range(1, LEAST_FILES), 99], given_up=True
    ),
    "changes": Case(RenderTask, [Step([1, 2], DEDUP, options=LOGGED)], Step([2, 3], DEDUP, options=LOGGED), [1, 2, 3]),
    "versions": Case(HistoryTask, [Step([1, 2], DEDUP)], Step([2, 3], DEDUP, options=VERSIONED), [1, 2, 3]),
    "versions beside rows": Case(MergeTask, [Step([1, 2], DEDUP, options=VERSIONED)], Step([2, 3], DEDUP, options=VERSIONED), [1, 2, 3]),
    "ended versions": Case(ClosingTask, [Step([1, 2], DEDUP, options=VERSIONED)], Step([3], DEDUP, deleted=[1], options=VERSIONED), [2, 3]),
    "search": Case(SearchTask, [Step([1, 2])], Step([3]), [1, 2, 3], command=forget_two),
    "search of sorted files": Case(SortedSearchTask, [Step([1, 2], DEDUP)], Step([3], DEDUP), [1, 2, 3], command=forget_two),
    "erasure": Case(EraseTask, [Step([1, 2])], Step([3]), [1, 2, 3], command=forget_two),
    "erasure from sorted files": Case(SortedEraseTask, [Step(range(150), DEDUP)], Step([7], DEDUP), range(150), command=forget_two),
    "erasure from the versions of another type": Case(
        EraseTask,
        [Step([1, 2], DEDUP, note="integer", options=VERSIONED), Step([3], DEDUP, options=VERSIONED_REWRITING)],
        Step([4], DEDUP, options=VERSIONED_REWRITING),
        [1, 2, 3, 4],
        command=forget_two,
    ),
    "erasure of lines": Case(EraseTask, [Step([1, 2], options=TEXT)], Step([3], options=TEXT), [1, 2, 3], command=forget_two),
    "erasure from merge states": Case(
        SortedEraseTask, [Step([1, 2], DEDUP, options=TEXT)], Step([3], DEDUP, options=TEXT), [1, 2, 3], command=forget_two
    ),
    "search of changes": Case(LogSearchTask, **OF_CHANGES),
    "search of places in the changes": Case(LogPlacesTask, **OF_CHANGES),
    "redaction of changes": Case(RedactTask, **OF_CHANGES),
    "search of what hangs on forgotten rows": Case(
        CollectTask, [Step([1, 2])], Step([3]), [1, 2, 3], command=forget_two_and_what_hangs_on_it
    ),
    "search of what hangs on rows in the changes": Case(LogValuesTask, **{**OF_CHANGES, "command": forget_two_and_what_hangs_on_it}),
    "snapshot of changes": Case(SnapshotTask, [Step(range(150), DEDUP)], Step([7], DEDUP, options=LOGGED), range(150)),
}


class Failing:
    """Adds a task that fails to some jobs: all other tasks of the job run as well, as Spark does not stop them."""

    def __init__(self) -> None:
        self.kind: type | None = None
        self.times = 0
        self.failed = 0

    def prepare(self, groups: Groups) -> Groups:
        if self.kind is None or type(groups[0][0]) is not self.kind or self.failed == self.times:
            return groups
        self.failed += 1
        return [*groups, [None]]

    def fail(self, kind: type | None, times: int) -> None:
        self.kind, self.times, self.failed = kind, times, 0


@pytest.fixture(scope="module")
def failing() -> Failing:
    return Failing()


@pytest.fixture(scope="module")
def spark(failing: Failing, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    settings = SparkSettings(2, 512, tmp_path_factory.mktemp("spark"), {})
    engine = Engine(settings, "destination_s3_spark.tables.landing.land", failing.prepare)
    yield engine
    engine.stop()


@pytest.fixture
def lake(spark: Engine, served_settings: S3Settings, tmp_path: Path) -> Lake:
    spark.lost_attempts = False
    return Lake(served_settings, tmp_path, spark=spark, merge_limits={"least_file_bytes": 2_000, "most_tombstone_files": 1})


def noise(seed: int) -> str:
    return "".join(random.Random(seed).choices("abcdefghijklmnopqrstuvwxyz", k=60))


def sync(lake: Lake, step: Step) -> None:
    lake.options = step.options
    lake.sync(step.catalog(), step.messages())


def run(lake: Lake, command: Callable[[Workshop, Table], None]) -> None:
    """Do what a command does with each table, on the lake's engine."""
    factory = lake.factory()
    found = factory.find().tables
    assert lake.spark is not None
    with ThreadPoolExecutor(2) as pool:
        resources = Resources(TaskResources(lake.settings, lake.merge_budget_bytes), 2, None)
        tools = Workshop(replace(factory, map_files=pool.map), lake.spark, pool, resources, {table.stream: () for table in found})
        for table in found:
            command(tools, table)


def begin(lake: Lake, case: Case) -> None:
    spark, lake.spark = lake.spark, None  # only the last sync needs it
    for step in case.before:
        if step.complete:
            sync(lake, step)
        else:
            with pytest.raises(TransientError, match="did not complete"):
                sync(lake, step)
    lake.spark = spark
    for name, value in case.lake.items():
        setattr(lake, name, value)


def expect_at_rest(lake: Lake, case: Case) -> None:
    assert list(lake.store.list_uploads("")) == []
    assert [found.key for found in lake.store.list("") if "/scratch/" in found.key] == []
    for name in STREAMS:
        assert sorted(ids_of(lake, name)) == sorted(case.ids), name


def ids_of(lake: Lake, name: str) -> Iterator[int]:
    for body in lake.files(".parquet", name):
        yield from pq.read_table(pa.BufferReader(body))["id"].to_pylist()
    for body in lake.files(".jsonl.gz", name):
        yield from (json.loads(row)["_airbyte_data"]["id"] for row in gzip.decompress(body).splitlines())


def jobs_of_updates() -> Iterator[type]:
    """The tasks of every job that an update asks for."""
    for found in walk_packages(tables.__path__, f"{tables.__name__}."):
        module = import_module(found.name)
        for function in re.findall(r"\bWork\((\w+),", inspect.getsource(module)):
            yield next(iter(get_type_hints(getattr(module, function)).values()))


def test_every_job_of_an_update_fails_in_some_case() -> None:
    assert {*jobs_of_updates(), LandTask} == {case.kind for case in CASES.values()}


TOGETHER = [name for name, case in CASES.items() if case.kind is not LandTask and case.command is None]
OF_TOGETHER, OF_ALL = sample(TOGETHER, len(TOGETHER) // 2), sample([*CASES], len(CASES) // 2)


@pytest.mark.parametrize("case", map(CASES.get, OF_TOGETHER), ids=OF_TOGETHER)
def test_what_two_tables_failed_in_together_each_does_alone(lake: Lake, failing: Failing, case: Case) -> None:
    begin(lake, case)
    failing.fail(case.kind, 1)
    sync(lake, case.last)
    assert failing.failed == 1
    expect_at_rest(lake, case)


@pytest.mark.parametrize("case", map(CASES.get, OF_ALL), ids=OF_ALL)
def test_what_always_fails_ends_the_sync_and_the_next_one_clears_up(lake: Lake, failing: Failing, case: Case) -> None:
    begin(lake, case)
    failing.fail(case.kind, EVERY_TIME)
    if case.given_up:
        sync(lake, case.last)
        assert failing.failed == 1 + len(STREAMS)
    else:
        with pytest.raises(Bug, match="A Spark task stopped"):
            sync(lake, case.last) if case.command is None else run(lake, case.command)
        failing.fail(None, 0)
        sync(lake, case.last)
    expect_at_rest(lake, case)

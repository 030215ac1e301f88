"""Syncs with everything real but Spark, whose tasks run where they are called, one after the other."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from destination_s3_spark.chain.territory import OrphanUploads
from destination_s3_spark.config.config import Config
from destination_s3_spark.engine.engine import Engine
from destination_s3_spark.errors import SyncError
from destination_s3_spark.protocol.catalog import Catalog, parse_catalog
from destination_s3_spark.protocol.reader import ProtocolReader
from destination_s3_spark.protocol.state import StateMessage
from destination_s3_spark.storage.s3 import S3Store
from destination_s3_spark.storage.settings import S3Settings
from destination_s3_spark.sync.batches import Limits
from destination_s3_spark.sync.checkpoints import Checkpoints
from destination_s3_spark.sync.commits import Commits
from destination_s3_spark.sync.pipeline import Pipeline
from destination_s3_spark.sync.spool import Spool
from destination_s3_spark.sync.story.phases import Phases
from destination_s3_spark.sync.sync import Sync
from destination_s3_spark.sync.update_runner import UpdateRunner
from destination_s3_spark.tables.factory import TableFactory
from destination_s3_spark.tables.open_table import OpenTable
from destination_s3_spark.tables.updates.choice import rebuild_of
from destination_s3_spark.tables.updates.resources import LocalDisk, Resources, TaskResources

LARGE = Limits(batch_bytes=2**30, age_s=3600, spool_bytes=2**31)


class InlineEngine:
    """Runs tasks where it is called."""

    cores = 2
    lost_attempts = False

    def start(self) -> None:
        pass

    def release(self) -> None:
        pass

    def stop(self) -> None:
        pass

    def run(self, function: Callable[[Any], Any], groups: Sequence[Sequence[Any]], progress: object = None) -> list[list[Any]]:
        return [[function(task) for task in tasks] for tasks in groups]


@dataclass
class InlineLake:
    """A bucket, and syncs into it. `spark`: a real engine on this machine.

    `cluster`: an engine for updates alone, whose tasks do not see files of each other. `merge_limits`: fields of `Resources`.
    `started_at`: the start of its syncs, or None for the time of each.
    """

    settings: S3Settings
    directory: Path
    limits: Limits = LARGE
    states: list[dict[str, Any]] = field(default_factory=list)
    format: dict[str, Any] = field(default_factory=lambda: {"format_type": "Parquet"})
    options: Mapping[str, Any] = field(default_factory=dict)
    spark: Engine | None = None
    cluster: Any = None
    local_disk_bytes: int = 2**30
    merge_budget_bytes: int = 2**26
    merge_limits: Mapping[str, Any] = field(default_factory=dict)
    started_at: datetime | None = None

    def config(self) -> Config:
        return Config.parse(
            {
                "s3_bucket_name": self.settings.bucket,
                "s3_bucket_path": "lake",
                "s3_bucket_region": "",
                "format": self.format,
                **self.options,
            }
        )

    def sync(self, catalog: Catalog, blocks: Iterable[bytes]) -> None:
        store, config = S3Store(self.settings), self.config()
        with ThreadPoolExecutor(4) as tables_pool, ThreadPoolExecutor(4) as files_pool:
            tables = TableFactory(config, store, self.started_at or datetime.now(UTC), tables_pool.map, files_pool.map).of_catalog(catalog)
            open_tables: dict[int, OpenTable] = {}
            checkpoints = Checkpoints()
            commits = Commits({i: table.writer for i, table in tables.items()}, checkpoints, self._emit, tables_pool.map)
            spool = Spool(self.directory / "spool", self.limits.spool_bytes)
            phases = Phases()
            engine: Any = self.cluster or self.spark or InlineEngine()
            workers: Any = InlineEngine() if self.cluster else engine
            pipeline = Pipeline(open_tables, spool, workers, commits, self.settings, phases)
            disk = None if self.cluster else LocalDisk(self.directory / "events", self.local_disk_bytes)
            sync = Sync(
                catalog,
                tables,
                open_tables,
                checkpoints,
                commits,
                spool,
                engine,
                workers,
                pipeline,
                UpdateRunner(engine, tables_pool),
                phases,
                lambda: Resources(TaskResources(self.settings, self.merge_budget_bytes), 2, disk, **self.merge_limits),
                self.merge_budget_bytes,
                self.limits,
                tables_pool,
                lambda: OrphanUploads(store, "lake/"),
                end_completes=config.batching.end_of_input == "completes",
            )
            try:
                sync.run(ProtocolReader(catalog).events(blocks))
            except SyncError as error:
                commits.abandon()
                commits.clear_up(error, OrphanUploads(store, "lake/"))
                raise
            finally:
                pipeline.stop()
                spool.close()

    def rebuild(self) -> None:
        """What the command does, with its tasks run here."""
        factory = TableFactory(self.config(), S3Store(self.settings), self.started_at or datetime.now(UTC))
        every = factory.find()
        (found,) = every.tables
        table = factory.of_found(found, factory.publishers(every)[found.stream]).open()
        with suppress(StopIteration):
            work = next(steps := rebuild_of(table, Resources(TaskResources(self.settings, 2**26), 2, None)))
            while True:
                work = steps.send([work.function(task) for task in work.tasks])
        table.writer.close()

    def ids(self, stream: str = "users") -> list[int]:
        store = S3Store(self.settings)
        files = [
            pq.read_table(pa.BufferReader(store.get(found.key)))
            for found in store.list(f"lake/{stream}/")
            if found.key.endswith(".parquet")
        ]
        return sorted(value for file in files for value in file["id"].to_pylist())

    def files(self, suffix: str, stream: str = "users") -> list[bytes]:
        store = S3Store(self.settings)
        return [store.get(found.key) for found in store.list(f"lake/{stream}/") if found.key.endswith(suffix)]

    def acknowledged(self) -> list[tuple[Any, float]]:
        return [
            (state["state"].get("stream", state["state"].get("global")), state["state"]["destinationStats"]["recordCount"])
            for state in self.states
        ]

    def _emit(self, message: StateMessage, records: int) -> None:
        self.states.append(json.loads(message.echo(records)))


def catalog(*names: str, ids: bool = True, schema: dict[str, Any] | None = None) -> Catalog:
    generation = {"generation_id": 1, "minimum_generation_id": 0, "sync_id": 1} if ids else {}
    schema = schema or {"type": "object", "properties": {"id": {"type": "integer"}}}
    streams = [
        {
            "stream": {"name": name, "json_schema": schema, "supported_sync_modes": ["full_refresh"]},
            "sync_mode": "full_refresh",
            "destination_sync_mode": "append",
            **generation,
        }
        for name in names
    ]
    return parse_catalog(json.dumps({"streams": streams}).encode())


def line(message: dict[str, Any]) -> bytes:
    return json.dumps(message).encode() + b"\n"


def records(ids: Iterable[int], stream: str = "users") -> bytes:
    return b"".join(line({"type": "RECORD", "record": {"stream": stream, "emitted_at": 1, "data": {"id": i}}}) for i in ids)


def state(cursor: int, stream: str = "users") -> bytes:
    body = {"type": "STREAM", "stream": {"stream_descriptor": {"name": stream}, "stream_state": {"cursor": cursor}}}
    return line({"type": "STATE", "state": body})


def global_state(cursor: int) -> bytes:
    return line({"type": "STATE", "state": {"type": "GLOBAL", "global": {"shared_state": {"cursor": cursor}, "stream_states": []}}})


def status(word: str, stream: str = "users") -> bytes:
    report = {"stream_descriptor": {"name": stream}, "status": word}
    return line({"type": "TRACE", "trace": {"type": "STREAM_STATUS", "emitted_at": 1, "stream_status": report}})

"""Syncs and commands in this process: the product's own assembly, over a bucket in memory or on a server, with Spark's tasks run here."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from destination_s3_spark import tables
from destination_s3_spark.chain.files import FileEntry, FileKind
from destination_s3_spark.chain.log import Chain as OwnChain
from destination_s3_spark.config.config import Config
from destination_s3_spark.engine.engine import Engine
from destination_s3_spark.protocol.catalog import Catalog, parse_catalog
from destination_s3_spark.protocol.writer import ProtocolWriter
from destination_s3_spark.storage.s3 import S3Store
from destination_s3_spark.storage.settings import S3Settings
from destination_s3_spark.sync import assembly
from destination_s3_spark.sync.batches import Limits
from destination_s3_spark.sync.runtime import Runtime
from destination_s3_spark.tables.factory import TableFactory
from destination_s3_spark.tables.updates.choice import rebuild_of
from destination_s3_spark.tables.updates.resources import LocalDisk, Resources, TaskResources
from destination_s3_spark.tables.verification import Verified, verify
from unit_tests.lake.contents import LakeContents
from unit_tests.lake.inline_connector import InlineConnector
from unit_tests.lake.inline_engine import InlineEngine, SharedEngine
from unit_tests.lake.memory_bucket import Crash, Fate, MemoryBucket
from unit_tests.lake.memory_client import bucket_of
from unit_tests.lake.outcome import usual_options

LARGE = Limits(batch_bytes=2**30, age_s=3600, spool_bytes=2**31)
AT_ONCE = Limits(batch_bytes=2**30, age_s=0, spool_bytes=2**31)
"""A STATE is committed without waiting for more input."""


@dataclass
class Lake(LakeContents):
    """A bucket, and syncs into it under `format` and `options` of the configuration.

    `limits`, `merge_budget_bytes`, `local_disk_bytes` and `merge_limits` (fields of `Resources`) bound them, and `started_at` is their
    start, or None for the time of each. `spark`: a real engine on this machine. `cluster`: an engine for updates alone, whose tasks do not
    see files of each other. `states`: what was acknowledged.
    """

    limits: Limits = LARGE
    states: list[dict[str, Any]] = field(default_factory=list)
    format: Mapping[str, Any] = field(default_factory=lambda: {"format_type": "Parquet"})
    options: Mapping[str, Any] = field(default_factory=dict)
    spark: Engine | None = None
    cluster: Any = None
    local_disk_bytes: int = 2**30
    merge_budget_bytes: int = 2**26
    merge_limits: Mapping[str, Any] = field(default_factory=dict)
    started_at: datetime | None = None
    _connectors: int = field(default=0, init=False)

    def raw_config(self, **options: Any) -> dict[str, Any]:
        """The configuration as a user writes it (None removes an option)."""
        every = {**usual_options(self.bucket), "format": self.format, **self.options, **options}
        return {name: value for name, value in every.items() if value is not None}

    def config(self, **options: Any) -> Config:
        return Config.parse(self.raw_config(**options))

    def sync(self, catalog: Catalog | Mapping[str, Any], blocks: Iterable[bytes], **options: Any) -> None:
        """Sync blocks of lines. Raises SyncError."""
        parsed = catalog if isinstance(catalog, Catalog) else parse_catalog(json.dumps(catalog).encode())
        output = ProtocolWriter(_States(self.states))  # type: ignore[arg-type]
        assembly.write(self.config(**options), parsed, blocks, output, self._runtime(), self.settings.limits)

    def silence(self, states: int) -> Iterator[bytes]:
        """Yield blocks without a line until so many STATEs are acknowledged."""
        deadline = time.monotonic() + 60
        while len(self.states) < states:
            assert time.monotonic() < deadline, f"{len(self.states)} of {states} STATEs are acknowledged"
            yield b""
            time.sleep(0.01)

    def killed(self, catalog: Mapping[str, Any], messages: Iterable[bytes], states: int = 1, **options: Any) -> list[dict[str, Any]]:
        """Run a sync whose process is gone as soon as so many STATEs came back, and return all that did."""
        dying = replace(self, limits=AT_ONCE, states=[])

        def blocks() -> Iterator[bytes]:
            yield from messages
            yield from dying.silence(states)
            self.memory.hook = lambda _: Fate.CRASH_BEFORE
            raise Crash

        with pytest.raises(Crash):
            dying.sync(catalog, blocks(), **options)
        self.memory.hook = None
        return dying.states

    def _runtime(self) -> Runtime:
        engine: Any = InlineEngine() if self.spark is None else SharedEngine(self.spark)
        disk = None if self.cluster else LocalDisk(self.directory / "events", self.local_disk_bytes)
        started_at = self.started_at or datetime.now(UTC)

        def resources(s3: S3Settings) -> Resources:
            return Resources(TaskResources(s3, self.merge_budget_bytes), 2, disk, **self.merge_limits)

        return Runtime(self.cluster or engine, engine, self.directory, self.limits, self.merge_budget_bytes, resources, started_at)

    def connector(self, environment: Mapping[str, str] | None = None, **options: Any) -> InlineConnector:
        """The connector's commands, as users and Airbyte's platform run them."""
        self._connectors += 1
        every = {"format": self.format, **self.options, **options}
        return InlineConnector(
            self.directory / f"connector-{self._connectors}", self.bucket, every, environment or {}, limits=self.settings.limits
        )

    @property
    def memory(self) -> MemoryBucket:
        """The bucket in memory: its objects, its calls, and its hook."""
        return bucket_of(self.settings)

    @property
    def store(self) -> S3Store:
        return S3Store(self.settings)

    def factory(self) -> TableFactory:
        return TableFactory(self.config(), self.store, self.started_at or datetime.now(UTC))

    def read(self, name: str = "users", *, fresh: bool = False) -> Any:
        """A table without a namespace as Python programs read it: a dataset, or with `fresh` the rows that wait, too."""
        return tables.read(self.raw_config(), name, fresh=True) if fresh else tables.read(self.raw_config(), name)

    def verified(self) -> Verified:
        """What `verify` finds in the only table."""
        (found,) = self.factory().find().tables
        return verify(self.store, found)

    def rebuild(self) -> None:
        """Rebuild the only table, as the command does."""
        factory = self.factory()
        every = factory.find()
        (found,) = every.tables
        table = factory.of_found(found, factory.publishers(every)[found.stream]).open()
        with suppress(StopIteration):
            work = next(steps := rebuild_of(table, Resources(TaskResources(self.settings, 2**26), 2, None)))
            while True:
                work = steps.send([work.function(task) for task in work.tasks])
        table.writer.close()

    def own_chain(self) -> OwnChain:
        """The only table's chain, as the connector reads it."""
        factory = self.factory()
        (found,) = factory.find().tables
        chain = OwnChain(self.store, found)
        chain.read()
        chain.catch_up()
        return chain

    def live(self, *kinds: FileKind) -> tuple[FileEntry, ...]:
        """The live files of these kinds of the only table."""
        return self.own_chain().live_files().of(*kinds)

    def files(self, suffix: str, stream: str = "users") -> list[bytes]:
        """The objects in a table's folder with this end of their keys."""
        return [self.store.get(found.key) for found in self.store.list(f"lake/{stream}/") if found.key.endswith(suffix)]

    def glob(self, stream: str = "users") -> list[dict[str, Any]]:
        """The rows of all Parquet files in a table's folder, as a reader sees it that lists the folder."""
        return [row for body in self.files(".parquet", stream) for row in pq.read_table(pa.BufferReader(body)).to_pylist()]

    def ids_in_folder(self, stream: str = "users") -> list[int]:
        """The column `id` of `glob`, sorted."""
        return sorted(row["id"] for row in self.glob(stream))

    def acknowledged(self) -> list[tuple[Any, float]]:
        """The states that were acknowledged, each with its count of records."""
        return [
            (state["state"].get("stream", state["state"].get("global")), state["state"]["destinationStats"]["recordCount"])
            for state in self.states
        ]

    def cursors(self) -> list[Any]:
        """The cursors of the STREAM states that were acknowledged."""
        return [state["state"]["stream"]["stream_state"]["cursor"] for state in self.states]

    def through(self, settings: S3Settings) -> Lake:
        """The same lake as reached by other settings, without the states so far."""
        return replace(self, settings=settings, states=[])


class _States:
    """The platform: takes the messages of a sync, and keeps its STATEs."""

    def __init__(self, states: list[dict[str, Any]]) -> None:
        self._states = states

    def write(self, line: bytes) -> int:
        message = json.loads(line)
        if message["type"] == "STATE":
            self._states.append(message)
        return len(line)

    def flush(self) -> None:
        pass

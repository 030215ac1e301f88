"""What a sync costs in a table's long life: S3 calls, bytes, seconds, objects and memory after 10, 100, 1,000 and 10,000 small syncs.

Every sync is the connector's own, with its reader, spool, commits and merges, in this process. Only Spark is left out: the tasks run here.
An hour passes from each sync to the next, so that retention has something to do. `--cli` adds syncs of the installed command, with Spark.
See docs/performance.md.
"""

from __future__ import annotations

import argparse
import gc
import io
import logging
import resource
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import orjson
import psutil

from benchmarks import sync_run, target
from benchmarks.machine import describe_machine
from destination_s3_spark.chain.log import Chain
from destination_s3_spark.cli.inspection.table import read_table
from destination_s3_spark.config.config import Config
from destination_s3_spark.engine.engine import Engine, Progress
from destination_s3_spark.protocol.catalog import Catalog, parse_catalog
from destination_s3_spark.protocol.writer import ProtocolWriter
from destination_s3_spark.storage.configured import s3_settings
from destination_s3_spark.storage.s3 import S3Store
from destination_s3_spark.sync.assembly import write
from destination_s3_spark.sync.runtime import runtime_of, spark_settings
from destination_s3_spark.tables.factory import TableFactory, table_factory
from destination_s3_spark.tables.verification import verify

Task = TypeVar("Task")
Result = TypeVar("Result")

NAMESPACE, STREAM = "life", "events"
AGES = (10, 100, 1_000, 10_000)
"""Numbers of syncs after which figures are printed, besides the last: means of the syncs since the figures before, with all compactions."""
CLI_WINDOW = 10
"""Syncs of the installed command that a figure is the mean of."""
FIRST_HOUR = datetime(2026, 1, 1, tzinfo=UTC)
KEYS = 2_000
"""Keys of the deduplicated table. Each sync updates a few of them."""


class InThisProcess(Engine):
    """An engine that runs its tasks in this process, one after another, without Spark."""

    def start(self) -> None:
        """Start nothing."""

    def stop(self) -> None:
        """Stop nothing."""

    def run(
        self, function: Callable[[Task], Result], groups: Sequence[Sequence[Task]], progress: Progress | None = None
    ) -> list[list[Result]]:
        """Apply the function to every task."""
        del progress
        return [[function(task) for task in group] for group in groups]


@dataclass(slots=True)
class Traffic:
    """The requests to the store and the bytes of their bodies."""

    calls: Counter[str] = field(default_factory=Counter)
    sent: int = 0
    received: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def watch(self, store: S3Store) -> None:
        """Count every request of the process's client."""
        store.client.meta.events.register("before-send.s3", self._request)
        store.client.meta.events.register("after-call.s3", self._answer)

    def _request(self, request: Any, event_name: str, **_: Any) -> None:
        with self._lock:
            self.calls[event_name.rsplit(".", 1)[-1]] += 1
            self.sent += int(request.headers.get("Content-Length") or 0)

    def _answer(self, http_response: Any, event_name: str = "", **_: Any) -> None:
        if not event_name.endswith("HeadObject"):
            with self._lock:
                self.received += int(http_response.headers.get("Content-Length") or 0)


@dataclass(frozen=True, slots=True)
class Cost:
    """Totals of some syncs or of a read."""

    seconds: float
    cpu_seconds: float
    calls: Counter[str]
    sent: int
    received: int


class Meter:
    """The costs between two moments."""

    def __init__(self, traffic: Traffic) -> None:
        self._traffic = traffic
        self._begin()

    def take(self) -> Cost:
        """Return the costs since the last time and begin anew."""
        calls, sent, received, clock, cpu = self._start
        now = self._traffic
        cost = Cost(
            time.perf_counter() - clock, time.process_time() - cpu, Counter(now.calls) - calls, now.sent - sent, now.received - received
        )
        self._begin()
        return cost

    def _begin(self) -> None:
        traffic = self._traffic
        self._start = (Counter(traffic.calls), traffic.sent, traffic.received, time.perf_counter(), time.process_time())


class Life:
    """A table and its hourly syncs."""

    def __init__(self, config: Config, mode: str, directory: Path) -> None:
        self.config = config
        self.catalog: Catalog = parse_catalog(orjson.dumps(_catalog(mode)))
        settings = spark_settings(config, directory)
        self._engine, self._directory = InThisProcess(settings), directory
        self._output = ProtocolWriter(io.BytesIO())
        self.syncs = 0
        clock: Callable[[], datetime] = lambda: FIRST_HOUR + timedelta(hours=self.syncs)  # noqa: E731
        Chain.__init__.__defaults__ = (clock,)

    def sync(self) -> None:
        """Run the next sync."""
        runtime = runtime_of(self.config, self._engine, self._directory)
        write(self.config, self.catalog, [_messages(self.syncs)], self._output, runtime)
        self.syncs += 1


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--syncs", type=int, default=AGES[-1], help="the age of the table at the end (default: %(default)s)")
    parser.add_argument("--mode", choices=("append", "append_dedup"), default="append")
    parser.add_argument("--tables", type=orjson.loads, default={}, metavar="JSON", help="options of `tables`, such as retention")
    parser.add_argument("--change-log", type=orjson.loads, default={}, metavar="JSON", help="options of `change_log`")
    parser.add_argument("--cli", type=int, default=0, metavar="N", help="syncs of the installed command to add at the end")
    parser.add_argument("--endpoint", help="an S3 endpoint to use instead of a local moto server")
    parser.add_argument("--single-writer", action="store_true", help="for a store without conditional writes")
    parser.add_argument("--bucket", default="benchmark", help="must exist when --endpoint is given (default: %(default)s)")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    print(describe_machine(), flush=True)
    with tempfile.TemporaryDirectory() as directory, target.endpoint(options.endpoint, options.bucket, Path(directory)) as address:
        raw = target.config(address, options.bucket, f"life-{options.mode}", "on")
        raw["tables"] |= options.tables
        raw["change_log"] = options.change_log
        raw["s3"] = {"single_writer": options.single_writer}
        life = Life(Config.parse(raw), options.mode, Path(directory))
        _live(life, options.syncs)
        _run_cli(life, raw, options.mode, options.cli, Path(directory))


def _live(life: Life, syncs: int) -> None:
    traffic = Traffic()
    store = S3Store(s3_settings(life.config))
    traffic.watch(store)
    meter = Meter(traffic)
    print(
        f"{'syncs':>7}{'calls':>7}{'s':>7}{'CPU s':>7}{'kB out':>8}{'kB in':>8}{'live':>6}{'objects':>9}{'MB':>8}{'RSS MB':>8}"
        f"{'inspect s':>10}{'calls':>6}{'no hint s':>10}{'calls':>6}{'verify s':>9}{'calls':>7}"
    )
    for before, age in pairwise(sorted({0, syncs, *(age for age in AGES if age < syncs)})):
        while life.syncs < age:
            life.sync()
        cost, count = meter.take(), age - before
        factory = table_factory(life.config)
        every = factory.find()
        found, publishers = every.tables, factory.publishers(every)
        tables = [read_table(factory, table, publishers[table.stream]) for table in found]
        inspected = meter.take()
        _read_without_hint(factory)
        unhinted = meter.take()
        with ThreadPoolExecutor(16) as pool:
            problems = [problem for table in found for problem in verify(store, table, pool.map).problems]
        assert not problems, problems[:3]
        verified = meter.take()
        objects = [info.size for info in store.list(f"{life.config.s3_bucket_path}/")]
        live = sum(len(table.readable.live.files) for table in tables)
        gc.collect()
        print(
            f"{age:7}{cost.calls.total() / count:7.1f}{cost.seconds / count:7.3f}{cost.cpu_seconds / count:7.3f}"
            f"{cost.sent / count / 1000:8.0f}{cost.received / count / 1000:8.0f}{live:6}{len(objects):9}{sum(objects) / 1e6:8.1f}"
            f"{psutil.Process().memory_info().rss / 1e6:8.0f}{inspected.seconds:10.2f}{inspected.calls.total():6}"
            f"{unhinted.seconds:10.2f}{unhinted.calls.total():6}{verified.seconds:9.2f}{verified.calls.total():7}",
            flush=True,
        )
        calls = ", ".join(f"{name} {total / count:.1f}" for name, total in sorted(cost.calls.items()))
        print(f"        {calls}", flush=True)
        meter.take()
    print(f"peak RSS {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000:.0f} MB")


def _read_without_hint(factory: TableFactory) -> None:
    for found in factory.find().tables:
        chain = Chain(factory.store, found)
        chain.catch_up()
        chain.live_files()


def _run_cli(life: Life, raw: dict[str, Any], mode: str, syncs: int, directory: Path) -> None:
    """Sync with the installed command. Print the means of the first syncs, and of those before each age and the end."""
    store = S3Store(s3_settings(life.config))
    runs: list[sync_run.SyncRun] = []
    for number in range(life.syncs, life.syncs + syncs):
        command = sync_run.write_command(raw, _catalog(mode), directory)
        runs.append(sync_run.run(command, [_messages(number)], directory / "stderr.log"))
        if runs[-1].code != 0:
            raise SystemExit(f"sync {number} ended with exit code {runs[-1].code}\n{(directory / 'stderr.log').read_text()[-2000:]}")
        if len(runs) in (*AGES, syncs):
            last = runs[-CLI_WINDOW:]
            samplers = [run.sampler for run in last if run.sampler is not None]
            objects = [info.size for info in store.list(f"{life.config.s3_bucket_path}/")]
            print(
                f"installed command, {len(runs)} syncs, the last {len(last)}: {sum(run.seconds for run in last) / len(last):.2f} s, "
                f"{sum(sum(one.cpu_seconds.values()) for one in samplers) / len(last):.2f} CPU s, "
                f"{max(one.peak_rss_bytes for one in samplers) / 1e6:.0f} MB of memory at most; "
                f"{len(objects)} objects, {sum(objects) / 1e6:.1f} MB",
                flush=True,
            )


def _catalog(mode: str) -> dict[str, Any]:
    properties = {"id": {"type": "integer"}, "at": {"type": "string"}, "amount": {"type": "number"}}
    stream = {
        "name": STREAM,
        "namespace": NAMESPACE,
        "json_schema": {"type": "object", "properties": properties},
        "supported_sync_modes": ["full_refresh", "incremental"],
    }
    configured = {
        "stream": stream,
        "sync_mode": "incremental",
        "destination_sync_mode": mode,
        "primary_key": [["id"]],
        "cursor_field": ["at"],
        "generation_id": 0,
        "minimum_generation_id": 0,
        "sync_id": 1,
    }
    return {"streams": [configured]}


def _messages(number: int) -> bytes:
    return b"".join(orjson.dumps(message) + b"\n" for message in _sync_messages(number))


def _sync_messages(number: int) -> Iterator[dict[str, Any]]:
    at = (FIRST_HOUR + timedelta(hours=number)).isoformat()
    for record in range(20):
        data = {"id": (number * 7 + record * 97) % KEYS, "at": at, "amount": record / 4}
        yield {
            "type": "RECORD",
            "record": {"stream": STREAM, "namespace": NAMESPACE, "emitted_at": 1_767_225_600_000 + number, "data": data},
        }
    descriptor = {"name": STREAM, "namespace": NAMESPACE}
    state = {"type": "STREAM", "stream": {"stream_descriptor": descriptor, "stream_state": {"number": number}}}
    yield {"type": "STATE", "state": state}
    status = {"stream_descriptor": descriptor, "status": "COMPLETE"}
    yield {"type": "TRACE", "trace": {"type": "STREAM_STATUS", "emitted_at": 1, "stream_status": status}}


if __name__ == "__main__":
    main()

"""Who does the work of a merge on a standalone cluster of 1, 2 and 4 executors of one core: CPU seconds of the driver and of the executors.

A table of invoices gets changes of one hundredth of its rows at random keys, so that a merge rewrites it, in turn by Spark inside the
connector and by each number of executors. Rows are counted afterwards. See docs/cluster.md.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
from collections import defaultdict
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path

import boto3
import numpy as np
import psutil

from benchmarks import invoices, sync_run, target
from benchmarks.invoices import Invoices
from benchmarks.machine import describe_machine
from benchmarks.table_log import TableLog
from integration_tests.network import HERE
from integration_tests.spark_cluster import SparkCluster, spark_cluster

INTERVAL_S = 0.1
DRIVER, EXECUTORS = ("driver's Python", "driver's JVM"), ("executors' Python", "executors' JVMs")
OTHERS = "the S3 server and Spark's daemons"
BUCKET, PREFIX = "benchmark", "merged"
LOCAL: dict[str, object] = {"master": "local[2]"}
DELTA_SHARE = 0.01


class CpuWatch:
    """Adds up the CPU time of the connector's and the cluster's processes while the `with` block runs, by part."""

    def __init__(self) -> None:
        self._seen: dict[tuple[int, float], tuple[str, float]] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> CpuWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def totals(self) -> Mapping[str, float]:
        totals: dict[str, float] = defaultdict(float)
        for part, seconds in self._seen.values():
            totals[part] += seconds
        return totals

    def _watch(self) -> None:
        while not self._over.wait(INTERVAL_S):
            for process in psutil.Process().children(recursive=True):
                with suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
                    # Read each time: a process that was just forked has the name of its parent still, one that has ended has none.
                    command, times = process.cmdline(), process.cpu_times()
                    if command:
                        self._seen[process.pid, process.create_time()] = part_of(command), times.user + times.system


def part_of(command: list[str]) -> str:
    """Which part of the whole a process is, by its command line."""
    text = " ".join(command)
    if command[:1] and command[0].endswith("java"):
        if "spark.deploy.master" in text or "spark.deploy.worker" in text:
            return OTHERS
        return EXECUTORS[1] if "CoarseGrainedExecutorBackend" in text else DRIVER[1]
    if "pyspark.daemon" in text or "engine.worker_daemon" in text:
        return EXECUTORS[0]
    return DRIVER[0] if "destination_s3_spark write" in text else OTHERS


class Bench:
    """The table, its server and the directory of one benchmark."""

    def __init__(self, address: str, directory: Path, rows: int, seed: int) -> None:
        self._address, self._directory, self._rows, self._syncs = address, directory, rows, 0
        self._random = np.random.default_rng(seed)
        self.log = TableLog(boto3.client("s3", endpoint_url=address), BUCKET, PREFIX)

    def build(self) -> None:
        """Make the table, with Spark inside the connector."""
        self._sync(Invoices(self._random.permutation(self._rows)), LOCAL)
        table = self.log.files()
        print(f"table: {table.rows:,} rows, {table.bytes / 1e6:.0f} MB in {table.count} files", flush=True)

    def merge(self, name: str, spark: Mapping[str, object]) -> None:
        """Merge changes of random rows, and print what it took. Raises SystemExit if rows are missing."""
        keys = self._random.permutation(self._rows)[: int(self._rows * DELTA_SHARE)]
        with CpuWatch() as watch:
            done = self._sync(Invoices(keys, self._syncs), spark)
        merge, cpu = self.log.last_merge(), watch.totals()
        if merge.written.rows != self._rows:
            raise SystemExit(f"{merge.written.rows:,} rows were written instead of {self._rows:,}.")
        parts = ", ".join(f"{part} {cpu[part]:.1f}" for part in (*DRIVER, *EXECUTORS))
        print(f"{name}: merge {done.update_seconds:.1f} s of {done.seconds:.1f} s; CPU seconds: {parts}", flush=True)

    def _sync(self, rows: Invoices, spark: Mapping[str, object]) -> sync_run.SyncRun:
        self._syncs += 1
        config = {**target.config(self._address, BUCKET, PREFIX, "off"), "spark": dict(spark)}
        command = sync_run.write_command(config, invoices.catalog("append_dedup", self._syncs), self._directory)
        errors = self._directory / "errors.log"
        done = sync_run.run(command, (*rows.chunks(), invoices.ending(self._syncs)), errors)
        if done.code != 0:
            raise SystemExit(f"a sync ended with exit code {done.code}:\n{done.said[-1].line}\n{errors.read_text()[-3_000:]}")
        return done


def main() -> None:
    """Build the table, merge in turn, and print what each merge took."""
    args = _arguments()
    print(describe_machine())
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        bench = Bench(stack.enter_context(target.endpoint(None, BUCKET, directory)), directory, args.rows, args.seed)
        bench.build()
        cluster = stack.enter_context(spark_cluster(directory / "cluster", {}, {}, hosts=[HERE] * max(args.executors)))
        for _ in range(args.runs):
            bench.merge("local[2]", LOCAL)
            for executors in args.executors:
                bench.merge(f"{executors} executors", _on(cluster, executors))
                cluster.wait_until_free()


def _on(cluster: SparkCluster, executors: int) -> dict[str, object]:
    conf = {"spark.pyspark.python": sys.executable, "spark.executor.memory": "512m", "spark.cores.max": str(executors)}
    return {"master": cluster.master, "conf": conf, "executor_credentials": "forward"}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=5_000_000, help="rows of the table (default: %(default)s)")
    parser.add_argument("--executors", type=int, nargs="+", default=[1, 2, 4], help="numbers of executors (default: %(default)s)")
    parser.add_argument("--runs", type=int, default=1, help="how often everything is measured, in turn (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=7, help="seed of the generator (default: %(default)s)")
    return parser.parse_args()


if __name__ == "__main__":
    main()

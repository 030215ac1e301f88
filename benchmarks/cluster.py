"""Who does the work of an append on a standalone cluster of two workers: CPU seconds of the driver and of the executors.

The same input then goes through Spark inside the connector, for comparison. Rows are counted afterwards. See docs/cluster.md.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import threading
from collections import defaultdict
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

import boto3
import psutil

from benchmarks import target, workload
from benchmarks.append_vs_duckdb import Bucket, timed
from benchmarks.machine import describe_machine
from benchmarks.workload import Workload
from demo.connector import COMMAND
from integration_tests.spark_cluster import SparkCluster, spark_cluster

INTERVAL_S = 0.1
DRIVER, EXECUTORS = ("driver's Python", "driver's JVM"), ("executors' Python", "executors' JVMs")
OTHERS = "the S3 server and Spark's daemons"


@dataclass(frozen=True, slots=True)
class Run:
    """Seconds of a sync, and CPU seconds by part."""

    seconds: float
    cpu: Mapping[str, float]


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


def main() -> None:
    """Run the pairs and print what each took."""
    args = _arguments()
    load = workload.prepare(args.size_mb, args.seed, 0.0)
    print(describe_machine())
    print(f"workload: {load.size_bytes / 1e6:.0f} MB, {sum(load.records.values()):,} records, raw tables {args.raw_tables}")
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        address = stack.enter_context(target.endpoint(None, "benchmark", directory))
        cluster = stack.enter_context(spark_cluster(directory / "cluster", {}, {}))
        bucket = Bucket(address, "benchmark", boto3.client("s3", endpoint_url=address))
        for number in range(args.runs):
            both: dict[str, dict[str, object]] = {"cluster": _on(cluster), "local[2]": {"master": "local[2]"}}
            for name, spark in both.items():
                report(name, run(f"{name.strip('[]2')}{number}", spark, load, bucket, directory, args.raw_tables))
                cluster.wait_until_free()


def run(prefix: str, spark: dict[str, object], load: Workload, bucket: Bucket, directory: Path, raw_tables: str) -> Run:
    """One sync of the workload; raises SystemExit when it fails or rows are missing."""
    path = directory / f"{prefix}.json"
    path.write_text(json.dumps({**target.config(bucket.endpoint, bucket.name, prefix, raw_tables), "spark": spark}))
    command = [*COMMAND, "write", "--config", str(path), "--catalog", str(load.catalog_path)]
    with CpuWatch() as watch:
        speed = timed(command, load, bucket, prefix, directory).megabytes_per_second
    return Run(load.size_bytes / 1e6 / speed, watch.totals())


def report(name: str, result: Run) -> None:
    """Print the seconds of every part, and the driver's share of them."""
    driver, executors = (sum(result.cpu[part] for part in parts) for parts in (DRIVER, EXECUTORS))
    parts = ", ".join(f"{part} {result.cpu[part]:.1f}" for part in (*DRIVER, *EXECUTORS))
    print(f"{name}: {result.seconds:.1f} s; CPU seconds: {parts}; driver {100 * driver / (driver + executors):.0f} % of all", flush=True)


def _on(cluster: SparkCluster) -> dict[str, object]:
    conf = {"spark.pyspark.python": sys.executable, "spark.executor.memory": "512m"}
    return {"master": cluster.master, "conf": conf, "executor_credentials": "forward"}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size-mb", type=int, default=100, help="size of the input (default: %(default)s)")
    parser.add_argument("--runs", type=int, default=1, help="how many pairs of runs (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=7, help="seed of the generator (default: %(default)s)")
    parser.add_argument("--raw-tables", choices=("on", "off"), default="off", help="whether raw tables are kept (default: %(default)s)")
    return parser.parse_args()


if __name__ == "__main__":
    main()

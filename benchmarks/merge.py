"""What an update of a deduplicated table costs: how much of the table is rewritten, and how fast, next to plain Spark on the same rows.

A table of invoices is built through the connector in append_dedup mode, and gets 1 % of its rows in three ways: neighbouring keys, keys
drawn at random, new keys at the end. Spark SQL does the same for the random keys, and for a first load. See docs/performance.md.
"""

from __future__ import annotations

import argparse
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path

import boto3
import duckdb
import numpy as np

from benchmarks import invoices, sync_run, target
from benchmarks.invoices import Integers, Invoices
from benchmarks.machine import describe_machine
from benchmarks.sync_run import SyncRun
from benchmarks.table_log import Merge, TableLog

RIVAL = Path(__file__).with_name("spark_rival.py")
KEYS_PER_ROW = 0.8
"""Of so many keys a row, 57 % are drawn at least once."""
MB = 1e6
DELTA_SHARE = 0.01
DIGEST = "SELECT count(*), sum(id), sum(epoch_ms(updated)) FROM read_parquet('{}/*.parquet')"


@dataclass(frozen=True, slots=True)
class Change:
    """One merge: what the chain says it read and wrote, and the seconds of its step, of the whole process, and of Spark on the same rows.

    `share` is that of the table's bytes that was rewritten.
    """

    share: float
    files: float
    files_before: float
    rows_read: float
    rows_written: float
    seconds: float
    process_seconds: float
    spark_seconds: float
    rows: float

    @classmethod
    def of(cls, merge: Merge, done: SyncRun, spark_seconds: float = math.nan) -> Change:
        """From a sync and its merge. `rows` are those of the table and the runs, all of which Spark reads."""
        before, removed, runs = merge.before, merge.removed, merge.runs
        share = removed.bytes / before.bytes if before.bytes else 0.0
        read = removed.rows + runs.rows
        times = (done.update_seconds, done.seconds, spark_seconds)
        return cls(share, removed.count, before.count, read, merge.written.rows, *times, before.rows + runs.rows)

    def __str__(self) -> str:
        rewritten = f"{self.share:.2%} of the bytes rewritten, {self.files:.0f} of {self.files_before:.0f} files"
        rows = f"{self.rows_read:,.0f} rows read, {self.rows_written:,.0f} written"
        text = f"{rewritten if self.files_before else 'a new table'}; {rows}; {self.seconds:.1f} s of {self.process_seconds:.1f} s"
        if math.isnan(self.spark_seconds):
            return text
        ours, spark = self.rows / self.seconds, self.rows / self.spark_seconds
        return f"{text}; {ours:,.0f} rows/s, Spark {spark:,.0f} rows/s in {self.spark_seconds:.1f} s, ratio {ours / spark:.2f}"


@dataclass(slots=True)
class Bench:
    """The server, the directory and the numbers of syncs of one benchmark."""

    address: str
    bucket: str
    directory: Path
    seed: int
    driver_memory: str
    syncs: int = 0

    def log(self, prefix: str) -> TableLog:
        """The chain of the table under a prefix."""
        return TableLog(boto3.client("s3", endpoint_url=self.address), self.bucket, prefix)

    def sync(self, prefix: str, mode: str, rows: Invoices) -> SyncRun:
        """One sync of the rows into the table under the prefix."""
        self.syncs += 1
        config = target.config(self.address, self.bucket, prefix, raw_tables="off")
        command = sync_run.write_command(config, invoices.catalog(mode, self.syncs), self.directory)
        errors = self.directory / "errors.log"
        result = sync_run.run(command, self._input(rows), errors)
        if result.code != 0:
            raise SystemExit(f"a sync ended with exit code {result.code}:\n{result.said[-1].line}\n{errors.read_text()[-3_000:]}")
        return result

    def fresh(self, name: str) -> Path:
        """The path of a directory that is not there."""
        shutil.rmtree(self.directory / name, ignore_errors=True)
        return self.directory / name

    def parquet(self, rows: Invoices, name: str) -> None:
        """Put the same rows into a directory as Parquet files, as the connector appends them."""
        self.sync("appended", "append", rows)
        self.log("appended").download(self.fresh(name))
        self.log("appended").clear()

    def spark(self, *inputs: str) -> float:
        """Seconds Spark takes to merge what is in the directories into `merged`."""
        self.fresh("warm-up")
        command = [sys.executable, str(RIVAL), self.driver_memory, *(str(self.directory / name) for name in ("warm-up", *inputs))]
        answer = subprocess.run([*command, str(self.fresh("merged"))], capture_output=True, text=True, check=False)
        if answer.returncode != 0:
            raise SystemExit(f"Spark ended with exit code {answer.returncode}:\n{answer.stderr[-3_000:]}")
        return float(answer.stdout)

    def compare(self, prefix: str) -> None:
        """Raise SystemExit unless the table under the prefix has the rows Spark made of the same input."""
        self.log(prefix).download(self.fresh("ours"))
        connection = duckdb.connect()
        ours, spark = (connection.execute(DIGEST.format(self.directory / name)).fetchall() for name in ("ours", "merged"))
        if ours != spark:
            raise SystemExit(f"The connector made {ours} (rows, sum of keys, sum of times) of what Spark made {spark} of.")

    def _input(self, rows: Invoices) -> Iterator[bytes | memoryview]:
        yield from rows.chunks()
        yield invoices.ending(self.syncs)


def main() -> None:
    """Parse the command line, run everything so many times in turn and print medians."""
    args = _arguments()
    print(describe_machine())
    print(f"load average before: {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory() as name, target.endpoint(args.endpoint, args.bucket, Path(name)) as address:
        bench = Bench(address, args.bucket, Path(name), args.seed, args.driver_memory)
        _measure(bench, args.rows, args.runs)
    print(f"load average after: {os.getloadavg()[0]:.1f}")


def _measure(bench: Bench, rows: int, runs: int) -> None:
    random = np.random.default_rng(bench.seed)
    first = Invoices(random.integers(0, int(rows * KEYS_PER_ROW), rows), seed=bench.seed)
    bench.parquet(first, "first")
    built = bench.sync("table", "append_dedup", Invoices(random.permutation(rows), seed=bench.seed))
    table = bench.log("table").files()
    made = f"{table.rows:,} rows, {table.bytes / MB:.0f} MB in {table.count} files"
    print(f"table: {made}; {built.seconds:.0f} s to build, {built.update_seconds:.1f} s of them its merge", flush=True)
    results: dict[str, list[Change]] = {"first load": [], "neighbouring keys": [], "random keys": [], "new keys": []}
    for _ in range(runs):
        results["first load"].append(_first_load(bench, first))
        size = bench.log("table").files().rows
        count = int(size * DELTA_SHARE)
        start = int(random.integers(0, size - count))
        results["neighbouring keys"].append(_changed(bench, np.arange(start, start + count)))
        results["random keys"].append(_changed_by_both(bench, random.permutation(size)[:count]))
        results["new keys"].append(_changed(bench, np.arange(size, size + count)))
        for name, changes in results.items():
            print(f"{name}: {changes[-1]}", flush=True)
    print("medians")
    for name, changes in results.items():
        print(f"{name}: {_median(changes)}")


def _first_load(bench: Bench, rows: Invoices) -> Change:
    """All rows come as runs of a new table; Spark has them as appended before."""
    done = bench.sync("loaded", "append_dedup", rows)
    merge = bench.log("loaded").last_merge()
    change = Change.of(merge, done, bench.spark("first"))
    bench.compare("loaded")
    bench.log("loaded").clear()
    return change


def _changed(bench: Bench, keys: Integers) -> Change:
    done = bench.sync("table", "append_dedup", Invoices(keys, bench.syncs, bench.seed))
    return Change.of(bench.log("table").last_merge(), done)


def _changed_by_both(bench: Bench, keys: Integers) -> Change:
    """Ours and Spark, which gets the table as it was before and the delta as the connector appends it."""
    delta = Invoices(keys, bench.syncs, bench.seed)
    bench.parquet(delta, "delta")
    bench.log("table").download(bench.fresh("before"))
    done = bench.sync("table", "append_dedup", delta)
    change = Change.of(bench.log("table").last_merge(), done, bench.spark("delta", "before"))
    bench.compare("table")
    return change


def _median(changes: list[Change]) -> Change:
    """Of each figure by itself."""
    return Change(*(statistics.median(getattr(change, field.name) for change in changes) for field in fields(Change)))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--rows", type=int, default=5_000_000, help="rows of the table and records of the first load (default: %(default)s)"
    )
    parser.add_argument("--runs", type=int, default=3, help="how often everything is measured, in turn (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=7, help="seed of the generator (default: %(default)s)")
    parser.add_argument("--driver-memory", default="4g", help="memory of the rival's JVM (default: %(default)s)")
    parser.add_argument(
        "--endpoint", help="an S3 endpoint to use instead of a local moto server; keys come from AWS_ACCESS_KEY_ID and so on"
    )
    parser.add_argument("--bucket", default="benchmark", help="bucket; must exist when --endpoint is given (default: %(default)s)")
    return parser.parse_args()


if __name__ == "__main__":
    main()

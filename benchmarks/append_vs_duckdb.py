"""Append throughput of the whole connector against DuckDB on the same input, the same server and the same machine, in turn.

Ours is the process as Airbyte runs it: from its start with the input waiting on stdin to its exit. DuckDB's time is its process too, with
the upload. Rows are counted in the uploaded files after each run. See docs/performance.md.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import boto3
import pyarrow as pa
import pyarrow.parquet as pq
from botocore.config import Config

from benchmarks import target, workload
from benchmarks.machine import describe_machine
from benchmarks.process_tree import Sampler
from benchmarks.workload import Workload
from demo.connector import COMMAND

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

RIVAL = Path(__file__).with_name("duckdb_rival.py")


@dataclass(frozen=True, slots=True)
class Bucket:
    """Where both write, with a client to count and clean up."""

    endpoint: str
    name: str
    client: S3Client

    def rows(self, prefix: str) -> dict[str, int]:
        """Rows per stream of the data files `PREFIX/shop/STREAM/*.parquet`."""
        counts: dict[str, int] = {}
        for key in self._keys(f"{prefix}/shop/"):
            if key.endswith(".parquet"):
                body = self.client.get_object(Bucket=self.name, Key=key)["Body"].read()
                stream = key.removeprefix(f"{prefix}/shop/").split("/")[0]
                counts[stream] = counts.get(stream, 0) + pq.ParquetFile(pa.BufferReader(body)).metadata.num_rows
        return counts

    def clear(self, prefix: str) -> None:
        """Delete everything under the prefix, so that the server's memory does not fill up."""
        for key in self._keys(f"{prefix}/"):
            self.client.delete_object(Bucket=self.name, Key=key)

    def _keys(self, prefix: str) -> list[str]:
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=self.name, Prefix=prefix)
        return [item["Key"] for page in pages for item in page.get("Contents", [])]


def _client(address: str) -> S3Client:
    """Return a client that trusts the store's answers: some give an upload in parts another kind of checksum than expected."""
    return boto3.client("s3", endpoint_url=address, config=Config(response_checksum_validation="when_required"))


@dataclass(frozen=True, slots=True)
class Run:
    """One timed run."""

    megabytes_per_second: float
    cpu_seconds: float
    peak_rss_mb: float


def main() -> None:
    """Parse the command line, run the pairs and print the result."""
    args = _arguments()
    load = workload.prepare(args.size_mb, args.seed, args.dirty_share)
    print(describe_machine())
    print(f"workload: {load.size_bytes / 1e6:.0f} MB, {sum(load.records.values()):,} records, seed {args.seed}, dirty {args.dirty_share}")
    with tempfile.TemporaryDirectory() as directory, target.endpoint(args.endpoint, args.bucket, Path(directory)) as address:
        bucket = Bucket(address, args.bucket, _client(address))
        pairs = [_pair(number, args, load, bucket, Path(directory)) for number in range(args.runs)]
    report(pairs)


def _pair(number: int, args: argparse.Namespace, load: Workload, bucket: Bucket, directory: Path) -> tuple[Run, Run]:
    _read_once(load.path)
    ours = timed(_our_command(args, load, bucket, directory, f"ours{number}"), load, bucket, f"ours{number}", directory)
    files = [str(load.path), str(load.catalog_path)]
    rival = [sys.executable, str(RIVAL), *files, bucket.endpoint, bucket.name, f"duckdb{number}", "null" if args.dirty_share else "stop"]
    duckdb = timed(rival, load, bucket, f"duckdb{number}", directory)
    print(
        f"run {number + 1}: ours {ours.megabytes_per_second:.1f} MB/s, {ours.cpu_seconds:.1f} CPU s, {ours.peak_rss_mb:.0f} MB; "
        f"DuckDB {duckdb.megabytes_per_second:.1f} MB/s, {duckdb.cpu_seconds:.1f} CPU s, {duckdb.peak_rss_mb:.0f} MB; "
        f"ratio {ours.megabytes_per_second / duckdb.megabytes_per_second:.2f}",
        flush=True,
    )
    return ours, duckdb


def timed(command: list[str], load: Workload, bucket: Bucket, prefix: str, directory: Path) -> Run:
    """Run the command with the workload on a pipe at its stdin; raises SystemExit when it fails or rows are missing."""
    messages = directory / f"{prefix}.log"
    with load.path.open("rb") as source, messages.open("wb") as log:
        feeder = subprocess.Popen(["cat"], stdin=source, stdout=subprocess.PIPE)
        started = time.monotonic()
        process = subprocess.Popen(command, stdin=feeder.stdout, stdout=log, stderr=log)
        assert feeder.stdout is not None
        feeder.stdout.close()
        with Sampler(process.pid) as sampler:
            code = process.wait()
        seconds = time.monotonic() - started
        feeder.kill()
        feeder.wait()
    if code != 0:
        raise SystemExit(f"{prefix} ended with exit code {code}:\n{messages.read_text()[-3_000:]}")
    found = bucket.rows(prefix)
    if found != load.records:
        raise SystemExit(f"{prefix} wrote {found} rows, but {load.records} records were sent.")
    bucket.clear(prefix)
    return Run(load.size_bytes / 1e6 / seconds, sum(sampler.cpu_seconds.values()), sampler.peak_rss_bytes / 1e6)


def _our_command(args: argparse.Namespace, load: Workload, bucket: Bucket, directory: Path, prefix: str) -> list[str]:
    path = directory / f"{prefix}.json"
    path.write_text(json.dumps(target.config(bucket.endpoint, bucket.name, prefix, args.raw_tables)))
    return [*COMMAND, "write", "--config", str(path), "--catalog", str(load.catalog_path)]


def report(pairs: list[tuple[Run, Run]]) -> None:
    """Print medians and the ratio of each pair; pairs are compared with each other because a machine's speed drifts."""
    ratios = sorted(ours.megabytes_per_second / duckdb.megabytes_per_second for ours, duckdb in pairs)
    for name, runs in (("ours", [pair[0] for pair in pairs]), ("DuckDB", [pair[1] for pair in pairs])):
        speed = statistics.median(run.megabytes_per_second for run in runs)
        print(f"{name:7} median {speed:6.1f} MB/s   peak RSS of the process tree {max(run.peak_rss_mb for run in runs):6.0f} MB")
    cpu = statistics.median(duckdb.cpu_seconds / ours.cpu_seconds for ours, duckdb in pairs)
    print(f"work for the same CPU time, ours/DuckDB: median {cpu:.2f}")
    print(f"ratio ours/DuckDB: {', '.join(f'{ratio:.2f}' for ratio in ratios)}; median {statistics.median(ratios):.2f}")


def _read_once(path: Path) -> None:
    with path.open("rb") as source, Path(os.devnull).open("wb") as nowhere:
        shutil.copyfileobj(source, nowhere, 2**20)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size-mb", type=int, default=1000, help="size of the input (default: %(default)s)")
    parser.add_argument("--runs", type=int, default=3, help="how many pairs to run (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=7, help="seed of the generator (default: %(default)s)")
    parser.add_argument("--dirty-share", type=float, default=0.0, help="share of records with a value that does not fit its type (0 to 1)")
    parser.add_argument(
        "--raw-tables", choices=("on", "off"), default="off", help="whether ours also keeps raw tables, as it does by default"
    )
    parser.add_argument(
        "--endpoint", help="an S3 endpoint to use instead of a local moto server; keys come from AWS_ACCESS_KEY_ID and so on"
    )
    parser.add_argument("--bucket", default="benchmark", help="bucket; must exist when --endpoint is given (default: %(default)s)")
    return parser.parse_args()


if __name__ == "__main__":
    main()

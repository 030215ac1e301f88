"""How time and memory grow with the input, and how much faster two tasks at once are than one. See docs/performance.md.

The largest input is not to be in anybody's memory, so it is sent from files that are generated once.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

import boto3
import numpy as np

from benchmarks import target, workload
from benchmarks.append_vs_duckdb import Bucket, Run, timed
from benchmarks.machine import describe_machine
from benchmarks.workload import Workload
from demo.connector import COMMAND


def main() -> None:
    """Run every size with each number of tasks at once, and print a line for each, the fit and the speed-ups."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes-mb", type=int, nargs="+", default=[250, 1000, 4000])
    parser.add_argument("--cores", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--raw-tables", choices=("on", "off"), default="off")
    parser.add_argument("--endpoint", help="an S3 endpoint to use instead of a local moto server")
    parser.add_argument("--bucket", default="benchmark", help="must exist when --endpoint is given (default: %(default)s)")
    options = parser.parse_args()
    print(describe_machine())
    runs: dict[tuple[int, int], Run] = {}
    with tempfile.TemporaryDirectory() as directory, target.endpoint(options.endpoint, options.bucket, Path(directory)) as address:
        bucket = Bucket(address, options.bucket, boto3.client("s3", endpoint_url=address))
        for size in options.sizes_mb:
            load = workload.prepare(size, options.seed, 0.0)
            for cores in options.cores:
                runs[size, cores] = run = _timed(load, cores, options.raw_tables, bucket, Path(directory))
                seconds = load.size_bytes / 1e6 / run.megabytes_per_second
                print(
                    f"{size:6} MB, {cores} at once: {seconds:6.1f} s, {run.cpu_seconds:6.1f} CPU s, {run.megabytes_per_second:5.1f} MB/s, "
                    f"peak {run.peak_rss_mb:.0f} MB",
                    flush=True,
                )
    _report(runs, options.sizes_mb, options.cores)


def _timed(load: Workload, cores: int, raw_tables: str, bucket: Bucket, directory: Path) -> Run:
    prefix = f"cores{cores}"
    path = directory / f"{prefix}.json"
    config = {**target.config(bucket.endpoint, bucket.name, prefix, raw_tables), "spark": {"master": f"local[{cores}]"}}
    path.write_text(json.dumps(config))
    command = [*COMMAND, "write", "--config", str(path), "--catalog", str(load.catalog_path)]
    return timed(command, load, bucket, prefix, directory)


def _report(runs: dict[tuple[int, int], Run], sizes: list[int], cores: list[int]) -> None:
    for number in cores if len(sizes) > 1 else ():
        for what, taken in (
            ("s", [size / runs[size, number].megabytes_per_second for size in sizes]),
            ("CPU s", [runs[size, number].cpu_seconds for size in sizes]),
        ):
            slope, start = np.polyfit(sizes, taken, 1)
            off = max(abs(start + slope * size - value) / value for size, value in zip(sizes, taken, strict=True))
            print(f"{number} at once: {start:.1f} {what} + {slope * 1000:.1f} {what}/GB, at most {off:.0%} off that line")
    for size in sizes:
        one, most = runs[size, cores[0]], runs[size, cores[-1]]
        speed_up = most.megabytes_per_second / one.megabytes_per_second
        print(f"{size} MB: {cores[-1]} at once are {speed_up:.2f} times as fast as {cores[0]}")


if __name__ == "__main__":
    main()

"""What a change log adds to the merge of a batch of CDC records, for each of its formats: a ratio of merges of the same rows in one run.

Tables of invoices are built through the connector in append_dedup mode, one without a change log and one with each format. Then each gets
the same batches: updates and deletions of keys drawn at random, and new keys. See docs/performance.md.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import numpy as np

from benchmarks import invoices, sync_run, target
from benchmarks.invoices import Invoices
from benchmarks.machine import describe_machine

FORMATS = ("replicant_csv", "replicant_json", "jsonl", "parquet")
ALL_IMAGES = {"before_image": "ALL", "after_image": "ALL"}
NEW_SHARE = 0.2
MB = 1e6


@dataclass(slots=True)
class Bench:
    """The server and the directory of one benchmark; `syncs` counts them."""

    address: str
    bucket: str
    directory: Path
    syncs: int = 0

    def merge(self, name: str, options: dict[str, Any], rows: Invoices) -> float:
        """Seconds of the merge of one sync of the rows into the table of this name."""
        self.syncs += 1
        config = target.config(self.address, self.bucket, name, raw_tables="off") | options
        command = sync_run.write_command(config, invoices.catalog("append_dedup", rows.version + 1, cdc=True), self.directory)
        errors = self.directory / "errors.log"

        def lines() -> Iterator[bytes | memoryview]:
            yield from rows.chunks()
            yield invoices.ending(self.syncs)

        result = sync_run.run(command, lines(), errors)
        if result.code != 0:
            raise SystemExit(f"a sync ended with exit code {result.code}:\n{result.said[-1].line}\n{errors.read_text()[-3_000:]}")
        return result.update_seconds

    def log_bytes(self, name: str) -> int:
        """Bytes of the change log of a table."""
        client = boto3.client("s3", endpoint_url=self.address)
        pages = client.get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=f"{name}/airbyte_changes/")
        return sum(found["Size"] for page in pages for found in page.get("Contents", []) if "-changes" in found["Key"])


def main() -> None:
    """Parse the command line, run everything so many times in turn and print medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=5_000_000, help="rows of the table (default: %(default)s)")
    parser.add_argument("--records", type=int, default=1_000_000, help="records of the batch (default: %(default)s)")
    parser.add_argument("--runs", type=int, default=3, help="how many batches are measured (default: %(default)s)")
    parser.add_argument("--formats", nargs="+", choices=FORMATS, default=FORMATS, help="of the change log (default: all)")
    parser.add_argument("--all-images", action="store_true", help="events with all old and new values, not only what changed")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument(
        "--endpoint", help="an S3 endpoint to use instead of a local moto server; keys come from AWS_ACCESS_KEY_ID and so on"
    )
    parser.add_argument("--bucket", default="benchmark", help="bucket; must exist when --endpoint is given (default: %(default)s)")
    args = parser.parse_args()
    print(describe_machine())
    print(f"load average before: {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory() as name, target.endpoint(args.endpoint, args.bucket, Path(name)) as address:
        _measure(Bench(address, args.bucket, Path(name)), args)
    print(f"load average after: {os.getloadavg()[0]:.1f}")


def _measure(bench: Bench, args: argparse.Namespace) -> None:
    random = np.random.default_rng(args.seed)
    images = ALL_IMAGES if args.all_images else {}
    kinds: dict[str, dict[str, Any]] = {"none": {}} | {
        word: {"change_log": {"enabled": True, "format": word, **images}} for word in args.formats
    }
    first = Invoices(random.permutation(args.rows), seed=args.seed, cdc=True)
    for kind, options in kinds.items():
        print(f"{kind}: {args.rows:,} rows merged into a new table in {bench.merge(kind, options, first):.1f} s", flush=True)
    seconds: dict[str, list[float]] = {kind: [] for kind in kinds}
    for version in range(1, args.runs + 1):
        new = int(args.records * NEW_SHARE)
        keys = [random.integers(0, args.rows, args.records - new), args.rows + version * new + np.arange(new)]
        batch = Invoices(random.permutation(np.concatenate(keys)), version=version, seed=args.seed, cdc=True)
        # Every other batch in the opposite order: a machine that gets slower favours none of them.
        for kind, options in list(kinds.items())[:: 1 if version % 2 else -1]:
            seconds[kind].append(bench.merge(kind, options, batch))
            print(f"{kind}: merge {seconds[kind][-1]:.1f} s, log {bench.log_bytes(kind) / MB:.0f} MB", flush=True)
        ratios = (f"{kind} x {found[-1] / seconds['none'][-1]:.2f}" for kind, found in seconds.items())
        print(f"batch {version}: {', '.join(ratios)}", flush=True)
    print("medians of the ratios to no change log")
    for kind, found in seconds.items():
        print(f"{kind}: {statistics.median(a / b for a, b in zip(found, seconds['none'], strict=True)):.2f}")


if __name__ == "__main__":
    main()

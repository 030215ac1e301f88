"""A first load of ten times the memory limit, merged at once: the connector in a container that small, with one STATE at the very end.

The input is generated while it is sent. The limit is that of a memory cgroup, which the connector sees as its container's; where there
can be none, the process tree is only watched. See docs/performance.md.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import boto3
import numpy as np

from benchmarks import container, invoices, sync_run, target
from benchmarks.container import Container
from benchmarks.invoices import LINE_BYTES, Invoices
from benchmarks.machine import describe_machine
from benchmarks.sync_run import SyncRun
from benchmarks.table_log import TableLog

PREFIX = "merge-memory"
CHUNKS_AT_ONCE = 100
"""Keys are drawn for so many chunks of lines at a time."""
KEYS_PER_ROW = 0.8
"""Of so many keys a row, 57 % are drawn at least once."""
WATCH_S = 0.2
MB = 1e6


def main() -> None:
    """Parse the command line, run the sync, print what it took, and end with the sync's exit code."""
    args = _arguments()
    print(describe_machine())
    print(f"load average before: {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        with target.endpoint(args.endpoint, args.bucket, directory) as address:
            code = _measure(args, address, directory)
    sys.exit(code)


def _measure(args: argparse.Namespace, address: str, directory: Path) -> int:
    limit = args.limit_mb * 2**20
    scratch = directory / "scratch"
    scratch.mkdir()
    batching = {"spool_dir": str(scratch), "max_spool_gb": args.spool_gb}
    config = {**target.config(address, args.bucket, PREFIX, raw_tables="off"), "batching": batching}
    command = sync_run.write_command(config, invoices.catalog("append_dedup", sync=1), directory)
    rows = int(limit * args.factor / LINE_BYTES)
    with ExitStack() as stack:
        obstacle = container.obstacle()
        if obstacle is None:
            held = stack.enter_context(container.limited(limit))
            watcher = stack.enter_context(_watching(held))
            result = sync_run.run(held.command(command), _input(rows, args.seed), directory / "errors.log", scratch)
        else:
            print(f"no memory limit: {obstacle}; the connector takes what it likes, and the process tree is watched")
            result = sync_run.run(command, _input(rows, args.seed), directory / "errors.log", scratch)
        _report(result, rows, limit)
        if obstacle is None:
            use = held.use()
            print(
                f"container of {limit / MB:.0f} MB: peak {use.peak_bytes / MB:.0f} MB with page cache, {watcher.peak / MB:.0f} MB without; "
                f"{use.refused} times at the limit, {use.killed} processes killed"
            )
    if result.code == 0:
        _report_merge(TableLog(boto3.client("s3", endpoint_url=address), args.bucket, PREFIX), rows)
    else:
        print("".join(said.line for said in result.said[-10:]), (directory / "errors.log").read_text()[-3_000:])
    return result.code


class _Watcher(threading.Thread):
    """Looks at the container's memory without page cache now and then; the kernel keeps no peak of it."""

    def __init__(self, held: Container) -> None:
        super().__init__(daemon=True)
        self._held = held
        self._over = threading.Event()
        self.peak = 0

    def run(self) -> None:
        while not self._over.wait(WATCH_S):
            self.peak = max(self.peak, self._held.anonymous_bytes())

    def stop(self) -> None:
        self._over.set()
        self.join()


@contextmanager
def _watching(held: Container) -> Iterator[_Watcher]:
    watcher = _Watcher(held)
    watcher.start()
    try:
        yield watcher
    finally:
        watcher.stop()


def _input(rows: int, seed: int) -> Iterator[memoryview | bytes]:
    """Rows with keys in no order, and one STATE after all of them."""
    random = np.random.default_rng(seed)
    at_once = CHUNKS_AT_ONCE * invoices.CHUNK_ROWS
    for version, start in enumerate(range(0, rows, at_once)):
        keys = random.integers(0, int(rows * KEYS_PER_ROW), min(at_once, rows - start))
        yield from Invoices(keys, version, seed).chunks()
    yield invoices.ending(1)


def _report(result: SyncRun, rows: int, limit: int) -> None:
    sampler = result.sampler
    assert sampler is not None
    sent = f"sent {rows:,} rows, {result.sent_bytes / MB:.0f} MB, {result.sent_bytes / limit:.1f} times the limit"
    print(f"{sent}: {result.states} STATE back, exit code {result.code}")
    landed = result.landed - result.started
    print(f"{result.seconds:.0f} s: {landed:.0f} s until all was landed, {result.update_seconds:.0f} s for the merge")
    during_merge = sampler.peak_directory_bytes_after(result.landed + WATCH_S)
    print(
        f"peak RSS of the process tree {sampler.peak_rss_bytes / MB:.0f} MB; local disk: peak {sampler.peak_directory_bytes / MB:.0f} MB, "
        f"during the merge {during_merge / MB:.1f} MB"
    )


def _report_merge(log: TableLog, rows: int) -> None:
    merge = log.last_merge()
    runs, table = merge.runs, merge.written
    print(f"merged {runs.count} runs of {runs.rows:,} rows, {runs.bytes / MB:.0f} MB")
    print(f"into {table.count} files of {table.rows:,} rows, {table.bytes / MB:.0f} MB")
    if runs.rows != rows:
        raise SystemExit(f"{rows:,} rows were sent, but {runs.rows:,} were merged.")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limit-mb", type=int, default=1280, help="the memory limit in MiB (default: %(default)s)")
    parser.add_argument("--factor", type=float, default=10.0, help="how many times the limit is sent (default: %(default)s)")
    parser.add_argument("--spool-gb", type=float, default=1.0, help="local disk for waiting records (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=7, help="seed of the generator (default: %(default)s)")
    parser.add_argument(
        "--endpoint", help="an S3 endpoint to use instead of a local moto server; keys come from AWS_ACCESS_KEY_ID and so on"
    )
    parser.add_argument("--bucket", default="benchmark", help="bucket; must exist when --endpoint is given (default: %(default)s)")
    return parser.parse_args()


if __name__ == "__main__":
    main()

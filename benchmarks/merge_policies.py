"""Cost of random updates of a deduplicated table over many syncs: merged in every sync and once, beside Delta's and Iceberg's MERGE.

The same table of invoices gets the same syncs of 1 % random keys in all ways: by the connector with `tables.merge` and without it, and by
Spark SQL's MERGE INTO a Delta table (copies files, or marks rows in deletion vectors) and an Iceberg table (copies files, or writes delete
files). The connector works through an S3 server, its rivals on local files. Needs what `make test-readers` installs. Only bytes, CPU and
ratios within a run are to be compared. See docs/dedup.md.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import boto3
import numpy as np

from benchmarks import invoices, sync_run, target
from benchmarks.invoices import Invoices
from benchmarks.machine import describe_machine
from benchmarks.process_tree import Sampler
from benchmarks.table_log import TableLog

ROOT = Path(__file__).parents[1]
READERS = ROOT / ".cache" / "readers"
RIVAL = Path(__file__).with_name("table_format_rival.py")
RIVALS = ("delta", "delta with deletion vectors", "iceberg", "iceberg with delete files")
RARELY = {"merge": [{"stream": "*", "when_runs_mb": 1_000_000}]}
NOW = {"merge": [{"stream": "*", "at_least_every_hours": 0}]}
MB = 1e6


@dataclass(frozen=True, slots=True)
class Cost:
    """The bytes written to the table's files and the CPU time of all syncs, and the seconds of a full read after them."""

    bytes: int
    cpu_s: float
    wall_s: float
    read_s: float

    def __str__(self) -> str:
        """Say the figures in a line."""
        return f"{self.bytes / MB:,.0f} MB written, {self.cpu_s:.0f} CPU s, {self.wall_s:.0f} s, read in {self.read_s:.2f} s"


class Bench:
    """A server, a directory, and the syncs of a benchmark."""

    def __init__(self, address: str, bucket: str, directory: Path, memory: str) -> None:
        self.address, self.bucket, self.directory, self.memory = address, bucket, directory, memory
        self._syncs = 0

    def log(self, prefix: str) -> TableLog:
        """Return the chain of the table under a prefix."""
        return TableLog(boto3.client("s3", endpoint_url=self.address), self.bucket, prefix)

    def sync(self, prefix: str, rows: Invoices, mode: str = "append_dedup", merge: Mapping[str, object] | None = None) -> sync_run.SyncRun:
        """Sync the rows into the table under the prefix."""
        self._syncs += 1
        config = target.config(self.address, self.bucket, prefix, raw_tables="off")
        config["tables"] = {**config.get("tables", {}), **(merge or {})}
        command = sync_run.write_command(config, invoices.catalog(mode, self._syncs), self.directory)
        errors = self.directory / "errors.log"
        result = sync_run.run(command, chain(rows.chunks(), [invoices.ending(self._syncs)]), errors)
        if result.code != 0:
            raise SystemExit(f"a sync ended with exit code {result.code}:\n{errors.read_text()[-3_000:]}")
        return result

    def by_connector(self, name: str, table: Invoices, changes: Sequence[Invoices], policy: Mapping[str, object]) -> Cost:
        """Load the table, then sync the changes, the last one with a merge."""
        self.sync(name, table)
        before = self.log(name).bytes_written()
        done = [self.sync(name, rows, merge=policy if number < len(changes) else NOW) for number, rows in enumerate(changes, 1)]
        written = self.log(name).bytes_written() - before
        cpu = sum(sum(one.sampler.cpu_seconds.values()) for one in done if one.sampler is not None)
        folder = self.directory / name
        self.log(name).download(folder)
        read = self._rival("read", str(folder))["read_s"]
        self.log(name).clear()
        return Cost(written, cpu, sum(one.seconds for one in done), read)

    def by_rival(self, kind: str, folders: Sequence[Path]) -> Cost:
        """Let Spark SQL merge the changes into a table of the first folder's rows."""
        found = self._rival(kind, *map(str, folders))
        return Cost(int(found["bytes"]), found["cpu_s"], found["wall_s"], found["read_s"])

    def parquet(self, rows: Invoices, name: str) -> Path:
        """Put the rows into a directory as Parquet files, as the connector appends them."""
        self.sync("appended", rows, "append")
        self.log("appended").download(self.directory / name)
        self.log("appended").clear()
        return self.directory / name

    def _rival(self, *arguments: str) -> dict[str, float]:
        with tempfile.TemporaryDirectory(dir=self.directory) as warehouse:
            command = [str(READERS / "venv" / "bin" / "python"), str(RIVAL), self.memory, str(READERS / "jars"), warehouse, *arguments]
            with (
                subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process,
                Sampler(process.pid) as took,
            ):
                answer, errors = process.communicate()
            if process.returncode != 0:
                raise SystemExit(f"Spark ended with exit code {process.returncode}:\n{errors[-3_000:]}")
        found: dict[str, float] = json.loads(answer.splitlines()[-1])
        return {"cpu_s": sum(took.cpu_seconds.values()), **found}


def main() -> None:
    """Parse the command line, run every way once and print the figures."""
    args = _arguments()
    if not (READERS / "installed").exists():
        raise SystemExit("Spark with Delta and Iceberg is not installed. Run scripts/install-readers first.")
    print(describe_machine())
    random = np.random.default_rng(args.seed)
    table = Invoices(random.permutation(args.rows), seed=args.seed)
    changes = [Invoices(random.permutation(args.rows)[: args.rows // 100], n + 1, args.seed) for n in range(args.syncs)]
    with tempfile.TemporaryDirectory() as name, target.endpoint(None, "benchmark", Path(name)) as address:
        bench = Bench(address, "benchmark", Path(name), args.driver_memory)
        print(f"{args.rows:,} rows, {args.syncs} syncs of 1 % random keys", flush=True)
        for way, policy in {"every sync": {}, "once": RARELY}.items():
            print(f"merged {way}: {bench.by_connector(way.replace(' ', '-'), table, changes, policy)}", flush=True)
        folders = [bench.parquet(rows, f"rows-{number}") for number, rows in enumerate([table, *changes])]
        for kind in RIVALS if args.rivals else ():
            began = time.monotonic()
            print(f"{kind}: {bench.by_rival(kind, folders)} (of {time.monotonic() - began:.0f} s)", flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of the table (default: %(default)s)")
    parser.add_argument("--syncs", type=int, default=5, help="syncs of changes (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=7, help="seed of the generator (default: %(default)s)")
    parser.add_argument("--driver-memory", default="4g", help="memory of the rivals' JVM (default: %(default)s)")
    parser.add_argument("--no-rivals", dest="rivals", action="store_false", help="measure the connector alone")
    return parser.parse_args()


if __name__ == "__main__":
    main()

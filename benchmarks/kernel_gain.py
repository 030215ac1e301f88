"""What the native kernel brings to a whole sync: every format, deduplication and raw tables, with the kernel and without, in turn.

Each way is the process as Airbyte runs it, over the shop's records, against the same server. Rows of Parquet tables are counted by
`append_vs_duckdb.py`; here only the exit code is. See docs/performance.md.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import target, workload
from benchmarks.machine import describe_machine
from benchmarks.process_tree import measured
from benchmarks.workload import Workload
from demo import shop
from demo.connector import COMMAND
from demo.shop import Shop

FORMATS: dict[str, dict[str, Any]] = {
    "Parquet": {"format_type": "Parquet", "compression_codec": "SNAPPY"},
    "Avro": {"format_type": "Avro", "compression_codec": {"codec": "snappy"}},
    "JSONL": {"format_type": "JSONL", "compression": {"compression_type": "GZIP"}},
    "CSV": {"format_type": "CSV", "flattening": "Root level flattening", "compression": {"compression_type": "GZIP"}},
}
SWITCHES = ("on", "off")


@dataclass(frozen=True, slots=True)
class Way:
    """A sync to be timed."""

    name: str
    format: str = "Parquet"
    mode: str = "append"
    raw_tables: str = "off"


WAYS = (
    *(Way(name, format=name) for name in FORMATS),
    Way("Parquet, raw tables on", raw_tables="on"),
    Way("Parquet, deduplicated", mode="append_dedup"),
    Way("JSONL, deduplicated", format="JSONL", mode="append_dedup"),
)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size-mb", type=int, default=400)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--endpoint", help="an S3 endpoint to use instead of a local moto server")
    parser.add_argument("--bucket", default="benchmark", help="bucket; must exist when --endpoint is given (default: %(default)s)")
    args = parser.parse_args()
    load = workload.prepare(args.size_mb, args.seed, 0.0)
    print(describe_machine())
    with tempfile.TemporaryDirectory() as directory, target.endpoint(args.endpoint, args.bucket, Path(directory)) as address:
        print(f"{'':<24} {'seconds on':>11} {'off':>6} {'CPU s on':>9} {'off':>6} {'CPU gain':>9}")
        for way in WAYS:
            results: dict[str, list[tuple[float, float]]] = {switch: [] for switch in SWITCHES}
            for number in range(args.runs):
                for switch in SWITCHES:
                    results[switch].append(_timed(way, switch, f"{way.name}-{switch}-{number}", load, address, args, Path(directory)))
            (on, cpu_on), (off, cpu_off) = (map(statistics.median, zip(*results[switch], strict=True)) for switch in SWITCHES)
            print(f"{way.name:<24} {on:>11.1f} {off:>6.1f} {cpu_on:>9.1f} {cpu_off:>6.1f} {cpu_off / cpu_on:>9.2f}", flush=True)


def _timed(
    way: Way, switch: str, prefix: str, load: Workload, address: str, args: argparse.Namespace, directory: Path
) -> tuple[float, float]:
    """Seconds by the clock and of the CPU. Raises SystemExit when the sync fails."""
    config, catalog = directory / "config.json", directory / "catalog.json"
    options = target.config(address, args.bucket, prefix.replace(" ", "-").replace(",", ""), way.raw_tables)
    config.write_text(json.dumps(options | {"format": FORMATS[way.format]}))
    catalog.write_text(json.dumps(Shop(args.seed, 0.0).catalog(dict.fromkeys(shop.MIX, way.mode))))
    command = [*COMMAND, "write", "--config", str(config), "--catalog", str(catalog)]
    environment = {**os.environ, "DESTINATION_S3_SPARK_KERNEL": switch}
    with load.path.open("rb") as source:
        return measured(prefix, command, directory / "sync.log", stdin=source, env=environment)


if __name__ == "__main__":
    main()

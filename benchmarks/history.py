"""CPU time of merges of a table with a history beside those of one without: the same syncs of random keys.

The tables take turns. What the same sync of an append table costs is taken off both, so that the figures are those of the merges. See
docs/history.md.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import target
from benchmarks.invoices import Invoices
from benchmarks.machine import describe_machine
from benchmarks.merge_policies import MB, Bench

WAYS: dict[str, tuple[str, dict[str, Any]]] = {
    "appended": ("append", {}),
    "merged": ("append_dedup", {}),
    "with a history": ("append_dedup", {"history": [{"stream": "*"}]}),
}


def main() -> None:
    """Load each table, sync the changes into all of them in turn, and print the figures."""
    args = _arguments()
    print(describe_machine())
    random = np.random.default_rng(args.seed)
    cpu: dict[str, list[float]] = {way: [] for way in WAYS}
    with tempfile.TemporaryDirectory() as name, target.endpoint(None, "benchmark", Path(name)) as address:
        bench = Bench(address, "benchmark", Path(name), "")
        for way in WAYS:
            _cpu_seconds(bench, way, Invoices(random.permutation(args.rows), seed=args.seed))
        for number in range(1, args.repeat + 1):
            changes = Invoices(random.permutation(args.rows)[: args.rows * args.percent // 100], number, args.seed)
            for way in list(WAYS)[:: 1 if number % 2 else -1]:
                cpu[way].append(_cpu_seconds(bench, way, changes))
            print("  ".join(f"{way}: {taken[-1]:.1f} s" for way, taken in cpu.items()), flush=True)
        for way in list(WAYS)[1:]:
            print(f"{way}: {bench.log(way.replace(' ', '-')).bytes_written() / MB:,.0f} MB written")
    for way, taken in cpu.items():
        merges = [one - base for one, base in zip(taken, cpu["appended"], strict=True)]
        plain = [one - base for one, base in zip(cpu["merged"], cpu["appended"], strict=True)]
        share = statistics.median(one / other for one, other in zip(merges, plain, strict=True))
        print(f"{way:<16} {statistics.median(merges):6.2f} CPU s of the merge  {share:5.2f}")


def _cpu_seconds(bench: Bench, way: str, rows: Invoices) -> float:
    """Sync the rows, and return the CPU seconds of all processes of the sync."""
    mode, tables = WAYS[way]
    sampler = bench.sync(way.replace(" ", "-"), rows, mode, tables).sampler
    return 0.0 if sampler is None else sum(sampler.cpu_seconds.values())


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2_000_000, help="rows of the table (default: %(default)s)")
    parser.add_argument("--percent", type=int, default=1, help="percentage of rows that a sync changes (default: %(default)s)")
    parser.add_argument("--repeat", type=int, default=3, help="syncs of changes (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=7, help="seed of the generator (default: %(default)s)")
    return parser.parse_args()


if __name__ == "__main__":
    main()

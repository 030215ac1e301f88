"""CPU time of merges of a table with a history beside those of one without: the same changes of random keys, merged by the command.

Before each merge a sync lands the changes and leaves the merge to the command. Another sync merges what it lands at once. The tables take
turns. See docs/history.md.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import target
from benchmarks.invoices import Invoices
from benchmarks.machine import describe_machine
from benchmarks.merge_policies import MB, RARELY, Bench
from benchmarks.process_tree import measured
from demo.connector import COMMAND

WAYS: dict[str, dict[str, Any]] = {"without a history": {}, "with a history": {"history": [{"stream": "*"}]}}
RUNS = ("merge", "sync that merges")


def main() -> None:
    """Load both tables, bring the changes into them in turn, and print the figures."""
    args = _arguments()
    print(describe_machine())
    random = np.random.default_rng(args.seed)
    cpu: dict[str, list[dict[str, float]]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as name, target.endpoint(None, "benchmark", Path(name)) as address:
        bench = Bench(address, "benchmark", Path(name), "")
        for way, tables in WAYS.items():
            bench.sync(_prefix(way), Invoices(random.permutation(args.rows), seed=args.seed), merge=tables)
        for number in range(1, 2 * args.repeat + 1):
            changes = Invoices(random.permutation(args.rows)[: args.rows * args.percent // 100], number, args.seed)
            run = RUNS[number % 2]
            taken = {way: _cpu_seconds(bench, run, way, changes) for way in list(WAYS)[:: 1 if number // 2 % 2 else -1]}
            cpu[run].append(taken)
            print(run, *(f"{way}: {taken[way]:.1f} CPU s" for way in WAYS), sep="  ", flush=True)
        for way in WAYS:
            print(f"{way}: {bench.log(_prefix(way)).bytes_written() / MB:,.0f} MB written")
    for run in RUNS:
        without, with_one = ([taken[way] for taken in cpu[run]] for way in WAYS)
        share = statistics.median(one / other for one, other in zip(with_one, without, strict=True))
        print(f"{run}: {statistics.median(without):.1f} CPU s, with a history {statistics.median(with_one):.1f}, {share:.2f} times")


def _cpu_seconds(bench: Bench, run: str, way: str, rows: Invoices) -> float:
    """Bring the changes into the table, and return the CPU seconds of all processes of the merge, or of the sync that merges."""
    tables = WAYS[way]
    if run == "merge":
        bench.sync(_prefix(way), rows, merge={**tables, **RARELY})
        command = [*COMMAND, "merge", "--config", str(bench.directory / "config.json")]
        return measured("the merge", command, bench.directory / "merge.log")[1]
    sampler = bench.sync(_prefix(way), rows, merge=tables).sampler
    return 0.0 if sampler is None else sum(sampler.cpu_seconds.values())


def _prefix(way: str) -> str:
    return way.replace(" ", "-")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2_000_000, help="rows of the table (default: %(default)s)")
    parser.add_argument("--percent", type=int, default=1, help="percentage of rows that the changes have (default: %(default)s)")
    parser.add_argument("--repeat", type=int, default=3, help="merges and syncs of each table (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=7, help="seed of the generator (default: %(default)s)")
    return parser.parse_args()


if __name__ == "__main__":
    main()

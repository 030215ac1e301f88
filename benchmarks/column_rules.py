"""CPU time of syncs with column rules beside the same syncs without: two hashed columns in every stream, one dropped, a dropped member.

The ways take turns, and the figures are the medians of the sums over all processes of a sync, and of their ratios within a round. `step` is
the speed of a pass of its own, in MB/s of record lines, which rules for members of objects and patterns take; typing itself applies the
others. See docs/privacy.md.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks import sync_run, target, workload
from benchmarks.machine import describe_machine
from benchmarks.workload import Workload
from destination_s3_spark.decoding.line_rules import LineRules, NativeLineRules
from destination_s3_spark.kernel import KERNEL
from destination_s3_spark.protocol.catalog import parse_catalog
from destination_s3_spark.schema.column_rules import Action, ColumnRule, ColumnRules
from destination_s3_spark.schema.json_schema import stream_fields

SECRET = "0123456789abcdef0123456789abcdef"
HASHED = (
    ("customers", "email"),
    ("customers", "phone"),
    ("products", "sku"),
    ("products", "name"),
    ("orders", "customer_id"),
    ("orders", "status"),
)
WAYS: dict[str, list[tuple[str, str, str]]] = {
    "as sent": [],
    "two hashed": [(stream, column, "hash") for stream, column in HASHED],
    "one dropped": [("*", "note", "drop")],
    "a member dropped": [
        ("customers", "address.street", "drop"),
        ("products", "size.width_cm", "drop"),
        ("orders", "ship_to.street", "drop"),
    ],
}


def main() -> None:
    """Measure the rules alone, then whole syncs in turn."""
    args = _arguments()
    print(describe_machine())
    work = workload.prepare(args.size_mb, args.seed, dirty_share=0.0)
    for way in list(WAYS)[1:]:
        print(f"step, {way}: {_step(work, way):,.0f} MB/s", flush=True)
    cpu: dict[str, list[float]] = {way: [] for way in WAYS}
    with tempfile.TemporaryDirectory() as name, target.endpoint(None, "benchmark", Path(name)) as address:
        for number in range(args.repeat):
            for way in list(WAYS)[:: 1 if number % 2 else -1]:
                cpu[way].append(_sync(work, way, address, Path(name), number))
            print("  ".join(f"{way}: {taken[-1]:.1f} s" for way, taken in cpu.items()), flush=True)
    for way, taken in cpu.items():
        more = statistics.median(one / sent - 1 for one, sent in zip(taken, cpu["as sent"], strict=True))
        print(f"{way:<18} {statistics.median(taken):6.2f} CPU s {more:+7.1%}")


def _step(work: Workload, way: str) -> float:
    """Treat all lines of the input stream by stream, and return the speed of the best of five times."""
    rules = tuple(ColumnRule(stream, column, Action(action)) for stream, column, action in WAYS[way])
    lines = work.path.read_bytes().splitlines(keepends=True)
    size = seconds = 0.0
    for stream in parse_catalog(work.catalog_path.read_bytes()).streams:
        treatment = ColumnRules(rules, secret=SECRET.encode()).of_stream(stream.id, stream_fields(stream.json_schema, stream.id))
        own = b"".join(line for line in lines if f'"stream":"{stream.id.name}"'.encode() in line[:80])
        applied = (LineRules(treatment) if KERNEL is None else NativeLineRules(treatment, KERNEL)).applied
        size += len(own) / 1e6
        seconds += min(_seconds(applied, own) for _ in range(5))
    return size / seconds


def _seconds(applied: Any, lines: bytes) -> float:
    started = time.process_time()
    applied(lines)
    return time.process_time() - started


def _sync(work: Workload, way: str, address: str, directory: Path, number: int) -> float:
    """Run a sync into a path of its own, and return its CPU seconds."""
    config: dict[str, Any] = target.config(address, "benchmark", f"{way.replace(' ', '-')}-{number}", raw_tables="on")
    columns = [{"stream": stream, "column": column, "action": action} for stream, column, action in WAYS[way]]
    config["tables"] = {**config["tables"], "columns": columns, "hash_secret": SECRET}
    errors = directory / "errors.log"
    with work.path.open("rb") as file:
        result = sync_run.run(sync_run.write_command(config, work.catalog, directory), iter(lambda: file.read(2**20), b""), errors)
    if result.code != 0 or result.sampler is None:
        raise SystemExit(f"a sync ended with exit code {result.code}:\n{errors.read_text()[-3_000:]}")
    return sum(result.sampler.cpu_seconds.values())


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size-mb", type=int, default=400)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--repeat", type=int, default=5)
    return parser.parse_args()


if __name__ == "__main__":
    main()

"""What a small sync costs: few and many streams of 100 records each, next to a Spark session that runs one Python job and nothing else.

All take turns. CPU seconds are those of all processes of a run; on a machine that others use they say more than the clock. See
docs/performance.md.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import orjson

from benchmarks import sync_run, target
from benchmarks.machine import describe_machine
from benchmarks.process_tree import Sampler
from demo.shop import MIX, NAMESPACE, Shop

RECORDS = 100
BARE_SESSION = """
from pyspark import SparkConf, SparkContext
conf = SparkConf().setMaster("local[2]").set("spark.ui.enabled", "false").set("spark.log.level", "ERROR")
context = SparkContext(conf=conf)
assert context.parallelize(range(2), 2).map(lambda number: number + 1).collect() == [1, 2]
context.stop()
"""


@dataclass(frozen=True, slots=True)
class Took:
    """One run: seconds by the clock until the last commit and until the exit, and CPU seconds by role."""

    committed: float
    seconds: float
    cpu: dict[str, float]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--streams", type=int, nargs=2, default=(3, 200), help="of the small and of the large sync (default: 3 200)")
    parser.add_argument("--endpoint", help="an S3 endpoint to use instead of a local moto server")
    parser.add_argument("--bucket", default="benchmark", help="must exist when --endpoint is given (default: %(default)s)")
    options = parser.parse_args()
    few, many = options.streams
    print(describe_machine())
    took: dict[str, list[Took]] = {"bare Spark session": [], f"{few} streams": [], f"{many} streams": []}
    with tempfile.TemporaryDirectory() as directory, target.endpoint(options.endpoint, options.bucket, Path(directory)) as address:
        for _ in range(options.runs):
            took["bare Spark session"].append(_bare())
            for streams in (few, many):
                config = target.config(address, options.bucket, f"small{streams}", "off")
                took[f"{streams} streams"].append(_sync(streams, config, Path(directory)))
    _report(took)


def _bare() -> Took:
    started = time.monotonic()
    process = subprocess.Popen([sys.executable, "-c", BARE_SESSION], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    with Sampler(process.pid) as sampler:
        code = process.wait()
    if code != 0:
        raise SystemExit(f"the bare session ended with exit code {code}")
    seconds = time.monotonic() - started
    return Took(seconds, seconds, sampler.cpu_seconds)


def _sync(streams: int, config: dict[str, object], directory: Path) -> Took:
    """A sync of that many streams; after the first run the tables exist."""
    catalog, lines = _input(streams)
    command = sync_run.write_command(config, catalog, directory)
    run = sync_run.run(command, [lines], directory / "stderr.log")
    if run.code != 0 or run.states != streams:
        raise SystemExit(
            f"{streams} streams: exit code {run.code}, {run.states} STATE back\n{(directory / 'stderr.log').read_text()[-2000:]}"
        )
    assert run.sampler is not None
    return Took(run.landed - run.started, run.seconds, run.sampler.cpu_seconds)


def _input(streams: int) -> tuple[dict[str, Any], bytes]:
    """The catalog and the messages: the shop's customers under other names, a STATE and a COMPLETE for each."""
    catalog = Shop(7, 0.0, None).catalog(dict.fromkeys(MIX, "append"))
    example = next(stream for stream in catalog["streams"] if stream["stream"]["name"] == "customers")
    chunks = b"".join(chunk.lines for chunk in Shop(7, 0.0, None).read(RECORDS * sum(MIX.values())))
    records = [line for line in chunks.splitlines() if line.startswith(b'{"type":"RECORD"') and b'"stream":"customers"' in line][:RECORDS]
    configured, messages = [], []
    for number in range(streams):
        name = f"customers_{number}"
        configured.append({**example, "stream": {**example["stream"], "name": name}})
        messages += [line.replace(b'"stream":"customers"', b'"stream":"%b"' % name.encode()) for line in records]
        descriptor = {"name": name, "namespace": NAMESPACE}
        state = {"type": "STREAM", "stream": {"stream_descriptor": descriptor, "stream_state": {"at": number}}}
        status = {"type": "STREAM_STATUS", "emitted_at": 1, "stream_status": {"stream_descriptor": descriptor, "status": "COMPLETE"}}
        messages += [orjson.dumps({"type": "STATE", "state": state}), orjson.dumps({"type": "TRACE", "trace": status})]
    return {"streams": configured}, b"\n".join(messages) + b"\n"


def _report(took: dict[str, list[Took]]) -> None:
    print(f"{'median of':20}{'committed s':>12}{'exit s':>8}{'CPU s':>8}   of these")
    for name, runs in took.items():
        cpu = {role: statistics.median(run.cpu.get(role, 0.0) for run in runs) for role in ("driver", "jvm", "workers")}
        committed, seconds = statistics.median(run.committed for run in runs), statistics.median(run.seconds for run in runs)
        roles = ", ".join(f"{role} {value:.1f}" for role, value in cpu.items())
        print(f"{name:20}{committed:12.1f}{seconds:8.1f}{sum(cpu.values()):8.1f}   {roles}")
    for (other, before), (name, after) in pairwise(took.items()):
        _ratios(f"{name} / {other}", after, before)


def _ratios(name: str, ours: list[Took], other: list[Took]) -> None:
    """Medians of the ratios of runs that followed each other."""
    clock = statistics.median(one.seconds / two.seconds for one, two in zip(ours, other, strict=True))
    cpu = statistics.median(sum(one.cpu.values()) / sum(two.cpu.values()) for one, two in zip(ours, other, strict=True))
    print(f"{name}: {clock:.2f} by the clock, {cpu:.2f} in CPU time")


if __name__ == "__main__":
    main()

"""Other ways to load the same records into files, each in its own virtual environment from PyPI, next to the connector.

Peers get what suits them best: the bare records, a file per stream, already without the protocol's envelope; Singer's target gets its own
messages, and PyAirbyte the protocol's lines, from a source that replays them. Their start is taken out by a run over a tenth of the sample;
the connector's is not. A peer that cannot be installed or run is skipped, and said so. See docs/performance.md.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3

from benchmarks import target, workload
from benchmarks.append_vs_duckdb import Bucket, timed
from benchmarks.machine import describe_machine
from benchmarks.process_tree import measured
from benchmarks.workload import Workload
from demo.connector import COMMAND

INSTALL_TIMEOUT_S = 600

DLT = """
import json, sys
from pathlib import Path
import dlt
source, out = map(Path, sys.argv[1:])
def rows(path):
    with path.open("rb") as lines:
        yield from map(json.loads, lines)
pipeline = dlt.pipeline("peer", destination=dlt.destinations.filesystem(out.as_uri()), dataset_name="shop", pipelines_dir=str(out / "work"))
resources = [dlt.resource(rows(path), name=path.stem, max_table_nesting=0) for path in source.glob("*.jsonl")]
pipeline.run(resources, loader_file_format="parquet")
"""
SINGER = """
import subprocess, sys
from pathlib import Path
source, out = map(Path, sys.argv[1:])
(out / "config.json").write_text('{"destination_path": "%s"}' % out)
with (source / "singer.messages").open("rb") as messages:
    subprocess.run([str(Path(sys.executable).with_name("target-jsonl")), "--config", str(out / "config.json")], stdin=messages, check=True)
"""
SLING = """
import os, subprocess, sys
from pathlib import Path
from sling_linux_amd64 import SLING_BIN
source, out = map(Path, sys.argv[1:])
os.environ.update(HOME=str(out), SLING_DISABLE_TELEMETRY="true", SLING_DUCKDB_COMPUTE="false")
for path in source.glob("*.jsonl"):
    table = (out / path.stem).with_suffix(".parquet")
    command = [SLING_BIN, "run", "--src-stream", path.as_uri(), "--src-options", '{"flatten": 1}', "--tgt-object", table.as_uri()]
    subprocess.run(command, check=True)
"""
SLING_TRIAL = """
import subprocess, sys
from sling_linux_amd64 import SLING_BIN
subprocess.run([SLING_BIN, "--version"], check=True, env={"HOME": sys.prefix, "SLING_DISABLE_TELEMETRY": "true"})
"""
PYAIRBYTE = """
import os, sys
from pathlib import Path
source, out = map(Path, sys.argv[1:])
os.environ.update(AIRBYTE_OFFLINE_MODE="1", AIRBYTE_LOGGING_ROOT=str(out / "logs"))
import airbyte
from airbyte.caches import DuckDBCache
replay = airbyte.get_source("source-replay", local_executable=source / "source-replay", config={})
replay.select_all_streams()
replay.read(cache=DuckDBCache(db_path=out / "cache.duckdb", cache_dir=out / "files"), write_strategy="append")
"""
REPLAY = """#!/bin/sh
here=$(dirname "$0")
case $1 in
    spec) echo '{"type": "SPEC", "spec": {"connectionSpecification": {"type": "object", "properties": {}}}}' ;;
    check) echo '{"type": "CONNECTION_STATUS", "connectionStatus": {"status": "SUCCEEDED"}}' ;;
    discover) cat "$here/catalog.message" ;;
    read) exec cat "$here/airbyte.messages" ;;
esac
"""


@dataclass(frozen=True, slots=True)
class Peer:
    """What to install, and a program that loads the records in one directory into another."""

    name: str
    requirement: str
    program: str
    trial: str
    """A statement that fails when the peer cannot run: Sling is a program for one kind of machine in a package for any."""


PEERS = (
    Peer("dlt (rows)", "dlt[filesystem,parquet]", DLT, "import dlt"),
    Peer("Singer target-jsonl", "target-jsonl", SINGER, "import target_jsonl"),
    Peer("Sling 1.4.11", "sling-linux-amd64==1.4.11", SLING, SLING_TRIAL),
    Peer("PyAirbyte to DuckDB", "airbyte==0.71.3", PYAIRBYTE, "import airbyte"),
)


@dataclass(frozen=True, slots=True)
class Rate:
    """Megabytes of protocol lines per second of the clock, and per CPU second."""

    clock: float
    cpu: float


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size-mb", type=int, default=1000, help="for the connector (default: %(default)s)")
    parser.add_argument("--sample-mb", type=int, default=50, help="for each peer (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--cache", type=Path, default=workload.CACHE / "peers", help="where their environments are kept")
    parser.add_argument(
        "--endpoint", help="an S3 endpoint to use instead of a local moto server; keys come from AWS_ACCESS_KEY_ID and so on"
    )
    parser.add_argument("--bucket", default="benchmark", help="bucket; must exist when --endpoint is given (default: %(default)s)")
    options = parser.parse_args()
    print(describe_machine())
    load = workload.prepare(options.size_mb, options.seed, 0.0)
    sample = workload.prepare(options.sample_mb, options.seed, 0.0)
    start = workload.prepare(max(1, options.sample_mb // 10), options.seed, 0.0)
    for peer in PEERS:
        python = _installed(peer, options.cache)
        if python is None:
            print(f"{peer.name:22}skipped: it cannot be installed, or not run, here", flush=True)
            continue
        ours = _connector(load, options.endpoint, options.bucket)  # each time anew: a machine that gets slower favours none of them
        print(f"{'this connector':22}{ours.clock:8.1f} MB/s{ours.cpu:8.1f} MB per CPU second", flush=True)
        rate = _rate(peer, python, start, sample)
        print(
            f"{peer.name:22}{rate.clock:8.1f} MB/s{rate.cpu:8.1f} MB per CPU second; ours is {ours.clock / rate.clock:.1f} times as fast, "
            f"{ours.cpu / rate.cpu:.1f} times per CPU second",
            flush=True,
        )


def _connector(load: Workload, endpoint: str | None, bucket_name: str) -> Rate:
    with tempfile.TemporaryDirectory() as directory, target.endpoint(endpoint, bucket_name, Path(directory)) as address:
        config = Path(directory) / "config.json"
        config.write_text(json.dumps(target.config(address, bucket_name, "ours", "off")))
        bucket = Bucket(address, bucket_name, boto3.client("s3", endpoint_url=address))
        command = [*COMMAND, "write", "--config", str(config), "--catalog", str(load.catalog_path)]
        run = timed(command, load, bucket, "ours", Path(directory))
    return Rate(run.megabytes_per_second, load.size_bytes / 1e6 / run.cpu_seconds)


def _installed(peer: Peer, cache: Path) -> Path | None:
    """The interpreter of the peer's environment, made once."""
    place = cache / peer.requirement.partition("[")[0]
    python = place / "bin" / "python"
    if (place / "installed").exists():
        return python
    commands = [
        [sys.executable, "-m", "venv", str(place)],
        [str(python), "-m", "pip", "install", "-q", peer.requirement],
        [str(python), "-c", peer.trial],
    ]
    try:
        for command in commands:
            subprocess.run(command, check=True, timeout=INSTALL_TIMEOUT_S, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
        return None
    (place / "installed").touch()
    return python


def _rate(peer: Peer, python: Path, start: Workload, sample: Workload) -> Rate:
    """What the larger input takes more than the smaller one."""
    (clock, cpu), (start_clock, start_cpu) = (_run(peer, python, load) for load in (sample, start))
    megabytes = (sample.size_bytes - start.size_bytes) / 1e6
    return Rate(megabytes / (clock - start_clock), megabytes / (cpu - start_cpu))


def _run(peer: Peer, python: Path, load: Workload) -> tuple[float, float]:
    """Seconds by the clock and CPU seconds of one load."""
    with tempfile.TemporaryDirectory() as directory:
        source, out = Path(directory) / "source", Path(directory) / "out"
        source.mkdir()
        out.mkdir()
        _convert(load, source)
        command = [str(python), "-c", peer.program, str(source), str(out)]
        return measured(peer.name, command, Path(directory) / "log", cwd=directory)


def _convert(load: Workload, directory: Path) -> None:
    """The bare records, a file per stream, and the same as Singer messages."""
    schemas: Mapping[str, Any] = {one["stream"]["name"]: one["stream"]["json_schema"] for one in load.catalog["streams"]}
    files = {name: (directory / f"{name}.jsonl").open("w") for name in schemas}
    with load.path.open("rb") as lines, (directory / "singer.messages").open("w") as singer:
        for name, schema in schemas.items():
            singer.write(json.dumps({"type": "SCHEMA", "stream": name, "schema": schema, "key_properties": ["id"]}) + "\n")
        for line in lines:
            message = json.loads(line)
            if message["type"] == "RECORD":
                record = message["record"]
                files[record["stream"]].write(json.dumps(record["data"]) + "\n")
                singer.write(json.dumps({"type": "RECORD", "stream": record["stream"], "record": record["data"]}) + "\n")
    for file in files.values():
        file.close()
    _make_source(load, directory)


def _make_source(load: Workload, directory: Path) -> None:
    """An Airbyte source whose records, states and statuses are the workload's lines as they are."""
    streams = [one["stream"] for one in load.catalog["streams"]]
    (directory / "catalog.message").write_text(json.dumps({"type": "CATALOG", "catalog": {"streams": streams}}) + "\n")
    (directory / "airbyte.messages").symlink_to(load.path)
    source = directory / "source-replay"
    source.write_text(REPLAY)
    source.chmod(0o755)


if __name__ == "__main__":
    main()

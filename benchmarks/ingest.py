"""What the driver does before Spark: protocol bytes to events, without and with the spool, against the CDK's own read loop.

Each way reads the same file in a fresh process, in turn; the figures are medians of MB/s of input by wall clock (and by CPU time, which
a busy machine disturbs less). `--stdin pipe` sends the file through `cat`, as a platform would. See docs/performance.md.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks import workload
from benchmarks.machine import describe_machine
from benchmarks.workload import Workload

WAYS = ("events", "events + spool", "CDK loop")


def main() -> None:
    arguments = _arguments()
    if arguments.way:
        _measure(arguments.way, arguments.catalog, arguments.spool_dir)
        return
    print(describe_machine())
    work = workload.prepare(arguments.size_mb, arguments.seed, dirty_share=0.0)
    records = sum(work.records.values())
    print(f"{work.size_bytes / 1e6:.0f} MB, {records} records of {work.size_bytes / records:.0f} bytes, stdin is a {arguments.stdin}")
    results: dict[str, list[dict[str, Any]]] = {way: [] for way in WAYS}
    for _ in range(arguments.repeat):
        for way in WAYS:
            results[way].append(_run(way, work, arguments.stdin, arguments.spool_dir))
    loop = _median(results["CDK loop"], "seconds")
    print(f"{'':<16}{'MB/s':>8}{'MB/s CPU':>10}{'peak MB':>9}{'x CDK loop':>12}")
    for way in WAYS:
        seconds, cpu = _median(results[way], "seconds"), _median(results[way], "cpu_seconds")
        peak = _median(results[way], "peak_mb")
        assert all(result["records"] == records for result in results[way]), f"{way} lost records"
        print(f"{way:<16}{work.size_bytes / 1e6 / seconds:>8.0f}{work.size_bytes / 1e6 / cpu:>10.0f}{peak:>9.0f}{loop / seconds:>12.1f}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size-mb", type=int, default=400)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--stdin", choices=("file", "pipe"), default="pipe")
    parser.add_argument("--spool-dir", default=None, help="where the spool lies; default: the system's temporary directory")
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    parser.add_argument("--catalog", help=argparse.SUPPRESS)
    return parser.parse_args()


def _median(results: list[dict[str, Any]], figure: str) -> float:
    return float(statistics.median(result[figure] for result in results))


def _run(way: str, work: Workload, stdin: str, spool_dir: str | None) -> dict[str, Any]:
    """One measurement in a process of its own; its clock starts after the imports."""
    command = [sys.executable, "-m", "benchmarks.ingest", "--way", way, "--catalog", str(work.catalog_path)]
    command += ["--spool-dir", spool_dir] if spool_dir else []
    with work.path.open("rb") as file:
        feeder = subprocess.Popen(["cat"], stdin=file, stdout=subprocess.PIPE) if stdin == "pipe" else None
        source = feeder.stdout if feeder else file
        result = subprocess.run(command, stdin=source, stdout=subprocess.PIPE, check=True)
        if feeder:
            feeder.wait()
    measured: dict[str, Any] = json.loads(result.stdout)
    return measured


def _measure(way: str, catalog_path: str, spool_dir: str | None) -> None:
    read = _cdk_reader() if way == "CDK loop" else _own_reader(way, catalog_path, spool_dir)
    started, cpu_started = time.perf_counter(), time.process_time()
    records = read()
    seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - cpu_started
    peak_kb = next(int(line.split()[1]) for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    print(json.dumps({"records": records, "seconds": seconds, "cpu_seconds": cpu_seconds, "peak_mb": peak_kb / 1024}))


def _own_reader(way: str, catalog_path: str, spool_dir: str | None) -> Any:
    from destination_s3_spark.engine.startup.shortcuts import prepare_process  # noqa: PLC0415 - the CDK's process must not pay for it

    prepare_process()  # as the connector does, before any import of numpy
    from destination_s3_spark.protocol.catalog import parse_catalog  # noqa: PLC0415
    from destination_s3_spark.protocol.messages import Records  # noqa: PLC0415
    from destination_s3_spark.protocol.reader import ProtocolReader, read_blocks  # noqa: PLC0415
    from destination_s3_spark.sync.spool import Spool  # noqa: PLC0415

    reader = ProtocolReader(parse_catalog(Path(catalog_path).read_bytes()))

    def read() -> int:
        return sum(event.records for event in reader.events(read_blocks(0)) if isinstance(event, Records))

    def read_and_spool() -> int:
        with tempfile.TemporaryDirectory(dir=spool_dir) as directory:
            spool, records = Spool(Path(directory) / "spool", limit_bytes=2**40), 0
            for event in reader.events(read_blocks(0)):
                if isinstance(event, Records):
                    spool.append(event)
                    records += event.records
            for stream in range(3):
                spool.cut(stream, spool.end(stream), 2, ())
            spool.close()
        return records

    return read_and_spool if way == "events + spool" else read


def _cdk_reader() -> Any:
    from airbyte_cdk.destinations import Destination  # noqa: PLC0415 - more than a second, not to be measured
    from airbyte_cdk.models import Type  # noqa: PLC0415

    class Reading(Destination):
        def check(self, logger: Any, config: Any) -> Any:
            raise NotImplementedError

        def write(self, config: Any, configured_catalog: Any, input_messages: Any) -> Any:
            raise NotImplementedError

    def read() -> int:
        lines = io.TextIOWrapper(os.fdopen(0, "rb"), encoding="utf-8")
        return sum(message.type == Type.RECORD for message in Reading()._parse_input_stream(lines))

    return read


if __name__ == "__main__":
    main()

"""How much memory and local disk a sync takes when STATE comes only at the very end: one checkpoint of many gigabytes, a spool of one.

The input is generated while it is sent. Measured are the resident memory of the connector's process tree and the disk space of its spool
directory. See docs/performance.md.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks import target
from benchmarks.machine import describe_machine
from benchmarks.process_tree import Sampler
from demo import shop
from demo.connector import COMMAND
from demo.shop import Shop

SPOOL_GB = 1


def main() -> None:
    """Parse the command line, run the sync, print what it took, and end with the sync's exit code."""
    args = _arguments()
    print(describe_machine())
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        with target.endpoint(args.endpoint, args.bucket, directory) as address:
            code = _measure(args, address, directory)
    sys.exit(code)


def _measure(args: argparse.Namespace, address: str, directory: Path) -> int:
    spool = directory / "spool"
    spool.mkdir()
    config, catalog, log = directory / "config.json", directory / "catalog.json", directory / "messages.log"
    source = Shop(args.seed, args.dirty_share, checkpoint_records=None)
    batching = {"spool_dir": str(spool), "max_spool_gb": SPOOL_GB}
    config.write_text(json.dumps({**target.config(address, args.bucket, "memory", args.raw_tables), "batching": batching}))
    catalog.write_text(json.dumps(source.catalog(dict.fromkeys(shop.MIX, "append"))))
    command = [*COMMAND, "write", "--config", str(config), "--catalog", str(catalog)]
    started = time.monotonic()
    sent = 0
    with log.open("wb") as messages:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=messages, stderr=messages)
        assert process.stdin is not None
        with Sampler(process.pid, spool) as sampler:
            try:
                with process.stdin:
                    for chunk in source.read(shop.records_for(int(args.size_gb * 10**9))):
                        process.stdin.write(chunk.lines)
                        sent += len(chunk.lines)
            except BrokenPipeError:
                print("the connector stopped reading early")
            code = process.wait()
    seconds = time.monotonic() - started
    states = sum(line.startswith(b'{"type":"STATE"') for line in log.read_bytes().splitlines())
    print(f"sent {sent / 1e9:.2f} GB in {seconds:.0f} s ({sent / 1e6 / seconds:.0f} MB/s), {states} STATE back, exit code {code}")
    print(f"peak RSS of the process tree {sampler.peak_rss_bytes / 1e6:.0f} MB, peak spool {sampler.peak_directory_bytes / 1e6:.0f} MB")
    if code != 0:
        print(log.read_text()[-3_000:])
    return code


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size-gb", type=float, default=5.0, help="how much to send (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=7, help="seed of the generator (default: %(default)s)")
    parser.add_argument("--dirty-share", type=float, default=0.01, help="share of records with a value that does not fit its type (0 to 1)")
    parser.add_argument("--raw-tables", choices=("on", "off"), default="on", help="whether raw tables are kept (default: %(default)s)")
    parser.add_argument(
        "--endpoint", help="an S3 endpoint to use instead of a local moto server; keys come from AWS_ACCESS_KEY_ID and so on"
    )
    parser.add_argument("--bucket", default="benchmark", help="bucket; must exist when --endpoint is given (default: %(default)s)")
    return parser.parse_args()


if __name__ == "__main__":
    main()

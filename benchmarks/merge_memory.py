"""A first load of ten times the memory limit, merged at once: the connector in a container that small, with one STATE at the very end.

The input is generated while it is sent. The limit is that of a memory cgroup, which the connector sees as its container's; where there
can be none, the process tree is only watched. See docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import boto3
import container
import invoices
import sync_run
import target
from container import Container
from invoices import Invoices
from machine import describe_machine
from sync_run import SyncRun
from table_log import Lake

ROWS_AT_ONCE = 1_000_000
"""How many keys are drawn at a time."""
KEYS_PER_ROW = 0.8
"""Of so many keys a row, 57 % are drawn at least once."""
LINE_BYTES = 368
WATCH_S = 0.5


def main() -> None:
    """Parse the command line, run the sync, print what it took, and end with the sync's exit code."""
    args = _arguments()
    print(describe_machine())
    print(f"load before: {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        with target.endpoint(args.endpoint, args.bucket, directory) as address:
            code = _measure(args, address, directory)
    sys.exit(code)

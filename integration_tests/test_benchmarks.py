"""The benchmarks run, and check their own results; how fast they are is not a matter of tests."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"

pytestmark = pytest.mark.slow


def run(program: str, arguments: list[str], scratch: Path) -> str:
    command = [sys.executable, str(BENCHMARKS / program), *arguments]
    environment = {**os.environ, "TMPDIR": str(scratch)}
    finished = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False, env=environment)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return finished.stdout


def test_append_vs_duckdb_compares_both_on_a_dirty_input(tmp_path: Path) -> None:
    output = run("append_vs_duckdb.py", ["--size-mb", "3", "--runs", "1", "--dirty-share", "0.01", "--raw-tables", "on"], tmp_path)

    assert re.search(r"^workload: 3 MB, 3,84\d records, seed 7, dirty 0.01$", output, re.MULTILINE)
    assert re.search(r"^ratio ours/DuckDB: \d+\.\d\d; median \d+\.\d\d$", output, re.MULTILINE)


def test_memory_and_spool_reports_what_one_long_checkpoint_took(tmp_path: Path) -> None:
    output = run("memory_and_spool.py", ["--size-gb", "0.003"], tmp_path)

    assert re.search(r"^sent 0\.00 GB .* 3 STATE back, exit code 0$", output, re.MULTILINE)
    memory, spool = map(int, re.search(r"process tree (\d+) MB, peak spool (\d+) MB", output).groups())  # type: ignore[union-attr]
    assert memory > 100
    assert spool >= 3

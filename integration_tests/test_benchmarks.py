"""The benchmarks run, and check their own results; how fast they are is not a matter of tests."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

pytestmark = pytest.mark.slow


def run(program: str, arguments: list[str], scratch: Path) -> str:
    command = [sys.executable, "-m", f"benchmarks.{program}", *arguments]
    environment = {**os.environ, "TMPDIR": str(scratch)}
    finished = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False, env=environment, cwd=ROOT)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return finished.stdout


def test_append_vs_duckdb_compares_both_on_a_dirty_input(tmp_path: Path) -> None:
    output = run("append_vs_duckdb", ["--size-mb", "3", "--runs", "1", "--dirty-share", "0.01", "--raw-tables", "on"], tmp_path)

    assert re.search(r"^workload: 3 MB, 3,84\d records, seed 7, dirty 0.01$", output, re.MULTILINE)
    assert re.search(r"^ratio ours/DuckDB: \d+\.\d\d; median \d+\.\d\d$", output, re.MULTILINE)


@pytest.mark.nightly
def test_memory_and_spool_reports_what_one_long_checkpoint_took(tmp_path: Path) -> None:
    output = run("memory_and_spool", ["--size-gb", "0.003"], tmp_path)

    assert re.search(r"^sent 0\.00 GB .* 3 STATE back, exit code 0$", output, re.MULTILINE)
    memory, spool = map(int, re.search(r"process tree (\d+) MB, peak spool (\d+) MB", output).groups())  # type: ignore[union-attr]
    assert memory > 100
    assert spool >= 3


@pytest.mark.nightly
def test_small_syncs_are_compared_with_a_bare_session(tmp_path: Path) -> None:
    output = run("small_syncs", ["--runs", "1", "--streams", "2", "5"], tmp_path)

    assert re.search(r"^2 streams / bare Spark session: \d+\.\d\d by the clock, \d+\.\d\d in CPU time$", output, re.MULTILINE)
    assert re.search(r"^5 streams / 2 streams: \d+\.\d\d by the clock, \d+\.\d\d in CPU time$", output, re.MULTILINE)


@pytest.mark.nightly
def test_forget_reports_what_it_reads(tmp_path: Path) -> None:
    output = run("forget", ["--rows", "20000", "--keys", "3", "--runs", "1"], tmp_path)

    assert re.search(r"^3 keys of a table of \d+ MB in \d+ files: \d+\.\d MB read, \d+\.\d%; 1 files to write anew", output, re.MULTILINE)


@pytest.mark.nightly
def test_scaling_reports_sizes_and_cores(tmp_path: Path) -> None:
    output = run("scaling", ["--sizes-mb", "2", "3"], tmp_path)

    assert len(re.findall(r"^ +[23] MB, [12] at once: .* CPU s, .* peak \d+ MB$", output, re.MULTILINE)) == 4
    assert re.search(r"^2 at once: .* CPU s \+ .* CPU s/GB, at most \d+% off that line$", output, re.MULTILINE)
    assert re.search(r"^3 MB: 2 at once are \d+\.\d\d times as fast as 1$", output, re.MULTILINE)


@pytest.mark.nightly
def test_peers_that_cannot_be_installed_are_said_to_be_skipped(tmp_path: Path) -> None:
    no_directory = tmp_path / "file"
    no_directory.touch()

    output = run("peers", ["--size-mb", "1", "--sample-mb", "1", "--cache", str(no_directory / "peers")], tmp_path)

    skipped = re.findall(r"^(.*?) +skipped: ", output, re.MULTILINE)
    assert skipped == ["dlt (rows)", "Singer target-jsonl", "Sling 1.4.11", "PyAirbyte to DuckDB"]


@pytest.mark.nightly
def test_merge_compares_updates_with_spark(tmp_path: Path) -> None:
    output = run("merge", ["--rows", "20000", "--runs", "1", "--driver-memory", "512m"], tmp_path)

    assert re.search(r"^table: 20,000 rows, 2 MB in \d files; ", output, re.MULTILINE)
    medians = output.split("medians\n")[1]
    assert re.search(r"^first load: a new table; 20,000 rows read, 11,\d{3} written; .* ratio \d+\.\d\d$", medians, re.MULTILINE)
    neighbours = re.search(
        r"^neighbouring keys: [\d.]+% of the bytes rewritten, [12] of \d files; ([\d,]+) rows read", medians, re.MULTILINE
    )
    assert neighbours is not None
    assert 200 < int(neighbours[1].replace(",", "")) <= 20_200
    assert re.search(
        r"^random keys: 100\.00% of the bytes rewritten, (\d) of \1 files; 20,200 rows read, 20,000 written", medians, re.MULTILINE
    )
    assert re.search(r"^new keys: .* 200 rows read, 200 written|^new keys: .* rows read, [\d,]+ written", medians, re.MULTILINE)


@pytest.mark.nightly
def test_merge_memory_reports_what_one_large_merge_took(tmp_path: Path) -> None:
    output = run("merge_memory", ["--factor", "0.003"], tmp_path)

    assert re.search(r"^sent 10,9\d\d rows, 4 MB, 0\.0 times the limit: 1 STATE back, exit code 0$", output, re.MULTILINE)
    assert re.search(r"^merged \d runs? of 10,9\d\d rows", output, re.MULTILINE)
    assert re.search(r"^into \d+ files of 6,\d{3} rows", output, re.MULTILINE)
    peak = re.search(
        r"^container of 1342 MB: peak \d+ MB with page cache, (\d+) MB without; \d+ times at the limit, 0 processes", output, re.MULTILINE
    )
    assert (peak is not None and 100 < int(peak[1]) < 1342) or "no memory limit: " in output

"""Worker processes of this machine: results, errors, and processes that die."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from destination_s3_spark.engine import local_workers
from destination_s3_spark.engine.local_workers import LocalWorkers
from destination_s3_spark.errors import Bug, DataError, TransientError


@pytest.fixture
def workers(monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalWorkers]:
    monkeypatch.setattr(local_workers, "oom_kills", lambda: 0)
    running = LocalWorkers(__name__, 2)
    yield running
    running.stop()


def double(number: int) -> tuple[int, int]:
    return 2 * number, os.getpid()


def fails(number: int) -> None:
    raise DataError("no") if number else ValueError("a record's text")


def dies(_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def dies_once(marker: Path) -> str:
    if not marker.exists():
        marker.touch()
        dies(None)
    return "done"


def test_tasks_run_in_other_processes_and_results_keep_their_shape(workers: LocalWorkers) -> None:
    results = workers.run(double, [[1, 2], [], [3]])

    assert [[number for number, _ in group] for group in results] == [[2, 4], [], [6]]
    assert os.getpid() not in {process for group in results for _, process in group}
    assert not workers.lost_attempts


def test_an_error_of_ours_passes_and_any_other_loses_its_text(workers: LocalWorkers) -> None:
    with pytest.raises(DataError, match="no"):
        workers.run(fails, [[1]])
    assert workers.lost_attempts
    with pytest.raises(Bug) as raised:
        workers.run(fails, [[0]])
    assert "record" not in raised.value.message


PARENT = f"""
import time
from {__name__} import LocalWorkers, double
if __name__ == "__main__":
    print([process for _, process in LocalWorkers("{__name__}", 2).run(double, [[1]])[0]], flush=True)
    time.sleep(60)
"""


def test_workers_end_with_the_process_that_started_them(tmp_path: Path) -> None:
    program = tmp_path / "parent.py"
    program.write_text(PARENT)
    with subprocess.Popen(
        [sys.executable, str(program)], stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": "."}
    ) as parent:
        assert parent.stdout is not None
        (worker,) = json.loads(parent.stdout.readline())
        parent.kill()
    psutil.wait_procs([psutil.Process(worker)] if psutil.pid_exists(worker) else [], timeout=30)
    assert not psutil.pid_exists(worker)


def test_a_batch_whose_worker_died_runs_again(workers: LocalWorkers, tmp_path: Path) -> None:
    assert workers.run(dies_once, [[tmp_path / "marker"]]) == [["done"]]
    assert workers.lost_attempts


def test_a_batch_whose_workers_die_each_time_is_given_up(workers: LocalWorkers) -> None:
    with pytest.raises(TransientError, match=r"its workers died 3 times\. Nothing after the last acknowledged STATE was kept"):
        workers.run(dies, [[None]])
    assert workers.run(double, [[1]])[0][0][0] == 2

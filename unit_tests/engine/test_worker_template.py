"""The fork of the driver that becomes Spark's daemon: what it has, what it leaves behind, and when it ends.

Each test is a program of its own, because a test run has threads.
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import psutil
import pytest

from destination_s3_spark.engine.startup.worker_template import fork_template

pytestmark = pytest.mark.slow

ENGINE = """
import logging, os, signal, sys
from pathlib import Path
import destination_s3_spark.tables.landing.land, pyspark
from destination_s3_spark.engine.engine import Engine
from destination_s3_spark.engine.session import SparkSettings
scratch = Path(sys.argv[1])
held = (scratch / "held").open("w")
logging.root.addHandler(logging.StreamHandler(sys.stdout))
signal.signal(signal.SIGTERM, lambda *_: print("the driver's handler"))
sys.modules["only_in_the_driver"] = sys
engine = Engine(SparkSettings(1, 512, scratch, {}), "destination_s3_spark.tables.landing.land")

def worker(_):
    import logging, os, signal, sys
    links = [f"/proc/self/fd/{file}" for file in os.listdir("/proc/self/fd")]
    files = [os.readlink(link) for link in links if os.path.exists(link)]
    imported = "only_in_the_driver" in sys.modules
    return imported, files, logging.root.handlers, signal.getsignal(signal.SIGTERM), os.getppid(), dict(os.environ)
"""
SLEEPER = """
import sys, time
from pathlib import Path
from destination_s3_spark.engine.startup.worker_template import fork_template

assert fork_template(Path(sys.argv[1]) / "template", lambda: time.sleep(600))
print("forked", flush=True)
"""
DEADLINE_S = 20


def program(*parts: str) -> list[str]:
    return [sys.executable, "-c", "".join(textwrap.dedent(part) for part in parts)]


def passes(directory: Path, *parts: str) -> None:
    done = subprocess.run([*program(*parts), str(directory)], input="", capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


def gone(process: psutil.Process) -> bool:
    until = time.monotonic() + DEADLINE_S
    while time.monotonic() < until:
        if not process.is_running() or process.status() == psutil.STATUS_ZOMBIE:
            return True
        time.sleep(0.05)
    return False


def test_workers_have_what_the_driver_imported_and_nothing_else_of_it(tmp_path: Path) -> None:
    check = """
    engine.session.launch()
    engine.session.fork_template()
    (((imported, files, handlers, terminated, daemon, environment),),) = engine.run(worker, [[0]])
    assert imported
    assert not [file for file in files if file == str(scratch / "held")], files
    assert os.readlink("/proc/self/fd/0") not in files, files
    assert os.readlink("/proc/self/fd/1") not in files, files
    assert handlers == [] and terminated == signal.SIG_DFL
    assert environment["SPARK_REUSE_WORKER"] == "1" and "SPARK_REUSE_WORKER" not in os.environ  # as Spark told its daemon
    assert os.getpgid(daemon) == daemon != os.getpgid(0)
    engine.stop()
    """
    passes(tmp_path, ENGINE, check)


def test_a_daemon_that_dies_is_followed_by_one_of_its_own_imports(tmp_path: Path) -> None:
    check = """
    engine.session.fork_template()
    (((imported, *_, daemon, _),),) = engine.run(worker, [[0]])
    assert imported
    os.killpg(daemon, signal.SIGKILL)
    (((imported, *_, next_daemon, _),),) = engine.run(worker, [[0]])
    assert not imported and next_daemon != daemon
    engine.stop()
    """
    passes(tmp_path, ENGINE, check)


def test_a_directory_may_have_a_longer_name_than_the_address_of_a_socket(tmp_path: Path) -> None:
    check = """
    here = os.getcwd()
    engine.session.fork_template()
    assert os.getcwd() == here
    (((imported, *_),),) = engine.run(worker, [[0]])
    assert imported
    engine.stop()
    """
    deep = tmp_path / ("d" * 108)
    deep.mkdir()
    passes(deep, ENGINE, check)


def test_a_process_with_threads_is_not_forked(tmp_path: Path) -> None:
    over = threading.Event()
    thread = threading.Thread(target=over.wait)
    thread.start()
    try:
        assert not fork_template(tmp_path / "template", lambda: None)
    finally:
        over.set()
        thread.join()


@pytest.mark.parametrize("end", ["", "import os; os._exit(1)", "os.kill(os.getpid(), 9)", "raise KeyboardInterrupt"])
def test_the_template_ends_with_the_driver(tmp_path: Path, end: str) -> None:
    with subprocess.Popen(
        [*program(SLEEPER, "import os\nsys.stdin.read()\n", end), str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as driver:
        assert driver.stdout is not None
        assert driver.stdout.readline() == b"forked\n"
        (template,) = psutil.Process(driver.pid).children()
        assert driver.stdin is not None
        driver.stdin.close()
        assert driver.stdout.read() == b""  # nobody else has it
    assert gone(template)


def test_signals_for_the_template_do_not_reach_what_the_driver_does_about_them(tmp_path: Path) -> None:
    handler = "import signal\nsignal.signal(signal.SIGTERM, lambda *_: print('handled', flush=True))\n"
    with subprocess.Popen(
        [*program(handler, SLEEPER, "sys.stdin.read()\n"), str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as driver:
        assert driver.stdout is not None
        assert driver.stdout.readline() == b"forked\n"
        (template,) = psutil.Process(driver.pid).children()
        os.kill(template.pid, 2)
        os.kill(template.pid, 15)
        assert gone(template)
        os.kill(driver.pid, 15)
        assert driver.stdout.readline() == b"handled\n"
        assert driver.stdin is not None
        driver.stdin.close()
